"""Orthonormal and triangular factors to a named accuracy.

The factors that NumPy or CuPy finds are corrected: with E = (A - Q R) inv(R) and K = Q^H E a correction adds E - Q Y
and Y R, Y upper triangular with Y + Y^H = K + K^H - (I - Q^H Q). What is missing then is of second order. That fails
for condition numbers of 1e15 and more. Then A S is factored, with the S of least squares (`systems/inverses.py`), which
is triangular: Q is that of A, too. Of a matrix with more columns than rows A are the first ones; with B the others, to
whose R belongs T = Q^H B, a correction adds Q^H (B - Q T) + (Y - K) T to that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint, array_library, exactly, on_host, rounded
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import Bounds, product_within
from ozaki.linalg.common.results import Bounded, largest_of_each
from ozaki.linalg.common.scaling import NO_POWERS, Powers, nonzero_tops, scaled, tops_or_zero, without_tiny
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.triangles import triangular_inverse
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
from ozaki.linalg.factors.stacks import in_parts, qr_at_once, takes
from ozaki.linalg.nearest.asking import check_format, to_nearest
from ozaki.linalg.nearest.qr import nearest_qr
from ozaki.linalg.systems.gathering import of_each, with_the_rest
from ozaki.linalg.systems.inverses import least_squares_inverse
from ozaki.linalg.systems.solution import empty, in_format
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.checks import check_flag
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


class _QR(NamedTuple):
    q: Any
    r: Any
    error_bound: Any
    iterations: int


class QR(Bounded, _QR):
    """An orthonormal and an upper triangular factor, and what is proven of them.

    Attributes
    ----------
    q : array or MPArray, shape (..., m, k), k the lesser of m and n; (..., m, m) of the mode "complete"; None of the
        mode "r"
    r : array or MPArray, shape (..., k, n); zeros below the diagonal; (..., m, n) of the mode "complete"
    error_bound : float, or NumPy array of float64 of the shape of a stack
        abs(a - q r)_ij <= error_bound norm(column j of r) and abs(I - q^H q)_ij <= error_bound norm(column i of q)
        norm(column j of q), with Euclidean norms. Proven, rounding to the dtype included. Of the mode "r" it holds for
        a q that is not returned.
    iterations : int
        Corrections; of a stack the most of a matrix.
    error_bounds : NumPy array of float64
        As `error_bound`, for each column j of r and of q, as many as the wider of the two has, for each matrix of a
        stack; no item of the tuple.
    """


class PivotedQR(NamedTuple):
    """The factors of a matrix with its columns in another order, and what is proven of them.

    Attributes
    ----------
    q, r, error_bound, error_bounds, iterations
        As of `QR`, with a[:, p] in place of a.
    p : int array, shape (..., n)
        The columns of a in the order of those of r: a[:, p] is nearly q r, of each matrix of a stack.
    """

    q: Any
    r: Any
    p: Any
    error_bound: Any
    error_bounds: Bounds
    iterations: int


Mode = Literal["reduced", "complete", "r"]


@overload
def qr(
    a: Any,
    mode: Mode = "reduced",
    *,
    pivoting: Literal[False] = False,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
    reproducible: bool = False,
) -> QR: ...
@overload
def qr(
    a: Any,
    mode: Mode = "reduced",
    *,
    pivoting: Literal[True],
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
    reproducible: Literal[False] = False,
) -> PivotedQR: ...
@any_arrays("a", numpy=("error_bound", "error_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("qr", solves=True)
def qr(
    a: Any,
    mode: Mode = "reduced",
    *,
    pivoting: bool = False,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
    reproducible: bool = False,
) -> QR | PivotedQR:
    """Factor a matrix a = q r to a named accuracy, which is proven: q of orthonormal columns, r upper triangular.

    Parameters
    ----------
    a : array or MPArray, shape (..., m, n), real or complex
        Its first k columns are independent, k the lesser of m and n.
    mode : {"reduced", "complete", "r"}, optional
        q of k columns; of m columns, those beyond k orthonormal to all others, and r with zeros in the rows below; or r
        alone, q being None.
    pivoting : bool, optional
        Exchange columns, as LAPACK does in float64: each next one is the farthest from the space of those before, so
        that elements on the diagonal of r decrease (more or less, where they hardly differ). Then only the first k of
        these need be independent. NumPy and CuPy have no such function: SciPy's is asked, on the host.
    accuracy : str, int or float, optional
        As in `cholesky`, of a - q r and of I - q^H q.
    dtype, reproducible : optional
        As in `solve`; of `reproducible` the entries of the one q and r for which the diagonal of r is positive.

    Returns
    -------
    QR, or with pivoting PivotedQR

    Raises
    ------
    numpy.linalg.LinAlgError
        If the columns that are to be independent are not, or their condition number is above 2^300, columns scaled. If
        `reproducible`, as in `solve`.
    ImportError
        With pivoting, without SciPy.
    OverflowError
        If an element is too large for the dtype, or a whole row or column too small.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Notes
    -----
    The array library's factors, in float64, are corrected: with E = (a - q r) inv(r) and K = q^H E they become q + E -
    q Y and r + Y r, Y upper triangular with Y + Y^H = K + K^H - (I - q^H q). Of an ill-conditioned a those of a s are,
    with the triangular s of `lstsq`. However they were found, the residuals a - q r and I - q^H q of the rounded
    factors bound their errors (docs/linalg.md, L4; in float64 L13; wide and complete ones L8;
    nearest entries L12).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> q, r, error_bound, _ = ozaki.linalg.qr(np.vander(np.arange(1.0, 9.0), 5), accuracy="fp64")
    >>> bool(abs(q.T @ q - np.eye(5)).max() < 1e-15), error_bound < 1e-15
    (True, True)
    >>> q, r, p, *_ = ozaki.linalg.qr(np.array([[1.0, 3.0], [1.0, 4.0], [1.0, 5.0]]), "complete", pivoting=True)
    >>> q.shape, r.shape, p
    ((3, 3), (3, 2), array([1, 0]))
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode: {mode!r}; expected 'reduced', 'complete' or 'r'")
    check_flag("pivoting", pivoting)
    (a,), formats = matrices(a=a)
    check_matrix("a", a)
    nearest, accuracy = to_nearest(accuracy, reproducible)
    if nearest and (pivoting or mode == "complete" or a.shape[-2] < a.shape[-1]):
        raise ValueError(
            "reproducible: the nearest numbers are found of q and r of a matrix with at least as many rows as columns, "
            "with mode='reduced' or 'r', and without pivoting"
        )
    target = factor_target(accuracy, dtype, formats)
    if nearest:
        check_format(target.dtype)

    def one(each: Any) -> QR | PivotedQR:
        if pivoting:
            return _pivoted(each, mode, target)
        return _nearest_of_one(each, mode, target) if nearest else _of_one(each, mode, target)

    found: QR | PivotedQR
    simple = not (pivoting or nearest or (mode == "complete" and a.shape[-2] > a.shape[-1]))
    if simple and takes(target, a):
        (q, r), bounds, met, steps = in_parts(qr_at_once, a, target)
        found = with_the_rest(_found(mode, q, r, bounds, steps), met, lambda each: _of_one(each, mode, target), a)
    else:
        found = of_each(one, a)
    m, k = a.shape[-2], found.r.shape[-2]
    return reached(found, (*a.shape[:-2], m, k), found.r, "columnwise")


def _of_one(a: Any, mode: Mode, target: Target) -> QR:
    """The factors of one matrix."""
    return _found(mode, *orthonormal(a, target, complete=mode == "complete"))


def _found(mode: Mode, q: Any, r: Any, bounds: Any, steps: int) -> QR:
    """The factors of one matrix, or of a stack that were found at once."""
    return QR.of(None if mode == "r" else q, r, largest_of_each(bounds), steps, error_bounds=bounds)


def _nearest_of_one(a: Any, mode: Mode, target: Target) -> QR:
    """The floats nearest to those of the factors of one matrix."""
    if not a.size:
        return _of_one(a, mode, target)
    q, r, bounds, steps = nearest_qr(a, target.dtype, lambda bits: qr(a, accuracy=bits, dtype="mp"))
    return _found(mode, q, r, bounds, steps)


def _pivoted(a: Any, mode: Mode, target: Target) -> PivotedQR:
    """The factors of one matrix with its columns exchanged."""
    p = _pivots(a)
    found = _of_one(a[:, p], mode, target)
    return PivotedQR(found.q, found.r, p, found.error_bound, found.error_bounds, found.iterations)


def _pivots(a: Any) -> Any:
    """The order of columns in which LAPACK factors a matrix, one by one the farthest from those before.

    Raises
    ------
    ImportError
        Without SciPy.
    """
    try:
        from scipy.linalg import qr as factorise
    except ImportError:
        raise ImportError("qr: SciPy chooses pivots; install it, or use pivoting=False") from None
    xp, n = array_library(a), a.shape[1]
    if not a.size:
        return xp.arange(n)
    top = tops_or_zero(a, 0).max()
    near = on_host(rounded(scaled(a, Powers(columns=np.full(n, -top)))))
    return xp.asarray(factorise(near, mode="r", pivoting=True, check_finite=False)[1].astype(np.int64))


def orthonormal(a: Any, target: Target, complete: bool) -> tuple[Any, Any, Bounds, int]:
    """The factors q and r of a matrix in the target's format, upper bounds of the errors of columns, and corrections.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the first columns are dependent, or their condition number is too large.
    OverflowError
        If an element is too large for the format, or a whole row or column too small.
    """
    (m, n), xp = a.shape, array_library(a)
    k = min(m, n)
    if not a.size:
        q = in_format(xp.eye(m, m if complete else k), target.dtype)
        return q, empty((q.shape[1], n), target.dtype, a), np.zeros(max(q.shape[1], n)), 0
    scales = -np.concatenate([nonzero_tops(a[:, :k], 0, "columns are dependent, column"), tops_or_zero(a[:, k:], 0)])
    unit, cleared = without_tiny(scaled(a, Powers(columns=scales)))
    if complete and m > n:
        scales = np.concatenate([scales, np.zeros(m - n, np.int64)])
        unit, found = _factored_with_others(unit, target.tolerance)
    else:
        found = _factored(unit, target.tolerance)
    powers = NO_POWERS, Powers(columns=-scales)
    (q, r), bounds = rounded_factors(target, found, _products(unit), powers, cleared)
    return q, r[:, :n], bounds, found.steps


def _factored_with_others(a: Any, tolerance: float) -> tuple[Any, Corrected]:
    """A tall matrix with columns of about 1 beside columns nearly orthonormal to these, and the factors of both.

    Then q has the space that the columns of a miss.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the columns are dependent, or their condition number is too large.
    """
    n = a.shape[1]

    def with_others(near: Any) -> Any:
        return _beside(a, array_library(a).linalg.qr(rounded(near), mode="complete")[0][:, n:])

    joined = with_others(a)
    with suppress(np.linalg.LinAlgError):
        return joined, _factored(joined, tolerance)
    # In float64 columns of an ill-conditioned a may look as if they missed others than they do; those of a S do not.
    joined = with_others(product_within(a, least_squares_inverse(a).s, 2.0**-60))
    return joined, _factored(joined, tolerance)


def _beside(a: Any, b: Any) -> Any:
    """The columns of a matrix of floats or multiprecision numbers, and then those of one of floats."""
    return np.concatenate([a, exactly(b)], 1) if isinstance(a, Numbers) else array_library(a).concatenate([a, b], 1)


def _products(a: Any) -> Products:
    """The products that factors of a matrix are to have: q r, and q^H q, the identity."""
    eye = array_library(a).eye(min(a.shape))
    return lambda factors: [
        Product(a, factors[0], factors[1], by_columns=True),
        Product(eye, adjoint(factors[0]), factors[0]),
    ]


def _factored(a: Any, tolerance: float) -> Corrected:
    """The factors of a matrix with columns of about 1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the first columns are dependent, or their condition number is too large.
    """
    k = min(a.shape)
    s = least_squares_inverse(a[:, :k]).s  # triangular, and A S well-conditioned: that proves columns independent
    with suppress(np.linalg.LinAlgError):  # failure mostly means ill-conditioned; what follows tells
        return _corrected(a, tolerance)

    def factors_at(finer: float) -> Corrected:
        inner = _corrected(product_within(a[:, :k], s, finer), finer)
        q = exactly(inner.factors[0])
        # S is upper triangular, so the first columns of Q span those of A: Q^H A is upper triangular, too.
        upper = array_library(a).tri(a.shape[1], k).T
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
    xp, k = array_library(a), min(a.shape)
    upper = xp.tri(k).T - xp.eye(k) / 2

    def correction(factors: tuple[Any, ...], rests: tuple[Any, ...]) -> tuple[Any, ...]:
        q, r = map(rounded, factors)
        of_a, of_eye = rests
        change = of_a[:, :k] @ triangular_inverse(r[:, :k], lower=False)
        turned = adjoint(q) @ change
        y = (turned + adjoint(turned) - of_eye) * upper  # y + y^H = turned + turned^H - (I - q^H q)
        beyond = adjoint(q) @ of_a[:, k:] + (y - turned) @ r[:, k:]
        return change - q @ y, xp.concatenate([y @ r[:, :k], beyond], axis=1)

    first = native(lambda x: tuple(xp.linalg.qr(x)), rounded(a), _DEPENDENT)
    return corrected(tolerance, first, _products(a), correction)
