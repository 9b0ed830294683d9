"""Numbers that look random, and are the same with every version of NumPy: integer arithmetic makes them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import ozaki

_BITS = {"float32": 24, "float64": 53}
"""Bits of the significands of each format."""


def integers(seed: int, count: int) -> npt.NDArray[np.uint64]:
    """Return integers of 64 bits by SplitMix64: a counter, whose bits are mixed by multiplications modulo 2**64."""
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def real(seed: int, shape: tuple[int, ...], dtype: str = "float64", span: int = 6, top: int = 0) -> npt.NDArray[Any]:
    """Return numbers with full significands, both signs, and one zero in eight.

    Their magnitudes lie from 2**(top - span - 1) to 2**top. Nothing is rounded: whole numbers below 2**24 or 2**53
    become floats, and these are multiplied by powers of two.
    """
    size, bits = prod(shape), _BITS[dtype]
    significand, other = np.split(integers(seed, 2 * size), 2)
    whole = (significand >> np.uint64(65 - bits) | np.uint64(1 << bits - 1)).astype(np.int64)
    whole[other & np.uint64(1) == 1] *= -1
    whole[(other >> np.uint64(1)) % np.uint64(8) == 0] = 0
    exponents = top - bits - ((other >> np.uint64(8)) % np.uint64(span + 1)).astype(np.int32)
    return np.asarray(np.ldexp(whole.astype(dtype), exponents)).reshape(shape)


def complex_numbers(seed: int, shape: tuple[int, ...], dtype: str = "complex128", span: int = 6) -> npt.NDArray[Any]:
    """Return complex numbers, whose parts are as `real` makes them."""
    parts = real(seed, (*shape, 2), "float64" if dtype == "complex128" else "float32", span)
    return np.asarray(parts.view(dtype)[..., 0])


def wholes(seed: int, shape: tuple[int, ...], bits: int) -> npt.NDArray[np.int64]:
    """Return whole numbers from -2**bits to 2**bits - 1, for up to 63 bits."""
    return (integers(seed, prod(shape)).view(np.int64) >> np.int64(63 - bits)).reshape(shape)


def multiprecision(seed: int, shape: tuple[int, ...]) -> ozaki.MPArray:
    """Return multiprecision numbers of 160 bits: sums of three floats, each far below the one before it."""
    words = tuple(real(seed + 3 * i, shape, top=-55 * i) for i in range(3))
    return ozaki.mparray(words, bits=160)
