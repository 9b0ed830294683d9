"""Where residues lie in memory as the compiled library multiplies them, and how much of it they take."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.compiled.memory import LINE, Block

WIDTHS = {"left": 8, "right": 48}
"""Rows of a panel of each operand (kernels/cpu/split.h)."""

DEPTH = 16
"""What the k of panels is a multiple of."""

_TILE = 256, 480
"""Most rows and columns of a tile: its residues stay in a cache of a megabyte, if they are few."""

_MANY = 2**5
"""Residues from which on a tile has half as many rows: so three panels of digits of its rows stay in that cache."""


@dataclass(frozen=True, eq=False)
class Panels:
    """Residues of an operand as the library multiplies them (kernels/cpu/split.h).

    Attributes
    ----------
    block : what holds the memory
    memory : the bytes of all residues, [moduli][batch][panels][depth / 4][rows of a panel][4], from the first one on
    rows, k : of a matrix, without padding
    depth : of whole panels, of which these may be a part along k
    width : rows of a panel
    """

    block: Block
    memory: npt.NDArray[np.int8]
    rows: int
    k: int
    depth: int
    width: int

    @classmethod
    def empty(cls, planes: int, batch: int, rows: int, k: int, side: str) -> Panels:
        """Panels of a side in new memory, whose bytes are undefined."""
        block = Block((planes, batch, padded(rows, k, side)))
        return cls(block, block.array, rows, k, padded_depth(k), WIDTHS[side])

    def __getitem__(self, at: tuple[slice, slice, slice, slice]) -> Panels:
        """The residues of some matrices, rows and inner indices modulo all numbers, in the same memory.

        It is asked for as of an array of shape (planes, batch, rows, k); rows begin with a panel, and inner indices at
        a multiple of `DEPTH`.
        """
        _, matrices, rows, inner = at
        (row, row_end, _), (h, h_end, _) = rows.indices(self.rows), inner.indices(self.k)
        assert row % self.width == h % DEPTH == 0
        memory = self.memory[:, matrices, row * self.depth + h * self.width :]
        return Panels(self.block, memory, row_end - row, h_end - h, self.depth, self.width)

    @property
    def batch(self) -> int:
        """Number of matrices."""
        return int(self.memory.shape[1])


def padded_depth(k: int) -> int:
    """The k of panels."""
    return -(-k // DEPTH) * DEPTH


def whole(rows: int, side: str) -> int:
    """Rows of whole panels that hold so many rows."""
    return -(-rows // WIDTHS[side]) * WIDTHS[side]


def padded(rows: int, k: int, side: str) -> int:
    """Bytes of the residues of a matrix modulo one number."""
    return whole(rows, side) * padded_depth(k)


def slice_bytes(batch: int, rows: int, k: int, side: str, moduli: int) -> int:
    """Bytes that `split` returns, of `rows` rows in `batch` matrices, and those of the exponents that it copies."""
    return moduli * batch * padded(-(-rows // batch), k, side) + 24 * rows + 1024


def scratch_bytes(rows: int, columns: int, moduli: int) -> int:
    """Bytes that a thread holds while it multiplies."""
    return moduli * (prod(tile(rows, columns)) + LINE) + 1024


TRIANGLE = 128
"""Rows of the tiles of a symmetric product, of which those on the diagonal are computed whole: few, whole panels."""


def tile(rows: int, columns: int, residues: int = 1, *, triangle: bool = False) -> tuple[int, int]:
    """Rows and columns of the tiles of a matrix whose entries have so many residues: whole panels."""
    most_rows, most_columns = _TILE
    most_rows = TRIANGLE if triangle else most_rows if residues < _MANY else most_rows // 2
    return min(most_rows, whole(rows, "left")), min(most_columns, whole(columns, "right"))
