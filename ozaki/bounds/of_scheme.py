"""The bounds that every scheme has: its error terms for the operands at hand, and its bound for any operands."""

from __future__ import annotations

from math import inf

from ozaki._accuracy import Measure
from ozaki.bounds import exact, words
from ozaki.bounds.description import Description
from ozaki.bounds.exact import ErrorTerms
from ozaki.schemes import Scheme, Words


def error_terms(left: Description, right: Description, scheme: Scheme | Words, dropped: float) -> ErrorTerms:
    """B1 of digits and residues; of words, what B8 adds to their relative error.

    `dropped` is `scheme.dropped(k, spans)`, which is 0 for words.
    """
    if isinstance(scheme, Words):
        return words.error_terms(left, right, scheme)
    return exact.error_terms(left, right, scheme, dropped)


def a_priori(scheme: Scheme | Words, k: int) -> float:
    """B4 or B8: abs(E_ij) / (norm(a_i) norm(b_j)) for any operands of inner dimension k."""
    return words.a_priori(scheme, k) if isinstance(scheme, Words) else exact.a_priori(scheme, k)


def rows_bound(
    left: Description, right: Description, scheme: Scheme | Words, measure: Measure, spans: tuple[int, int]
) -> float:
    """What the descriptions of all rows prove of a scheme in a measure: `planning.facts.RowsBound`.

    Of words componentwise only what B9 tells: inf where that is not enough. Digits and residues have no componentwise
    bound of this kind. The spans are the largest top - bottom of the rows of both operands.
    """
    if measure == "componentwise":
        return words.by_rows(left, right, scheme) if isinstance(scheme, Words) else inf
    terms = error_terms(left, right, scheme, scheme.dropped(left.k, spans))
    bound = (exact.normwise if measure == "normwise" else exact.row_column)(left, right, terms)
    return words.relative(scheme, left.k) + bound if isinstance(scheme, Words) else bound
