"""How the rows of a product of 16-bit floats were multiplied (docs/definitions.md, 11)."""

from __future__ import annotations

from typing import NamedTuple


class RowKinds(NamedTuple):
    """Rows of A by kind, and what is proven of them.

    Attributes
    ----------
    rows : number of rows of each number of digits, in the order of `RowDigits.kinds`
    exact : number of rows whose entries are exact inner products, rounded once
    worst : largest proven error of an entry before the rounding, relative to abs(A) abs(B) (docs/bounds.md, B15)
    """

    rows: tuple[int, ...]
    exact: int
    worst: float

    def merged(self, other: RowKinds) -> RowKinds:
        """The kinds of these rows and others, by the same scheme."""
        rows = tuple(x + y for x, y in zip(self.rows, other.rows, strict=True))
        return RowKinds(rows, self.exact + other.exact, max(self.worst, other.worst))
