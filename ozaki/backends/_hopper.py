"""Slice products by the library's own kernels for Hopper: what is left of them in registers, in one launch.

Residues leave bytes, which are recombined; digits the result itself.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends._jit import kernel
from ozaki.backends._launch import ctype, round_up
from ozaki.backends._recombine import recombine
from ozaki.backends._split import Layout, Slices, accumulator_moduli
from ozaki.schemes import Digits, Residues, Scheme
from ozaki.schemes.residues import ACCUMULATOR_DEPTH

label = "fused int8 kernel"

_ROWS, _COLS, _DEPTH = 256, 192, 128
"""A tile, as in kernels/ring_sm90.cuh."""

_CLUSTER_ROWS = 2 * _ROWS
_SHARED = 4 * (_ROWS + _COLS) * _DEPTH + 1024
_GROUP = 4
"""Row-tile pairs walked together (2, 4, 6, 8 measured on an H200: within two per cent)."""


_MOST_DIGITS = 7
"""As kernels/diagonals.cuh joins them."""


def fits(scheme: Scheme, k: int) -> bool:
    """Whether there is a kernel for these slices: digits need accumulators that never overflow."""
    if isinstance(scheme, Residues):
        return True
    deepest = scheme.depth(2**31 - 2 ** (31 - scheme.bits) - 4)
    return scheme.count <= _MOST_DIGITS and max(round_up(k, _DEPTH), 2 * _DEPTH) <= deepest


@cache
def layout(scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
    """Slices in tiles, the columns of a tile permuted; at least two blocks of k."""
    tile, unit = (_ROWS, _CLUSTER_ROWS) if side == "left" else (_COLS, _COLS)
    rows, k = round_up(rows, unit), max(round_up(k, _DEPTH), 2 * _DEPTH)
    each = rows * k
    return Layout(rows, k, each, k, batch * each, k, 0, scheme.count * batch * each, unit, tile, side == "right")


def workspace(scheme: Scheme, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices."""
    if isinstance(scheme, Digits):
        return _digit_bytes(scheme, _grid(cp.cuda.runtime.getDevice()))
    return scheme.count * rows * round_up(cols, _COLS)


def multiply(scheme: Scheme, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
    return _residues(scheme, a, b, out) if isinstance(scheme, Residues) else _digits(scheme, a, b, out)


def _residues(scheme: Residues, a: Slices, b: Slices, out: Any) -> int:
    batch, m, n = out.shape
    cols, blocks = round_up(n, _COLS), a.layout.k // _DEPTH
    planes = cp.empty((scheme.count, batch, m, cols), np.uint8)
    call, grid = compiled(cp.cuda.runtime.getDevice(), "residue_gemm")
    tiles, work = _tiles(out)
    deepest = ACCUMULATOR_DEPTH // _DEPTH
    # The kernel works on two blocks of k at least, so what is left over for the last launch is never less.
    pieces = -(-blocks // deepest)
    bounds = [blocks * i // pieces for i in range(pieces + 1)]
    for first, last in pairwise(bounds):
        call(
            (grid,),
            (384,),
            (
                _operand(a, first * _ROWS * _DEPTH), _operand(b, first * _COLS * _DEPTH), planes,
                np.int64(batch * m * cols), np.int64(m * cols), np.int64(cols), np.int64(m), np.int32(last - first),
                np.int32(blocks), np.int32(scheme.count * work), tiles, np.int32(first > 0),
                accumulator_moduli(scheme),
            ),
            shared_mem=_SHARED,
        )  # fmt: skip
    recombine(scheme, planes, a.mu, b.mu, out)
    return int(planes.nbytes)


def _digits(scheme: Digits, a: Slices, b: Slices, out: Any) -> int:
    _, m, n = out.shape
    call, grid = compiled(
        cp.cuda.runtime.getDevice(), "digit_gemm", OUTPUT=ctype(out.dtype), SLICES=scheme.count, DIGIT_BITS=scheme.bits
    )
    low = cp.empty(_digit_bytes(scheme, grid), np.uint8)
    tiles, work = _tiles(out)
    steps = [x.mu.shape[1] if x.mu.shape[0] > 1 else 0 for x in (a, b)]
    strides = [x // out.itemsize for x in out.strides[:2]]
    result = np.array(
        [out.data.ptr, *strides, a.mu.data.ptr, b.mu.data.ptr, *steps, m | n << 32], np.int64
    ).view("V64")  # fmt: skip
    blocks = np.int32(a.layout.k // _DEPTH)
    call((grid,), (384,), (_operand(a), _operand(b), result, low, blocks, np.int32(work), tiles), shared_mem=_SHARED)
    return int(low.nbytes)


def _tiles(out: Any) -> tuple[Any, int]:
    """The struct Tiles, and the number of pairs of tiles."""
    batch, m, n = out.shape
    pairs, columns = -(-m // _CLUSTER_ROWS), -(-n // _COLS)
    return np.array([pairs, columns, _GROUP, batch], np.int32).view("V16"), batch * pairs * columns


def _operand(slices: Slices, first: int = 0) -> Any:
    """The struct Operand, from byte `first` on."""
    layout = slices.layout
    step = layout.batch if slices.mu.shape[0] > 1 else 0
    return np.array([slices.parts.data.ptr + first, layout.slice, step], np.int64).view("V24")


def _digit_bytes(scheme: Digits, grid: int) -> int:
    """Digits of a tile that each block keeps aside."""
    return grid * _ROWS * _COLS * max(scheme.count - 1, 1)


@cache
def _grid(device: int) -> int:
    """A block for each multiprocessor, an even number of them."""
    return int(cp.cuda.runtime.getDeviceProperties(device)["multiProcessorCount"]) // 2 * 2


@cache
def compiled(device: int, name: str, **macros: str | int) -> tuple[Any, int]:
    """The kernel, and the blocks that it is launched with."""
    call = kernel(f"{name}_sm90.cu", name, **macros)
    call.max_dynamic_shared_size_bytes = _SHARED
    return call, _grid(device)
