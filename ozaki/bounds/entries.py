"""A bound for each entry of a product: what rows and columns contribute to it (docs/bounds.md, B13)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.bounds import native
from ozaki.bounds.description import Description, Ints
from ozaki.bounds.relative import image_errors
from ozaki.bounds.rounding import UP
from ozaki.records.combination import Factor
from ozaki.schemes import Scheme, magnitude_bits, scaling_of

LEAST_EXPONENT = {"float32": -125, "float64": -1021}
"""The frexp exponent of the smallest normal number: a unit in the last place is no smaller below it."""

SMALLEST = 2.0**-1074
"""The smallest float64 above zero, which takes the place of smaller bounds."""

FARTHEST = 2**61
"""What images of rows of zeros are multiples of: 2 to this power. Exponents of callers' numbers are at most 2**60."""

ROOT_LESS_ONE = 0.41421356237309515
"""The square root of 2, less 1, rounded up: for 0 <= y <= x, sqrt(x**2 + y**2) <= x + y times it (B13)."""


class RowTerms(NamedTuple):
    """What the bounds of entries take from the rows of an operand.

    Attributes
    ----------
    terms : float64, shape (3, batch, rows): the error terms of B1
    units : int64, shape (batch, rows): the terms are in units of 2**(units_i + units_j + exponent)
    multiples : int64, of the same shape: an un-rounded entry is a multiple of 2**(multiples_i + multiples_j)
    """

    terms: npt.NDArray[np.float64]
    units: Ints
    multiples: Ints

    def of_part(self, part: int, rows: int) -> RowTerms:
        """Those of the rows that give the real (0) or imaginary part of entries: every second one if there are two."""
        if self.units.shape[-1] == rows:
            return self
        return RowTerms(self.terms[..., part::2], self.units[..., part::2], self.multiples[..., part::2])


def row_terms(
    left: Description, right: Description, scheme: Scheme, spans: tuple[int, int], exact: bool = False
) -> tuple[RowTerms, RowTerms, int]:
    """The terms of the rows of both operands, and the exponent of their unit, of spans as for `image_errors`.

    With `exact` entries are those of the exact product, not of that of the images.
    """
    terms, exponent = image_errors(left, right, scheme, spans)
    scaling = scaling_of(scheme, left.k)
    found = []
    for description, of in ((left, terms.left), (right, terms.right)):
        units = np.broadcast_to(description.top + description.scale, description.top.shape).astype(np.int64)
        bits = description.bits(scaling)
        own = np.where(bits + description.bottom < description.top, -bits, description.bottom - description.top)
        if exact:
            of, own = np.zeros_like(of), description.bottom - description.top
        found.append(RowTerms(of, units, np.where(description.empty, FARTHEST, units + own)))
    return found[0], found[1], exponent


def native_terms(left: Description, right: Description, dtype: str) -> tuple[RowTerms, RowTerms, int]:
    """Those of a native product that is in range: gamma_k times the norms of both rows, roundings included."""
    found = []
    for description, factor in ((left, native.bound(left.k, dtype)), (right, 1.0)):
        terms = np.zeros((3, *description.top.shape))
        norms = np.sqrt(description.squares.astype(np.float64)) * 2.0 ** -magnitude_bits(description.k)
        terms[0] = norms * (factor * UP)
        found.append(RowTerms(terms, description.top, np.full(description.top.shape, FARTHEST)))
    return found[0], found[1], 0


def of_zeros(rows: int) -> RowTerms:
    """The terms of an operand of a product that is zero, whatever the rows are."""
    return RowTerms(np.zeros((3, 1, rows)), np.zeros((1, rows), np.int64), np.full((1, rows), FARTHEST))


def factor_up(alpha: Factor) -> tuple[float, int]:
    """The magnitude of a real factor that is not zero, at most mantissa 2**exponent, the mantissa in [1/2, 1]."""
    whole = abs(alpha.whole)
    more = max(whole.bit_length() - 53, 0)
    mantissa = -(-whole >> more)
    length = mantissa.bit_length()
    return float(mantissa) * 2.0**-length, alpha.exponent + more + length
