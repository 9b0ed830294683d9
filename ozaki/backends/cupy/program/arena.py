"""Where the buffers of a program lie in one piece of memory; buffers that are not needed at the same time share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 512
"""Bytes that every buffer begins at a multiple of, as in CuPy's pool."""


class Life(NamedTuple):
    """Bytes of a buffer, and the numbers of the first and the last step of a program that need it."""

    nbytes: int
    first: int
    last: int


def most_at_once(lives: Sequence[Life]) -> int:
    """The most bytes that are needed at the same time."""
    return max((sum(x.nbytes for x in lives if x.first <= each.first <= x.last) for each in lives), default=0)


def offsets(lives: Sequence[Life]) -> tuple[list[int], int]:
    """The offset of each buffer in bytes, and the bytes of the whole piece of memory.

    Each buffer begins at the lowest offset where it meets no earlier one that is needed at the same time.
    """
    placed: list[tuple[int, int, Life]] = []
    begins = []
    for life in lives:
        size, begin = -(-max(life.nbytes, 1) // ALIGNMENT) * ALIGNMENT, 0
        for other, end, of in sorted(placed):
            if of.last < life.first or life.last < of.first:
                continue
            if begin + size <= other:
                break
            begin = max(begin, end)
        placed.append((begin, begin + size, life))
        begins.append(begin)
    return begins, max((end for _, end, _ in placed), default=0)
