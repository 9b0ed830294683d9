"""Triangular factors of a matrix with rows exchanged, each entry the nearest float.

The order of the rows is that of exact elimination: the pivot of a column is the largest number that is left in it, of
several the one that LAPACK would take, the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import array_library, on_host
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.scaling import Exponents, Powers, scaled, tops_or_zero
from ozaki.linalg.nearest.bounds import product_errors, vector_errors
from ozaki.linalg.nearest.factors import Factorise, FactorProblem
from ozaki.linalg.nearest.intervals import Interval, Mask
from ozaki.linalg.nearest.near import ScaledFactor, lost_vectors, nothing_known, of_product, triangular_interval
from ozaki.linalg.nearest.patterns import Pattern, filled, pattern_of
from ozaki.linalg.nearest.quotients import quotients
from ozaki.linalg.nearest.settling import settled
from ozaki.linalg.nearest.wholes import (
    Wholes,
    at,
    bits_of,
    conjugate,
    eliminated,
    largest,
    times,
    wholes_of,
    work,
)
from ozaki.linalg.systems.solution import too_small
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved

Order = npt.NDArray[np.int64]


def nearest_lu(a: Any, dtype: str, factorise: Factorise) -> tuple[Any, Any, Any, Bounds, int]:
    """The order of rows of a square matrix, the factors, rounded to nearest, bounds of columns, and corrections.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, OverflowError
        As `factorise`; a LinAlgError for an entry that cannot be decided (`settled`), and where two rows are so nearly
        alike as pivots that it cannot be decided which is the larger.
    """
    problem = _Square(a, factorise)
    try:
        (low, high), _ = settled(problem, dtype, a)
    except np.linalg.LinAlgError:
        if problem.proven or problem.rival is None:
            raise
        row, column = problem.rival
        raise np.linalg.LinAlgError(
            f"reproducible: a row that may be the {row}th pivot is as good as the {column}th one, or nearly so, and "
            "the matrix is too large to decide it exactly; leave reproducible=False"
        ) from None
    if lost_vectors(low, 0) or lost_vectors(low, 1) or lost_vectors(high, 0) or lost_vectors(high, 1):
        too_small(dtype)
    bounds = product_errors(vector_errors(low, 1), vector_errors(high, 0))
    return array_library(a).asarray(problem.order), low, high, bounds, problem.iterations


class _Square(FactorProblem):
    """A square matrix.

    Attributes
    ----------
    order : the rows as they become pivots
    proven : whether that order is known to be the one of exact elimination
    rival : a row of l, and a column, where this was not so
    """

    names: tuple[str, ...] = ("l", "u")

    def __init__(self, a: Any, factorise: Factorise) -> None:
        super().__init__(a, factorise)
        self._tops = tops_or_zero(self._a, 0)
        self._unit = scaled(self._a, Powers(columns=-self._tops))
        self.order: Order = np.arange(len(self._a))
        self.proven = False
        self.rival: tuple[int, int] | None = None

    def enclose(self, bits: int) -> list[Interval]:
        found = self._factors(bits)
        low, high = (moved(x, np) for x in (found.l, found.u))
        try:
            lower, upper = ScaledFactor(found.l, 1), ScaledFactor(found.u, 0)
        except np.linalg.LinAlgError:
            return [nothing_known(x) for x in (low, high)]
        missed = of_product(lower.inverse_norm * upper.inverse_norm * lower.norm * upper.norm * found.error_bound)
        of_l, of_u = lower.errors(missed)[:, None], upper.errors(missed)
        if (rival := _rival(low, high, of_l, of_u)) is not None:
            self.rival = rival
            return [nothing_known(x) for x in (low, high)]
        self.order, self.proven = on_host(found.p).astype(np.int64), True
        return [
            triangular_interval(low, of_l, lower=True, unit=True),
            triangular_interval(high, of_u, lower=False),
        ]

    def patterns(self) -> list[Pattern]:
        n = len(self._a)
        if not self.proven:
            return [np.ones((n, n), np.bool_)] * 2
        found = filled(pattern_of(self._a)[self.order], n)
        return [np.tril(found), np.triu(found)]

    def work(self, which: list[Mask]) -> float:
        n = len(self._a)
        return work(n, n, n, bits_of(self._unit, by_rows=True), self._a.is_complex)

    def exact(self, which: list[Mask]) -> list[MPArray]:
        n = len(self._a)
        wholes, of_rows = wholes_of(self._unit, by_rows=True)
        found, order = eliminated(wholes, n, largest(of_rows))
        self.order = np.array(order)
        of_rows = of_rows[self.order]
        pivots = at(found, (np.arange(n), np.arange(n)))
        before = tuple(np.concatenate([[one], part[:-1]]) for one, part in zip((1, 0), pivots, strict=False))
        low = _quotients(_part(found, np.tri(n, k=-1, dtype=np.bool_)), pivots, of_rows[:, None] - of_rows)
        high = _quotients(
            _part(found, np.tri(n, dtype=np.bool_).T), tuple(x[:, None] for x in before), of_rows[:, None] + self._tops
        )
        return [MPArray._of(low + np.eye(n)), high]


def _part(x: Wholes, kept: Any) -> Wholes:
    return tuple(np.where(kept, part, 0) for part in x)


def _quotients(over: Wholes, under: Wholes, exponent: Any) -> MPArray:
    """Quotients of whole numbers, or Gaussian ones."""
    if len(under) == 1:
        return quotients(over, under[0], exponent)
    return quotients(times(over, conjugate(under)), under[0] * under[0] + under[1] * under[1], exponent)


def _rival(low: MPArray, high: MPArray, of_l: Exponents, of_u: Exponents) -> tuple[int, int] | None:
    """A place below the diagonal of l where a number may be as large as the pivot of its column; None if there is none.

    The factors are off by no more than 2**of_l in rows and 2**of_u in columns. Where all numbers are smaller, the order
    of the rows is that of exact elimination, and no other one is.
    """
    x, off = low.astype("complex128" if low.is_complex else "float64"), np.ldexp(1.0, of_l.clip(-1000, 1000))
    if not low.is_complex:
        sizes = abs(x) + off
    else:
        diagonal = high.diagonal()
        tops = diagonal.exponents.max(axis=-1)
        unit = diagonal.ldexp(-tops).astype("complex128")
        size = abs(unit.real) + abs(unit.imag)
        products = x * (unit / size)
        # Moduli are at most sums of abs of parts, these at most twice the moduli.
        off_u = np.ldexp(1.0, (of_u - tops).clip(-1000, 1000))
        sizes = abs(products.real) + abs(products.imag) + 4 * (off + (abs(x) + off) * off_u)
    found = np.argwhere(np.tril(~(sizes < 1 - 2.0**-48), -1))  # of which roundings here are a small part
    return tuple(found[0].tolist()) if len(found) else None
