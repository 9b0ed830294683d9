"""Triangular factors of positive definite matrices to a named accuracy.

The library's own factor L is corrected: with F = inv(L) (A - L L^H) inv(L^H) it adds L lower(F), lower(F) with half of
the diagonal of F. The product then differs from A by terms of second order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ozaki._accuracy import Accuracy
from ozaki._environment import default_environment
from ozaki.interchange.calls import any_arrays
from ozaki.linalg._arrays import adjoint, array_library, hermitian, masked, rounded
from ozaki.linalg._correcting import corrected, factor_target, native
from ozaki.linalg._matrices import check_matrix, matrices
from ozaki.linalg._scaling import scaled, tops_or_zero
from ozaki.linalg._solution import empty


class Cholesky(NamedTuple):
    """A lower triangular factor, and what is proven of it.

    Attributes
    ----------
    l : array or MPArray, shape (n, n); zeros above the diagonal
    error_bound : float
        abs(a - l l^H)_ij <= error_bound norm(l_i) norm(l_j), l_i the rows of l and norm the Euclidean one: these norms
        are near the square roots of a's diagonal. Proven, rounding to the dtype included; inf if that underflows.
    iterations : int
        Corrections.
    """

    l: Any  # noqa: E741
    error_bound: float
    iterations: int


@any_arrays("a")
@default_environment
@np.errstate(all="ignore")
def cholesky(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> Cholesky:
    """Factor a positive definite matrix a = l l^H to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (n, n), symmetric or Hermitian
        As in NumPy and LAPACK only the lower triangle is read, and of its diagonal the real part: where the upper one
        has other numbers, a stands for another matrix.
    accuracy : str, int or float, optional
        "fp64", a number of bits or a tolerance t, before l is rounded to its dtype: abs(a - l l^H)_ij <= t norm(l_i)
        norm(l_j). Up to 900 bits. Default: as many bits as the dtype has.
    dtype : optional
        As in `solve`.

    Returns
    -------
    Cholesky

    Raises
    ------
    numpy.linalg.LinAlgError
        If float64 does not find a factor: a is not positive definite, or so ill-conditioned (1e15) that roundings leave
        that open; `eigh` tells which.
    OverflowError
        If an element of l is too large for the dtype.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> l, error_bound, _ = ozaki.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 3.0]]), accuracy=120, dtype="mp")
    >>> l
    mparray([[    2.0,     0.0],
             [    1.0, 1.41421]], bits=...)
    """
    (a,), formats = matrices(lower=True, a=a)
    check_matrix("a", a, square=True)
    target = factor_target(accuracy, dtype, formats)
    if not a.size:
        return Cholesky(empty(a.shape, target.dtype, a), 0.0, 0)
    xp = array_library(a)
    strict, half = xp.tri(a.shape[0], k=-1), xp.eye(a.shape[0]) / 2
    a = hermitian(a)
    scales = -(tops_or_zero(masked(a, xp.eye(a.shape[0])), 0) // 2)  # the diagonal of a becomes about 1
    unit = scaled(a, scales, scales)
    first = native(xp.linalg.cholesky, rounded(unit), "not positive definite", "; ozaki.linalg.eigh tells which")

    def correction(factors: tuple[Any, ...], rests: list[Any]) -> tuple[Any, ...]:
        left = rounded(factors[0])
        inverse = xp.linalg.inv(left)
        (rest,) = rests
        f = inverse @ rest @ adjoint(inverse)
        return (left @ (f * strict + (f * half).real),)

    factors, bound, steps = corrected(
        target, (first,), lambda x: [(unit, x[0], adjoint(x[0]))], correction, (xp.asarray(-scales)[:, None],)
    )
    return Cholesky(factors[0], bound, steps)
