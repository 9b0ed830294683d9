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
    block : the bytes of all residues, [moduli][batch][panels][depth / 4][rows of a panel][4]
    rows, k, depth : of a matrix: rows and k without padding, k with padding
    """

    block: Block
    rows: int
    k: int
    depth: int

    @property
    def memory(self) -> npt.NDArray[np.int8]:
        """The bytes."""
        return self.block.array

    @property
    def batch(self) -> int:
        """Number of matrices."""
        return int(self.memory.shape[1])


def padded(rows: int, k: int, side: str) -> int:
    """Bytes of the residues of a matrix modulo one number."""
    width = WIDTHS[side]
    return -(-rows // width) * width * -(-k // DEPTH) * DEPTH


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
    sizes = zip((most_rows, most_columns), (rows, columns), WIDTHS.values(), strict=True)
    tile_rows, tile_columns = (min(most, -(-size // width) * width) for most, size, width in sizes)
    return tile_rows, tile_columns
