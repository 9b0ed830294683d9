"""Who computes what of a product: tiles of C, layers along k, panels of inner indices. Pure data, for any number.

C is cut into p x q tiles, and k into layers: process (i, j, l) multiplies the rows of A of tile row i by the columns of
B of tile column j at the inner indices of layer l, panel after panel (SUMMA: van de Geijn and Watts, 1997; with layers
Solomonik and Demmel, 2011). What the layers of a tile have is added, and each of them rounds some of its rows. No bit
depends on any of these numbers: products of parts are exact integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from ozaki.distributed.layouts import ProcessGrid, check_grid, part_of
from ozaki.records.memory import too_few_bytes

WIDTH = 8192
"""Inner indices of a panel where nothing asks for fewer: products of slices take far longer than its messages."""


@dataclass(frozen=True)
class Work:
    """What a product asks of a process, in bytes: from this its memory follows.

    Attributes
    ----------
    element : of an element of A or B, and of C
    sums : of an entry of the un-rounded product
    slices : of the slices of an element of an operand
    """

    element: int
    sums: int
    slices: int

    def multiplied(self, rows: int, cols: int, width: int) -> int:
        """Bytes that a panel takes while it is multiplied, beside the operands and the sums."""
        slices = (min(rows, _SPLIT) + cols) * width * self.slices
        return slices + min(rows, _SPLIT) * min(cols, _SPLIT) * self.sums

    def summed(self, rows: int, cols: int) -> int:
        """Bytes of the un-rounded product of a block."""
        return rows * cols * self.sums

    @property
    def rounding(self) -> int:
        """Bytes that rounding takes beside sums and result."""
        return 0


@dataclass(frozen=True)
class Sharing:
    """Who computes what of the product of an m x k and a k x n matrix.

    Attributes
    ----------
    shape : (m, k, n)
    grid : rows and columns of tiles
    layers : into which k is cut
    width : inner indices of a panel, at most
    blocks : into how many rows and columns of blocks each tile is cut, so that its un-rounded product fits: the panels
        of operands are sent once for each
    """

    shape: tuple[int, int, int]
    grid: ProcessGrid
    layers: int = 1
    width: int = WIDTH
    blocks: tuple[int, int] = (1, 1)

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.grid.size * self.layers

    def place(self, rank: int) -> tuple[int, int, int]:
        """Tile row, tile column and layer of a process. Processes of a layer are neighbours."""
        layer, rest = divmod(rank, self.grid.size)
        return *self.grid.place(rest), layer

    def team(self, rank: int) -> list[int]:
        """The processes of a tile, one for each layer."""
        return [rank % self.grid.size + layer * self.grid.size for layer in range(self.layers)]

    def tile(self, rank: int) -> tuple[range, range]:
        """Rows and columns of C that a process computes, or computes with others."""
        (m, _, n), (row, col, _) = self.shape, self.place(rank)
        return part_of(m, row, self.grid.shape[0]), part_of(n, col, self.grid.shape[1])

    def block(self, rank: int, number: tuple[int, int]) -> tuple[range, range]:
        """Rows and columns of a block of the tile of a process."""
        rows, cols = self.tile(rank)
        of_rows, of_cols = part_of(len(rows), number[0], self.blocks[0]), part_of(len(cols), number[1], self.blocks[1])
        return rows[of_rows.start : of_rows.stop], cols[of_cols.start : of_cols.stop]

    def rounded(self, rank: int, number: tuple[int, int]) -> tuple[range, range]:
        """The rows and columns of a block that a process rounds: those of its layer."""
        (rows, cols), layer = self.block(rank, number), self.place(rank)[2]
        mine = part_of(len(rows), layer, self.layers)
        return rows[mine.start : mine.stop], cols

    def inner(self, rank: int) -> range:
        """The inner indices of the layer of a process."""
        return part_of(self.shape[1], self.place(rank)[2], self.layers)

    def panels(self) -> int:
        """Number of panels of a layer: the same for all."""
        return ceil(ceil(self.shape[1] / self.layers) / self.width)

    @property
    def one_panel(self) -> bool:
        """Whether a panel has all of k, so that its product may be rounded at once."""
        return self.panels() == self.layers == 1

    def panel(self, rank: int, number: int) -> range:
        """The inner indices of a panel of the layer of a process; none beyond its end."""
        inner = self.inner(rank)
        first = min(number * self.width, len(inner))
        return inner[first : min(first + self.width, len(inner))]

    def numbers(self) -> Iterator[tuple[int, int]]:
        """The numbers of blocks, in the order in which they are computed."""
        return ((row, col) for row in range(self.blocks[0]) for col in range(self.blocks[1]))

    def bytes_held(self, work: Work) -> int:
        """Most bytes that a process holds beside its shares of operands and result."""
        m, _, n = self.shape
        rows, cols = ceil(m / self.grid.shape[0]), ceil(n / self.grid.shape[1])
        of_rows, of_cols = ceil(rows / self.blocks[0]), ceil(cols / self.blocks[1])
        inner = max(ceil(self.shape[1] / self.layers), 1)
        width = min(self.width, inner)
        panels = _PANELS * (of_rows + of_cols) * width * work.element
        multiplied = max(work.multiplied(of_rows, of_cols, each) for each in {width, inner % width or width})
        sums = work.summed(of_rows, of_cols) * (1 if self.layers == 1 else _SUMS)
        rounded = ceil(of_rows / self.layers) * of_cols * work.element * 2  # entries, and copies that are sent
        return panels + multiplied + sums + rounded + work.rounding + _OF_A_ROW * (m + n)


_PANELS = 4
"""Panels at a time: one that is multiplied; the next one, and messages with it; copies that are sent."""

_SUMS = 3
"""Un-rounded products at a time, where layers are added: this process's, strips to send, those that arrive."""

_SPLIT = 2048
"""Rows that are split at a time."""

_OF_A_ROW = 160
"""Bytes of the description of a row, and of the two arrays that processes merge."""

LEAST_WIDTH, _LEAST_BLOCK = 256, 128
"""Panels and blocks are not cut further: splitting would take as long as multiplying."""

_PLANES = 14
"""Products of slices for an element of each operand that is received: what a float64 product takes most often."""


def shared_out(
    shape: tuple[int, int, int],
    size: int,
    grid: ProcessGrid | None = None,
    layers: int | None = None,
) -> Sharing:
    """The sharing among so many processes that takes the fewest multiplications of any one, and moves the fewest bytes.

    Parameters
    ----------
    shape : (m, k, n)
    size : number of processes
    grid, layers : if the caller names them; their product is `size`

    Raises
    ------
    ValueError, TypeError
        If grid and layers are not for so many processes, or the grid is no `ProcessGrid`.
    """
    if grid is not None:
        check_grid("grid", grid)
    if grid is not None or layers is not None:
        of_grid = grid.size if grid is not None else None
        if layers is not None and not hasattr(layers, "__index__"):
            raise TypeError(f"layers: {layers!r}; expected a whole number, a divisor of {size}")
        if layers is not None and (layers < 1 or size % layers):
            raise ValueError(f"layers: {layers}; expected a divisor of {size}, the number of processes")
        if of_grid is not None and size % of_grid:
            raise ValueError(f"grid: {grid} has {of_grid} processes; expected a divisor of {size}, the number of all")
        if of_grid is not None and layers is not None and of_grid * layers != size:
            raise ValueError(f"layers: {layers} of {of_grid} processes each; expected {size} in all")
    if grid is not None:
        return Sharing(shape, grid, size // grid.size, min(WIDTH, max(shape[1], 1)))
    candidates = [
        Sharing(shape, ProcessGrid((rows, cols)), deep, min(WIDTH, max(shape[1], 1)))
        for deep in ([layers] if layers is not None else _divisors(size))
        for rows in _divisors(size // deep)
        for cols in (size // deep // rows,)
    ]
    return min(candidates, key=_cost)


def _cost(sharing: Sharing) -> tuple[float, int]:
    """What the busiest process takes: multiplications, with what it receives in the same unit; then fewer layers."""
    (m, k, n), (rows, cols) = sharing.shape, sharing.grid.shape
    tile, inner = (ceil(m / rows), ceil(n / cols)), ceil(k / sharing.layers)
    received = (tile[0] + tile[1]) * inner * 8 + (sharing.layers - 1) / sharing.layers * tile[0] * tile[1] * 2 * _PLANES
    return tile[0] * tile[1] * inner * _PLANES + received * _MULTIPLICATIONS_OF_A_BYTE, sharing.layers


_MULTIPLICATIONS_OF_A_BYTE = 2000
"""Multiplications of slices in the time in which a byte arrives: 400 TFLOP/s in 100 GB/s, about; on CPUs alike."""


def _divisors(count: int) -> list[int]:
    return [each for each in range(1, count + 1) if count % each == 0]


def within(sharing: Sharing, work: Work, limit: int | None) -> Sharing:
    """The sharing with panels and blocks so small that no process holds more than the limit.

    Raises
    ------
    ValueError
        If the smallest ones exceed it.
    """
    found = sharing
    while limit is not None and found.bytes_held(work) > limit:
        rows, cols = (
            ceil(ceil(extent / parts) / blocks)
            for extent, parts, blocks in zip(found.shape[::2], found.grid.shape, found.blocks, strict=True)
        )
        # Blocks are halved, along the longer side, until what they hold is no more than half; then panels.
        wide = found.width > LEAST_WIDTH and rows * cols * work.sums < 4 * (rows + cols) * found.width * work.element
        if not wide and max(rows, cols) > _LEAST_BLOCK:
            longer = 0 if rows >= cols else 1
            blocks = tuple(2 * count if axis == longer else count for axis, count in enumerate(found.blocks))
            found = Sharing(found.shape, found.grid, found.layers, found.width, (blocks[0], blocks[1]))
        elif found.width > LEAST_WIDTH:
            found = Sharing(found.shape, found.grid, found.layers, max(found.width // 2, LEAST_WIDTH), found.blocks)
        else:
            too_few_bytes(limit, found.bytes_held(work))
    return found
