"""What tests of multiprecision arrays share: exact references in Python's rationals, made slowly out of planes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

import ozaki
from ozaki import MPArray, mparray


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


KINDS = ["uniform", "graded", "far", "sparse", "one", "zeros", "whole", "cancelling"]


def operand(prng, shape, bits, kind):
    """A random array whose elements take up to `bits` bits.

    Graded: rows and elements are spread over hundreds of binary orders; far: rows over a million. One: a single element
    is not zero. Cancelling: the second half of each row of the last axis is the negative of the first, but for its last
    bits, so that products with arrays of equal halves cancel.
    """
    count = int(np.prod(shape))
    wholes = [prng.getrandbits(bits) * prng.choice((1, -1)) for _ in range(count)]
    if kind == "sparse":
        wholes = [x if prng.random() < 0.2 else 0 for x in wholes]
    elif kind == "one":
        chosen = prng.randrange(count) if count else 0
        wholes = [x if i == chosen else 0 for i, x in enumerate(wholes)]
    elif kind == "zeros":
        wholes = [0] * count
    elif kind == "whole":
        wholes = [x % 1000 - 500 for x in wholes]
    elements = np.empty(count, object)
    elements[:] = wholes
    elements = elements.reshape(shape)
    if kind == "cancelling" and shape[-1] > 1:
        half = shape[-1] // 2
        nearly = np.vectorize(lambda x: x + prng.randrange(-3, 4), otypes=[object])
        elements[..., half : 2 * half] = nearly(-elements[..., :half])
    x = mparray(elements, bits=bits)
    rng = np.random.default_rng(prng.getrandbits(32))
    if kind == "graded":
        x = x.ldexp(rng.integers(-300, 300, shape) + rng.integers(-400, 400, (*shape[:-1], 1)))
    elif kind == "far":
        x = x.ldexp(rng.integers(-(10**6), 10**6, (*shape[:-1], 1)))
    return x.ldexp(-bits)


def transposed(x):
    return x.swapaxes(-1, -2)


def pair(prng, m, k, n, bits, kinds):
    """Both operands; rows of A and columns of B are drawn alike, except that cancelling rows meet equal halves."""
    a, b = operand(prng, (m, k), bits, kinds[0]), operand(prng, (n, k), bits, kinds[1])
    if kinds[0] == "cancelling" and k > 1:
        half = k // 2
        order = np.r_[np.arange(half), np.arange(half), np.arange(2 * half, k)]
        b = b[:, order]
    return a, transposed(b)


def planes(x):
    return (x.signs, x.exponents, x.limbs) if isinstance(x, MPArray) else (x,)


def same_planes(x, y):
    """Whether two results are the same, bit for bit, planes and formats included."""
    if not isinstance(x, MPArray):
        return type(x) is type(y) and x.dtype == y.dtype and x.tobytes() == y.tobytes()
    return x.bits == y.bits and all(np.array_equal(p, q) for p, q in zip(planes(x), planes(y), strict=True))


def moved(device, x):
    """An operand on a `devices.Device`: an MPArray, or an array of floats or integers."""
    if not isinstance(x, MPArray):
        return device.asarray(x)
    return x if device.xp is np else ozaki.ascupy(x)


def back(device, c):
    """A result in host memory."""
    return ozaki.asnumpy(c) if isinstance(c, MPArray) else np.asarray(device.asnumpy(c))
