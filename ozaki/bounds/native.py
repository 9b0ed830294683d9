"""The array library's own product (B5)."""

from __future__ import annotations

from math import inf
from typing import NamedTuple, Self

from ozaki.bounds.description import Description
from ozaki.bounds.rounding import UNIT_ROUNDOFF, UP
from ozaki.records.formats import part_of
from ozaki.schemes.image import ceil_log2

RANGE = {"float32": (-126, 128), "float64": (-1022, 1024)}
"""(least, past): 2**least is the smallest normal number, and all numbers are below 2**past."""


def bound(k: int, dtype: str, spread: float = 1.0) -> float:
    """B5: componentwise bound of a native product in any order of summation, roundings included: gamma_k `spread`.

    Of a complex product k is the number of real products in a part of an entry, and `spread` as `Shapes` has it (B11).
    Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, sections 3.1 and 3.5; where `in_range`.
    """
    ku = k * UNIT_ROUNDOFF[part_of(dtype)]
    return ku / (1 - ku) * spread * UP if ku < 0.5 else inf


class Extent(NamedTuple):
    """Exponents between which the elements of an operand lie: what `in_range` asks of it.

    Attributes
    ----------
    highest : the largest `top` of a row that is not all zeros
    least : no nonzero element is below 2**least
    """

    highest: int
    least: int

    @classmethod
    def of(cls, rows: Description) -> Self | None:
        """That of described rows; None if all are zeros."""
        if rows.empty.all():
            return None
        return cls(int(rows.top[rows.filled].max()), int(rows.least[rows.filled].min()))


def in_range(left: Description, right: Description, dtype: str) -> bool:
    """Whether no product of two elements and no partial sum of a native product over- or underflows (B5)."""
    return extents_in_range(Extent.of(left), Extent.of(right), left.k, dtype)


def extents_in_range(left: Extent | None, right: Extent | None, k: int, dtype: str) -> bool:
    """The same of operands of these extents, with rows of k real numbers."""
    if left is None or right is None:
        return True
    least, past = RANGE[part_of(dtype)]
    return left.highest + right.highest + ceil_log2(k) < past and left.least + right.least >= least
