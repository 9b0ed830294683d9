"""Random projections of integer matrices modulo two primes, which tell a wrong product from a right one (Freivalds)."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

PRIMES = (2**31 - 19, 2**31 - 61)
"""The primes. No scheme has such moduli, and 2 generates all numbers modulo either: a product that a wrong exponent
makes 2**d times as large, 0 < abs(d) < 2**30, differs modulo both."""

Residues = npt.NDArray[np.int64]
"""Numbers modulo the primes, which are the last axis."""


def random_vector(length: int) -> Residues:
    """A random vector for each prime, shape (length, 2), that nobody can foresee.

    If C is not A B modulo either prime, C x is A (B x) modulo both for one in `PRIMES[0] * PRIMES[1]` of all vectors: a
    row of C - A B that is not zero leaves one of all values to an element of x, whatever the others are.
    """
    generator = np.random.Generator(np.random.Philox(int.from_bytes(os.urandom(16), "little")))
    return generator.integers(0, PRIMES, (length, len(PRIMES)))


def powers_of_two(exponent: int) -> Residues:
    """2**exponent modulo the primes, shape (2,); exponent >= 0."""
    return np.array([pow(2, exponent, p) for p in PRIMES], np.int64)


def reduced(x: npt.NDArray[np.int64]) -> Residues:
    """Integers of shape (..., 2) modulo the primes, in [0, prime)."""
    found: Residues = x % np.array(PRIMES)
    return found
