"""Bounds of whichever scheme: error terms and bounds for the operands at hand, and the bound for any operands."""

from __future__ import annotations

from math import inf

from ozaki.bounds import a_priori as of_slices
from ozaki.bounds import exact, words
from ozaki.bounds.description import Description
from ozaki.bounds.exact import ErrorTerms
from ozaki.records.accuracy import Measure
from ozaki.schemes import Scheme, Words


def error_terms(
    left: Description, right: Description, scheme: Scheme | Words, dropped: float, exponent: int = 0
) -> ErrorTerms:
    """The error terms of a scheme: of digits and residues B1; of words what B8 adds to their relative error.

    `dropped` is `scheme.dropped(k, spans)`, which is 0 for words. The terms of slices are divided by 2**exponent.
    """
    if isinstance(scheme, Words):
        return words.error_terms(left, right, scheme)
    return exact.error_terms(left, right, scheme, dropped, exponent)


def a_priori(scheme: Scheme | Words, k: int, exponent: int = 0) -> float:
    """B4 or B8: abs(E_ij) / (norm(a_i) norm(b_j)) for any operands of inner dimension k; of slices in 2**exponent."""
    return words.a_priori(scheme, k) if isinstance(scheme, Words) else of_slices.a_priori(scheme, k, exponent)


def rows_bound(
    left: Description,
    right: Description,
    scheme: Scheme | Words,
    measure: Measure,
    spans: tuple[int, int],
    exponent: int = 0,
) -> float:
    """The bound of a scheme that the descriptions of all rows prove in a measure: the fact `planning.facts.RowsBound`.

    Componentwise it is inf for digits and residues, and for words where B9 does not prove enough. `spans` are the
    largest exponent spans of a row of the left and of the right operand. Bounds of slices are in units of 2**exponent.
    """
    if measure == "componentwise":
        return words.by_rows(left, right, scheme) if isinstance(scheme, Words) else inf
    terms = error_terms(left, right, scheme, scheme.dropped(left.k, spans), exponent)
    bound = (exact.normwise if measure == "normwise" else exact.row_column)(left, right, terms)
    return words.relative(scheme, left.k) + bound if isinstance(scheme, Words) else bound
