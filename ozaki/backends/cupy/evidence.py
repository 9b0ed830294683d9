"""Facts from what a device brings to the host; functions that hold no operands."""

from __future__ import annotations

from math import inf
from typing import Any

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Measure
from ozaki._description import LOOKED_AT, NO_SPAN, Description, Least
from ozaki.planning.facts import Ratio
from ozaki.schemes import Scheme, Words


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
    k = left.k
    if isinstance(scheme, Words) and measure == "componentwise":
        return _bounds.words_by_rows(left, right, scheme)
    if measure == "componentwise" or (isinstance(scheme, Scheme) and scheme.scaling(k) is None):
        return inf
    terms = _bounds.error_terms(left, right, scheme, spans(left, right))
    of_terms = (_bounds.normwise if measure == "normwise" else _bounds.row_column)(left, right, terms)
    return _word_bounds.relative(scheme, k) + of_terms if isinstance(scheme, Words) else of_terms


def cut_bound(lost: bool, sample: tuple[Least, Least] | None, words: Words, k: int) -> float:
    """The bound of words by whether an element loses part of itself, and, if so, by a sample; inf without one."""
    if not lost:
        return _bounds.words_of_whole(words, k)
    return inf if sample is None else _bounds.words_by_sample(*sample, min(LOOKED_AT, k), words, k)


def ratio_of_panels(found: tuple[Any, ...]) -> Ratio:
    """The worst ratio of all panels, then the descriptions of both operands."""
    *ratios, left, right = found
    return with_spans(max((ratio.worst for ratio in ratios), default=0.0), left, right)


def with_spans(worst: float, left: Description, right: Description) -> Ratio:
    """A worst ratio with the spans of these operands."""
    return Ratio(worst, spans(left, right), min(least_span(left), least_span(right)))
