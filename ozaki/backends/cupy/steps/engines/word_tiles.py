"""Words in tiles, as wgmma reads them: where they lie, how wide a tile is to be, and what their engines share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, output, struct
from ozaki.backends.cupy.steps import one_read
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.words import split_words, width
from ozaki.caches import cached
from ozaki.schemes import Words

ROWS, DEPTH = 128, 128
"""Rows of a tile, and bytes of k that a stage of the ring has of each row (kernels/words/word_ring_sm90.cuh)."""

STAGES = {256: 4, 208: 5, 192: 5, 128: 5}
"""Stages of the ring, by columns of a tile: as many as fit into shared memory, up to five."""

GROUP = 8
"""Row-tile pairs walked together: as many rows as columns are multiplied at a time (H200, at the power limit: 2
per cent more at 8192 and 16384 than 16)."""


@dataclass(frozen=True)
class TiledWords:
    """A kernel with that many columns in a tile; equal where the words of a prepared operand fit both."""

    keeps: ClassVar[bool] = False
    device: Device
    columns: int
    label: str = "wgmma kernel"

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the words of an operand lie."""
        raise NotImplementedError

    def workspace(self, words: Words, batch: int, rows: int, cols: int, k: int) -> int:
        """Nothing is held beside the words."""
        return 0

    def split(self, b: Builder, operand: Described, side: str, words: Words) -> Slices:
        """The words of a whole operand."""
        return split_words(b, operand, words, self.layout(words, side, *operand.x.shape))

    def splits_in_one_read(self, words: Words, side: str, operand: Array, whole: bool) -> bool:
        """Where clusters can hold whole rows."""
        layout = self.layout(words, side, *operand.shape)
        return self.device.family.one_read and one_read.fits(words, layout, operand.view, whole)

    def seconds(self, words: Words, batch: int, m: int, k: int, n: int, dtype: str) -> float | None:
        """Not measured for all kernels."""
        return None


def chosen(device: Device, costs: dict[int, float], batch: int, m: int, n: int) -> int:
    """The columns of a tile with which the last cluster finishes first; `costs`: the time of a column, by columns."""
    clusters = device.clusters
    pairs = batch * -(-m // (2 * ROWS))

    def time(columns: int) -> float:
        return -(-pairs * -(-n // columns) // clusters) * columns * costs[columns]

    return min(costs, key=time)


@cached(1024)
def layout(words: Words, columns: int, together: int, side: str, batch: int, rows: int, k: int) -> Layout:
    """Tiles of `together` words of each element, all or one (words/word_tiles.cuh), batch entries within words."""
    tile, unit = (ROWS, 2 * ROWS) if side == "left" else (columns, columns)
    rows, k = round_up(rows, unit), round_up(k, 128)
    row_bytes = together * k * width(words)
    each = rows * row_bytes
    size = words.count // together * batch * each
    return Layout(rows, k, each, row_bytes, batch * each, k, 0, size, unit, tile, 4 if side == "right" else 0)


def tiles_of(out: View, columns: int) -> tuple[int, int, int]:
    """Tiles of a result (batch, m, n), two rows of them together; of a batch entry, such pairs, and columns."""
    batch, m, n = out.shape
    pairs, across = -(-m // (2 * ROWS)), -(-n // columns)
    return batch * pairs * across, pairs, across


def multiplying(
    device: Device,
    kernel: tuple[str, str],
    macros: Macros,
    columns: int,
    operands: tuple[Any, Any, View, int, int],
    blocks: int,
    k_stages: int,
    *more: Any,
) -> Kernel:
    """A kernel with tiles of so many columns.

    Operands are a and b as kernels know them, the result, and the steps of mu and nu from one matrix of the batch to
    the next.
    """
    stages = STAGES[columns]
    macros = macros | {"TILE_COLS": columns, "TILE_STAGES": stages}
    a, b, out, mu_step, nu_step = operands
    work, pairs, across = tiles_of(out, columns)
    grid = (min(device.cluster_blocks, 2 * work),)
    return Kernel.of(
        *kernel, macros, grid, (384,), a, b, output(out, mu_step, nu_step), blocks, k_stages, work,
        struct([pairs, across, GROUP, out.shape[0]]), *more, shared_mem=stages * (ROWS + columns) * DEPTH + 1024,
    )  # fmt: skip
