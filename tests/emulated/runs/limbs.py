"""Kernels on planes of limbs: each with the bits of its function for NumPy arrays, which tests/test_limbs.py checks."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.cupy import limbs as kernels
from ozaki.multiprecision import limbs as functions

SIZES = (1, 2, 3, 7)


def magnitudes(rng: np.random.Generator, size: int, n: int) -> Any:
    """Limbs of which many are zeros, ones, or all bits."""
    limbs = rng.integers(0, 2**32, (size, n), dtype=np.uint32)
    special = rng.choice(np.array([0, 1, 2**31, 2**32 - 1], np.uint32), (size, n))
    limbs = np.where(rng.random((size, n)) < 0.6, special, limbs)
    limbs[:, rng.random(n) < 0.1] = 0
    return limbs


def placed(rng: np.random.Generator, limbs: Any) -> Any:
    """The same limbs on the device, as a part of planes that are longer, or backwards."""
    size, n = limbs.shape
    if rng.random() < 0.3:
        return cp.asarray(np.ascontiguousarray(limbs[:, ::-1]))[:, ::-1]
    wide = cp.asarray(np.zeros((size, n + 5), np.uint32))
    wide[:, 2:-3] = cp.asarray(limbs)
    return wide[:, 2:-3]


def same(expected: Any, got: Any) -> None:
    """Compare arrays, or tuples of them, bit for bit."""
    for x, y in zip(*(each if isinstance(each, tuple) else (each,) for each in (expected, got)), strict=True):
        y = y.get()
        assert x.dtype == y.dtype and x.shape == y.shape
        assert x.tobytes() == y.tobytes()


def zeros_and_windows(rng: np.random.Generator) -> None:
    for size in SIZES:
        n = int(rng.integers(1, 700))
        limbs = magnitudes(rng, size, n)
        there = placed(rng, limbs)
        same(functions.leading_zeros(limbs), kernels.leading_zeros(there))
        same(functions.trailing_zeros(limbs), kernels.trailing_zeros(there))
        start = rng.integers(-40 * size - 70, 40 * size + 70, n)
        start[: n // 9] = rng.choice([-(2**61), 2**61, 0, 32, -32], n // 9)
        for count in (1, size, size + 2):
            same(functions.window(limbs, start, count), kernels.window(there, cp.asarray(start), count))
            for sticky in (False, True):
                signs = rng.integers(-1, 2, n).astype(np.int8)
                expected = rng.integers(-(2**40), 2**40, (count, n))
                got = cp.asarray(expected.copy())
                near = np.clip(start, -(2**40), 2**40)
                functions.add_window(expected, signs, limbs, near, sticky)
                kernels.add_window(got, cp.asarray(signs), there, cp.asarray(near), sticky)
                same(expected, got)


def sums_and_roundings(rng: np.random.Generator) -> None:
    for size in SIZES:
        n = int(rng.integers(1, 700))
        for width in (16, 25, 32):
            sums = rng.integers(-(2**61), 2**61, (size, n))
            sums[0] = rng.integers(-(2**16) + 3, 2**16 - 3, n) if size == 1 else 0
            sums[:, rng.random(n) < 0.1] = 0
            sums[: size // 2] = 0  # so that the numbers fit their limbs
            if size > 1:
                sums[size // 2 :] >>= max(0, 62 - width)
                sums[size // 2] = rng.integers(-3, 4, n)
            same(functions.settled(sums.copy(), width), kernels.settled(cp.asarray(sums.copy()), width))
        limbs = magnitudes(rng, size, n)
        limbs[0] |= np.uint32(2**31)
        limbs[:, rng.random(n) < 0.1] = 0
        there = placed(rng, limbs)
        for bits in {1, 2, 31, 32, 32 * size - 1, 32 * size, int(rng.integers(1, 32 * size + 1))} - {0}:
            if functions.limbs_of(bits) <= size:
                same(functions.rounded(limbs, bits), kernels.rounded(there, bits))


def floats(rng: np.random.Generator) -> None:
    for size in SIZES:
        n = int(rng.integers(1, 700))
        limbs = magnitudes(rng, size, n)
        signs = np.where((limbs != 0).any(axis=0), rng.choice([-1, 1], n), 0).astype(np.int8)
        limbs[0] |= np.where(signs != 0, np.uint32(2**31), np.uint32(0))
        exponents = np.where(signs != 0, rng.integers(-1200, 1200, n), 0)
        exponents[: n // 9] *= 2**40
        for precision, least in ((53, -1074), (24, -149), (11, -24)):
            given = (cp.asarray(signs), cp.asarray(exponents), placed(rng, limbs))
            with np.errstate(all="ignore"):
                expected = functions.to_double(signs, exponents, limbs, precision, least)
            same(expected, kernels.to_double(*given, precision, least))
