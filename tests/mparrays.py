"""What tests of multiprecision arrays share: exact references in Python's rationals, made slowly out of planes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np


def power(exponent: int) -> Fraction:
    return Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent)


def rationals(x: Any) -> Any:
    """The elements of an MPArray as Fractions, an array of objects; checks that they are normalised."""
    signs, exponents, limbs = (np.asarray(plane) for plane in (x.signs, x.exponents, x.limbs))
    assert (signs.dtype, exponents.dtype, limbs.dtype) == (np.int8, np.int64, np.uint32)
    assert exponents.shape == signs.shape == x.shape and limbs.shape == (-(-x.bits // 32), *x.shape)
    found = np.empty(x.shape, object)
    for index in np.ndindex(*x.shape):
        whole = 0
        for limb in limbs[(slice(None), *index)].tolist():
            whole = whole << 32 | limb
        size = 32 * len(limbs)
        if signs[index] == 0:
            assert whole == 0 == exponents[index]
        else:
            assert signs[index] in (-1, 1) and whole.bit_length() == size and whole % 2 ** (size - x.bits) == 0
        found[index] = int(signs[index]) * whole * power(int(exponents[index]) - size)
    return found


def rounded(value: Fraction, bits: int) -> Fraction:
    """The nearest number of `bits` bits, ties to even."""
    if value == 0:
        return value
    top = abs(value.numerator).bit_length() - value.denominator.bit_length()
    while abs(value) >= power(top):
        top += 1
    while abs(value) < power(top - 1):
        top -= 1
    return round(value / power(top - bits)) * power(top - bits)


def same(x: Any, wanted: Any) -> bool:
    """Whether an MPArray holds exactly these numbers, nested lists or an array of anything that Fraction takes."""
    wanted = np.array(wanted, dtype=object)
    found = rationals(x)
    return found.shape == wanted.shape and all(
        a == Fraction(b) for a, b in zip(found.flat, wanted.reshape(-1).tolist(), strict=True)
    )
