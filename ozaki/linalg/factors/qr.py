"""Orthonormal and triangular factors to a named accuracy.

The factors that NumPy or CuPy finds are corrected: with E = (A - Q R) inv(R) and K = Q^H E a correction adds E - Q Y
and Y R, Y upper triangular with Y + Y^H = K + K^H - (I - Q^H Q). What is missing then is of second order. That fails
for condition numbers of 1e15 and more. Then A S is factored, with the S of least squares (`_inverses.py`), which is
triangular: Q is that of A, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint, array_library, exactly, rounded
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import product_within
from ozaki.linalg.common.scaling import NO_POWERS, Powers, nonzero_tops, scaled, without_tiny
from ozaki.linalg.factors.correcting import (
    Corrected,
    Product,
    Products,
    corrected,
    factor_target,
    native,
    rounded_factors,
    transformed,
    triangle,
)
from ozaki.linalg.nearest.asking import to_nearest
from ozaki.linalg.nearest.bounds import of_kind
from ozaki.linalg.nearest.qr import nearest_qr
from ozaki.linalg.systems.inverses import least_squares_inverse
from ozaki.linalg.systems.solution import empty
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


class QR(NamedTuple):
    """An orthonormal and an upper triangular factor, and what is proven of them.

    Attributes
    ----------
    q : array or MPArray, shape (m, n)
    r : array or MPArray, shape (n, n); zeros below the diagonal
    error_bound : float
        abs(a - q r)_ij <= error_bound norm(column j of r) and abs(I - q^H q)_ij <= error_bound norm(column i of q)
        norm(column j of q), with Euclidean norms. Proven, rounding to the dtype included.
    iterations : int
        Corrections.
    """

    q: Any
    r: Any
    error_bound: float
    iterations: int


@any_arrays("a")
@default_environment
@np.errstate(all="ignore")
@named("qr", solves=True)
def qr(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None, reproducible: bool = False) -> QR:
    """Factor a matrix a = q r to a named accuracy, which is proven: q of orthonormal columns, r upper triangular.

    Parameters
    ----------
    a : array or MPArray, shape (m, n), m >= n, real or complex, of n independent columns
    accuracy : str, int or float, optional
        As in `cholesky`, of a - q r and of I - q^H q.
    dtype, reproducible : optional
        As in `solve`; of `reproducible` the entries of the one q and r for which the diagonal of r is positive.

    Returns
    -------
    QR

    Raises
    ------
    numpy.linalg.LinAlgError
        If columns of a are dependent, or its condition number is above 2^300, columns scaled. If `reproducible`, as in
        `solve`.
    OverflowError
        If an element is too large for the dtype, or a whole row or column too small.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> q, r, error_bound, _ = ozaki.linalg.qr(np.vander(np.arange(1.0, 9.0), 5), accuracy="fp64")
    >>> abs(q.T @ q - np.eye(5)).max() < 1e-15, error_bound < 1e-15
    (True, True)
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a, tall=True)
    nearest, accuracy = to_nearest(accuracy, reproducible)
    target = factor_target(accuracy, dtype, formats)
    if nearest and a.size:
        q, r, bounds, steps = nearest_qr(a, target.dtype, lambda bits: qr(a, accuracy=bits, dtype="mp"))
        result: QR = of_kind(QR, q, r, float(bounds.max()), steps, error_bounds=bounds)
        return reached(result, q.shape, r, "columnwise")
    if not a.size:
        q, r = empty(a.shape, target.dtype, a), empty((a.shape[1],) * 2, target.dtype, a)
        return reached(QR(q, r, 0.0, 0), q.shape, r, "columnwise")
    scales = -nonzero_tops(a, 0, "columns are dependent, column")
    unit, cleared = without_tiny(scaled(a, Powers(columns=scales)))
    found = _factored(unit, target.tolerance)
    powers = NO_POWERS, Powers(columns=-scales)
    (q, r), bound = rounded_factors(target, found, _products(unit), powers, cleared)
    return reached(QR(q, r, bound, found.steps), q.shape, r, "columnwise")


def _products(a: Any) -> Products:
    eye = array_library(a).eye(a.shape[1])
    return lambda factors: [
        Product(a, factors[0], factors[1], by_columns=True),
        Product(eye, adjoint(factors[0]), factors[0]),
    ]


def _factored(a: Any, tolerance: float) -> Corrected:
    """The factors of a matrix with columns of about 1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the columns are dependent, or the condition number is too large.
    """
    s = least_squares_inverse(a).s  # upper triangular, and A S is well-conditioned: that proves columns independent
    with suppress(np.linalg.LinAlgError):  # failure mostly means ill-conditioned; what follows tells
        return _corrected(a, tolerance)

    def factors_at(finer: float) -> Corrected:
        inner = _corrected(product_within(a, s, finer), finer)
        q = exactly(inner.factors[0])
        # S is upper triangular, so the first columns of Q span those of A: Q^H A is upper triangular, too.
        upper = array_library(a).tri(a.shape[1]).T
        return Corrected((q, triangle(product_within(adjoint(q), a, finer), upper, finer)), inner.steps)

    return transformed(tolerance, a.shape[1], factors_at, _products(a), _DEPENDENT)


_DEPENDENT = "columns are dependent, or the condition number is too large"


def _corrected(a: Any, tolerance: float) -> Corrected:
    """The factors that NumPy or CuPy finds, corrected.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there are none, or corrections do not converge.
    """
    xp = array_library(a)
    upper = adjoint(xp.tri(a.shape[1])) - xp.eye(a.shape[1]) / 2

    def correction(factors: tuple[Any, ...], rests: tuple[Any, ...]) -> tuple[Any, ...]:
        q, r = map(rounded, factors)
        of_a, of_eye = rests
        change = of_a @ xp.linalg.inv(r)
        k = adjoint(q) @ change
        y = (k + adjoint(k) - of_eye) * upper  # y + y^H = k + k^H - (I - q^H q)
        return change - q @ y, y @ r

    first = native(lambda x: tuple(xp.linalg.qr(x)), rounded(a), _DEPENDENT)
    return corrected(tolerance, first, _products(a), correction)
