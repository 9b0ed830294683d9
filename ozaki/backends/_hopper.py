"""Residue products by the library's own kernel for Hopper: reduced in registers, one launch for all moduli."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends._jit import kernel
from ozaki.backends._launch import round_up
from ozaki.backends._recombine import recombine
from ozaki.backends._split import Layout, Slices, accumulator_moduli
from ozaki.schemes import Residues, Scheme
from ozaki.schemes.residues import ACCUMULATOR_DEPTH

label = "fused int8 kernel"

_ROWS, _COLS, _DEPTH = 256, 192, 128
"""A tile, as in kernels/residue_gemm_sm90.cu."""

_CLUSTER_ROWS = 2 * _ROWS
_SHARED = 4 * (_ROWS + _COLS) * _DEPTH + 1024
_GROUP = 4
"""Row-tile pairs walked together (2, 4, 6, 8 measured on an H200: within two per cent)."""


@cache
def layout(scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
    """Slices in tiles, the columns of a tile permuted; at least two blocks of k."""
    tile, unit = (_ROWS, _CLUSTER_ROWS) if side == "left" else (_COLS, _COLS)
    rows, k = round_up(rows, unit), max(round_up(k, _DEPTH), 2 * _DEPTH)
    each = rows * k
    return Layout(rows, k, each, k, batch * each, k, 0, scheme.count * batch * each, unit, tile, side == "right")


def workspace(scheme: Scheme, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices."""
    return scheme.count * rows * round_up(cols, _COLS)


def multiply(scheme: Scheme, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (batch, m, n); returns the bytes of workspace."""
    assert isinstance(scheme, Residues)
    batch, m, n = out.shape
    rows, cols, blocks = round_up(m, _CLUSTER_ROWS), round_up(n, _COLS), a.layout.k // _DEPTH
    planes = cp.empty((scheme.count, batch, m, cols), np.uint8)
    call, grid = compiled(cp.cuda.runtime.getDevice())
    tiles = np.array([rows // _CLUSTER_ROWS, cols // _COLS, _GROUP, batch], np.int32).view("V16")
    work = scheme.count * batch * (rows // _CLUSTER_ROWS) * (cols // _COLS)
    steps = [x.layout.batch if x.mu.shape[0] > 1 else 0 for x in (a, b)]
    deepest = ACCUMULATOR_DEPTH // _DEPTH
    # The kernel works on two blocks of k at least, so what is left over for the last launch is never less.
    pieces = -(-blocks // deepest)
    bounds = [blocks * i // pieces for i in range(pieces + 1)]
    for first, last in pairwise(bounds):
        call(
            grid,
            (384,),
            (
                np.uint64(a.of_batch(0) + first * _ROWS * _DEPTH), np.int64(a.layout.slice), np.int64(steps[0]),
                np.uint64(b.of_batch(0) + first * _COLS * _DEPTH), np.int64(b.layout.slice), np.int64(steps[1]),
                planes, np.int64(batch * m * cols), np.int64(m * cols), np.int64(cols), np.int64(m),
                np.int32(last - first), np.int32(blocks), np.int32(work), tiles, np.int32(first > 0),
                accumulator_moduli(scheme),
            ),
            shared_mem=_SHARED,
        )  # fmt: skip
    recombine(scheme, planes, a.mu, b.mu, out)
    return int(planes.nbytes)


@cache
def compiled(device: int) -> tuple[Any, tuple[int]]:
    """The kernel, and a grid of one cluster for each pair of multiprocessors."""
    call = kernel("residue_gemm_sm90.cu", "residue_gemm")
    call.max_dynamic_shared_size_bytes = _SHARED
    return call, (cp.cuda.runtime.getDeviceProperties(device)["multiProcessorCount"] // 2 * 2,)
