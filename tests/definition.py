"""The product as sections 1 to 5, 8 and 9 of docs/definitions.md define it, slowly, in Python integers.

It shares nothing with the library but the names of the schemes, so equal bits mean that the text and the code agree.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import chain
from math import gcd, isqrt, prod
from operator import mul

import mparrays
import numpy as np
from cases import FORMATS, integers, power, rounded


@cache
def moduli_of(count, are_complex=False):
    found, product = [], 1
    candidates = chain(range(256, 16, -1), range(2**14 - 1, 256, -1), range(2**21 - 1, 2**14, -1))
    if are_complex:
        with_root = (m for m in chain(range(255, 51, -2), range(2**14 - 1, 256, -2)) if has_root(m))
        candidates = chain((m for m in range(255, 51, -2) if has_root(m)), range(253, 16, -2), with_root)
    for m in candidates:
        if len(found) < count and gcd(m, product) == 1:
            found.append(m)
            product *= m
        if len(found) == count:
            return found
    raise AssertionError(f"there are no {count} moduli")


def has_root(m):
    """Whether there is a number whose square is -1 modulo m."""
    return any((s * s + 1) % m == 0 for s in range(m))


def moduli(scheme):
    """The moduli of a scheme of residues (sections 4 and 9)."""
    return moduli_of(scheme.count, scheme.name == "complex-residues")


def shifted_up(x, shift):
    """x 2**shift, rounded up."""
    return x << shift if shift >= 0 else -(-x >> -shift)


def shifted_to_nearest(x, shift):
    """x 2**shift, rounded to nearest, ties to even."""
    if shift >= 0:
        return x << shift
    floor, half = x >> -shift, 1 << (-shift - 1)
    rest = x - (floor << -shift)
    return floor + (rest > half or (rest == half and floor % 2 == 1))


@dataclass
class Row:
    """A row as integers and exponents, with the statistics of section 1."""

    elements: list
    exponents: list

    def __post_init__(self):
        k = len(self.elements)
        self.width = min(20, (60 - max(k - 1, 0).bit_length()) // 2)
        filled = [(abs(x), e) for x, e in zip(self.elements, self.exponents, strict=True) if x]
        self.top = max((x.bit_length() + e for x, e in filled), default=None)
        self.magnitudes = [shifted_up(x, e + self.width - self.top) for x, e in filled]
        self.peak = max(self.magnitudes, default=0)
        self.squares = sum(map(mul, self.magnitudes, self.magnitudes))

    def image(self, scheme):
        """The exponent mu of section 2, and the fixed-point image."""
        if self.top is None:
            return 0, [0] * len(self.elements)
        mu = self.bits(scheme) - self.top
        return mu, [shifted_to_nearest(x, e + mu) for x, e in zip(self.elements, self.exponents, strict=True)]

    def bits(self, scheme):
        """The bits of the image by the rule of section 2: the most with which it surely stays in range."""
        if scheme.name.endswith("residues"):
            product = prod(moduli(scheme))
            largest_norm = isqrt(product // 2 - product // 2**10)
            k = len(self.elements)
            room = largest_norm - next(c for c in range(isqrt(k) + 2) if 4 * c * c >= k)
            size, limit, factor = self.squares, room * room, 2
        else:
            assert are_digits(scheme), f"{scheme.name} have no definition here"
            r, p = scheme.bits, scheme.count
            largest = (2 ** (r - 1) - 1) * (2 ** (r * p) - 1) // (2**r - 1)
            size, limit, factor = self.peak, Fraction(2 * largest - 1, 2), 1
        bits = max((int(limit).bit_length() - size.bit_length()) // factor + self.width - 2, 0)
        while size * power(factor * (bits + 1 - self.width)) <= limit:
            bits += 1
        while size * power(factor * (bits - self.width)) > limit:
            bits -= 1
        return bits


def are_digits(scheme):
    """Whether a scheme is one of digits, which section 3 defines."""
    return scheme.name.startswith(("digits", "fp16-digits"))


def rows(x):
    """The rows of a matrix; NaN and Inf count as zero (section 6)."""
    x = np.asarray(x, np.float64)
    elements, exponents = integers(np.where(np.isfinite(x), x, 0.0))
    return [Row(*row) for row in zip(elements, exponents, strict=True)]


def digits(image, scheme):
    """Balanced digits of each element, the most significant first (section 3)."""
    half, slices = 2 ** (scheme.bits - 1), []
    for _ in range(scheme.count):
        low = [(x + half) % (2 * half) - half for x in image]
        slices.append(np.array(low, np.int64))
        image = [(x - d) >> scheme.bits for x, d in zip(image, low, strict=True)]
    assert not any(image), "an element has no such digits"
    return slices[::-1]


def of_digits(left, right, scheme):
    p, r = scheme.count, scheme.bits
    pairs = [(s, t) for s in range(1, p + 1) for t in range(1, p + 2 - s)]
    return sum(2 ** (r * (2 * p - s - t)) * int(left[s - 1] @ right[t - 1]) for s, t in pairs)


def of_residues(left, right, scheme):
    exact = sum(map(mul, left, right))
    product = prod(moduli(scheme))
    assert abs(exact) <= product // 2 - product // 2**10, "Cbar leaves the range of the moduli"
    return exact


def rows_of_rationals(x):
    """The rows of a matrix of dyadic rationals (section 8)."""
    return [Row([v.numerator for v in row], [1 - v.denominator.bit_length() for v in row]) for row in x]


def images(a, b, scheme, rows=rows):
    """mu, nu and Cbar, all integers: the product is Cbar 2**-(mu_i + nu_j), rounded."""
    left, right = ([row.image(scheme) for row in rows(x)] for x in (a, np.swapaxes(b, -1, -2)))
    mu, nu = [m for m, _ in left], [m for m, _ in right]
    multiply, slices = of_residues, [[image for _, image in side] for side in (left, right)]
    if not scheme.name.endswith("residues"):
        multiply, slices = of_digits, [[digits(image, scheme) for image in side] for side in slices]
    return mu, nu, [[multiply(x, y, scheme) for y in slices[1]] for x in slices[0]]


def product(a, b, scheme):
    """A B by the definition, in the dtype that the operands promote to."""
    return rounded_images(*images(a, b, scheme), np.result_type(a, b))


def rounded_images(mu, nu, cbar, dtype):
    """The product of images, rounded once."""
    c = np.empty((len(mu), len(nu)), dtype)
    for i, j in np.ndindex(c.shape):
        c[i, j] = rounded(cbar[i][j] * power(-(mu[i] + nu[j])), dtype)
    return c


def product_of_rationals(a, b, scheme, dtype):
    """A B by the definition, of matrices of dyadic rationals, as a list of rows; in "mp106" of rationals."""
    mu, nu, cbar = images(a, b, scheme, rows_of_rationals)
    return [[rounded_to(x * power(-(mu[i] + nu[j])), dtype) for j, x in enumerate(row)] for i, row in enumerate(cbar)]


def rounded_to(value, dtype):
    """A rational rounded once to a format of the hardware, or to that of so many bits."""
    if dtype in FORMATS:
        return rounded(value, dtype)
    return mparrays.rounded(Fraction(value), int(dtype.removeprefix("mp")))


def complex_product(a, b, scheme):
    """A B of complex operands by section 9: the product of rows of parts."""
    left = np.stack([a.real, a.imag], axis=-1).reshape(len(a), -1)
    right = np.stack([np.stack([b.real, b.imag], axis=-1), np.stack([-b.imag, b.real], axis=-1)], axis=1)
    c = product(left, right.reshape(2 * len(b), -1), scheme)
    return c[:, ::2] + 1j * c[:, 1::2]
