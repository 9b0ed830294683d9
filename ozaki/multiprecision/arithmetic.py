"""Exact arithmetic on `Numbers`: sums, differences, multiples, comparison, extremes.

What is done to the parts of complex numbers alike takes real and complex ones; the other functions take real ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.multiprecision.floats import empty, store, tiles
from ozaki.multiprecision.limbs import add_window, carry, largest, library, limbs_of, rounded, settled, trailing_zeros
from ozaki.multiprecision.numbers import FARTHEST, MOST_BITS, Numbers, as_complex, by_parts, of_parts
from ozaki.multiprecision.scalars import dyadic


def add(x: Numbers, y: Numbers, sign: int = 1, tile: int | None = None) -> Numbers:
    """x + sign y, exactly, `tile` elements at a time; the shapes broadcast, and the sum is complex if a term is.

    Raises
    ------
    ValueError
        If a sum has more than `MOST_BITS` bits; the message names its element.
    """
    if x.is_complex or y.is_complex:
        shape = np.broadcast_shapes(x.shape, y.shape)
        x, y = (broadcast_to(as_complex(each), shape) for each in (x, y))
        return x.alike(_sum(x.parts, y.parts, sign, shape, tile))
    x, y = broadcast(x, y)
    return _sum(x, y, sign, x.shape, tile)


def _sum(x: Numbers, y: Numbers, sign: int, shape: tuple[int, ...], tile: int | None) -> Numbers:
    """The sum that `add` describes, of real terms of one shape: `shape`, or, of parts of complex ones, (*shape, 2)."""
    xp = library(x.limbs)
    flat = [(e.signs.reshape(-1), e.exponents.reshape(-1), e.limbs.reshape(len(e.limbs), -1)) for e in (x, y)]
    far = np.int64(2**62)
    highest, lowest = xp.full(x.size, -far), xp.full(x.size, far)
    for signs, exponents, limbs in flat:
        for at in tiles(signs, tile):
            present = signs[at] != 0
            low = exponents[at] - 32 * len(limbs) + trailing_zeros(limbs[:, at])
            highest[at] = xp.where(present, xp.maximum(highest[at], exponents[at]), highest[at])
            lowest[at] = xp.where(present, xp.minimum(lowest[at], low), lowest[at])
    spans = xp.where(highest > lowest, highest - lowest, 0)
    span = largest(spans, 0)
    if span + 1 > MOST_BITS:
        where = [int(i) for i in np.unravel_index(int(spans.argmax()), x.shape)][: len(shape)]
        raise ValueError(
            f"the exact sum at {where} takes {span + 1} bits, more than {MOST_BITS}; round the operands to numbers "
            "that are closer in size"
        )
    out = empty(x.shape, span + 1, xp)
    count = len(out.limbs)
    for at in tiles(highest, tile):
        top = xp.where(highest[at] > -far, highest[at], 0) + 1
        sums = xp.zeros((count, top.size), np.int64)
        for (signs, exponents, limbs), factor in zip(flat, (1, sign), strict=True):
            add_window(sums, factor * signs[at], limbs[:, at], exponents[at] - top)
        store(out, at, *settled(sums), top)
    return out


def near_sum(x: Numbers, y: Numbers, bits: int) -> Numbers:
    """X + y, or a number that rounds as x + y does at `bits` bits, at fewer, and at any bit further up.

    Terms may lie far apart: a term that ends far below the other's first bits is cut off there, and its last bit set if
    a bit that is cut off is (rounding to odd). Both have the same shape.
    """
    xp = library(x.limbs)
    # The longer term, and `bits` more: so a term that is cut is far smaller, the sum begins at most one bit below the
    # other term, and no bit that its rounding turns on lies where the term is cut.
    count = limbs_of(max(x.bits, y.bits) + bits + 40)
    out = empty(x.shape, 32 * count, xp)
    flat = x.flat, y.flat
    for at in tiles(flat[0][0]):
        tops = [xp.where(signs[at] != 0, exponents[at], -(2**62)) for signs, exponents, _ in flat]
        top = xp.maximum(*tops)
        top = xp.where(top > -(2**62), top, 0) + 1
        sums = xp.zeros((count, top.size), np.int64)
        for signs, exponents, limbs in flat:
            add_window(sums, signs[at], limbs[:, at], exponents[at] - top, sticky=True)
        store(out, at, *settled(sums), top)
    return out


@by_parts
def negated(x: Numbers) -> Numbers:
    """-x."""
    return Numbers(-x.signs, x.exponents, x.limbs, x.bits)


def magnitude(x: Numbers) -> Numbers:
    """abs(x)."""
    return Numbers(abs(x.signs), x.exponents, x.limbs, x.bits)


def times(x: Numbers, factor: Any) -> Numbers:
    """X times a dyadic number (an int, a float, a Fraction with a power of two below), exactly.

    Raises
    ------
    ValueError
        If the factor is not dyadic: NaN, Inf, or a fraction as 1/3; or if an exponent would be beyond `FARTHEST`.
    TypeError
        If the factor is no number.
    """
    try:
        whole, exponent = dyadic(factor)
    except (ValueError, TypeError) as error:
        raise type(error)(f"factor: the number {error}") from None
    return scaled(x, whole, exponent)


@by_parts
def scaled(x: Numbers, whole: int, exponent: int) -> Numbers:
    """X times whole 2**exponent, exactly; whole is odd, or 0.

    Raises
    ------
    ValueError
        If an exponent would be beyond `FARTHEST`.
    """
    xp = library(x.limbs)
    if whole == 0 or not bool(x.signs.any()):
        return empty(x.shape, 1, xp)
    largest = int(x.exponents.max()), int(x.exponents.min())
    if max(abs(e + exponent) for e in largest) + abs(whole).bit_length() > FARTHEST:
        raise ValueError(f"factor: the product with 2**{exponent} has an exponent beyond -2**60 to 2**60")
    if whole in (1, -1):
        exponents = xp.where(x.signs != 0, x.exponents + exponent, 0)
        return Numbers(x.signs * np.int8(whole), exponents, x.limbs, x.bits)
    bits = x.bits + abs(whole).bit_length()
    out = empty(x.shape, bits, xp)
    digits = [(abs(whole) >> shift) & 0xFFFF for shift in range(0, abs(whole).bit_length(), 16)]
    digits += [0] * (len(digits) % 2)
    limbs, flat = x.limbs.reshape(len(x.limbs), -1), (x.signs.reshape(-1), x.exponents.reshape(-1))
    size = len(limbs) + len(digits) // 2
    for at in tiles(flat[0]):
        signs, exponents = (each[at] for each in flat)
        sums = xp.zeros((size + 1, signs.size), np.int64)
        for place, digit in enumerate(digits):
            product = limbs[:, at].astype(np.int64) * digit
            end = size + 1 - place // 2
            if place % 2:  # times 2**16: the upper half of each product belongs to the limb above
                sums[end - len(limbs) - 1 : end - 1] += product >> 16
                product = (product & 0xFFFF) << 16
            sums[end - len(limbs) : end] += product
            if place % 2**12 == 2**12 - 1:
                carry(sums)  # each addition is below 2**49, a limb below 2**62
        top = exponents + exponent + 32 * (size + 1 - len(limbs))
        store(out, at, signs * np.int8(1 if whole > 0 else -1), settled(sums)[1], top)
    return out


def shifted(x: Numbers, exponents: Any) -> Numbers:
    """X times 2**exponents, an array of integers or one; the shapes broadcast.

    Raises
    ------
    ValueError
        If an exponent would be beyond `FARTHEST`, or one is given that is beyond twice that.
    """
    if x.is_complex:
        return x.alike(shifted(x.parts, exponents[..., None]))
    xp = library(x.limbs)
    x = broadcast_to(x, np.broadcast_shapes(x.shape, exponents.shape))
    present = x.signs != 0
    widest = 2 * FARTHEST
    near = (exponents <= widest) & (exponents >= -widest)
    sums = xp.where(present, x.exponents + xp.where(near, exponents, 0).astype(np.int64), 0)
    if bool((present & ~(near & (abs(sums) <= FARTHEST))).any()):
        raise ValueError("exponents: an element would have an exponent beyond -2**60 to 2**60")
    return Numbers(x.signs, sums, x.limbs, x.bits)


def order(x: Numbers, y: Numbers) -> Any:
    """Where x is below, equal to, or above y: -1, 0 or 1, an int8 array of the broadcast shape."""
    x, y = broadcast(x, y)
    found = _sign(x.exponents, y.exponents)  # of magnitudes of one sign, as long as nothing lower matters
    for i in range(max(len(x.limbs), len(y.limbs))):
        lower = _sign(*(e.limbs[i] if i < len(e.limbs) else np.uint32(0) for e in (x, y)))
        found = found + (found == 0) * lower
    return _sign(x.signs, y.signs) + (x.signs == y.signs) * x.signs * found


def difference(x: Numbers, y: Numbers) -> Any:
    """Where x and y, real or complex, are not the same numbers: a bool array of the broadcast shape."""
    x, y = as_complex(x), as_complex(y)
    return (order(x.parts, y.parts) != 0).any(axis=-1)


def paired(real: Numbers, imag: Numbers) -> Numbers:
    """The complex numbers of these parts, real numbers of one shape."""
    bits = max(real.bits, imag.bits)
    x, y = with_bits(real, bits), with_bits(imag, bits)
    planes = zip((x.signs, x.exponents, x.limbs), (y.signs, y.exponents, y.limbs), strict=True)
    signs, exponents, limbs = (library(x.limbs).stack(pair, axis=-1) for pair in planes)
    return of_parts(Numbers(signs, exponents, limbs, bits))


def _sign(x: Any, y: Any) -> Any:
    """The sign of x - y, int8."""
    return (x > y).astype(np.int8) - (x < y).astype(np.int8)


def extreme(x: Numbers, axis: int, sign: int) -> Numbers:
    """The largest (sign 1) or smallest (sign -1) elements along an axis, which is not empty."""
    x = x.transpose(axis, *(i for i in range(x.ndim) if i != axis))
    while (count := x.shape[0]) > 1:
        half = count // 2
        upper, lower = x[:half], x[half : 2 * half]
        chosen = where(sign * order(upper, lower) >= 0, upper, lower)
        x = joined(chosen, x[2 * half :])
    return x[0]


def where(chosen: Any, x: Numbers, y: Numbers) -> Numbers:
    """The elements of x where `chosen` is true, else those of y; both have the same shape and bits."""
    xp = library(x.limbs)
    planes = zip((x.signs, x.exponents, x.limbs), (y.signs, y.exponents, y.limbs), strict=True)
    signs, exponents, limbs = (xp.where(chosen, p, q) for p, q in planes)
    return Numbers(signs, exponents, limbs, x.bits)


def joined(x: Numbers, y: Numbers) -> Numbers:
    """The elements of x and then those of y, of the same bits, along the first axis."""
    xp = library(x.limbs)
    signs, exponents = (xp.concatenate(each) for each in ((x.signs, y.signs), (x.exponents, y.exponents)))
    return Numbers(signs, exponents, xp.concatenate([x.limbs, y.limbs], axis=1), x.bits)


def broadcast(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Views of two arrays in the shape that they broadcast to.

    Raises
    ------
    ValueError
        If they do not broadcast.
    """
    shape = np.broadcast_shapes(x.shape, y.shape)
    return broadcast_to(x, shape), broadcast_to(y, shape)


def broadcast_to(x: Numbers, shape: tuple[int, ...]) -> Numbers:
    """A view of x in a shape that it broadcasts to."""
    if x.shape == shape:
        return x
    if x.is_complex:
        return x.alike(broadcast_to(x.parts, (*shape, 2)))
    xp = library(x.limbs)
    limbs = x.limbs.reshape(len(x.limbs), *(1,) * (len(shape) - x.ndim), *x.shape)
    return Numbers(
        xp.broadcast_to(x.signs, shape),
        xp.broadcast_to(x.exponents, shape),
        xp.broadcast_to(limbs, (len(limbs), *shape)),
        x.bits,
    )


@by_parts
def rounded_to(x: Numbers, bits: int) -> Numbers:
    """The elements rounded to nearest at `bits` bits below their own first bit, ties to even.

    An array whose `bits` are no more is returned as it is.
    """
    if x.bits <= bits:
        return x
    xp = library(x.limbs)
    out = empty(x.shape, bits, xp)
    limbs, exponents = x.limbs.reshape(len(x.limbs), -1), x.exponents.reshape(-1)
    for at in tiles(exponents):
        kept, over = rounded(limbs[:, at], bits)
        out.limbs.reshape(limbs_of(bits), -1)[:, at] = kept
        out.exponents.reshape(-1)[at] = exponents[at] + over
    return Numbers(x.signs.copy(), out.exponents, out.limbs, bits)


@by_parts
def with_bits(x: Numbers, bits: int) -> Numbers:
    """The elements in a format of `bits` bits: rounded to nearest, ties to even, where it has fewer than `x`."""
    if x.bits > bits:
        return rounded_to(x, bits)
    xp = library(x.limbs)
    more = xp.zeros((limbs_of(bits) - len(x.limbs), *x.shape), np.uint32)
    return Numbers(x.signs, x.exponents, xp.concatenate([x.limbs, more]) if len(more) else x.limbs, bits)
