"""Both operands of a product cut into panels, so that what a proof holds for two of them keeps within a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from ozaki._operands import Side
from ozaki._workspace import too_few_bytes

Stack = tuple[int, int, int]
"""(batch, rows of A, columns of B)."""


Range = tuple[int, int]
"""First .. last."""


class Panel(NamedTuple):
    """Some matrices of the batch, some rows of A, some columns of B."""

    batch: Range
    rows: Range
    columns: Range

    def of(self, side: Side, matrices: int) -> tuple[Range, Range]:
        """Matrices and rows of an operand that has so many matrices: the only one, or those of the panel."""
        return (0, 1) if matrices == 1 else self.batch, self.rows if side == "left" else self.columns


class Panels:
    """The panels of a product, as large as the limit lets them be.

    Parameters
    ----------
    stack : of the whole product
    workspace : bytes that are held for a panel of these sizes
    limit : bytes, or None for one panel of everything

    Attributes
    ----------
    workspace : bytes that are held for one of the panels, at most

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
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
        self.workspace = workspace(batch, rows, columns)

    @property
    def one(self) -> bool:
        """The whole product is one panel."""
        return self._sizes == self._stack

    def __iter__(self) -> Iterator[Panel]:
        for corner in product(*map(range, (0, 0, 0), self._stack, self._sizes)):
            ends = (min(at + size, end) for at, size, end in zip(corner, self._sizes, self._stack, strict=True))
            yield Panel(*zip(corner, ends, strict=True))


_LEAST = 16
"""Rows and columns of the smallest panel."""
