"""Numbers of many bits on the host, as Python's integers: products, quotients and logarithms, with their errors."""

from __future__ import annotations

from collections.abc import Iterable
from math import copysign, hypot, inf, isqrt, ldexp, nextafter
from typing import Any, NamedTuple

import numpy as np

from ozaki.multiprecision.arithmetic import paired
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.objects import mparray
from ozaki.multiprecision.wholes import of_wholes
from ozaki.records.formats import SIGNIFICAND_BITS


class Scalar(NamedTuple):
    """The number (real + i imag) 2**exponent."""

    real: int
    imag: int = 0
    exponent: int = 0

    @property
    def length(self) -> int:
        """Bits of the longer part."""
        return max(self.real.bit_length(), self.imag.bit_length())

    def cut(self, bits: int) -> Scalar:
        """The number with parts of no more than so many bits: off by less than 2**(2 - bits) of its abs."""
        excess = max(self.length - bits, 0)
        return Scalar(self.real >> excess, self.imag >> excess, self.exponent + excess)

    def times(self, other: Scalar) -> Scalar:
        """The product, exactly."""
        real = self.real * other.real - self.imag * other.imag
        return Scalar(real, self.real * other.imag + self.imag * other.real, self.exponent + other.exponent)

    def over(self, other: Scalar, bits: int) -> Scalar:
        """The quotient by a number that is not 0; off by less than 2**(2 - bits) of its abs."""
        square = other.real**2 + other.imag**2
        whole = self.times(Scalar(other.real, -other.imag, -other.exponent))
        shift = max(bits + square.bit_length() - whole.length + 1, 0)
        return Scalar((whole.real << shift) // square, (whole.imag << shift) // square, whole.exponent - shift)

    def multiprecision(self, is_complex: bool) -> MPArray:
        """The number as an array without axes."""
        real, imag = (of_wholes([part], [self.exponent], (), None) for part in (self.real, self.imag))
        return MPArray._of(paired(real, imag) if is_complex else real)

    def nearest(self, form: str) -> tuple[complex, Scalar]:
        """The number with each part rounded to a real format of the hardware, ties to even, and what that leaves."""
        (real, of_real), (imag, of_imag) = (_nearest(part, self.exponent, form) for part in (self.real, self.imag))
        return complex(real, imag), Scalar(of_real, of_imag, self.exponent)

    def size(self, unit: Scalar) -> float:
        """An upper bound of abs(x) / abs(unit), no more than a 2**-40th above it."""
        x, y = self.cut(60), unit.cut(60)  # each off by less than 2**-58 of its abs
        ratio = hypot(x.real, x.imag) / hypot(y.real, y.imag) * (1 + 2.0**-50)
        return nextafter(_times_power(ratio, x.exponent - y.exponent), inf) if ratio else 0.0


_LEAST = {"float32": -149, "float64": -1074}
"""The exponents of the smallest numbers of formats."""


def _nearest(whole: int, exponent: int, form: str) -> tuple[float, int]:
    """The float that is nearest to whole 2**exponent, and what is left of `whole`."""
    surplus = max(abs(whole).bit_length() - SIGNIFICAND_BITS[form], _LEAST[form] - exponent, 0)
    surplus = min(surplus, abs(whole).bit_length() + 1)  # enough to leave nothing
    kept, rest = whole >> surplus, whole & ((1 << surplus) - 1)
    if 2 * rest + (kept & 1) > 1 << surplus:
        kept += 1
    found = _times_power(float(kept), exponent + surplus) if kept else 0.0
    return (found if abs(found) <= np.finfo(form).max else copysign(inf, kept)), whole - (kept << surplus)


def _times_power(x: float, exponent: int) -> float:
    """x 2**exponent, Inf where that overflows."""
    try:
        return ldexp(x, exponent)
    except OverflowError:
        return copysign(inf, x)


class Determinant(NamedTuple):
    """A determinant: it differs from `value` by no more than `error` times abs(value); an error of 0 is exact.

    Attributes
    ----------
    value : Scalar
    error : float
    steps : corrections
    """

    value: Scalar
    error: float
    steps: int

    @property
    def zero(self) -> bool:
        """Whether the determinant is zero."""
        return not self.value.length


def scalars(x: Any) -> list[Scalar]:
    """The elements of an array of floats or multiprecision numbers, shape (n,), exactly."""
    x = x if isinstance(x, MPArray) else mparray(x)
    real, of_real = x.real.to_ints()
    imag, of_imag = x.imag.to_ints()
    found = []
    for a, e, b, f in zip(real.tolist(), of_real.tolist(), imag.tolist(), of_imag.tolist(), strict=True):
        low = min(e if a else f, f if b else e)
        found.append(Scalar(a << (e - low) if a else 0, b << (f - low) if b else 0, low))
    return found


def product_of_scalars(factors: Iterable[Scalar], bits: int) -> Scalar:
    """The product of numbers, each partial one cut off: off by less than 2**(3 - bits) of its abs for each factor."""
    found = Scalar(1)
    for factor in factors:
        found = found.times(factor.cut(bits)).cut(bits)
    return found


# Logarithms ----------------------------------------------------------------------------------------------------------


def logarithm_of_abs(x: Scalar, places: int) -> int:
    """The natural logarithm of the abs of a number that is not 0, in units of 2**-places; off by less than one."""
    if not x.imag:
        return _logarithm(abs(x.real), x.exponent, places)
    return -(-_logarithm(x.real**2 + x.imag**2, 2 * x.exponent, places) // 2)


_ROOTS = 8
"""Square roots that are taken before the series: the logarithm of the last one is below 2**-9."""


def _logarithm(whole: int, exponent: int, places: int) -> int:
    """The natural logarithm of whole 2**exponent, in units of 2**-places: off by less than one.

    With f in [3/4, 3/2), whole 2**exponent is f 2**e, and log f = 2**k log(f**(2**-k)), of which log g = 2 atanh z with
    z = (g - 1) / (g + 1) is a series. All is computed in units of 2**-p and rounded down. Roots err by one unit each,
    which the next root nearly halves, so by at most three in the last one; z by two more; each term of the series by no
    more than two. So log f is off by 2**k (2 terms + 10) units, at most 2**20 of them up to 3000 places.
    """
    assert whole > 0 and places <= 3000
    p = places + 24
    e = whole.bit_length() + exponent
    shift = p - whole.bit_length()
    f = whole << shift if shift >= 0 else whole >> -shift  # 1/2 to 1
    if 4 * f < 3 << p:
        f, e = 2 * f, e - 1
    for _ in range(_ROOTS):
        f = isqrt(f << p)
    one = 1 << p
    found = 2 * _inverse_tangent(((f - one) << p) // (f + one), p) << _ROOTS
    wide = p + abs(e).bit_length()  # so that e times the logarithm of 2 errs by less than 2**13 units of 2**-p
    found += (e * 2 * _inverse_tangent((1 << wide) // 3, wide)) >> (wide - p)
    return (found + (1 << 23)) >> 24  # rounded to nearest: half a unit, and a quarter for the errors


def _inverse_tangent(z: int, places: int) -> int:
    """The hyperbolic inverse tangent of a number of at most 1/3, in units of 2**-places, by its series."""
    square, power, found, k = (z * z) >> places, z, 0, 1
    while power not in (0, -1):
        found += power // k
        power, k = (power * square) >> places, k + 2
    return found
