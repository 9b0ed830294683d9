"""Orthonormal and triangular factors to a named accuracy.

The library's own factors are corrected: with E = (A - Q R) inv(R) and K = Q^H E it adds E - Q Y and Y R, Y upper
triangular with Y + Y^H = K + K^H - (I - Q^H Q). What is missing then is of second order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ozaki._accuracy import Accuracy
from ozaki._environment import default_environment
from ozaki.interchange.calls import any_arrays
from ozaki.linalg._arrays import adjoint, array_library, rounded
from ozaki.linalg._correcting import corrected, factor_target, native
from ozaki.linalg._matrices import check_matrix, matrices
from ozaki.linalg._scaling import scaled, tops_or_zero
from ozaki.linalg._solution import empty


class QR(NamedTuple):
    """An orthonormal and an upper triangular factor, and what is proven of them.

    Attributes
    ----------
    q : array or MPArray, shape (m, n)
    r : array or MPArray, shape (n, n); zeros below the diagonal
    error_bound : float
        abs(a - q r)_ij <= error_bound norm(row i of q) norm(column j of r) and abs(I - q^H q)_ij <= error_bound
        norm(column i of q) norm(column j of q), with Euclidean norms. Proven, rounding to the dtype included; inf if
        that underflows.
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
def qr(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> QR:
    """Factor a matrix a = q r to a named accuracy, which is proven: q of orthonormal columns, r upper triangular.

    Parameters
    ----------
    a : array or MPArray, shape (m, n), m >= n, real or complex, of n independent columns
    accuracy : str, int or float, optional
        As in `cholesky`, of a - q r and of I - q^H q.
    dtype : optional
        As in `solve`.

    Returns
    -------
    QR

    Raises
    ------
    numpy.linalg.LinAlgError
        If corrections do not converge, which may be so from a condition number of 1e15 on.
    OverflowError
        If an element is too large for the dtype.
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
    target = factor_target(accuracy, dtype, formats)
    if not a.size:
        return QR(empty(a.shape, target.dtype, a), empty((a.shape[1],) * 2, target.dtype, a), 0.0, 0)
    xp = array_library(a)
    scales = -tops_or_zero(a, 0)
    unit = scaled(a, np.zeros(a.shape[0], np.int64), scales)
    eye = xp.eye(a.shape[1])
    upper = adjoint(xp.tri(a.shape[1])) - eye / 2

    def correction(factors: tuple[Any, ...], rests: list[Any]) -> tuple[Any, ...]:
        q, r = map(rounded, factors)
        of_a, of_eye = rests
        change = of_a @ xp.linalg.inv(r)
        k = adjoint(q) @ change
        y = (k + adjoint(k) - of_eye) * upper  # y + y^H = k + k^H - (I - q^H q)
        return change - q @ y, y @ r

    first = native(lambda x: tuple(xp.linalg.qr(x)), rounded(unit), "of dependent columns")
    factors, bound, steps = corrected(
        target,
        first,
        lambda x: [(unit, x[0], x[1]), (eye, adjoint(x[0]), x[0])],
        correction,
        (xp.zeros(1, int), xp.asarray(-scales)),
    )
    return QR(factors[0], factors[1], bound, steps)
