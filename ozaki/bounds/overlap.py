"""Which rows, columns and inner indices the overlap of two operands is sampled in (E5; docs/bounds.md)."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

ROWS = 32
"""Rows of A, and columns of B."""

ENTRIES = 8
"""Matrices of a batch, at most."""

_SEGMENTS = 12


class Indices(NamedTuple):
    """Inner indices of a sample: segment s has those from `step` s on, 32 of them, as far as there are any.

    Attributes
    ----------
    segments, step : as above
    total : of all indices
    """

    segments: int
    step: int
    total: int

    @classmethod
    def of(cls, k: int) -> Indices:
        """Spread over all of k, so that blocks of different scales are seen."""
        segments = min(_SEGMENTS, max(ceil(k / 32), 1))
        step = (k - 32) // (segments - 1) if k > 32 * segments else 32
        return cls(segments, step, min(k, 32 * segments))


def entries(batch: int) -> tuple[int, int]:
    """How many matrices of a batch are sampled, and the step from one to the next."""
    count = min(batch, ENTRIES)
    return count, batch // count


def row(r: int, rows: int) -> int:
    """Row r of a sample, of so many."""
    return r * (rows - 1) // (ROWS - 1)
