"""How exact the entries of a product are, relative to themselves (docs/bounds.md, B10)."""

from __future__ import annotations

from math import inf, log2
from typing import NamedTuple

from ozaki.bounds.description import Description
from ozaki.bounds.exact import ErrorTerms, error_terms
from ozaki.schemes import Scheme, scaling_of

MARGIN = 2.0**-16
"""Bits that are taken off for the roundings of quotients and logarithms."""

MANTISSA_BITS = 32

FARTHEST = 2**29 - 1
"""Exponents of quotients beyond this, up or down, count as this one."""


def image_errors(
    left: Description, right: Description, scheme: Scheme, spans: tuple[int, int]
) -> tuple[ErrorTerms, int]:
    """The error terms (B1) of a product's entries in units of 2**exponent, in which none underflows; and exponent.

    `spans`: the largest exponent spans of a row of both operands.
    """
    exponent = -scaling_of(scheme, left.k).base
    return error_terms(left, right, scheme, scheme.dropped(left.k, spans), exponent), exponent


class Quotient(NamedTuple):
    """The largest quotient of the error of an entry, before it was rounded, and the entry: below mantissa 2**exponent.

    Quotients are compared by exponent, then by mantissa, so that every backend finds the same one.

    Attributes
    ----------
    exponent : of the quotient as a number in [1/2, 1)
    mantissa : that number times 2**32, rounded up
    """

    exponent: int
    mantissa: int


NONE = Quotient(-FARTHEST - 1, 0)
"""In place of a quotient where no entry has an error."""

UNBOUNDED = Quotient(FARTHEST, 2**MANTISSA_BITS)
"""In place of a quotient where an entry that has an error is zero."""


def times(worst: Quotient, whole: int, exponent: int) -> Quotient:
    """The quotient if all errors are whole 2**exponent times as large, of a whole number that is not 0."""
    if worst in (NONE, UNBOUNDED):
        return worst
    mantissa = worst.mantissa * abs(whole)
    more = mantissa.bit_length() - MANTISSA_BITS
    return Quotient(worst.exponent + exponent + more, -((-mantissa) >> more) if more >= 0 else mantissa << -more)


def relative_bits(worst: Quotient, precision: int) -> float:
    """The least -log2 of E_ij / (abs(c_ij) (1 - u) - E_ij) of all entries with an error E.

    Parameters
    ----------
    worst : the largest E_ij / abs(c_ij)
    precision : bits that the c_ij were rounded to, so that u = 2**-precision

    Returns
    -------
    float
        inf if no entry has an error, -inf if one may be no larger than its error.
    """
    if worst == NONE:
        return inf
    exponent = worst.exponent - MANTISSA_BITS
    if worst.exponent > 1:
        return -inf
    rest = (1 - 2.0**-precision) - worst.mantissa * 2.0 ** max(exponent, -1000)
    if rest <= MARGIN:
        return -inf
    return log2(rest) - log2(worst.mantissa) - exponent - MARGIN
