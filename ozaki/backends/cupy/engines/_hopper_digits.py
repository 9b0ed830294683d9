"""Digits by the library's own kernels for Hopper: diagonals added, joined and rounded in registers."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.cupy._split import Slices
from ozaki.backends.cupy.engines._hopper_shares import digit_shares, few_digit_shares
from ozaki.backends.cupy.engines._hopper_tiles import (
    DEPTH,
    SHARED,
    Operand,
    blocks_of,
    clusters_of,
    few,
    group,
    tile,
    together,
)
from ozaki.backends.cupy.launching._launch import Launch, Macros, Together, View, output, struct
from ozaki.backends.cupy.launching._tape import cleared
from ozaki.schemes import Digits

_FAR_REGION = 128
"""Rows and columns that a block looks after, as in kernels/products/digit_far_sm90.cu."""

_FLAGS = 4 * 2 * 1024
"""Bytes of flags, two for each block of the largest grid."""


def workspace(scheme: Digits) -> int:
    """Bytes at most, for products of any size."""
    return sum(_kept_aside(scheme, clusters_of(cp.cuda.runtime.getDevice()), True))


def multiply(scheme: Digits, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T; returns the bytes of workspace."""
    device = cp.cuda.runtime.getDevice()
    views = a.operand, b.operand, a.layout.k // DEPTH, View.of(out), a.mu_step, b.mu_step
    aside, beginning, launch = _gemm(device, scheme, *views)
    memory = [cp.cuda.alloc(size) if size else None for size in aside]
    flags = cleared(_FLAGS) if aside[-1] else None
    slices, exponents = (a.planes.data, b.planes.data), (a.mu.data, b.mu.data)
    spare = out.data  # for what is not used
    launch(*slices, out.data, *exponents, *(x or spare for x in (*memory, flags)), *beginning.arrays())
    if out.dtype == np.float64:
        _far(device, scheme, *views)(*slices, out.data, *exponents)
    return sum(aside)


@lru_cache(maxsize=1024)
def _gemm(
    device: int, scheme: Digits, a: Operand, b: Operand, blocks: int, out: View, mu_step: int, nu_step: int
) -> tuple[tuple[int, ...], Together, Launch]:
    """The bytes that it keeps aside, the last of what is handed over, what clusters begin together, and the launch."""
    batch, m, n = out.shape
    tile_rows, tile_cols = tile(scheme)
    rows, columns = -(-m // (2 * tile_rows)), -(-n // tile_cols)
    work = batch * rows * columns
    clusters, whole, sharers = _shares(scheme, work, blocks, clusters_of(device))
    beginning = together(whole, clusters, blocks)
    macros: Macros = {"OUTPUT": out.ctype, "SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    tiles = struct([rows, columns, group(2 * tile_rows, blocks), batch])
    aside, name = _kept_aside(scheme, clusters, whole < work), "digit" if few(scheme) else "diagonal"
    launch = Launch(
        f"products/{name}_gemm_sm90.cu", f"{name}_gemm", macros, (2 * clusters,), (384,), a, b,
        output(out, mu_step, nu_step), *(None for _ in aside), None, blocks,
        struct([whole, work - whole, sharers]), tiles, beginning.struct, shared_mem=SHARED,
    )  # fmt: skip
    return aside, beginning, launch


@lru_cache(maxsize=1024)
def _far(
    device: int, scheme: Digits, a: Operand, b: Operand, blocks: int, out: View, mu_step: int, nu_step: int
) -> Launch:
    """What the kernel leaves: subnormal float64 results."""
    batch, m, n = out.shape
    macros: Macros = {"SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    grid = (batch * ceil(m / _FAR_REGION) * ceil(n / _FAR_REGION),)
    return Launch(
        "products/digit_far_sm90.cu", "digit_far", macros, grid, (256,), a, b, None, None, None, *out.steps[:2],
        mu_step, nu_step, m, n, blocks,
    )  # fmt: skip


def _kept_aside(scheme: Digits, clusters: int, split: bool) -> tuple[int, ...]:
    """Bytes of digits that blocks keep aside, where they do, and of what they hand over."""
    tile_rows, tile_cols = tile(scheme)
    entries = 2 * clusters * tile_rows * tile_cols
    handed_over = entries * (scheme.count + 3) if split else 0
    return (handed_over,) if few(scheme) else (entries * (scheme.count - 1), handed_over)


def _shares(scheme: Digits, tiles: int, blocks: int, clusters: int) -> tuple[int, int, int]:
    return few_digit_shares(tiles, blocks, clusters) if few(scheme) else digit_shares(tiles, blocks, scheme, clusters)


def occupied(scheme: Digits, batch: int, m: int, k: int, n: int) -> float:
    """Entries of each slice product that would keep all clusters busy for as long as a product does."""
    clusters, (rows, cols) = clusters_of(cp.cuda.runtime.getDevice()), tile(scheme)
    tiles = batch * -(-m // (2 * rows)) * -(-n // cols)
    _, whole, sharers = _shares(scheme, tiles, blocks_of(k), clusters)
    last = (tiles - whole) / sharers if sharers else 0
    return clusters * (-(-whole // clusters) + last) * 2 * rows * cols
