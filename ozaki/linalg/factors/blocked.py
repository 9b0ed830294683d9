"""Triangular factors by blocks of columns, most of whose work is in products of this library.

A block of columns of L, and of rows of U, is what remains of the matrix there, less a product of the blocks before,
factored by the array library (P. D. Crout's order of LU; of Cholesky the one that looks to the left). So each element
of the matrix takes part in one product, of as many inner indices as there are columns before, and is rounded once.
Residuals of the blocks prove how far the product of the factors is from the matrix (docs/linalg.md, L14); that of the
whole matrix would take several times as many operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ozaki.linalg.common.arrays import adjoint, array_library
from ozaki.linalg.common.products import UNIT, residual
from ozaki.linalg.common.upper import LEAST, UP
from ozaki.linalg.factors.correcting import Near, Product

LEAST_ROWS = 8192
"""Rows of a matrix on a GPU from which on blocks take less time than the array library's factors and one residual of
all of it (docs/performance.md, "Linear algebra")."""

WIDTH = 4096
"""Columns of a block: products of long rows are fast, but residuals, and the array library's share, grow with it."""

TOLERANCE = 2.0**-53
"""The row-column error of a product: no more than rounding to float64 adds."""

FactorsOfColumns = Callable[[Any], tuple[Any, Any, Any]]
"""A function of a matrix, shape (m, w), m >= w, that returns an order of its rows, and factors, (m, w) and (w, w)."""


def by_blocks(a: Any) -> bool:
    """Whether factors by blocks, with their errors, are found sooner than the array library's with theirs."""
    return array_library(a) is not np and len(a) >= LEAST_ROWS


def lu_by_blocks(a: Any, factorise: FactorsOfColumns, width: int = WIDTH) -> tuple[Any, Any, Any, float]:
    """The factors of a square matrix of floats whose columns are about 1, rows exchanged for large pivots.

    Returns
    -------
    order, lower, upper : the rows of a in the order of those of the lower factor, and both factors, shape (n, n)
    error : an upper bound of the row-column error of their product, from a in that order

    Raises
    ------
    numpy.linalg.LinAlgError
        If `factorise` finds none.
    """
    xp, n = array_library(a), len(a)
    order, lower, upper = xp.arange(n), xp.zeros(a.shape, a.dtype), xp.zeros(a.shape, a.dtype)
    errors = [0.0]
    for first, last in _blocks(n, width):
        column = _less(a[order[first:], first:last], lower[first:, :first], upper[:first, first:last])
        exchanged, left, top = factorise(column)
        moved = xp.nonzero(exchanged != xp.arange(n - first))[0]
        for each in (order[first:], lower[first:, :first]):
            each[moved] = each[exchanged[moved]]
        errors.append(_error(column[exchanged], left, top))
        lower[first:, first:last], upper[first:last, first:last] = left, top
        if last < n:
            row = _less(a[order[first:last], last:], lower[first:last, :first], upper[:first, last:])
            right = _solved(left[: last - first], row, unit=True)
            errors.append(_error(row, left[: last - first], right))
            upper[first:last, last:] = right
    return order, lower, upper, _of_all(errors)


def cholesky_by_blocks(a: Any, factorise: Callable[[Any], Any], width: int = WIDTH) -> tuple[Any, float]:
    """The lower factor of a positive definite matrix of floats with a diagonal of about 1, and its error.

    `factorise` finds that of a block on the diagonal. The error is an upper bound of the row-column error.

    Raises
    ------
    numpy.linalg.LinAlgError
        If `factorise` finds none.
    """
    xp, n = array_library(a), len(a)
    lower, errors = xp.zeros(a.shape, a.dtype), [0.0]
    for first, last in _blocks(n, width):
        column = _less(a[first:, first:last], lower[first:, :first], adjoint(lower[first:last, :first]))
        top = factorise(column[: last - first])
        lower[first:last, first:last] = top
        lower[last:, first:last] = adjoint(_solved(top, adjoint(column[last - first :])))
        errors.append(_error(column, lower[first:, first:last], adjoint(top)))
    return lower, _of_all(errors)


def _blocks(n: int, width: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + width, n)) for first in range(0, n, width))


def _less(block: Any, x: Any, y: Any) -> Any:
    """A block of the matrix less x y, rounded once."""
    return residual(block, x, y, TOLERANCE, multiprecision=False) if x.shape[1] else block


def _error(block: Any, x: Any, y: Any) -> float:
    """An upper bound of the row-column error of x y as a block."""
    return Near((x, y), lambda factors: [Product(block, *factors)], TOLERANCE).error()


def _of_all(errors: list[float]) -> float:
    """The bound of the whole product from those of its blocks (docs/linalg.md, L14)."""
    largest = max(errors)
    return max(largest + UNIT * (1 + largest), TOLERANCE) * UP + LEAST


def _solved(lower: Any, b: Any, unit: bool = False) -> Any:
    """The solution of a lower triangular system by the array library; with `unit` the diagonal is of ones.

    Raises
    ------
    numpy.linalg.LinAlgError
        If it is not finite.
    """
    xp = array_library(lower)
    if xp is np:
        from scipy.linalg import solve_triangular
    else:
        from cupyx.scipy.linalg import solve_triangular
    found = solve_triangular(lower, b, lower=True, unit_diagonal=unit, check_finite=False)
    if not bool(xp.isfinite(found).all()):
        raise np.linalg.LinAlgError
    return found
