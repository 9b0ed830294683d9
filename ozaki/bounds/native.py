"""The array library's own product (B5)."""

from __future__ import annotations

from math import inf

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


def in_range(left: Description, right: Description, dtype: str) -> bool:
    """Whether no product of two elements and no partial sum of a native product over- or underflows (B5)."""
    least, past = RANGE[part_of(dtype)]
    if left.empty.all() or right.empty.all():
        return True
    largest = sum(int(x.top[x.filled].max()) for x in (left, right))
    smallest = sum(int(x.least[x.filled].min()) for x in (left, right))
    return largest + ceil_log2(left.k) < past and smallest >= least
