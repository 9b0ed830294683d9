"""Whether a square matrix is singular, exactly: an elimination modulo one prime tells nearly always that it is not.

Where that finds a determinant of zero, a vector of integers which the matrix takes to zero proves that it is one. The
vector is found modulo powers of the prime, each digit by a product with an inverse modulo the prime, of as many digits
as it takes (J. D. Dixon, "Exact solution of linear equations using p-adic expansions", Numer. Math. 40, 1982).
"""

from __future__ import annotations

from math import ceil, isqrt, log2
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import step
from ozaki.linalg.determinants import modular
from ozaki.linalg.determinants.integers import integers

_MOST_WORK = 2.0**35
"""Most multiplications modulo primes, some 20 seconds, that are made without being asked for."""

_MOST_DIGITS = 400
"""The most digits of a vector: of 200 rows they take some 0.2 seconds."""

_PANEL = 16
"""Columns that are eliminated one by one."""

_LONGEST = 256
"""As in `modular`: products of residues that are added before the sum is reduced."""

_DIGIT = 20
"""Bits of the digits of elements: 2048 products with residues below 2**22 stay below 2**53."""

_MOST_ROWS = 2048


def is_singular(a: Any, most: float = _MOST_WORK) -> bool:
    """Whether a square matrix is known to be singular; False where it is not, or to know it takes too long.

    `most` is how many multiplications modulo primes may be made where no vector is found.
    """
    try:
        _, real, imag = integers(a)
        if not real:
            return bool(a.shape[0] > 0)
        if not modular.is_zero_modulo_one(real, imag):
            return False
        whole = real if imag is None else _of_parts(real, imag)
        if len(whole) <= _MOST_ROWS and _null_vector(whole) is not None:
            return True
        work = modular.work(len(real), modular.bits_of_bound(real, imag))
        return work <= most and not any(modular.determinant(real, imag))
    except np.linalg.LinAlgError:  # of too many bits
        return False


def _of_parts(real: modular.Wholes, imag: modular.Wholes) -> modular.Wholes:
    """The real matrix [[re, -im], [im, re]], which is singular if re + i im is."""
    above = [[*x, *(-each for each in y)] for x, y in zip(real, imag, strict=True)]
    return above + [[*y, *x] for x, y in zip(real, imag, strict=True)]


def _null_vector(a: modular.Wholes) -> list[int] | None:
    """Integers, not all zero, that a matrix takes to zero; None if none are found."""
    n, (p,) = len(a), modular.largest_primes(1)
    near = _Reduced.of(modular.residues(a, [p])[0], p)
    if len(near.columns) == n:
        return None
    free = next(j for j in range(n) if j not in near.columns)
    digits = _planes([[a[i][j] for j in near.columns] for i in near.rows])
    rest = [-a[i][free] for i in near.rows]
    most = min(_MOST_DIGITS, 2 * ceil((modular.bits_of_bound(a) + 1) / log2(p)) + 2)
    found, power = [0] * len(rest), 1
    for count in range(1, most + 1):
        digit = near.times([x % p for x in rest])
        found = [x + int(y) * power for x, y in zip(found, digit.tolist(), strict=True)]
        power *= p
        products = [0] * len(rest)
        for place, plane in enumerate(digits):
            products = [x + (int(y) << _DIGIT * place) for x, y in zip(products, (plane @ digit).tolist(), strict=True)]
        rest = [(x - y) // p for x, y in zip(rest, products, strict=True)]
        if (count & count - 1 == 0 or count == most) and (fractions := _fractions(found, power)) is not None:
            numerators, denominator = fractions
            vector = [0] * n
            vector[free] = denominator
            for j, x in zip(near.columns, numerators, strict=True):
                vector[j] = x
            if not any(sum(map(mul, row, vector)) for row in a):
                step("singular: a vector of %d digits modulo %d", count, p)
                return vector
    return None


def _fractions(found: list[int], modulus: int) -> tuple[list[int], int] | None:
    """Numerators, and a denominator of all, of fractions with these residues, below half of the root of the modulus."""
    limit, denominator = isqrt(modulus // 2), 1
    for x in found:
        residue = x * denominator % modulus
        if min(residue, modulus - residue) <= limit:
            continue
        # The Euclidean algorithm on the modulus and the residue, up to the first remainder below the limit.
        before, rest, first, second = modulus, residue, 0, 1
        while rest > limit:
            quotient = before // rest
            before, rest, first, second = rest, before - quotient * rest, second, first - quotient * second
        denominator *= abs(second)
        if denominator > limit:
            return None
    numerators = [x * denominator % modulus for x in found]
    numerators = [x - modulus if 2 * x > modulus else x for x in numerators]
    return (numerators, denominator) if all(abs(x) <= limit for x in numerators) else None


def _planes(a: modular.Wholes) -> list[npt.NDArray[np.float64]]:
    """Digits of the elements of a square matrix, the least significant first, with their signs."""
    count = max(1, -(-max((abs(x).bit_length() for row in a for x in row), default=0) // _DIGIT))
    if count == 1:
        return [np.array(a, np.float64).reshape(len(a), len(a))]
    mask = (1 << _DIGIT) - 1

    def digit(x: int, place: int) -> int:
        return (abs(x) >> _DIGIT * place & mask) * (-1 if x < 0 else 1)

    return [np.array([[digit(x, place) for x in row] for row in a], np.float64) for place in range(count)]


class _Reduced(NamedTuple):
    """Rows and columns whose block is regular modulo a prime, as many as there are, and the inverse of that block.

    Attributes
    ----------
    rows, columns : places
    inverse : residues
    p : the prime
    """

    rows: list[int]
    columns: list[int]
    inverse: npt.NDArray[np.float64]
    p: int

    @staticmethod
    def of(a: npt.NDArray[np.float64], p: int) -> _Reduced:
        """By Gauss-Jordan elimination of a matrix of residues."""
        n, prime = len(a), float(p)
        m, rows, columns = np.concatenate([a, np.eye(n)], axis=1), np.arange(n), list[int]()
        for low in range(0, n, _PANEL):
            start, part = len(columns), slice(low, min(low + _PANEL, n))
            # What elimination of these columns makes of the rows in whose places pivots are: `turn` times them.
            panel, turn = m[:, part].copy(), np.zeros((n, 0))
            for j in range(panel.shape[1]):
                r = len(columns)
                nonzero = np.flatnonzero(panel[r:, j])
                if not nonzero.size:
                    continue
                order = [r, r + int(nonzero[0])]
                for x in (m, panel, turn, rows):
                    x[order] = x[order[::-1]]
                unit = np.zeros((n, 1))
                unit[r] = 1
                turn = np.concatenate([turn, unit], axis=1)
                by = float(pow(int(panel[r, j]), -1, p))
                factors = panel[:, [j]].copy()
                factors[r] = 0
                for x in (panel, turn):
                    x[r] *= by
                    modular.reduce(x[r], prime)
                    x -= factors * x[r]
                    modular.reduce(x, prime)
                columns.append(low + j)
            pivots = slice(start, len(columns))
            for rest in (slice(part.stop, n), slice(n, 2 * n)):
                above = m[pivots, rest].copy()
                m[pivots, rest] = 0
                m[:, rest] += turn @ above
                modular.reduce(m[:, rest], prime)
        order = rows[: len(columns)].tolist()
        return _Reduced(order, columns, m[: len(columns), n:][:, order].copy(), p)

    def times(self, x: list[int]) -> npt.NDArray[np.float64]:
        """The inverse times residues."""
        right = np.array(x, np.float64)
        modular.reduce(right, float(self.p))
        found = np.zeros(len(x))
        for at in range(0, len(x), _LONGEST):
            some = slice(at, at + _LONGEST)
            found += self.inverse[:, some] @ right[some]
            modular.reduce(found, float(self.p))
        return found
