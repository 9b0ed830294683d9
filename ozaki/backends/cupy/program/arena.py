"""Where the buffers of a program lie in one piece of memory, so that those not needed at the same time share some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 512
"""Bytes: as CuPy's pool aligns memory."""


class Life(NamedTuple):
    """Bytes of a buffer, and the steps first .. last of a program that it is needed for."""

    nbytes: int
    first: int
    last: int


def most_at_once(lives: Sequence[Life]) -> int:
    """Most bytes that are needed at a time."""
    return max((sum(x.nbytes for x in lives if x.first <= each.first <= x.last) for each in lives), default=0)


def offsets(lives: Sequence[Life]) -> tuple[list[int], int]:
    """Where each buffer begins, and the bytes of all: each as low as those with which it shares a step leave room."""
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
