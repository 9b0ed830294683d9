"""Facts from what a device brings to the host; functions that hold no operands."""

from __future__ import annotations

from math import inf
from typing import Any

from ozaki._accuracy import Measure
from ozaki.bounds import words as word_bounds
from ozaki.bounds.description import NO_SPAN, SAMPLED, Description, Least
from ozaki.bounds.of_scheme import rows_bound as bound_of_rows
from ozaki.planning.facts import Ratio
from ozaki.schemes import Scheme, Words, is_exact


def span(of: Description) -> int:
    """Largest top - bottom of a row."""
    return int((of.top - of.bottom).max(initial=0))


def least_span(of: Description) -> int:
    """Smallest top - bottom of a row with a nonzero."""
    return int((of.top - of.bottom)[~of.empty].min(initial=NO_SPAN))


def spans(left: Description, right: Description) -> tuple[int, int]:
    """Largest top - bottom of the rows of both operands."""
    return span(left), span(right)


def rows_bound(left: Description, right: Description, scheme: Scheme | Words, measure: Measure) -> float:
    """The bound that the descriptions prove in a measure; inf where they do not tell enough."""
    if is_exact(scheme) and scheme.scaling(left.k) is None:
        return inf
    return bound_of_rows(left, right, scheme, measure, spans(left, right))


def cut_bound(lost: bool, sample: tuple[Least, Least] | None, words: Words, k: int) -> float:
    """The bound of words by whether an element loses part of itself, and, if so, by a sample; inf without one."""
    if not lost:
        return word_bounds.lossless(words, k)
    return inf if sample is None else word_bounds.by_sample(*sample, min(SAMPLED, k), words, k)


def ratio_of_panels(found: tuple[Any, ...]) -> Ratio:
    """The worst ratio of all panels, then the descriptions of both operands."""
    *ratios, left, right = found
    return with_spans(max((ratio.worst for ratio in ratios), default=0.0), left, right)


def with_spans(worst: float, left: Description, right: Description) -> Ratio:
    """A worst ratio with the spans of these operands."""
    return Ratio(worst, spans(left, right), min(least_span(left), least_span(right)))
