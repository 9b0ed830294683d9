"""What problems have in common whose solutions are factors of one matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ozaki.linalg.common.arrays import exactly_on_host
from ozaki.linalg.nearest.intervals import Interval
from ozaki.linalg.nearest.settling import Problem

Factorise = Callable[[int], Any]
"""A function of a number of bits that returns factors as `MPArray`s, whose product is so accurate."""


class FactorProblem(Problem):
    """A matrix whose factors are to be found.

    Attributes
    ----------
    iterations : corrections of the last factors that were found
    """

    first_bits = 128

    def __init__(self, a: Any, factorise: Factorise) -> None:
        self._a, self._factorise = exactly_on_host(a), factorise
        self.iterations = 0

    def _factors(self, bits: int) -> Any:
        """The factors in so many bits."""
        found = self._factorise(bits)
        self.iterations = found.iterations
        return found

    def sharpened(self, intervals: list[Interval], bits: int) -> list[Interval]:
        """None: all entries of factors are seldom numbers of few bits."""
        return []
