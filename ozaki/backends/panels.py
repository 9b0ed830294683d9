"""Panels of a product, small enough that the memory for the proof of one panel keeps within a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from ozaki.records.memory import too_few_bytes
from ozaki.records.shapes import Side

Stack = tuple[int, int, int]
"""Sizes of a product: (matrices of the batch, rows of A, columns of B)."""


Range = tuple[int, int]
"""(first index, index after the last)."""


class Panel(NamedTuple):
    """A part of a product: ranges of the batch's matrices, of rows of A and of columns of B."""

    batch: Range
    rows: Range
    columns: Range

    def of(self, side: Side, matrices: int) -> tuple[Range, Range]:
        """Ranges of matrices and of rows that the panel takes from an operand of one matrix, or of the whole batch."""
        return (0, 1) if matrices == 1 else self.batch, self.rows if side == "left" else self.columns


class Panels:
    """The panels of a product, an iterable; they are halved until the workspace of one keeps within a limit.

    Parameters
    ----------
    stack : sizes of the whole product
    workspace : returns the bytes that are held for a panel of these sizes (matrices, rows, columns)
    limit : most bytes to hold; None makes the whole product one panel

    Attributes
    ----------
    one : whether the whole product is one panel
    workspace : bytes that are held for the largest panel

    Raises
    ------
    ValueError
        If the smallest panel exceeds the limit.
    """

    def __init__(self, stack: Stack, workspace: Callable[[int, int, int], int], limit: int | None) -> None:
        batch, rows, columns = stack
        while limit is not None and workspace(batch, rows, columns) > limit:
            if batch > 1:
                batch = -(-batch // 2)
            elif max(rows, columns) <= _LEAST:
                too_few_bytes(limit, workspace(batch, rows, columns))
            elif rows >= columns:
                rows = -(-rows // 2)
            else:
                columns = -(-columns // 2)
        self._stack, self._sizes = stack, (batch, rows, columns)
        self.one = self._sizes == stack
        self.workspace = workspace(batch, rows, columns)

    def __iter__(self) -> Iterator[Panel]:
        for corner in product(*map(range, (0, 0, 0), self._stack, self._sizes)):
            ends = (min(at + size, end) for at, size, end in zip(corner, self._sizes, self._stack, strict=True))
            yield Panel(*zip(corner, ends, strict=True))


_LEAST = 16
"""Panels of at most this many rows and columns, of one matrix, are not halved."""
