"""Into which blocks a product is cut for a device, so that its memory holds them. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """What a product takes of a device's memory, and how much there is.

    Attributes
    ----------
    nbytes : bytes that may be taken
    element : of an element of an operand, and of an entry of the result
    slices : of the slices of an element, and of an entry of the un-rounded product
    """

    nbytes: int
    element: int
    slices: int


@dataclass(frozen=True)
class Blocks:
    """The blocks of the rows and columns of C that a device computes, one after another.

    Attributes
    ----------
    rows : of A and C
    cols : of B and C
    keeps : whether the slices of all columns stay on the device; else they are brought anew for each block of rows
    """

    rows: tuple[range, ...]
    cols: tuple[range, ...]
    keeps: bool

    @property
    def count(self) -> int:
        """Number of products."""
        return len(self.rows) * len(self.cols)


ROWS, COLUMNS = 8192, 4096
"""Rows and columns of a block, where nothing asks for fewer: its product takes far longer than to launch it, and the
first block of columns has arrived soon."""

_LEAST = 128


def blocks_of(rows: range, strips: Sequence[range], k: int, room: Room) -> Blocks:
    """The largest blocks, up to `ROWS` and `COLUMNS`, that the memory of a device holds.

    Parameters
    ----------
    rows : of A that the device has
    strips : of columns of B, which lie apart: no block has columns of two
    k : inner dimension

    Raises
    ------
    MemoryError
        If the smallest blocks do not fit.
    """
    of_rows, of_cols = min(ROWS, max(len(rows), 1)), min(COLUMNS, max(map(len, strips), default=1) or 1)
    columns = sum(map(len, strips))
    for keeps in (True, False):
        high, wide = of_rows, of_cols
        while _held(high, wide, columns, k, room, keeps) > room.nbytes:
            if keeps and (high, wide) == (of_rows // 2, of_cols // 2):
                break
            if max(high, wide) <= _LEAST:
                break
            high, wide = (max(high // 2, 1), wide) if high >= wide else (high, max(wide // 2, 1))
        if _held(high, wide, columns, k, room, keeps) <= room.nbytes:
            return Blocks(_cut(rows, high), tuple(part for strip in strips for part in _cut(strip, wide)), keeps)
    needed = _held(_LEAST, _LEAST, columns, k, room, keeps=False)
    raise MemoryError(f"{room.nbytes} bytes are left, but the smallest blocks take {needed}")


def halved(room: Room) -> Room:
    """Half as much room: a device had less than it said."""
    return Room(room.nbytes // 2, room.element, room.slices)


def _held(rows: int, cols: int, columns: int, k: int, room: Room, keeps: bool) -> int:
    """Bytes on a device: operands and slices, un-rounded products, blocks of the result."""
    split = room.element + room.slices
    right = columns * k * split if keeps else 2 * cols * k * split
    arriving = 2 * cols * k * room.element
    return (
        rows * k * (split + room.element) + right + arriving + rows * cols * split + 2 * rows * columns * room.element
    )


def _cut(whole: range, step: int) -> tuple[range, ...]:
    return tuple(whole[i : i + step] for i in range(0, len(whole), step))
