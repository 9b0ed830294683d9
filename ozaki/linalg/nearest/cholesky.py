"""Cholesky factors, each entry the nearest float."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.linalg.common.arrays import masked
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.scaling import Powers, scaled, tops_or_zero
from ozaki.linalg.nearest.bounds import product_errors, vector_errors
from ozaki.linalg.nearest.factors import Factorise, FactorProblem
from ozaki.linalg.nearest.intervals import Interval, Mask
from ozaki.linalg.nearest.near import ScaledFactor, lost_vectors, nothing_known, of_square, triangular_interval
from ozaki.linalg.nearest.patterns import Pattern, filled, pattern_of, with_real_diagonal
from ozaki.linalg.nearest.quotients import by_roots
from ozaki.linalg.nearest.settling import settled
from ozaki.linalg.nearest.wholes import Wholes, bits_of, conjugate, eliminated, wholes_of, work
from ozaki.linalg.systems.solution import too_small
from ozaki.multiprecision.array import MPArray


def nearest_cholesky(a: Any, dtype: str, factorise: Factorise) -> tuple[Any, Bounds, int]:
    """The lower factor of a Hermitian matrix, rounded to nearest, bounds of columns of its product, and corrections.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, OverflowError
        As `factorise`; a LinAlgError for an entry that cannot be decided (`settled`).
    """
    problem = _Definite(a, factorise)
    (low,), _ = settled(problem, dtype, a)
    if lost_vectors(low, 0) or lost_vectors(low, 1):
        too_small(dtype)
    rows = vector_errors(low, 1)
    return low, product_errors(rows, rows), problem.iterations


class _Definite(FactorProblem):
    """A positive definite matrix."""

    names: tuple[str, ...] = ("l",)

    def __init__(self, a: Any, factorise: Factorise) -> None:
        super().__init__(a, factorise)
        self._tops = tops_or_zero(masked(self._a, np.eye(len(self._a))), 0) // 2
        self._unit = scaled(self._a, Powers(-self._tops, -self._tops))

    def enclose(self, bits: int) -> list[Interval]:
        found = self._factors(bits)
        try:
            factor = ScaledFactor(found.l, 1)
        except np.linalg.LinAlgError:
            return [nothing_known(found.l)]
        missed = factor.inverse_norm**2 * factor.norm**2 * found.error_bound
        return [triangular_interval(found.l, factor.errors(of_square(missed))[:, None], lower=True)]

    def patterns(self) -> list[Pattern]:
        found = np.tril(filled(pattern_of(self._a), len(self._a)))
        return [with_real_diagonal(found, self._a.is_complex)]

    def work(self, which: list[Mask]) -> float:
        n = len(self._a)
        return work(n, n, n, bits_of(self._unit), self._a.is_complex)

    def exact(self, which: list[Mask]) -> list[MPArray]:
        wholes, exponent = with_even_power(self._unit)
        found, _ = eliminated(wholes, len(self._a))
        over, under = rooted(found, len(self._a))
        # Rows of the upper factor are columns of the lower one.
        return [by_roots(tuple(x.T for x in conjugate(over)), under, exponent + self._tops[:, None])]


def rooted(found: Wholes, pivots: int) -> tuple[Wholes, Any]:
    """Of an elimination of [R^H R, R^H X] the numbers n and d, one for each row, with n / sqrt(d) = [R, X].

    Row k of the upper factor is n over the minor of order k, and its diagonal is the square of that of R.
    """
    minors = [1, *(found[0][k, k] for k in range(pivots))]
    below = np.tri(pivots, found[0].shape[1], k=-1, dtype=np.bool_)
    over = tuple(np.where(below, 0, part[:pivots]) for part in found)
    return over, np.array([minors[k] * minors[k + 1] for k in range(pivots)], dtype=object)


def with_even_power(a: MPArray) -> tuple[Wholes, int]:
    """A matrix as whole numbers, and the exponent of the root of the power of two that they are multiplied by."""
    wholes, exponents = wholes_of(a)
    odd = int(exponents[0]) % 2
    return tuple(part << odd for part in wholes), (int(exponents[0]) - odd) // 2
