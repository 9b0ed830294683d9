"""Into which blocks a product is cut for a device, so that its memory holds them. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Room:
    """What a product takes of a device's memory, and how much there is, in bytes.

    Attributes
    ----------
    nbytes : that may be taken
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


Where = Literal["device", "host"]
"""Where the rows of A and C lie that a device computes: both on devices, or one of them in memory of the host."""

LARGEST: dict[Where, tuple[int, int]] = {"device": (8192, 8192), "host": (16384, 4096)}
"""Rows and columns of a block, where nothing asks for fewer (docs/explanation/many_gpus.md).

8192 of both have products by Strassen-Winograd. Between devices a block of 8192 columns arrives in a sixth of the time
in which it is multiplied by as many rows. From the host, columns of B arrive as fast as they are multiplied by some ten
thousand rows.
"""

_LEAST = 128


def blocks_of(rows: range, strips: Sequence[range], k: int, room: Room, where: Where = "host") -> Blocks:
    """The largest blocks, up to those of `LARGEST`, that the memory of a device holds.

    Parameters
    ----------
    rows : of A that the device has
    strips : of columns of B, which lie apart: no block has columns of two
    k : inner dimension
    where : the rows of A and C lie

    Raises
    ------
    MemoryError
        If the smallest blocks do not fit.
    """
    most_rows, most_cols = LARGEST[where]
    of_rows, of_cols = min(most_rows, max(len(rows), 1)), min(most_cols, max(map(len, strips), default=1) or 1)
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
    needed = _held(_LEAST, _LEAST, columns, k, room, False)
    raise MemoryError(f"{room.nbytes} bytes are left, but the smallest blocks take {needed}")


def halved(room: Room) -> Room:
    """Half as much room: a device had less than it said."""
    return Room(room.nbytes // 2, room.element, room.slices)


def _held(rows: int, cols: int, columns: int, k: int, room: Room, keeps: bool) -> int:
    """Bytes on a device: operands and slices, un-rounded products, blocks of the result."""
    split = room.element + room.slices
    left, right = rows * k * (split + room.element), columns * k * split if keeps else 2 * cols * k * split
    arriving = 2 * cols * k * room.element
    return left + right + arriving + rows * cols * (split + 4 * room.element)  # of the result, three are leaving


def _cut(whole: range, step: int) -> tuple[range, ...]:
    return tuple(whole[i : i + step] for i in range(0, len(whole), step))
