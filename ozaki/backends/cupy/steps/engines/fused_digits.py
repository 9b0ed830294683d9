"""Digits by the library's own int8 kernels."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import DIGITS
from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.backends.cupy.program.arrays import View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, output, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.engines.engine import rounded_by
from ozaki.backends.cupy.steps.engines.shares import digit_shares, few_digit_shares
from ozaki.backends.cupy.steps.engines.tiled import LABEL, Operand, Tiled, Together, group, layout, together
from ozaki.backends.cupy.steps.epilogue import Epilogue
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.caches import cached
from ozaki.schemes import Digits

_MOST_DIGITS = 7
"""Digits that kernels/arithmetic/diagonals.cuh joins at most."""

_FEW_DIGITS = 3
"""Digits at most for which a thread has accumulators for all diagonals."""

_FAR_REGION = 128
"""Rows and columns that a block looks after, as in kernels/products/digit_far_sm90.cu."""

_FLAGS = 4 * 2 * 1024
"""Bytes of flags, two for each block of the largest grid."""


@dataclass(frozen=True)
class FusedDigits(Tiled):
    """The kernels that add diagonals, join and round them in registers, and leave the result itself."""

    keeps: ClassVar[bool] = False
    label: str = LABEL

    def layout(self, scheme: Digits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: in tiles."""
        tiles = self.device.tiles
        tile = _tile_of(tiles, scheme)[side == "right"]
        return layout(tiles, scheme.count, side, batch, rows, k, tile, neighbours=4, in_pairs=_few(scheme))

    def workspace(self, scheme: Digits, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices at most, for products of any size."""
        return sum(_kept_aside(self.device.tiles, scheme, self.device.clusters, True))

    def multiply(self, b: Builder, scheme: Digits, left: Slices, right: Slices, epilogue: Epilogue) -> None:
        """Left right^T, shape (batch, m, n), rounded in registers: the kernels take no other epilogue."""
        out = rounded_by(epilogue)
        blocks = left.layout.k // self.device.tiles.depth
        views = left.operand, right.operand, blocks, out.view, left.mu_step, right.mu_step
        aside, beginning, kernel = _gemm(self.device, scheme, *views)
        memory = [b.buffer("digits aside", size) if size else None for size in aside]
        flags = b.zeroed("flags", _FLAGS) if aside[-1] else None
        counters = beginning.counter(b)
        slices, exponents = (left.planes, right.planes), (left.mu, right.mu)
        given = [Out(out.at if each is None else each) for each in (*memory, flags)]  # any address, where none is used
        b.launch(kernel, *slices, Out(out), *exponents, *given, *map(Out, counters))
        b.release(*(each for each in (*memory, flags, *counters) if each is not None))
        if out.dtype.char == "d":
            b.launch(far(scheme, *views), *slices, Out(out), *exponents)

    def seconds(self, scheme: Digits, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data."""
        rates = self.device.rates
        each = rates.fused(batch * m * n, self.busy_entries(scheme, batch, m, k, n))
        return rates.slices(batch, m, k, n, dtype, scheme, operation_ps=each, product_bytes=0, reads=2, planned=DIGITS)

    def busy_entries(self, scheme: Digits, batch: int, m: int, k: int, n: int) -> float:
        """The product's time, as the number of entries that a fully occupied device computes in it."""
        tiles, clusters = self.device.tiles, self.device.clusters
        rows, cols = _tile_of(tiles, scheme)
        work = batch * -(-m // (2 * rows)) * -(-n // cols)
        _, whole, sharers = _shares(scheme, work, tiles.blocks(k), clusters)
        last = (work - whole) / sharers if sharers else 0
        return clusters * (-(-whole // clusters) + last) * 2 * rows * cols


def multiplies(device: Device, scheme: Digits, k: int) -> bool:
    """Whether the kernels take these digits: few enough, and k so small that no accumulator overflows."""
    tiles = device.tiles
    deepest = scheme.depth(2**31 - 2 ** (31 - scheme.bits) - 4)
    return scheme.count <= _MOST_DIGITS and tiles.depth * tiles.blocks(k) <= deepest


def _few(scheme: Digits) -> bool:
    """Whether all diagonals are summed at once."""
    return scheme.count <= _FEW_DIGITS


def _tile_of(tiles: Tiles, scheme: Digits) -> tuple[int, int]:
    """Rows and columns of a tile of the result."""
    return (tiles.few_digits_side, tiles.few_digits_side) if _few(scheme) else (tiles.rows, tiles.columns)


@cached(1024)
def _gemm(
    device: Device, scheme: Digits, a: Operand, b: Operand, blocks: int, out: View, mu_step: int, nu_step: int
) -> tuple[tuple[int, ...], Together, Kernel]:
    """Bytes of `_kept_aside`, 0 for what is not kept; how clusters begin tiles together; the launch."""
    tiles = device.tiles
    batch, m, n = out.shape
    tile_rows, tile_cols = _tile_of(tiles, scheme)
    rows, columns = -(-m // (2 * tile_rows)), -(-n // tile_cols)
    work = batch * rows * columns
    clusters, whole, sharers = _shares(scheme, work, blocks, device.clusters)
    beginning = together(whole, clusters, blocks)
    macros: Macros = {"OUTPUT": out.dtype.ctype, "SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    walk = struct([rows, columns, group(tiles, 2 * tile_rows, blocks), batch])
    aside, name = _kept_aside(tiles, scheme, clusters, whole < work), "digit" if _few(scheme) else "diagonal"
    kernel = Kernel.of(
        f"products/{name}_gemm_sm90.cu", f"{name}_gemm", macros, (2 * clusters,), (384,), a, b,
        output(out, mu_step, nu_step), *(None for _ in aside), None, blocks,
        struct([whole, work - whole, sharers]), walk, beginning.struct, shared_mem=tiles.shared_mem,
    )  # fmt: skip
    return aside, beginning, kernel


@cached(1024)
def far(scheme: Digits, a: Operand, b: Operand, blocks: int, out: View, mu_step: int, nu_step: int) -> Kernel:
    """The launch that computes the float64 results that `_gemm` leaves out, since they may not be normal numbers."""
    batch, m, n = out.shape
    macros: Macros = {"SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    grid = (batch * ceil(m / _FAR_REGION) * ceil(n / _FAR_REGION),)
    return Kernel.of(
        "products/digit_far_sm90.cu", "digit_far", macros, grid, (256,), a, b, None, None, None, *out.steps[:2],
        mu_step, nu_step, m, n, blocks,
    )  # fmt: skip


def _kept_aside(tiles: Tiles, scheme: Digits, clusters: int, split: bool) -> tuple[int, ...]:
    """Bytes of the digits that blocks keep aside, of many digits alone; and of what they hand over.

    `split`: whether tiles are split along k, so that anything is handed over.
    """
    tile_rows, tile_cols = _tile_of(tiles, scheme)
    entries = 2 * clusters * tile_rows * tile_cols
    handed_over = entries * (scheme.count + 3) if split else 0
    return (handed_over,) if _few(scheme) else (entries * (scheme.count - 1), handed_over)


def _shares(scheme: Digits, tiles: int, blocks: int, clusters: int) -> tuple[int, int, int]:
    return few_digit_shares(tiles, blocks, clusters) if _few(scheme) else digit_shares(tiles, blocks, scheme, clusters)
