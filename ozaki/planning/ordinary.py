"""The plan that ordinary operands would get: the same choice, from estimates in place of missing facts.

Before facts about the operands are known, a device splits them for this plan, which most often turns out to be the
right one. The estimates are those of normally distributed elements; they prove nothing, and a wrong one costs time
alone.
"""

from __future__ import annotations

from math import inf
from typing import Any

from ozaki.bounds import words as word_bounds
from ozaki.bounds.a_priori import a_priori, usual_worst
from ozaki.bounds.description import Least
from ozaki.bounds.levels import SAMPLE, SAMPLED_EVERY, Level, bits_of
from ozaki.planning.choose import choose
from ozaki.planning.facts import (
    CutBound,
    Facts,
    InnerRange,
    LeastProduct,
    NativeInRange,
    Need,
    Overlap,
    Ratio,
    RowsBound,
    Sample,
    Spans,
    WorstRatio,
)
from ozaki.planning.proof import holds_every_bit
from ozaki.planning.question import Question, ordinary_spans
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words


def foresee(question: Question, facts: Facts) -> tuple[Plan, tuple[Need, ...]]:
    """The plan that ordinary operands would get, and the needs for which estimates took the place of facts.

    Parameters
    ----------
    question : the product, the caller's options, the machine
    facts : what is known of the operands
    """
    ordinary = _OrdinaryFacts(question, facts)
    plan = choose(question, ordinary)
    assert isinstance(plan, Plan)  # no fact is missing
    return plan, tuple(ordinary.asked)


class _OrdinaryFacts(Facts):
    """Known facts, and estimates for ordinary operands in place of those that are missing.

    Attributes
    ----------
    asked : the needs that estimates were given for, in the order in which they were read
    """

    def __init__(self, question: Question, facts: Facts) -> None:
        super().__init__(facts)
        self._k = max(question.length, 1)
        self._sampling_factor = SAMPLED_EVERY[min(question.sizes.parts)] / SAMPLE
        self._spans = ordinary_spans(question)
        self.asked: dict[Need, None] = {}

    def __getitem__(self, need: Need) -> Any:
        if need in self:
            return super().__getitem__(need)
        self.asked[need] = None
        return self._estimate(need)

    def _estimate(self, need: Need) -> Any:
        k = self._k
        match need:
            case WorstRatio(scheme, level):
                return Ratio(self._worst_ratio(scheme, level), self._spans, min(self._spans))
            case RowsBound(scheme):
                return (
                    word_bounds.relative(scheme, k)
                    if isinstance(scheme, Words)
                    else self._unless_exact(scheme, a_priori(scheme, k))
                )
            case CutBound(words):
                return word_bounds.relative(words, k)
            case Sample():
                smooth = Least(inf, inf, 0, True)
                return smooth, smooth
            case Overlap():
                return 1.0
            case Spans():
                return self._spans
            case InnerRange():
                return 0
            case NativeInRange():
                return True
            case LeastProduct():
                return inf
        raise AssertionError(need)

    def _worst_ratio(self, scheme: Scheme | Words, level: Level) -> float:
        """The estimated worst ratio (E3), in units of 4**bits of the level, as facts are."""
        if isinstance(scheme, Words):
            return 0.0
        sampling_factor = self._sampling_factor if level == "sampled" else 1.0
        return self._unless_exact(scheme, sampling_factor * usual_worst(scheme, self._k)) * 4.0 ** -bits_of(
            level, self._k
        )

    def _unless_exact(self, scheme: Scheme, bound: float) -> float:
        """A bound, or 0 where by the estimated spans all images are exact and nothing is dropped."""
        return 0.0 if holds_every_bit(scheme, self._k, self._spans) else bound
