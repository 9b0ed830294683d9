"""Both operands in panels, so that what a proof holds for two of them keeps within a limit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from ozaki._workspace import too_few_bytes
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.steps.proof import proof_workspace

Range = tuple[int, int]
"""First .. last."""


class Panel(NamedTuple):
    """Matrices of the batch, rows of the left operand and of the right one."""

    batch: Range
    rows: Range
    columns: Range

    def of(self, side: str, matrices: int) -> tuple[Range, Range]:
        """Matrices and rows of an operand of so many matrices."""
        return (0, 1) if matrices == 1 else self.batch, self.rows if side == "left" else self.columns


class Panels:
    """The panels of two operands of shapes (batch, rows, k).

    Attributes
    ----------
    one : all of both operands is one panel
    """

    def __init__(
        self, device: Device, level: str, left: tuple[int, ...], right: tuple[int, ...], limit: int | None
    ) -> None:
        (batch_a, m, k), (batch_b, n, _) = left, right
        self._stack = max(batch_a, batch_b), m, n
        batch, rows, columns = self._stack

        def workspace() -> int:
            return proof_workspace(device, level, (min(batch, batch_a), rows, k), (min(batch, batch_b), columns, k))

        while limit is not None and workspace() > limit:
            if batch > 1:
                batch = -(-batch // 2)
            elif max(rows, columns) <= _LEAST:
                too_few_bytes(limit, workspace())
            elif rows >= columns:
                rows = -(-rows // 2)
            else:
                columns = -(-columns // 2)
        self._sizes = batch, rows, columns
        self.one = self._sizes == self._stack

    def __iter__(self) -> Iterator[Panel]:
        for at in product(*map(range, (0, 0, 0), self._stack, self._sizes)):
            ends = (min(i + size, end) for i, size, end in zip(at, self._sizes, self._stack, strict=True))
            yield Panel(*zip(at, ends, strict=True))


_LEAST = 16
"""Rows and columns that are proven together at least."""
