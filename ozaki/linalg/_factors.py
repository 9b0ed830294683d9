"""Factors of a matrix, corrected until their product is the matrix to a named accuracy.

A correction is computed natively from the residual A - L U, which is a product of this library. For triangular L and U,
with F = inv(L) (A - L U) inv(U), it adds L lower(F) and upper(F) U; their product then differs from A by terms of
second order. For A = Q R, with E = (A - Q R) inv(R) and K = Q^H E, it adds E - Q Y and Y R, Y upper triangular with
Y + Y^H = K + K^H - (I - Q^H Q).
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, log2
from typing import Any, NamedTuple

import numpy as np

from ozaki._accuracy import Accuracy
from ozaki._api import gemm
from ozaki._environment import default_environment
from ozaki.interchange.calls import any_arrays
from ozaki.linalg._arrays import adjoint, array_library, masked, rounded
from ozaki.linalg._inverses import componentwise
from ozaki.linalg._matrices import check_matrix, matrices
from ozaki.linalg._scaling import scaled, tops_or_zero
from ozaki.linalg._solution import empty, in_format
from ozaki.linalg._targets import Target, target_of
from ozaki.linalg._upper import least_magnitudes, magnitudes
from ozaki.multiprecision.objects import mparray

MOST_STEPS = 60
"""The most corrections: one that gains no bit ends the iteration earlier."""

_NOT_CONVERGING = "a: too ill-conditioned for this accuracy; corrections do not converge"


class Cholesky(NamedTuple):
    """A lower triangular factor, and what is proven of it.

    Attributes
    ----------
    l : array or MPArray, shape (n, n); zeros above the diagonal
    error_bound : float
        abs(a - l l^H)_ij <= error_bound (abs(l) abs(l^H))_ij, proven, rounding to the dtype included.
    iterations : int
        Corrections.
    """

    l: Any  # noqa: E741
    error_bound: float
    iterations: int


class QR(NamedTuple):
    """An orthonormal and an upper triangular factor, and what is proven of them.

    Attributes
    ----------
    q : array or MPArray, shape (m, n)
    r : array or MPArray, shape (n, n); zeros below the diagonal
    error_bound : float
        abs(a - q r)_ij <= error_bound (abs(q) abs(r))_ij and abs(I - q^H q)_ij <= error_bound (abs(q^H) abs(q))_ij,
        proven, rounding to the dtype included.
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
def cholesky(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> Cholesky:
    """Factor a positive definite matrix a = l l^H to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (n, n), symmetric or Hermitian; the lower triangle is read
    accuracy : str, int or float, optional
        "fp64", a number of bits or a tolerance t, before l is rounded to its dtype: abs(a - l l^H)_ij <= t (abs(l)
        abs(l^H))_ij. Up to 900 bits. Default: as many bits as the dtype has.
    dtype : optional
        As in `solve`.

    Returns
    -------
    Cholesky

    Raises
    ------
    numpy.linalg.LinAlgError
        If float64 does not find a factor: a is not positive definite, or so ill-conditioned (1e15) that roundings leave
        that open.
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
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    target = factor_target(accuracy, dtype, formats)
    if not a.size:
        return Cholesky(empty(a.shape, target.dtype, a), 0.0, 0)
    xp = array_library(a)
    lower, half = xp.tri(a.shape[0]), xp.eye(a.shape[0]) / 2
    a = hermitian(a, lower)
    scales = -(tops_or_zero(masked(a, xp.eye(a.shape[0])), 0) // 2)  # the diagonal of a becomes about 1
    unit = scaled(a, scales, scales)
    first = native(xp.linalg.cholesky, rounded(unit), "not positive definite")

    def correction(factors: tuple[Any, ...], rests: list[Any]) -> tuple[Any, ...]:
        left = rounded(factors[0])
        inverse = xp.linalg.inv(left)
        (rest,) = rests
        f = inverse @ rest @ adjoint(inverse)
        return (left @ (f * (lower - 2 * half) + (f * half).real),)

    factors, bound, steps = corrected(
        target, (first,), lambda x: [(unit, x[0], adjoint(x[0]))], correction, (xp.asarray(-scales)[:, None],)
    )
    return Cholesky(factors[0], bound, steps)


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
    check_matrix("a", a)
    if a.shape[0] < a.shape[1]:
        raise ValueError(f"a: shape {tuple(a.shape)}; expected at least as many rows as columns")
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


def factor_target(
    accuracy: Any, dtype: Any, formats: list[str], measure: str = "of factors it is componentwise"
) -> Target:
    """The target of functions whose errors have one measure.

    Raises
    ------
    ValueError, TypeError
        If the accuracy or the dtype cannot be had.
    """
    if isinstance(accuracy, Accuracy):
        raise ValueError(f"accuracy: an Accuracy; expected a name, bits or a tolerance ({measure})")
    return target_of(accuracy, dtype, formats)


def native(factorise: Callable[[Any], Any], a: Any, why: str) -> Any:
    """The library's own factors.

    Raises
    ------
    numpy.linalg.LinAlgError
        If it finds none.
    """
    try:
        found = factorise(a)
        if all(bool(array_library(x).isfinite(x).all()) for x in (found if isinstance(found, tuple) else (found,))):
            return found
    except np.linalg.LinAlgError:
        pass
    raise np.linalg.LinAlgError(f"a: {why}, or too ill-conditioned for float64 to tell")


def hermitian(a: Any, lower: Any) -> Any:
    """The Hermitian matrix with the lower triangle of a, of whose diagonal the real part."""
    eye = array_library(a).eye(a.shape[0])
    strict = masked(a, lower - eye)
    return strict + adjoint(strict) + masked(a.real, eye)


def corrected(
    target: Target,
    factors: tuple[Any, ...],
    products: Callable[[tuple[Any, ...]], list[tuple[Any, Any, Any]]],
    correction: Callable[[tuple[Any, ...], list[Any]], tuple[Any, ...]],
    powers: tuple[Any, ...],
) -> tuple[tuple[Any, ...], float, int]:
    """Correct factors until their products are what they should be, and round them.

    `products` returns triples (wanted, x, y), where x y should be `wanted`; `correction` takes the residuals
    wanted - x y in float64 and returns what is added to each factor. In the end factors are multiplied by 2**powers,
    since they are those of a scaled matrix; the bound does not depend on that.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a correction gains nothing.
    OverflowError
        If an element is too large for the dtype.
    """
    bits = ceil(-log2(target.tolerance)) + 8
    found = tuple(mparray(x) for x in factors)
    reached, steps = inf, 0
    while True:
        rests, ratios = zip(*(_residual(*each, target.tolerance / 16) for each in products(found)), strict=True)
        before, reached = reached, max(ratios)
        if reached <= target.tolerance:
            break
        # The first corrections may add terms of second order to residuals of few roundings.
        if steps == MOST_STEPS or (steps > 2 and not reached < before / 2):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        try:
            changes = correction(found, [rounded(rest) for rest in rests])
        except np.linalg.LinAlgError:  # a native inverse of a singular factor
            raise np.linalg.LinAlgError(_NOT_CONVERGING) from None
        if not all(bool(array_library(change).isfinite(change).all()) for change in changes):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        found = tuple((x + mparray(change)).round_to(bits) for x, change in zip(found, changes, strict=True))
        steps += 1
    result = tuple(in_format(x.ldexp(by), target.dtype) for x, by in zip(found, powers, strict=True))
    kept = tuple(mparray(x).ldexp(-by) for x, by in zip(result, powers, strict=True))
    bound = max(_residual(*each, target.tolerance / 16)[1] for each in products(kept))
    return result, bound, steps


def _residual(wanted: Any, x: Any, y: Any, tolerance: float) -> tuple[Any, float]:
    """wanted - x y, and the largest abs(wanted - x y)_ij / (abs(x) abs(y))_ij, rounded up.

    The residual is off by no more than the tolerance times abs(wanted) + abs(x) abs(y), which the ratio counts.
    """
    tolerance = min(tolerance, 2.0**-8)
    rest = gemm(-1, x, y, 1, wanted, accuracy=componentwise(tolerance), dtype="mp")
    # A lower bound. It may stand in the error, too: (rest + t (w + s)) / s falls with s.
    size = (least_magnitudes(x) @ least_magnitudes(y)) * (1 - 2 * (x.shape[1] + 8) * 2.0**-53)
    missed = magnitudes(rest) + tolerance * (magnitudes(wanted) + size) * (1 + 2.0**-40)
    ratios = array_library(size).where(missed > 0, missed / size, 0.0)
    return rest, float(ratios.max()) * (1 + 2.0**-48)
