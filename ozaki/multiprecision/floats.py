"""Between arrays of numbers of the hardware and `Numbers`: float32, float64, integers, expansions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ozaki.multiprecision.errors import element
from ozaki.multiprecision.limbs import (
    add_window,
    largest,
    library,
    limbs_of,
    normalised,
    settled,
    tile_of,
    to_double,
    trailing_zeros,
)
from ozaki.multiprecision.numbers import Numbers, by_parts, of_parts
from ozaki.records.formats import COMPLEX

PRECISION = {"float16": 11, "float32": 24, "float64": 53}
"""Bits of the significand of each format."""

BFLOAT16_BITS = 8
"""Those of bfloat16, the format of the package ml_dtypes, whose numbers are read as float32."""

_LEAST = {"float16": -24, "float32": -149, "float64": -1074}
"""Exponent of the smallest positive number of each format."""


def of_floats(x: Any) -> Numbers:
    """The numbers of a float16, float32 or float64 array, or of a complex64 or complex128 one, exactly.

    Raises
    ------
    ValueError
        If an element is NaN or Inf; the message names it.
    """
    if (index := not_finite(x)) is not None:
        value = x[index].item()
        raise ValueError(f"x: {element(index)} is {value}; there is no such multiprecision number")
    if x.dtype.kind == "c":
        return of_parts(_of_finite(library(x).stack((x.real, x.imag), axis=-1)))
    return _of_finite(x)


def _of_finite(x: Any) -> Numbers:
    xp = library(x)
    bits = PRECISION[str(x.dtype)]
    fraction, exponents = xp.frexp(x)
    whole = (xp.abs(fraction).astype(np.float64) * 2.0**53).astype(np.uint64) << np.uint64(11)
    limbs = xp.stack([(whole >> np.uint64(32)).astype(np.uint32), whole.astype(np.uint32)])
    signs = xp.sign(fraction).astype(np.int8)
    return Numbers(signs, exponents.astype(np.int64), limbs[: limbs_of(bits)], bits)


def not_finite(x: Any) -> tuple[int, ...] | None:
    """The index of the first element that is NaN or Inf; None if all are finite."""
    xp = library(x)
    with np.errstate(all="ignore"):
        total = complex(x.sum())  # one pass, of code that CuPy brings compiled; with NaN or Inf it is not finite
    if np.isfinite(total):
        return None
    finite = xp.isfinite(x)
    if bool(finite.all()):  # the sum has overflowed
        return None
    return tuple(int(i) for i in np.unravel_index(int(xp.argmin(finite.reshape(-1))), x.shape)) if x.ndim else ()


def of_integers(x: Any) -> Numbers:
    """The numbers of an array of integers or bools, exactly."""
    xp = library(x)
    bits = 1 if x.dtype == bool else 8 * x.dtype.itemsize - (x.dtype.kind == "i")
    wide = x.astype(np.uint64) if x.dtype.kind != "i" else x.astype(np.int64)
    negative = wide < 0
    whole = xp.where(negative, -wide.astype(np.int64), wide.astype(np.int64)).astype(np.uint64)  # -2**63 wraps to 2**63
    limbs = xp.stack([(whole >> np.uint64(32)).astype(np.uint32), whole.astype(np.uint32)]).reshape(2, -1)
    limbs, zeros = normalised(limbs, 2)
    exponents = xp.where(zeros < 64, 64 - zeros, 0).reshape(x.shape)
    signs = xp.where(negative, -1, whole != 0).astype(np.int8)
    return Numbers(signs, exponents, limbs[: limbs_of(bits)].reshape(limbs_of(bits), *x.shape), bits)


def of_words(words: Any) -> Numbers:
    """The unevaluated sums of float64 or complex128 arrays, one or more: words[0] + words[1] + ..., exactly.

    Raises
    ------
    ValueError
        If a word is NaN or Inf; the message names it.
    """
    xp = library(words)
    if (index := not_finite(words)) is not None:
        value = words[index].item()
        raise ValueError(f"x: word {index[0]} of {element(index[1:])} is {value}; there is no such number")
    if words.dtype.kind == "c":
        return of_parts(of_words(xp.stack((words.real, words.imag), axis=-1)))
    flat = words.reshape(len(words), prod(words.shape[1:]))
    far = np.int64(2**40)
    highest, lowest = (xp.empty(flat.shape[1], np.int64) for _ in range(2))
    for at in tiles(flat[0]):
        each = _of_finite(flat[:, at])
        absent = each.signs == 0
        highest[at] = xp.where(absent, -far, each.exponents).max(axis=0)
        lowest[at] = xp.where(absent, far, each.exponents - PRECISION["float64"]).min(axis=0)
    span = largest(xp.where(lowest < highest, highest - lowest, 0), 0)
    room = max(len(words) - 1, 0).bit_length()  # a sum of w words has so many bits more than the largest
    out = empty(words.shape[1:], max(span + room, 1), xp)
    count = len(out.limbs)
    for at in tiles(flat[0]):
        each = _of_finite(flat[:, at])  # again, since those of all tiles may not fit in memory
        top = xp.where(highest[at] > -far, highest[at], 0) + room
        sums = xp.zeros((count, top.size), np.int64)
        for word in range(len(words)):
            add_window(sums, each.signs[word], each.limbs[:, word], each.exponents[word] - top)
        store(out, at, *settled(sums), top)
    return trimmed(out)


def empty(shape: tuple[int, ...], bits: int, xp: Any) -> Numbers:
    """An array of zeros whose elements may have `bits` bits."""
    limbs = xp.zeros((limbs_of(bits), *shape), np.uint32)
    return Numbers(xp.zeros(shape, np.int8), xp.zeros(shape, np.int64), limbs, bits)


def tiles(flat: Any, tile: int | None = None) -> Any:
    """Slices that cut an array of shape (n,) into tiles, of `tile` elements if that is given."""
    step = tile or tile_of(flat)
    return (slice(i, i + step) for i in range(0, flat.shape[-1], step))


def store(out: Numbers, at: slice, signs: Any, limbs: Any, top: Any) -> None:
    """Write elements into a tile of a contiguous array and normalise them; their highest bit is worth 2**(top - 1)."""
    xp = library(limbs)
    kept, zeros = normalised(limbs, len(out.limbs))
    out.signs.reshape(-1)[at] = signs
    out.exponents.reshape(-1)[at] = xp.where(signs != 0, top - zeros, 0)
    out.limbs.reshape(len(kept), -1)[:, at] = kept


@by_parts
def trimmed(x: Numbers, tile: int | None = None) -> Numbers:
    """The same numbers, with `bits` reduced to what the longest element needs, at least 1; a view of those of x.

    They are looked through `tile` elements at a time.
    """
    # In the order of memory, which is no copy where the axes of a result lie otherwise.
    axes = sorted(range(1, x.limbs.ndim), key=lambda axis: -x.limbs.strides[axis])
    flat = x.limbs.transpose(0, *axes).reshape(len(x.limbs), -1)
    bits = 1
    for at in tiles(flat, tile):
        most = 32 * len(flat) - trailing_zeros(flat[:, at])
        bits = largest(most, bits)
    return Numbers(x.signs, x.exponents, x.limbs[: limbs_of(bits)], bits)


def to_floats(x: Numbers, dtype: str) -> Any:
    """The elements rounded to nearest floats, ties to even: once, also where the result is subnormal.

    A complex `dtype` rounds each part; a real one takes real numbers alone.
    """
    xp = library(x.limbs)
    if dtype in COMPLEX:
        found = xp.zeros(x.shape, dtype)
        if x.is_complex:
            found.imag[...] = to_floats(x.imag, COMPLEX[dtype])
        found.real[...] = to_floats(x.real, COMPLEX[dtype])
        return found
    assert not x.is_complex
    out = xp.empty(x.size, dtype)
    signs, exponents = x.signs.reshape(-1), x.exponents.reshape(-1)
    limbs = x.limbs.reshape(len(x.limbs), -1)
    with np.errstate(over="ignore", under="ignore"):
        for at in tiles(out):
            found = to_double(signs[at], exponents[at], limbs[:, at], PRECISION[dtype], _LEAST[dtype])
            out[at] = found.astype(dtype, copy=False)
    return out.reshape(x.shape)


def are_whole(x: Numbers) -> bool:
    """Whether all numbers, or the parts of complex ones, are whole."""
    signs, exponents, limbs = x.parts.flat
    return not any(bool(_broken(signs[at], exponents[at], limbs[:, at]).any()) for at in tiles(signs))


def _broken(signs: Any, exponents: Any, limbs: Any) -> Any:
    """Where a number has bits behind the point; signs and exponents of shape (n,), limbs (L, n)."""
    last = 32 * len(limbs) - trailing_zeros(limbs)
    return (signs != 0) & (last > exponents)


def to_int64(x: Numbers) -> Any:
    """The elements as an int64 array.

    Raises
    ------
    OverflowError
        If an element does not fit; the message names it.
    ValueError
        If an element is no whole number; the message names it.
    """
    xp = library(x.limbs)
    broken = _broken(*x.flat).reshape(x.shape)
    if bool(broken.any()):
        index = [int(i[0]) for i in xp.nonzero(broken)] if x.ndim else []
        raise ValueError(f"dtype: entry {index} of the result is no whole number; ask for dtype='mp'")
    head = x.limbs[0].astype(np.uint64) << np.uint64(32)
    if len(x.limbs) > 1:
        head |= x.limbs[1]
    lowest = (x.signs == -1) & (x.exponents == 64) & (head == np.uint64(2**63))
    too_large = (x.exponents > 63) & ~lowest
    if bool(too_large.any()):
        index = [int(i[0]) for i in xp.nonzero(too_large)] if x.ndim else []
        raise OverflowError(f"dtype: entry {index} of the result does not fit int64; ask for dtype='mp'")
    shift = xp.clip(64 - x.exponents, 0, 63).astype(np.uint64)
    return xp.where(x.exponents > 0, (head >> shift).astype(np.int64) * x.signs, 0)
