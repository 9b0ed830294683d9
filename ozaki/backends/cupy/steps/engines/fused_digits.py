"""Digits by the library's own kernels: diagonals added, joined and rounded in registers."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, output, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.engines.shares import digit_shares, few_digit_shares
from ozaki.backends.cupy.steps.engines.tiled import (
    Operand,
    Together,
    few,
    group,
    tile_of,
    tiles_of,
    together,
)
from ozaki.backends.cupy.steps.operands import Slices
from ozaki.schemes import Digits

_FAR_REGION = 128
"""Rows and columns that a block looks after, as in kernels/products/digit_far_sm90.cu."""

_FLAGS = 4 * 2 * 1024
"""Bytes of flags, two for each block of the largest grid."""


def workspace(device: Device, scheme: Digits) -> int:
    """Bytes at most, for products of any size."""
    return sum(_kept_aside(tiles_of(device), scheme, device.clusters, True))


def multiply(b: Builder, device: Device, scheme: Digits, left: Slices, right: Slices, out: Array) -> None:
    """out = left right^T, shape (batch, m, n)."""
    blocks = left.layout.k // tiles_of(device).depth
    views = left.operand, right.operand, blocks, out.view, left.mu_step, right.mu_step
    aside, beginning, kernel = _gemm(device, scheme, *views)
    memory = [b.buffer("digits aside", size) if size else None for size in aside]
    flags = b.zeroed("flags", _FLAGS) if aside[-1] else None
    counters = beginning.counter(b)
    slices, exponents = (left.planes, right.planes), (left.mu, right.mu)
    given = [Out(out.at if each is None else each) for each in (*memory, flags)]  # something for what is not used
    b.launch(kernel, *slices, Out(out.at), *exponents, *given, *map(Out, counters))
    b.release(*(each for each in (*memory, flags, *counters) if each is not None))
    if out.char == "d":
        b.launch(far(device, scheme, *views), *slices, Out(out.at), *exponents)


@lru_cache(maxsize=1024)
def _gemm(
    device: Device, scheme: Digits, a: Operand, b: Operand, blocks: int, out: View, mu_step: int, nu_step: int
) -> tuple[tuple[int, ...], Together, Kernel]:
    """The bytes that it keeps aside, the last of what is handed over, what clusters begin together, and the launch."""
    tiles = tiles_of(device)
    batch, m, n = out.shape
    tile_rows, tile_cols = tile_of(tiles, scheme)
    rows, columns = -(-m // (2 * tile_rows)), -(-n // tile_cols)
    work = batch * rows * columns
    clusters, whole, sharers = _shares(scheme, work, blocks, device.clusters)
    beginning = together(whole, clusters, blocks)
    macros: Macros = {"OUTPUT": out.ctype, "SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    walk = struct([rows, columns, group(tiles, 2 * tile_rows, blocks), batch])
    aside, name = _kept_aside(tiles, scheme, clusters, whole < work), "digit" if few(scheme) else "diagonal"
    kernel = Kernel.of(
        f"products/{name}_gemm_sm90.cu", f"{name}_gemm", macros, (2 * clusters,), (384,), a, b,
        output(out, mu_step, nu_step), *(None for _ in aside), None, blocks,
        struct([whole, work - whole, sharers]), walk, beginning.struct, shared_mem=tiles.shared_mem,
    )  # fmt: skip
    return aside, beginning, kernel


@lru_cache(maxsize=1024)
def far(
    device: Device, scheme: Digits, a: Operand, b: Operand, blocks: int, out: View, mu_step: int, nu_step: int
) -> Kernel:
    """What the kernel leaves: subnormal float64 results."""
    batch, m, n = out.shape
    macros: Macros = {"SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    grid = (batch * ceil(m / _FAR_REGION) * ceil(n / _FAR_REGION),)
    return Kernel.of(
        "products/digit_far_sm90.cu", "digit_far", macros, grid, (256,), a, b, None, None, None, *out.steps[:2],
        mu_step, nu_step, m, n, blocks,
    )  # fmt: skip


def _kept_aside(tiles: Tiles, scheme: Digits, clusters: int, split: bool) -> tuple[int, ...]:
    """Bytes of digits that blocks keep aside, where they do, and of what they hand over."""
    tile_rows, tile_cols = tile_of(tiles, scheme)
    entries = 2 * clusters * tile_rows * tile_cols
    handed_over = entries * (scheme.count + 3) if split else 0
    return (handed_over,) if few(scheme) else (entries * (scheme.count - 1), handed_over)


def _shares(scheme: Digits, tiles: int, blocks: int, clusters: int) -> tuple[int, int, int]:
    return few_digit_shares(tiles, blocks, clusters) if few(scheme) else digit_shares(tiles, blocks, scheme, clusters)


def occupied(device: Device, scheme: Digits, batch: int, m: int, k: int, n: int) -> float:
    """Entries of each slice product that would keep all clusters busy for as long as a product does."""
    tiles, clusters = tiles_of(device), device.clusters
    rows, cols = tile_of(tiles, scheme)
    work = batch * -(-m // (2 * rows)) * -(-n // cols)
    _, whole, sharers = _shares(scheme, work, tiles.blocks(k), clusters)
    last = (work - whole) / sharers if sharers else 0
    return clusters * (-(-whole // clusters) + last) * 2 * rows * cols
