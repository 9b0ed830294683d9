"""Determinants of integer matrices, exactly: eliminated modulo many primes, found by the Chinese remainder theorem.

The primes are below 2**23, so residues between -p/2 and p/2 are float64 numbers, and so are sums of `_LONGEST` products
of two of them, whatever the order of summation: BLAS multiplies them exactly. All primes are eliminated at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2, prod

import numpy as np
import numpy.typing as npt

from ozaki.caches import cached
from ozaki.driver.watching import step

Wholes = list[list[int]]
"""The rows of a matrix of Python's integers."""

_LARGEST = 2**23
_LONGEST = 256
"""A residue is at most p/2 (1 + 2**-20), so that 256 products and an addend stay below 2**53."""

_NARROW = 8
"""Columns that are eliminated one by one: fewer than pay for a product."""

_CHUNK = 2**20
"""Elements of all residues that are eliminated at a time: 8 MiB."""

_DIGIT = 24
"""Bits of the digits by which long integers are reduced."""

MOST_BITS = 300_000
"""Bits of the largest determinant: those of float64 matrices of 4000 rows, and of some 13,000 primes."""


def determinant(real: Wholes, imag: Wholes | None = None) -> tuple[int, int]:
    """The real and the imaginary part of the determinant of a square matrix of integers, or of complex ones.

    Raises
    ------
    numpy.linalg.LinAlgError
        If it may have more than `MOST_BITS` bits.
    """
    bits = bits_of_bound(real, imag)
    if bits > MOST_BITS:
        raise np.linalg.LinAlgError(f"a: its determinant may have {bits} bits; expected at most {MOST_BITS}")
    primes = largest_primes(bits, imag is not None)
    step("determinant of up to %d bits modulo %d primes", bits, len(primes))
    found_real, found_imag = _modulo(real, imag, primes)
    return _combined(found_real, primes), _combined(found_imag, primes) if imag is not None else 0


def is_zero_modulo_one(real: Wholes, imag: Wholes | None = None) -> bool:
    """Whether the determinant of a square matrix of integers, or of complex ones, is zero modulo one prime.

    If it is not, nor is the determinant, and hardly ever the other way round.
    """
    return not any(map(any, _modulo(real, imag, largest_primes(1, imag is not None))))


def _modulo(real: Wholes, imag: Wholes | None, primes: list[int]) -> tuple[list[int], list[int]]:
    """The real and the imaginary part of the determinant modulo each prime; of real matrices no imaginary ones."""
    found_real, found_imag = [], []
    each = max(1, _CHUNK // max(1, len(real) ** 2))
    for at in range(0, len(primes), each):
        chunk = primes[at : at + each]
        of_real = residues(real, chunk)
        if imag is None:
            found_real += _eliminated(of_real, chunk)
            continue
        # Modulo p = 1 (mod 4) there is a root of -1; with it and with its negative in place of i the determinant
        # re + i im has two residues, whose sum and difference tell re and im.
        roots = [_root_of_minus_one(p) for p in chunk]
        times_i = residues(imag, chunk) * np.array(roots, np.float64)[:, None, None]
        reduce(times_i, _of(chunk))
        plus, minus = of_real + times_i, of_real - times_i
        for x in (plus, minus):
            reduce(x, _of(chunk))
        for p, root, above, below in zip(
            chunk, roots, _eliminated(plus, chunk), _eliminated(minus, chunk), strict=True
        ):
            found_real.append((above + below) * pow(2, -1, p) % p)
            found_imag.append((above - below) * pow(2 * root, -1, p) % p)
    return found_real, found_imag


def bits_of_bound(real: Wholes, imag: Wholes | None = None) -> int:
    """Bits of a product of primes that is more than twice the abs of the determinant, by Hadamard's inequality."""
    squares = [[x * x for x in row] for row in real]
    if imag is not None:
        squares = [[x + y * y for x, y in zip(*rows, strict=True)] for rows in zip(squares, imag, strict=True)]
    bound = min(prod(map(sum, squares)), prod(map(sum, zip(*squares, strict=True))))
    return ((4 * bound).bit_length() + 1) // 2


def work(n: int, bits: int) -> float:
    """Multiplications that the determinant of an n x n matrix takes, if it may have so many bits."""
    return (n**3 / 3 + 8 * n * bits / _DIGIT) * (bits / 22 + 1)


# Elimination ---------------------------------------------------------------------------------------------------------


def _eliminated(a: npt.NDArray[np.float64], primes: list[int]) -> list[int]:
    """The determinants, modulo the primes, of a stack of matrices of residues, which are overwritten."""
    count, n, _ = a.shape
    p, modulus, all_primes = _of(primes), np.array(primes), np.arange(count)
    found = np.ones(count, np.int64)

    def panel(low: int, high: int) -> None:
        nonlocal found
        for j in range(low, high):
            rows = abs(a[:, j:, j]).argmax(axis=1) + j  # any element that is not 0 does
            exchanged = a[all_primes, rows]
            a[all_primes, rows] = a[:, j]
            a[:, j] = exchanged
            pivots = a[:, j, j].astype(np.int64)
            found = found * np.where(rows == j, pivots, -pivots) % modulus
            inverses = [pow(x, -1, q) if x else 0 for x, q in zip(pivots.tolist(), primes, strict=True)]
            a[:, j + 1 :, j] *= np.array(inverses, np.float64)[:, None]
            reduce(a[:, j + 1 :, j], p[:, 0])
            a[:, j + 1 :, j + 1 : high] -= a[:, j + 1 :, j, None] * a[:, j, None, j + 1 : high]
            reduce(a[:, j + 1 :, j + 1 : high], p)

    def subtract(rows: slice, inner: slice, columns: slice) -> None:
        """Subtract from a block the product of that on its left and that above it."""
        for at in range(inner.start, inner.stop, _LONGEST):
            some = slice(at, min(at + _LONGEST, inner.stop))
            a[:, rows, columns] -= a[:, rows, some] @ a[:, some, columns]
            reduce(a[:, rows, columns], p)

    def substitute(low: int, high: int, columns: slice) -> None:
        """Multiply a block by the inverse of the unit lower triangle on its left."""
        if high - low > _NARROW:
            middle = (low + high) // 2
            substitute(low, middle, columns)
            subtract(slice(middle, high), slice(low, middle), columns)
            substitute(middle, high, columns)
            return
        for i in range(low + 1, high):
            subtract(slice(i, i + 1), slice(low, i), columns)

    def eliminate(low: int, high: int) -> None:
        if high - low <= _NARROW:
            return panel(low, high)
        middle = (low + high) // 2
        eliminate(low, middle)
        substitute(low, middle, slice(middle, high))
        subtract(slice(middle, n), slice(low, middle), slice(middle, high))
        eliminate(middle, high)

    eliminate(0, n)
    residues: list[int] = found.tolist()
    return residues


def _of(primes: list[int]) -> npt.NDArray[np.float64]:
    return np.array(primes, np.float64)[:, None, None]


def reduce(x: npt.NDArray[np.float64], p: npt.NDArray[np.float64] | float) -> None:
    """Replace whole numbers below 2**53 by residues of at most p/2 (1 + 2**-20), in place: 0 for multiples of p."""
    quotients = x * (1 / p)  # off by less than 2**-20
    np.rint(quotients, out=quotients)
    quotients *= p
    x -= quotients


def residues(wholes: Wholes, primes: list[int]) -> npt.NDArray[np.float64]:
    """The residues of a matrix modulo each prime, shape (primes, n, n)."""
    n, p = len(wholes), _of(primes)
    found = np.zeros((len(primes), n, n))
    values = [x for row in wholes for x in row]
    digits = -(-max(map(int.bit_length, values), default=0) // _DIGIT)
    if digits <= 2:
        found += np.array(values, np.float64).reshape(n, n)
        reduce(found, p)
        return found
    size = digits * _DIGIT // 8
    block = np.frombuffer(b"".join([abs(x).to_bytes(size, "big") for x in values]), np.uint8)
    of_bytes = block.reshape(n, n, digits, _DIGIT // 8).astype(np.int64)
    planes = (of_bytes[..., 0] << 16 | of_bytes[..., 1] << 8 | of_bytes[..., 2]).astype(np.float64)
    planes *= np.array([-1.0 if x < 0 else 1.0 for x in values]).reshape(n, n, 1)
    for place in range(digits):
        found *= 2.0**_DIGIT
        found += planes[..., place]
        reduce(found, p)
    return found


# Primes --------------------------------------------------------------------------------------------------------------


@cached(16)
def largest_primes(bits: int, gaussian: bool = False) -> list[int]:
    """The largest primes below 2**23 whose product has more than so many bits; of 1 modulo 4, if `gaussian`."""
    found: list[int] = []
    have = 0.0
    for p in _descending():
        if gaussian and p % 4 != 1:
            continue
        found.append(p)
        have += log2(p) - 2.0**-40
        if have > bits:
            return found
    raise AssertionError("MOST_BITS is for all primes from 2**22 to 2**23")


def _descending() -> Iterator[int]:
    """The primes from 2**22 to 2**23, the largest first."""
    small = [p for p in range(3, ceil(_LARGEST**0.5)) if all(p % q for q in range(2, int(p**0.5) + 1))]
    size = 2**16
    for low in range(_LARGEST - size, _LARGEST // 2 - 1, -size):
        sieve = np.ones(size, bool)
        sieve[low % 2 :: 2] = False
        for p in small:
            sieve[-low % p :: p] = False
        yield from (np.flatnonzero(sieve)[::-1] + low).tolist()


def _root_of_minus_one(p: int) -> int:
    """A root of -1 modulo a prime p that is 1 modulo 4: x**((p - 1) / 4) of an x that is no square."""
    x = next(x for x in range(2, p) if pow(x, (p - 1) // 2, p) == p - 1)
    return pow(x, (p - 1) // 4, p)


def _combined(residues: list[int], primes: list[int]) -> int:
    """The number of the least abs with these residues: the Chinese remainder theorem."""
    product = prod(primes)
    found = 0
    for residue, p in zip(residues, primes, strict=True):
        others = product // p
        found += others * (residue * pow(others % p, -1, p) % p)
    found %= product
    return found - product if 2 * found > product else found
