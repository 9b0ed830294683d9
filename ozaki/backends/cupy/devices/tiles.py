"""Tiles of int8 matrices, as kernels that multiply them by bulk copies and `wgmma` read them."""

from __future__ import annotations

from dataclasses import dataclass


def round_up(x: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not less than x."""
    return -(-x // multiple) * multiple


@dataclass(frozen=True)
class Tiles:
    """The geometry of tiles, which kernels have as constants (kernels/products/ring_sm90.cuh).

    Attributes
    ----------
    rows, columns, depth : of a tile, and the bytes of k that a stage of the ring holds of it
    strip : columns that all tiles are made of, wide ones of three, narrow ones of two (products/walk_sm90.cuh)
    few_digits_side : rows and columns of a tile where all diagonals of digits are summed at once
        (products/digit_gemm_sm90.cu)
    stages : of the ring
    smallest : least m, n and k for which tiles are not mostly padding
    """

    rows: int
    columns: int
    depth: int
    strip: int
    few_digits_side: int
    stages: int
    smallest: int

    @property
    def shared_mem(self) -> int:
        """Bytes of dynamic shared memory of a block: the ring's stages, and their alignment."""
        return self.stages * (self.rows + self.columns) * self.depth + 1024

    def blocks(self, k: int) -> int:
        """Blocks of k, as they are stored: the kernels work on two at least."""
        return max(-(-k // self.depth), 2)

    def padded(self, side: str, rows: int, k: int) -> tuple[int, int, int, int]:
        """Rows of a tile, the number that rows of panels are multiples of, and the rows and the k that are stored.

        The right operand, whose rows are columns of the result, is stored in pairs of tiles: a cluster multiplies both
        tiles of a pair, even where a panel has few columns.
        """
        of_tile, unit = (self.rows, self.rows) if side == "left" else (self.columns, 2 * self.columns)
        return of_tile, unit, round_up(rows, unit), self.depth * self.blocks(k)


PADDED_COLUMNS = 384
"""Columns for which the proof keeps rounded error terms are a multiple of this: of whole pairs of tiles on every
device (kernels/arithmetic/worst.cuh reads them without asking where they end)."""
