"""Matrices of many bits, each with a bound of how far it is from the matrix that it stands for.

Bounds are of Euclidean (Frobenius) norms, and held as their logarithms to base 2, since they may be beyond the range of
float64; each is rounded up.
"""

from __future__ import annotations

from functools import cached_property
from math import inf, isfinite, log2, sqrt
from typing import Any

from ozaki.caches import cached
from ozaki.functions.products import matmul
from ozaki.linalg.common.arrays import adjoint, rounded, times_signs
from ozaki.linalg.common.products import UNIT, native_error, native_product
from ozaki.linalg.common.scaling import Exponents
from ozaki.linalg.common.upper import LEAST, column_norm, magnitudes, row_norm
from ozaki.multiprecision.arithmetic import paired
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.objects import mparray
from ozaki.planning.for_shapes import plan_for_shapes
from ozaki.records.accuracy import PLAIN_BITS, Accuracy
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.shapes import Shapes

_SLACK = 2.0**-40
"""More than the rounding errors of a logarithm here, beside what is relative to it."""


class Enclosed:
    """A square matrix x, known up to an error.

    Parameters
    ----------
    x : MPArray, shape (n, n)
    error : the logarithm of a bound of the Euclidean norm of what x differs by from the matrix meant; -inf for none

    Attributes
    ----------
    x, error : as above
    """

    def __init__(self, x: MPArray, error: float = -inf) -> None:
        self.x, self.error = x, error

    @cached_property
    def top(self) -> int | None:
        """The exponent e of the largest part of an element: below 2**e. None of zeros."""
        present = self.x.signs != 0
        return int(self.x.exponents[present].max()) if bool(present.any()) else None

    @cached_property
    def norms(self) -> tuple[float, float]:
        """Logarithms of bounds of the Euclidean and of the spectral norm of x."""
        if self.top is None:
            return -inf, -inf
        unit = self.x.ldexp(-self.top)
        sizes, near = magnitudes(unit), rounded(unit)
        euclidean = _euclidean(sizes)
        rows, columns = row_norm(unit), column_norm(unit)
        # The square of the spectral norm is at most any norm of x^H x: near 1 where x is nearly unitary.
        square = native_product(adjoint(near), near)
        spectral = row_norm(square) + native_error(near, near) * rows * columns * (1 + UNIT) + LEAST
        spectral = spectral**0.5 * (1 + UNIT) + UNIT * euclidean + LEAST
        if not isfinite(spectral):
            spectral = inf
        return above(log2(euclidean) + self.top), above(log2(min(spectral, euclidean)) + self.top)

    def times(self, other: Enclosed, bits: int) -> Enclosed:
        """The product, each entry off by no more than 2**-bits times the norms of a row and a column, besides."""
        found = _product(self.x, other.x, bits)
        (of_x, spectral_x), (of_y, spectral_y) = self.norms, other.norms
        errors = self.error, other.error
        both = multiplied(errors[0], spectral_y), multiplied(errors[1], spectral_x), multiplied(*errors)
        return Enclosed(found, total(*both, multiplied(of_x, of_y, -bits)))

    def over(self, divisor: int, bits: int) -> Enclosed:
        """The matrix divided by a positive integer, whose inverse has so many bits."""
        shift = bits + divisor.bit_length()
        factor: MPArray = mparray((1 << shift) // divisor).ldexp(-shift)
        size = float(factor.exponents)  # the inverse is at most 2**size
        euclidean = multiplied(self.norms[0], size, -bits)
        return Enclosed(self.x * factor, total(multiplied(self.error, size), euclidean))

    @staticmethod
    def summed(terms: list[Enclosed], bits: int) -> Enclosed:
        """The sum of matrices; what is far smaller than the largest term counts as an error."""
        top = max((term.top for term in terms if term.top is not None), default=0)
        kept = [term for term in terms if term.top is not None and term.top >= top - bits - 64]
        x = kept[0].x if kept else terms[0].x
        for term in kept[1:]:
            x = x + term.x
        lost = (term.norms[0] for term in terms if term.top is not None and term.top < top - bits - 64)
        return Enclosed(x, total(*(term.error for term in terms), *lost))

    def eye(self) -> Enclosed:
        """The identity, complex if the matrix is."""
        kind = complex if self.x.is_complex else float
        return Enclosed(mparray(self.x.library.eye(self.x.shape[0], dtype=kind)))

    def halved(self, count: int) -> Enclosed:
        """The matrix divided by a power of two."""
        return Enclosed(self.x.ldexp(-count), multiplied(self.error, -count))

    def scaled(self, powers: Exponents) -> Enclosed:
        """D x D^-1, exactly, D diagonal, of powers of two with these exponents."""
        if not powers.any():
            return self
        by = self.x.library.asarray(powers[:, None] - powers)
        return Enclosed(self.x.ldexp(by), multiplied(self.error, float(powers.max() - powers.min())))

    def shortened(self, bits: int) -> Enclosed:
        """The matrix with elements of no more than so many bits, and zeros for those far smaller than the largest."""
        if self.top is None:
            return self
        x, least = self.x, self.top - bits - 8
        tiny = (x.signs != 0) & (x.exponents <= least)
        found, error = x, self.error
        if bool(tiny.any()):
            found = times_signs(x, ~tiny)
            error = total(error, above(least + 1 + log2(x.shape[0])))
        if found.bits > bits:
            found, error = found.round_to(bits), total(error, multiplied(self.norms[0], -bits))
        return Enclosed(found, error)


def _product(x: MPArray, y: MPArray, bits: int) -> MPArray:
    """The product, each entry off by no more than 2**-bits times the norms of a row of x and a column of y."""
    if x.is_complex or y.is_complex:  # of two real products each part errs by a 2**-(bits + 1) of these norms, or less
        a, b, c, d = x.real, x.imag, y.real, y.imag
        real = _product(a, c, bits + 1) - _product(b, d, bits + 1)
        return MPArray._of(paired(real, _product(a, d, bits + 1) + _product(b, c, bits + 1)))
    found: MPArray = matmul(x, y, plan=_plan(x.shape[0], bits))
    return found


@cached(64)
def _plan(n: int, bits: int) -> Plan:
    """The plan of the product of two real matrices, whatever they are: in these no zeros are searched for a proof."""
    excess = max(bits - PLAIN_BITS, 0)
    accuracy = Accuracy("row-column", 2.0 ** (excess - bits), exponent=-excess)
    return plan_for_shapes(Shapes((), (n, n, n), (n, n)), "mp", Options(accuracy, "residues"))


def total(*logarithms: float) -> float:
    """The logarithm of a sum of numbers whose logarithms to base 2 are given, rounded up."""
    largest = max(logarithms)
    if not isfinite(largest):
        return largest
    return above(largest + log2(sum(2.0 ** (each - largest) for each in logarithms)))


def multiplied(*logarithms: float) -> float:
    """The logarithm of a product of numbers whose logarithms to base 2 are given, rounded up."""
    if -inf in logarithms:
        return -inf
    return sum(logarithms) + 2.0**-50 * sum(map(abs, logarithms))


def above(logarithm: float) -> float:
    """A logarithm, rounded up by more than floats err by in it."""
    return logarithm + _SLACK * (1 + abs(logarithm) * 2.0**-10)


def _euclidean(sizes: Any) -> float:
    """The Euclidean norm of elements of at most about 1, rounded up."""
    return sqrt(float((sizes * sizes).sum())) * (1 + 2.0**-30) + LEAST * len(sizes)
