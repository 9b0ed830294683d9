"""Tiles: as many elements at a time as stay in a cache."""

from __future__ import annotations

from collections.abc import Iterator

TILE = 2**16
"""Elements that are processed at a time: a few float64 arrays of this size stay in the second-level cache."""


def row_tiles(batch: int, rows: int, k: int, share: int = 1) -> Iterator[tuple[slice, slice]]:
    """Cut (batch, rows), of rows of length k, into pairs of slices of about `TILE` / share elements."""
    tile = TILE // share
    step = max(1, tile // max(k, 1))
    if step >= rows:
        together = max(1, tile // max(rows * k, 1))
        for b in range(0, batch, together):
            yield slice(b, b + together), slice(0, rows)
    else:
        for b in range(batch):
            for r in range(0, rows, step):
                yield slice(b, b + 1), slice(r, r + step)
