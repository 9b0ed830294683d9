"""What facts prove of schemes: the bound of each, level by level (docs/bounds.md, B1 to B4, B7, B8)."""

from __future__ import annotations

from functools import lru_cache
from math import inf

from ozaki._accuracy import Accuracy, Measure
from ozaki.bounds import words as word_bounds
from ozaki.bounds.levels import EVERY, SAMPLE, bits_of, levels
from ozaki.bounds.rounding import UP, with_rounding
from ozaki.planning.facts import Facts, LeastProduct, Ratio, RowsBound, Spans, WorstRatio
from ozaki.schemes import Scheme, Words
from ozaki.schemes.named import least_of, scheme_of

_WIDE_PRODUCT = 24
"""Slice products that are worth the float64 product of the wide level.

It takes as long as so many on an A100 (23) and an H200 (27), and as 400 where float64 is slow. One number for all
machines, so that plans are the same everywhere.
"""


class Proof:
    """The bounds that facts prove in one measure, for one decision.

    Componentwise bounds are worst ratios at a level; a decision begins at the cheapest level and may `sharpen`. In the
    other measures there is one level, that of the descriptions.

    Parameters
    ----------
    first : the scheme whose ratio is asked for first, since it tells the spans of the operands too
    """

    def __init__(self, facts: Facts, k: int, measure: Measure, first: Scheme | Words) -> None:
        self._facts, self._k, self._measure, self._first = facts, k, measure, first
        self._levels = levels(k) if measure == "componentwise" else ()
        self._at = 0
        self._least_span: int | None = None

    def bound(self, scheme: Scheme | Words) -> float:
        """The bound of a scheme at the present level, before the rounding to the output; inf where there is none."""
        if isinstance(scheme, Words):
            bound: float = self._facts[RowsBound(scheme, "componentwise")]
            if bound < inf:
                return bound
            if self._levels:
                return word_bounds.relative(scheme, self._k) + self._ratio(scheme) * UP
        elif scheme.scaling(self._k) is None:
            return inf
        elif self._levels:
            return self._ratio(scheme) * UP
        bound = self._facts[RowsBound(scheme, self._measure)]
        return bound

    def at_least(self, scheme: Scheme) -> float:
        """A number that the bound is no smaller than, from few rows; inf where there is no bound at this level."""
        if not self._levels or scheme.scaling(self._k) is None:
            return self.bound(scheme)
        return self._ratio(scheme, few_rows=True)

    def _ratio(self, scheme: Scheme | Words, few_rows: bool = False) -> float:
        """The worst ratio of the scheme, in units of 1."""
        if self._surely_unproven(scheme):
            return inf
        level = self._levels[self._at]
        ratio: Ratio = self._facts[WorstRatio(scheme, level, few_rows)]
        if _vanishing(scheme, self._k, ratio.spans):
            ratio = self._facts[WorstRatio(scheme, level, few_rows, drops=False)]
        if ratio.worst == inf:
            self._least_span = ratio.least_span
        return ratio.worst * 4.0 ** bits_of(level, self._k)

    def _surely_unproven(self, scheme: Scheme | Words) -> bool:
        """Some entry has no lower bound at this level, and this scheme rounds every row, so that it has an error."""
        if isinstance(scheme, Words) or self._least_span is None:
            return False
        scaling = scheme.scaling(self._k)
        return scaling is not None and scaling.most_bits(self._k) < self._least_span

    def exact_below(self, name: str, most: int) -> int:
        """The smallest count at which the images of all rows are exact; `most` if that is not smaller."""
        return _exact_below(name, most, self._k, self._spans)

    @property
    def _spans(self) -> tuple[int, int]:
        if self._levels and (isinstance(self._first, Words) or self._first.scaling(self._k) is not None):
            ratio: Ratio = self._facts[WorstRatio(self._first, self._levels[0])]
            return ratio.spans
        spans: tuple[int, int] = self._facts[Spans()]
        return spans

    @property
    def _next_level(self) -> str | None:
        return self._levels[self._at + 1] if self._at + 1 < len(self._levels) else None

    @property
    def gain(self) -> int:
        """Factor by which the next level shrinks the bounds of ordinary data."""
        return EVERY // SAMPLE if self._next_level == "narrow" else 1

    def sharpen(self, spared: float, wide: bool = True) -> bool:
        """Go to the next level, if there is one that costs less than so many slice products; the wide one if `wide`."""
        level = self._next_level
        if level is None or spared <= 0 or (level == "wide" and (spared < _WIDE_PRODUCT or not wide)):
            return False
        self._at += 1
        self._least_span = None
        return True


@lru_cache(maxsize=1024)
def _vanishing(scheme: Scheme | Words, k: int, spans: tuple[int, int]) -> bool:
    """The slice products that a scheme leaves out are all zero for operands of these spans, though not for others."""
    return scheme.dropped(k, spans) != scheme.dropped(k, (_ANY_SPAN, _ANY_SPAN))


_ANY_SPAN = 2**16
"""More than the span of any row."""


@lru_cache(maxsize=1024)
def _exact_below(name: str, most: int, k: int, spans: tuple[int, int]) -> int:
    for count in range(least_of(name, k), most):
        scheme = scheme_of(name, count)
        scaling = scheme.scaling(k)
        assert scaling is not None
        if max(spans) <= scaling.base and scheme.dropped(k, spans) == 0:
            return count
    return most


def proven_bound(
    scheme: Scheme | Words, target: Accuracy, k: int, dtype: str, facts: Facts, known: float = inf
) -> float:
    """The bound of a scheme that is given, as sharp as the target needs, before the rounding to the output.

    With that rounding it is no larger than `known` either, if that can be proven.
    """

    def suffices(bound: float) -> bool:
        return bound <= target.tolerance and with_rounding(bound, dtype) <= known

    proof = Proof(facts, k, target.measure, scheme)
    while not suffices(bound := proof.bound(scheme)) and proof.sharpen(inf):
        pass
    if isinstance(scheme, Words) and not suffices(bound):
        bound = min(bound, word_bounds.by_least(facts[LeastProduct()], scheme, k))
    return bound
