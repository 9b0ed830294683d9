"""Facts computed on the host from what a device has found, by functions that hold no operands."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.bounds import native
from ozaki.bounds import words as word_bounds
from ozaki.bounds.description import NO_SPAN, SAMPLED, Description, Ints, Least
from ozaki.bounds.of_scheme import rows_bound as bound_of_rows
from ozaki.bounds.relative import Quotient, times
from ozaki.bounds.relative import relative_bits as bits_of_quotient
from ozaki.bounds.undecided import Crossings
from ozaki.bounds.undecided import crossings as crossings_of
from ozaki.planning.facts import Ratio
from ozaki.records.accuracy import Measure
from ozaki.records.combination import Factor
from ozaki.schemes import Scheme, Words, is_exact


def unchanged(found: Any) -> Any:
    """What was found, where that is the fact."""
    return found


def span(of: Description) -> int:
    """The largest top - bottom of a row of one operand, in bits."""
    return int((of.top - of.bottom).max(initial=0))


def least_span(of: Description) -> int:
    """The smallest top - bottom of a row with a nonzero, in bits; `NO_SPAN` if there is none."""
    return int((of.top - of.bottom)[~of.empty].min(initial=NO_SPAN))


def inner_range(apart: int = 0) -> int:
    """The fact `InnerRange`; 0 of a matrix beside itself, which is not scaled."""
    return apart


def spans(left: Description, right: Description) -> tuple[int, int]:
    """The largest top - bottom of a row of each operand, in bits."""
    return span(left), span(right)


def rows_bound(
    left: Description, right: Description, scheme: Scheme | Words, measure: Measure, exponent: int = 0
) -> float:
    """The bound of a scheme that the descriptions prove in a measure, in units of 2**exponent; inf if they prove none.

    That of words has the exponent 0.
    """
    if is_exact(scheme) and scheme.scaling(left.k) is None:
        return inf
    return bound_of_rows(left, right, scheme, measure, spans(left, right), exponent)


def native_in_range(left: Description, right: Description, dtype: str) -> bool:
    """Whether no product and no partial sum of the native product can over- or underflow."""
    return native.in_range(left, right, dtype)


def spans_of(raw: npt.NDArray[Any], ratio: Callable[[npt.NDArray[Any]], Ratio]) -> tuple[int, int]:
    """The spans that came with a ratio."""
    return ratio(raw).spans


def extents_in_range(extents: tuple[native.Extent | None, native.Extent | None], k: int, dtype: str) -> bool:
    """The fact `NativeInRange` from the extents of both operands, with rows of k real numbers."""
    return native.extents_in_range(*extents, k, dtype)


def flag_is_set(flag: npt.NDArray[np.uint32]) -> bool:
    """Whether a kernel has set a flag."""
    return bool(flag[0])


def least(*found: float) -> float:
    """The least product of all panels."""
    return min(found)


def crossings(found: tuple[Ints, Description, Description], scheme: Scheme, dtype: str) -> Crossings:
    """The fact `UndecidedShare` from exponents of some entries, and the descriptions of their rows and columns."""
    entries, left, right = found
    return crossings_of(entries, left, right, scheme, dtype)


def cut_bound(lost: bool, sample: tuple[Least, Least] | None = None, *, words: Words, k: int) -> float:
    """The componentwise bound of words, from what was found while they were cut.

    Parameters
    ----------
    lost : whether an element is so small that words may lose part of it
    sample : a sample of both operands, for a lower bound of (abs(A) abs(B))_ij; needed if `lost`, else the bound is inf
    k : inner dimension
    """
    if not lost:
        return word_bounds.lossless(words, k)
    return inf if sample is None else word_bounds.by_sample(*sample, min(SAMPLED, k), words, k)


def ratio_of_panels(*found: Any) -> Ratio:
    """The worst ratio of all panels; `found`: the panels' ratios, then the descriptions of both operands."""
    *ratios, left, right = found
    return with_spans(max((ratio.worst for ratio in ratios), default=0.0), left, right)


def ratio_with_spans(ratio: Ratio, left: Description, right: Description) -> Ratio:
    """A ratio to error terms of the host's, with the spans of both operands."""
    return with_spans(ratio.worst, left, right)


def relative_bits(*worst: Quotient, alpha: Factor, precision: int) -> float:
    """The fact `RelativeError`, from the worst quotients of the parts of a product, which alpha multiplied."""
    return bits_of_quotient(times(max(worst), alpha.whole, alpha.exponent), precision)


def with_spans(worst: float, left: Description, right: Description) -> Ratio:
    """The `Ratio` of a worst ratio and the spans of both operands."""
    return Ratio(worst, spans(left, right), min(least_span(left), least_span(right)))
