"""Residues by the library's own kernel for Hopper: bytes y_t of all moduli in one launch, and their recombination."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.cupy._recombine import recombine
from ozaki.backends.cupy._split import Slices, accumulator_moduli
from ozaki.backends.cupy.engines import _halves
from ozaki.backends.cupy.engines._halves import Places
from ozaki.backends.cupy.engines._hopper_shares import DEEPEST, columns, of_parts, parts_of_k
from ozaki.backends.cupy.engines._hopper_tiles import (
    COLS,
    DEPTH,
    ROWS,
    SHARED,
    Operand,
    blocks_of,
    clusters_of,
    group,
    together,
)
from ozaki.backends.cupy.launching._launch import Launch, Macros, Together, round_up, struct
from ozaki.schemes import Residues

_LARGE = 420_000_000_000
"""Products of bytes from which on places are by halves (float64 from 3200 on, float32 from 4000): the count of places
is cleared between two kernels that overlap else, which takes 5 microseconds (H200: the kernel of 14 residues gains 1 of
28 microseconds at 1024, 2 to 5 of 175 at 2048, 23 to 29 of 1260 at 4096)."""


def workspace(scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
    """Bytes of the y_t."""
    clusters = clusters_of(cp.cuda.runtime.getDevice())
    parts = parts_of_k(clusters, scheme.count, batch, rows, cols, blocks_of(k))
    return parts * scheme.count * batch * rows * round_up(cols, 2 * COLS)


def multiply(scheme: Residues, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T; returns the bytes of workspace."""
    planes = products(scheme, a, b, a.operand, b.operand, out.shape)
    recombine(scheme, planes[:, : out.shape[0]], a.mu, b.mu, out)
    return int(planes.nbytes)


def products(scheme: Residues, a: Slices, b: Slices, at_a: Operand, at_b: Operand, shape: tuple[int, int, int]) -> Any:
    """The bytes y_t of products of that shape (batch, m, n): the first of (moduli, batch or more, m, columns or more).

    Columns in pairs of tiles.
    """
    batch, m, n = shape
    device, blocks = cp.cuda.runtime.getDevice(), a.layout.k // DEPTH
    parts = parts_of_k(clusters_of(device), scheme.count, batch, m, n, blocks)
    planes = cp.empty((scheme.count, parts * batch, m, round_up(n, 2 * COLS)), np.uint8)

    def launch(first: int, last: int, parts: int) -> None:
        """Products of blocks first .. last of k, or, in as many entries of the planes, of parts of them."""
        each = (last - first) // parts
        large = scheme.count * parts * batch * m * planes.shape[3] * each * DEPTH >= _LARGE
        places = _halves.places(device) if large else Places()
        if parts > 1:
            operands = (None, at_a[1], each * ROWS * DEPTH), (None, at_b[1], each * COLS * DEPTH)
        else:
            operands = at_a, at_b
        beginning, run = _gemm(
            device, scheme, operands, (blocks, each, first > 0), (parts * batch, m, n), planes.shape[1], places
        )
        slices = a.planes.data + first * ROWS * DEPTH, b.planes.data + first * COLS * DEPTH
        run(*slices, planes.data, *beginning.arrays(), *places.arrays())

    if parts > 1:
        each, rest = of_parts(blocks, parts)
        launch(0, parts * each, parts)
        if rest > 0:
            launch(parts * each, blocks, 1)
        _summing(device, scheme, parts, m * planes.shape[3])(planes.data)
    else:
        # The kernel works on two blocks of k at least, so what is left over for the last launch is never less.
        pieces = -(-blocks // DEEPEST)
        for first, last in pairwise([blocks * i // pieces for i in range(pieces + 1)]):
            launch(first, last, 1)
    return planes


@lru_cache(maxsize=1024)
def _gemm(
    device: int,
    scheme: Residues,
    operands: tuple[Operand, Operand],
    depth: tuple[int, int, bool],
    shape: tuple[int, int, int],
    entries: int,
    places: Places,
) -> tuple[Together, Launch]:
    """Of so many of the blocks that operands have, added to what is there or not, where planes have so many entries."""
    (blocks, taken, add), (batch, m, n) = depth, shape
    cols, (grid, wide, *walk) = round_up(n, 2 * COLS), tiles_of(device, scheme.count, batch, (m,), n, blocks)
    beginning = together(wide, grid // 2, taken)
    macros: Macros = {"ACCUMULATE": int(add)}
    launch = Launch(
        "products/residue_gemm_sm90.cu", "residue_gemm", macros, (grid,), (384,), *operands, None, entries * m * cols,
        m * cols,
        cols, m, taken, blocks, beginning.struct, places.struct, *walk,
        accumulator_moduli(scheme, unsigned=True), shared_mem=SHARED,
    )  # fmt: skip
    return beginning, launch


@lru_cache(maxsize=1024)
def _summing(device: int, scheme: Residues, parts: int, entries: int) -> Launch:
    grid, moduli = (ceil(entries / 4096), scheme.count), accumulator_moduli(scheme, unsigned=True)
    return Launch("conversion/sum_parts.cu", "sum_parts", {}, grid, (256,), None, entries, parts, moduli)


def tiles_of(
    device: int, matrices: int, batch: int, rows: tuple[int, ...], n: int, blocks: int
) -> tuple[int, int, *tuple[Any, ...]]:
    """The grid, wide pairs, and the structs Work and, for so many rows each, Tiles of kernels/products/walk_sm90.cuh.

    Of so many products of each batch entry; `blocks`: of k.
    """
    clusters = clusters_of(device)
    tiles = [-(-m // ROWS) for m in rows]
    pairs, _, light = columns(n, matrices * batch * sum(tiles), clusters, blocks)
    wide, narrow = (matrices * batch * sum(tiles) * each for each in pairs)
    work = struct([wide, narrow, light, pairs[1]])
    return 2 * clusters, wide, work, *(struct([each, pairs[0], group(ROWS, blocks), batch]) for each in tiles)


def occupied(scheme: Residues, batch: int, m: int, k: int, n: int) -> float:
    """Entries of each slice product that would keep all clusters busy for as long as a product does."""
    clusters, blocks = clusters_of(cp.cuda.runtime.getDevice()), blocks_of(k)
    parts = parts_of_k(clusters, scheme.count, batch, m, n, blocks)
    _, end, _ = columns(n, scheme.count * batch * parts * -(-m // ROWS), clusters, blocks // parts)
    return clusters * end * 2 * ROWS / (scheme.count * parts)
