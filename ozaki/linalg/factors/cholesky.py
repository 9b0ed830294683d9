"""Triangular factors of positive definite matrices to a named accuracy.

The factor L that NumPy or CuPy finds is corrected: with F = inv(L) (A - L L^H) inv(L^H) a correction adds L lower(F),
lower(F) with half of the diagonal of F. The product then differs from A by terms of second order. That fails for
condition numbers of 1e15 and more. Then a triangular X is found for which X A X^H is well-conditioned, its factor is
corrected, and gives that of A: the method of T. Ogita and S. Oishi, "Accurate and robust inverse Cholesky
factorization", NOLTA 3 (2012).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint, array_library, exactly, on_host, rounded
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import Bounds, product_of_inverses, product_within
from ozaki.linalg.common.results import Bounded, largest_of_each
from ozaki.linalg.common.scaling import Powers, scaled, tops_or_zero, where_far, without_tiny
from ozaki.linalg.common.targets import OF_DTYPE, Target
from ozaki.linalg.common.triangles import mirrored, read, triangular_inverse
from ozaki.linalg.common.upper import UP, column_norm, row_norm
from ozaki.linalg.factors.blocked import TOLERANCE, by_blocks, cholesky_by_blocks
from ozaki.linalg.factors.correcting import (
    Corrected,
    Near,
    Product,
    Products,
    as_found,
    corrected,
    factor_target,
    native,
    rounded_factors,
    transformed,
    triangle,
    uncorrected,
)
from ozaki.linalg.factors.equations import Equations
from ozaki.linalg.factors.stacks import cholesky_at_once, in_parts, takes
from ozaki.linalg.nearest.asking import check_format, to_nearest
from ozaki.linalg.nearest.cholesky import nearest_cholesky
from ozaki.linalg.systems.gathering import of_each, with_the_rest
from ozaki.linalg.systems.inverses import MOST_FACTORS, left_inverse
from ozaki.linalg.systems.refinement import inverse_within
from ozaki.linalg.systems.solution import empty
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.checks import check_flag
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


class _Cholesky(NamedTuple):
    l: Any  # noqa: E741
    error_bound: Any
    iterations: int


class Cholesky(Bounded, _Cholesky):
    """A triangular factor of a positive definite matrix, and what is proven of it.

    Attributes
    ----------
    l : array or MPArray, shape (..., n, n); zeros above the diagonal
        If `upper`, the upper triangular factor, with zeros below the diagonal: a = l^H l.
    error_bound : float, or NumPy array of float64 of the shape of a stack
        abs(a - l l^H)_ij <= error_bound norm(l_i) norm(l_j), l_i the rows of l (if `upper`, the columns) and norm the
        Euclidean one: these norms are near the square roots of a's diagonal. Proven, rounding to the dtype included.
    iterations : int
        Corrections; of a stack the most of a matrix.
    error_bounds : NumPy array of float64, shape (..., n)
        As `error_bound`, for each column of a; no item of the tuple, nor are those that follow.
    upper : bool
        Which factor it is.
    system
        For `cho_solve` alone: a, or the stack, and once that was called inverses, with their residuals.
    """

    upper: bool
    system: Equations

    @property
    def _an_array(self) -> Any:
        """The matrix of the system, which lies where the factor does (`process.placement.where_they_lie`)."""
        return self.system.a

    def _replace(self, **changes: Any) -> Cholesky:
        found = super()._replace(**changes)
        found.upper, found.system = self.upper, self.system
        return found


@any_arrays("a", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("cholesky", solves=True)
def cholesky(
    a: Any,
    *,
    upper: bool = False,
    accuracy: Accuracy | str | float | None = OF_DTYPE,
    dtype: Any = None,
    reproducible: bool = False,
) -> Cholesky:
    """Factor a positive definite matrix a = l l^H to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), symmetric or Hermitian
        As in NumPy and LAPACK only one triangle is read, the lower one, and of its diagonal the real part: where the
        other one has other numbers, a stands for another matrix.
    upper : bool, optional
        Read the upper triangle, and find the upper triangular factor u = l^H with a = u^H u, which is the item `l` of
        the result. SciPy's name of that is `lower=False`, its default.
    accuracy : str, int or float, optional
        "fp64", a number of bits or a tolerance t, before l is rounded to its dtype: abs(a - l l^H)_ij <= t norm(l_i)
        norm(l_j). Up to 900 bits. Default: "dtype", as many bits as the dtype has. None, for floats: l is as accurate
        as the array library's factor, which it is, not corrected, or one found by blocks with this library's products
        (large ones on a GPU); its error is proven, but not that a is positive definite.
    dtype, reproducible : optional
        As in `solve`; of `reproducible` the entries of l.

    Returns
    -------
    Cholesky

    Raises
    ------
    numpy.linalg.LinAlgError
        If a is not positive definite, as a singular matrix, or its condition number is above 2^300, the diagonal
        scaled; `eigh` tells which. If `reproducible`, as in `solve`.
    OverflowError
        If an element of l is too large for the dtype, or a whole row or column too small.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Notes
    -----
    The array library's factor, in float64, is corrected: with F = inv(l) (a - l l^H) inv(l^H) it becomes l + l
    lower(F), lower(F) with half of the diagonal of F. Of an ill-conditioned a the factor of x a x^H is, x a product of
    inverses of factors (T. Ogita and S. Oishi, "Accurate and robust inverse Cholesky factorization", NOLTA 3, 2012).
    However it was found, the residual a - l l^H of the rounded factor bounds its error, and with the norm of an inverse
    it proves that a is positive definite (docs/linalg.md, L4; in float64 L13; by blocks L14; nearest entries L12).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> l, error_bound, _ = ozaki.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 3.0]]), accuracy=120, dtype="mp")
    >>> l
    mparray([[    2.0,     0.0],
             [    1.0, 1.41421]], bits=...)
    """
    check_flag("upper", upper)
    (a,), formats = matrices(a=read("a", a, not upper, "real"))
    check_matrix("a", a, square=True)
    asked = accuracy
    nearest, accuracy = to_nearest(None if accuracy == OF_DTYPE else accuracy, reproducible)
    target = factor_target(accuracy, dtype, formats)
    if nearest:
        check_format(target.dtype)
    a = mirrored(a, not upper, conjugate=True)
    found_so, system = as_found(asked, a, target), Equations(a, formats)

    def result(low: Any, bounds: Any, steps: int) -> Cholesky:
        found = Cholesky.of(adjoint(low).copy() if upper else low, largest_of_each(bounds), steps, error_bounds=bounds)
        found.upper, found.system = upper, system
        return found

    def one(each: Any) -> Cholesky:
        return result(*(_nearest_of_one(each, target) if nearest else _of_one(each, target, found_so)))

    if not nearest and not found_so and takes(target, a):
        (low,), bounds, met, steps = in_parts(cholesky_at_once, a, target)
        factors = with_the_rest(result(low, bounds, steps), met, one, a)
    else:
        factors = of_each(one, a)
    return reached(factors, a.shape, factors.l, "row-column")


def _nearest_of_one(a: Any, target: Target) -> tuple[Any, Bounds, int]:
    """The floats nearest to those of the lower factor of one matrix, the errors of columns, and corrections."""
    if not a.size:
        return _of_one(a, target, False)
    return nearest_cholesky(a, target.dtype, lambda bits: cholesky(a, accuracy=bits, dtype="mp"))


def _of_one(a: Any, target: Target, found_so: bool) -> tuple[Any, Bounds, int]:
    """The lower factor of one matrix, if `found_so` as float64 finds it; the errors of columns, and corrections."""
    if not a.size:
        return empty(a.shape, target.dtype, a), np.zeros(0), 0
    places = array_library(a).arange(a.shape[0])
    scales = -(tops_or_zero(a[places, places][:, None], 1) // 2)  # the diagonal of a becomes about 1
    scales = scales if isinstance(a, Numbers) else where_far(scales, apart=not found_so)
    unit, cleared = without_tiny(scaled(a, Powers(scales, scales)))
    if found_so and not isinstance(unit, Numbers):
        first, errors = _found(unit)
        (low,), bounds = uncorrected(target, (first,), errors, _products(unit), (Powers(rows=-scales),))
        return low, bounds, 0
    found = _factored(unit, target.tolerance)
    (low,), bounds = rounded_factors(target, found, _products(unit), (Powers(rows=-scales),), cleared)
    return low, bounds, found.steps


def _definite_tolerance(a: Any, inverse_of_factor: Any) -> float:
    """The tolerance of a factor that proves a matrix, shape (n, n), to be positive definite.

    If the tolerance is t, and d the largest element on the diagonal, A - L L^H has a Frobenius norm of at most
    n d t / (1 - t), and L L^H no eigenvalue below 0. So none of A is below -n d t / (1 - t); and as none is as near to
    0 as 1 / norm(A^-1), all are positive. The inverse of a factor in float64, if there is one, gives that of A.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite, or its condition number is too large.
    """
    diagonal = on_host(array_library(a).diagonal(rounded(a)).real)
    if (diagonal <= 0).any():
        raise np.linalg.LinAlgError(f"a: {_NOT_POSITIVE}")
    near = None if inverse_of_factor is None else adjoint(inverse_of_factor) @ inverse_of_factor
    inverse = left_inverse(a, _NOT_POSITIVE, near)
    return float((1 - inverse.contraction) / (2 * UP * a.shape[0] * diagonal.max() * inverse.norm_r))


def _products(a: Any) -> Products:
    """The product that a factor of a matrix is to have: l l^H."""
    return lambda factors: [Product(a, factors[0], adjoint(factors[0]))]


def _found(a: Any) -> tuple[Any, Bounds]:
    """A factor in float64, and upper bounds of the errors of columns.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is none.
    """
    factorise = partial(native, native_factor, why=_NOT_POSITIVE)
    if by_blocks(a):
        low, error = cholesky_by_blocks(a, factorise)
        return low, np.full(len(a), error)
    low = factorise(a)
    return low, Near((low,), _products(a), TOLERANCE).errors()


def _factored(a: Any, tolerance: float) -> Corrected:
    """The factor of a Hermitian matrix with a diagonal of about 1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite, or its condition number is too large.
    """
    first = inverse = None
    with suppress(np.linalg.LinAlgError):  # failure mostly means ill-conditioned; what follows tells
        first = native(native_factor, rounded(a), _NOT_POSITIVE)
        inverse = native(_inverse_of_factor, first, _NOT_POSITIVE)
    tolerance = min(tolerance, _definite_tolerance(a, inverse))
    if first is not None:
        with suppress(np.linalg.LinAlgError):
            return _corrected(a, tolerance, first)
    x = _preconditioner(a)

    def factors_at(finer: float) -> Corrected:
        turned = _transformed(x, a, finer)
        inner = _corrected(turned, finer, native(native_factor, rounded(turned), _NOT_POSITIVE))
        whole = product_within(inverse_within(exactly(inner.factors[0]), finer), x, finer)
        # That approximates inv(L), so L = A whole^H.
        low = triangle(product_within(a, adjoint(whole), finer), array_library(a).tri(a.shape[0]), finer)
        return Corrected((low,), inner.steps)

    return transformed(tolerance, a.shape[0], factors_at, _products(a), _NOT_POSITIVE)


def _inverse_of_factor(factor: Any) -> Any:
    return triangular_inverse(factor, lower=True)


def _corrected(a: Any, tolerance: float, first: Any) -> Corrected:
    """A near factor in float64, corrected.

    Raises
    ------
    numpy.linalg.LinAlgError
        If corrections do not converge.
    """
    xp = array_library(a)
    places, kept = xp.arange(a.shape[0]), xp.tri(a.shape[0]) - xp.eye(a.shape[0]) / 2

    def correction(factors: tuple[Any, ...], rests: tuple[Any, ...]) -> tuple[Any, ...]:
        left = rounded(factors[0])
        inverse = _inverse_of_factor(left)
        f = (inverse @ rests[0] @ adjoint(inverse)) * kept
        if holds_complex(f):
            f[places, places] = f[places, places].real
        return (left @ f,)

    return corrected(tolerance, (first,), _products(a), correction)


_NOT_POSITIVE = "not positive definite, or its condition number is too large; ozaki.linalg.eigh tells which"

_WELL_CONDITIONED = 2.0**20
"""A condition number of a factor, at most with which corrections converge fast."""


def _preconditioner(a: Any) -> Any:
    """A lower triangular X for which X A X^H is well-conditioned: a product of inverses of factors of float64.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is none.
    """
    xp = array_library(a)
    x: Any = xp.eye(a.shape[0])
    now = rounded(a)
    for count in range(1, MOST_FACTORS + 1):
        factor, as_it_is = of_nearly_definite(partial(native, native_factor, why=_NOT_POSITIVE), now)
        inverse = xp.tril(native(xp.linalg.inv, factor, _NOT_POSITIVE))
        if as_it_is and row_norm(factor) * row_norm(inverse) <= _WELL_CONDITIONED:
            return x
        x = product_of_inverses(inverse, x, count)
        now = rounded(_transformed(x, a, 2.0**-70))
    raise np.linalg.LinAlgError(f"a: {_NOT_POSITIVE}")


def of_nearly_definite(find: Callable[[Any], Any], a: Any) -> tuple[Any, bool]:
    """What `find` finds of a matrix of floats that is positive definite but for roundings; and whether of a itself.

    Where these leave a without a factor, a little more than them is added to its diagonal. The factor of that matrix
    makes the condition number of a smaller, too, if its inverse is multiplied to both sides.

    Raises
    ------
    numpy.linalg.LinAlgError
        As `find`, if it finds nothing then, either.
    """
    try:
        return find(a), True
    except np.linalg.LinAlgError:
        n = len(a)
        return find(a + 2.0**-48 * n * float(abs(a).max()) * array_library(a).eye(n)), False


def native_factor(a: Any) -> Any:
    """The factor that NumPy or CuPy finds.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is none; CuPy may return a part of a factor then.
    """
    xp = array_library(a)
    found = xp.linalg.cholesky(a)
    if not bool((xp.diagonal(found).real > 0).all()):
        raise np.linalg.LinAlgError
    return found


def _transformed(x: Any, a: Any, tolerance: float) -> Any:
    """X A X^H, Hermitian, its elements off by little more than the tolerance."""
    size = column_norm(x)
    found = product_within(product_within(x, a, tolerance / size), adjoint(x), tolerance)
    return mirrored(found, lower=True, conjugate=True)
