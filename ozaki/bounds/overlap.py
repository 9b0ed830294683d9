"""Which rows, columns and inner indices the overlap of two operands is sampled in (E5; docs/bounds.md)."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

ROWS = 32
"""Number of rows of A, and of columns of B, that are sampled."""

ENTRIES = 8
"""Most matrices of a batch that are sampled."""

_SEGMENTS = 12
"""Most segments of 32 inner indices that are sampled."""


class Indices(NamedTuple):
    """The sampled inner indices: in segment s = 0, 1, ... the 32 indices from s times `step` on, as far as k goes.

    Attributes
    ----------
    segments : number of segments
    step : from the first index of a segment to that of the next
    total : number of indices in all segments
    """

    segments: int
    step: int
    total: int

    @classmethod
    def of(cls, k: int) -> Indices:
        """The indices to sample, spread over all of k, so that they meet blocks of different scales."""
        segments = min(_SEGMENTS, max(ceil(k / 32), 1))
        step = (k - 32) // (segments - 1) if k > 32 * segments else 32
        return cls(segments, step, min(k, 32 * segments))


def sampled_matrices(batch: int) -> tuple[int, int]:
    """How many matrices of a batch are sampled, and the step from one to the next."""
    count = min(batch, ENTRIES)
    return count, batch // count


def sampled_row(r: int, rows: int) -> int:
    """Index of the r-th sampled row, r < ROWS, out of `rows`."""
    return r * (rows - 1) // (ROWS - 1)
