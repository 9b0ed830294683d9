"""Tiles: as many elements at a time as stay in a cache."""

from __future__ import annotations

from collections.abc import Iterator

from ozaki.call.operands import tiles_of_rows

TILE = 2**16
"""Elements that are processed at a time: a few float64 arrays of this size stay in the second-level cache."""


def row_tiles(batch: int, rows: int, k: int, share: int = 1) -> Iterator[tuple[slice, slice]]:
    """Cut (batch, rows), of rows of length k, into pairs of slices of about `TILE` / share elements."""
    return tiles_of_rows(batch, rows, k, TILE // share)
