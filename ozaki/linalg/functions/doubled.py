"""Matrices that are sums of two of floats, each with a bound of how far it is from the matrix that it stands for.

As `enclosed`, for results in float64: products are native ones of slices (docs/linalg.md, L13), which take a twentieth
of the time of multiprecision ones of small matrices. Numbers are to be far from the ends of float64.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from math import frexp, inf, log2
from typing import Any

import numpy as np

from ozaki.linalg.common.arrays import Sum, added, adjoint, array_library
from ozaki.linalg.common.products import UNIT, native_error, native_product
from ozaki.linalg.common.slices import count_for, residual_by_slices, tops
from ozaki.linalg.common.upper import LEAST, column_norm, frobenius_norm, row_norm
from ozaki.linalg.functions.enclosed import above, multiplied, total

_SQUARE = UNIT * UNIT
"""More than a few roundings of second parts change a sum of two floats, relative to it."""


class Doubled:
    """A square matrix x, known up to an error.

    Parameters
    ----------
    x : Sum, shape (n, n), the first matrix being the sum of both, rounded
    error : as of `Enclosed`
    """

    def __init__(self, x: Sum, error: float = -inf) -> None:
        self.x, self.error = x, error

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """Upper bounds of the Euclidean norms of both parts of x."""
        high, low = map(frobenius_norm, self.x)
        return high, low

    @cached_property
    def norms(self) -> tuple[float, float]:
        """As of `Enclosed`."""
        high, (size, of_low) = self.x.high, self.sizes
        square = native_product(adjoint(high), high)
        spectral = row_norm(square) + native_error(high, high) * row_norm(high) * column_norm(high) * (1 + UNIT) + LEAST
        spectral = min(spectral**0.5 * (1 + UNIT), size) + of_low
        return above(log2(size + of_low + LEAST)), above(log2(spectral + LEAST))

    def eye(self) -> Doubled:
        """The identity."""
        eye = array_library(self.x).eye(len(self.x.high), dtype=self.x.high.dtype)
        return Doubled(Sum(eye, 0 * eye))

    def halved(self, count: int) -> Doubled:
        """The matrix divided by a power of two."""
        by = 2.0**-count
        return Doubled(Sum(self.x.high * by, self.x.low * by), total(multiplied(self.error, -count), log2(LEAST)))

    def times(self, other: Doubled, bits: int) -> Doubled:
        """The product; its own error is about 2**-bits, or as small as slices let it be, relative to both norms."""
        (x, of_x), (y, of_y) = self.x, other.x
        count = count_for(2.0**-bits, x, y)
        (high, low), missed = residual_by_slices(0 * x, x, y, count, x_tops=tops(x, -1))
        first, second = native_product(x, of_y), native_product(of_x, y)
        missed = missed * (y != 0).any(axis=0)  # products with zeros are zeros
        found = added(-high, (first + second) - low)
        (size_x, low_x), (size_y, low_y) = self.sizes, other.sizes
        off = native_error(x, y) + 4 * UNIT
        lost = len(x) * float(missed.max()) + 2 * UNIT * frobenius_norm(low)
        lost += off * (size_x * low_y + low_x * size_y) + low_x * low_y + LEAST
        (_, spectral_x), (_, spectral_y), errors = self.norms, other.norms, (self.error, other.error)
        both = multiplied(errors[0], spectral_y), multiplied(errors[1], spectral_x), multiplied(*errors)
        return Doubled(found, total(*both, above(log2(lost))))

    def over(self, divisor: int, _: int) -> Doubled:
        """The matrix divided by a positive integer."""
        factor = 1 / divisor
        rest_of_factor = float(Fraction(1, divisor) - Fraction(factor))
        x, of_x = self.x
        product = x * factor
        rest = _lost(x, factor, product) + (x * rest_of_factor + of_x * factor)
        size = float(frexp(factor)[1])  # the inverse is at most 2**size
        off = multiplied(self.norms[0], size, log2(16 * _SQUARE))
        return Doubled(added(product, rest), total(multiplied(self.error, size), off, log2(LEAST)))

    def shortened(self, _: int) -> Doubled:
        """As of `Enclosed`: a sum of two floats is short."""
        return self

    @staticmethod
    def summed(terms: list[Doubled], _: int) -> Doubled:
        """The sum of matrices."""
        (high, low), *others = (term.x for term in terms)
        for other in others:
            high, lost = added(high, other.high)
            low = low + (lost + other.low)
        size = total(*(term.norms[0] for term in terms))
        off = multiplied(size, log2(4 * (len(terms) + 1) ** 2 * _SQUARE))
        return Doubled(added(high, low), total(*(term.error for term in terms), off))


def _lost(x: Any, factor: float, product: Any) -> Any:
    """What the rounded product of floats, real or complex, and a number lacks: by the halves of T. J. Dekker, 1971."""
    if x.dtype.kind == "c":
        found = array_library(x).empty(x.shape, x.dtype)
        found.real, found.imag = _lost(x.real, factor, product.real), _lost(x.imag, factor, product.imag)
        return found
    upper, (above_x, below_x) = np.float64(factor) * (2.0**27 + 1), _halves(x)
    above_factor = float(upper - (upper - factor))
    below_factor = factor - above_factor
    rest = (above_x * above_factor - product) + above_x * below_factor + below_x * above_factor
    return rest + below_x * below_factor


def _halves(x: Any) -> tuple[Any, Any]:
    """Floats as sums of two of 26 bits."""
    large = x * (2.0**27 + 1)
    upper = large - (large - x)
    return upper, x - upper
