"""Triangular factors of a square matrix with rows exchanged, and systems with that matrix.

The factors that SciPy or CuPy finds are corrected: with F = inv(L) (A - L U) inv(U) a correction adds L lower(F) and
upper(F) U. What is missing then is of second order. That fails for condition numbers of 1e15 and more. Then an upper
triangular S is found for which A S is well-conditioned; the lower factor of A S is that of A.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import array_library, exactly, rounded
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import Bounds, product_of_inverses, product_within
from ozaki.linalg.common.results import Bounded, largest_of_each
from ozaki.linalg.common.scaling import NO_POWERS, Powers, float_scaled, scaled, tops_or_zero, where_far, without_tiny
from ozaki.linalg.common.targets import OF_DTYPE, Target, target_of
from ozaki.linalg.common.transposition import Transposition, transposition
from ozaki.linalg.common.triangles import triangular_inverse
from ozaki.linalg.common.upper import row_norm
from ozaki.linalg.determinants.elimination import factors as eliminated
from ozaki.linalg.factors.blocked import TOLERANCE, by_blocks, lu_by_blocks
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
from ozaki.linalg.factors.stacks import in_parts, lu_at_once, takes
from ozaki.linalg.nearest.asking import check_format, to_nearest
from ozaki.linalg.nearest.lu import nearest_lu
from ozaki.linalg.systems.gathering import of_each, with_the_rest
from ozaki.linalg.systems.inverses import LIMIT, MOST_FACTORS, left_inverse
from ozaki.linalg.systems.refinement import inverse_within
from ozaki.linalg.systems.solution import Solution, empty
from ozaki.linalg.systems.solving import System, equilibrated
from ozaki.linalg.systems.stacks import inverse
from ozaki.multiprecision.numbers import Numbers
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


class _LU(NamedTuple):
    p: Any
    l: Any  # noqa: E741
    u: Any
    error_bound: Any
    iterations: int
    system: Any


class LU(Bounded, _LU):
    """Triangular factors, and what is proven of them.

    Attributes
    ----------
    p : int array, shape (..., n)
        The rows of a in the order of those of l: a[p] is nearly l u, of each matrix of a stack.
    l : array or MPArray, shape (..., n, n); ones on the diagonal, zeros above
    u : array or MPArray, shape (..., n, n); zeros below the diagonal
    error_bound : float, or NumPy array of float64 of the shape of a stack
        abs(a[p] - l u)_ij <= error_bound norm(row i of l) norm(column j of u), with Euclidean norms. Proven, rounding
        to the dtype included.
    iterations : int
        Corrections; of a stack the most of a matrix.
    system
        For `lu_solve` alone: an inverse of a, with its residual, and once it is asked for one of its transpose; or
        those of a stack.
    error_bounds : NumPy array of float64, shape (..., n)
        As `error_bound`, for each column of a; no item of the tuple.
    """

    @property
    def _an_array(self) -> Any:
        """The matrix of the system; its inverse lies where it does (`process.placement.where_they_lie`)."""
        return self.system.a


@any_arrays("a", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("lu_factor", solves=True)
def lu_factor(
    a: Any, *, accuracy: Accuracy | str | float | None = OF_DTYPE, dtype: Any = None, reproducible: bool = False
) -> LU:
    """Factor a square matrix a[p] = l u to a named accuracy, which is proven, to solve many systems with it.

    The systems are solved by an inverse of a, not by these factors. It is found first: that proves that a is regular;
    but with accuracy=None not before the first system is solved.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
    accuracy : str, int or float, optional
        As in `cholesky`, of a[p] - l u. With None, a may be singular, too.
    dtype, reproducible : optional
        As in `solve`; of `reproducible` the entries of l and u, with the order p of exact elimination: each pivot is
        the largest number left in its column (of complex ones the abs of both parts, added up, counts, as in LAPACK),
        of several the first.

    Returns
    -------
    LU

    Raises
    ------
    numpy.linalg.LinAlgError
        If a is singular, or its condition number above 2^300, columns scaled. If `reproducible`, as in `solve`, and for
        rows that are so nearly alike as pivots that their order cannot be decided.
    ImportError
        Without SciPy, which factors NumPy arrays (CuPy brings its own).
    OverflowError
        If an element is too large for the dtype, or a whole row or column too small.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Notes
    -----
    The factors that LAPACK or cuSOLVER finds in float64 are corrected: with F = inv(l) (a[p] - l u) inv(u) they become
    l + l lower(F) and u + upper(F) u. Of an ill-conditioned a those of a[p] s are, s a product of inverses of upper
    factors, as in S. M. Rump, "Inversion of extremely ill-conditioned matrices in floating-point", 2009. However they
    were found, the residual a[p] - l u of the rounded factors bounds their error (docs/linalg.md, L4; in float64 L13;
    by blocks L14; nearest entries L12).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> factors = ozaki.linalg.lu_factor(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> factors.p, ozaki.linalg.lu_solve(factors, np.array([5.0, 11.0])).x
    (array([1, 0]...), array([1., 2.]))
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    asked = accuracy
    nearest, accuracy = to_nearest(None if accuracy == OF_DTYPE else accuracy, reproducible)
    target = factor_target(accuracy, dtype, formats)
    if nearest:
        check_format(target.dtype)
    kept, found_so = a.copy(), as_found(asked, a, target)  # for systems, while the caller may change a
    regular = None if nearest or found_so or not a.size else System(kept, formats)
    equations = Equations(kept, formats, regular)

    def result(order: Any, low: Any, up: Any, bounds: Any, steps: int) -> LU:
        return LU.of(order, low, up, largest_of_each(bounds), steps, equations, error_bounds=bounds)

    def one(each: Any) -> LU:
        return result(*(_nearest_of_one(each, target) if nearest else _of_one(each, target, found_so)))

    if regular is not None and takes(target, a):
        (order, low, up), bounds, met, steps = in_parts(partial(lu_at_once, _factors_of_stack), a, target)
        found = with_the_rest(result(order, low, up, bounds, steps), met, one, a)
    else:
        found = of_each(one, a)
    return reached(found, a.shape, found.u, "row-column")


def _nearest_of_one(a: Any, target: Target) -> tuple[Any, Any, Any, Bounds, int]:
    """As `_of_one`, the nearest floats, in the order of exact elimination."""
    if not a.size:
        return _of_one(a, target, False)
    return nearest_lu(a, target.dtype, lambda bits: lu_factor(a, accuracy=bits, dtype="mp"))


def _of_one(a: Any, target: Target, found_so: bool) -> tuple[Any, Any, Any, Bounds, int]:
    """The order of rows and the factors of one matrix, the errors of columns, and corrections.

    With `found_so` as float64 finds them, of a matrix that may be singular; others are proven to be regular.
    """
    xp = array_library(a)
    if not a.size:
        no_elements = empty(a.shape, target.dtype, a)
        return xp.zeros(0, int), no_elements, no_elements, np.zeros(0), 0
    scales = -tops_or_zero(a, 0)
    scales = scales if isinstance(a, Numbers) else where_far(scales, apart=not found_so)
    powers = NO_POWERS, Powers(columns=-scales)
    unit, cleared = without_tiny(scaled(a, Powers(columns=scales)))
    if found_so and not isinstance(unit, Numbers):
        order, *first, errors = _found(unit)
        (low, up), bounds = uncorrected(target, tuple(first), errors, _products(unit[order]), powers)
        return order, low, up, bounds, 0
    if found_so:  # elements of a column are too far apart for float64: no system has shown yet that a is regular
        left_inverse(equilibrated(a)[1])
    if cleared:  # then the factors are those of another matrix, whose inverse proves that it is regular, too
        left_inverse(unit, _ILL_CONDITIONED)
    order, found = _factored(unit, target.tolerance)
    (low, up), bounds = rounded_factors(target, found, _products(unit[order]), powers, cleared)
    return order, low, up, bounds, found.steps


def _products(a: Any) -> Products:
    return lambda factors: [Product(a, factors[0], factors[1])]


def _found(a: Any) -> tuple[Any, Any, Any, Bounds]:
    """The order of the rows and factors in float64 of a matrix with columns of about 1, and errors of columns.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there are none.
    """
    factorise = partial(native, _native_factors, why="its factors are not finite")
    if by_blocks(a):
        order, low, up, error = lu_by_blocks(a, factorise)
        return order, low, up, np.full(len(a), error)
    order, low, up = factorise(a)
    return order, low, up, Near((low, up), _products(a[order]), TOLERANCE).errors()


def _factored(a: Any, tolerance: float) -> tuple[Any, Corrected]:
    """The order of the rows and the factors of a matrix with columns of about 1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the condition number of the matrix is too large.
    """
    order, *first = native(_regular_factors, rounded(a), _ILL_CONDITIONED)
    with suppress(np.linalg.LinAlgError):  # failure mostly means ill-conditioned; what follows tells
        return order, _corrected(a[order], tuple(first), tolerance)
    order, s, first = _preconditioner(a, order, first)
    ordered = a[order]

    def factors_at(finer: float) -> Corrected:
        inner = _corrected(product_within(ordered, s, finer), tuple(first), finer)
        lower = exactly(inner.factors[0])
        # S is upper triangular, so L of A S is that of A: inv(L) A is upper triangular, too.
        upper = array_library(a).tri(len(order)).T
        high = triangle(product_within(inverse_within(lower, finer), ordered, finer), upper, finer)
        return Corrected((lower, high), inner.steps)

    return order, transformed(tolerance, len(order), factors_at, _products(ordered), _ILL_CONDITIONED)


def _corrected(a: Any, first: tuple[Any, ...], tolerance: float) -> Corrected:
    """Factors of a, whose rows are in order, from near ones in float64.

    Raises
    ------
    numpy.linalg.LinAlgError
        If corrections do not converge.
    """
    xp = array_library(a)
    strict = xp.tri(len(first[0]), k=-1)

    def correction(factors: tuple[Any, ...], rests: tuple[Any, ...]) -> tuple[Any, ...]:
        left, right = map(rounded, factors)
        f = triangular_inverse(left, lower=True) @ rests[0] @ triangular_inverse(right, lower=False)
        return left @ (f * strict), (f * (1 - strict)) @ right

    return corrected(tolerance, first, _products(a), correction)


_ILL_CONDITIONED = (
    f"its condition number is too large for factors ({LIMIT}, columns scaled); ozaki.linalg.solve scales rows, too"
)

_WELL_CONDITIONED = 2.0**30
"""A condition number of an upper triangular factor, at most with which corrections converge fast."""

_MOST_GAINED = 64
"""Bits of the condition number that a factor takes away at most, in the mean of those that may follow: 54 are usual."""


def _preconditioner(a: Any, order: Any, factors: Any) -> tuple[Any, Any, Any]:
    """An order of rows, an upper triangular S for which A S is well-conditioned, and factors of A S in that order.

    S is a product of inverses of upper factors in float64, as S. M. Rump's inverses are (`systems/inverses.py`).

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    xp = array_library(a)
    s: Any = xp.eye(len(order))
    for count in range(1, MOST_FACTORS + 1):
        # Rows far below others may have an inverse beyond the range of float64.
        by = Powers(rows=-tops_or_zero(factors[1], 1))
        of_rows = native(xp.linalg.inv, float_scaled(factors[1], by), _ILL_CONDITIONED)
        inverse = scaled(xp.triu(of_rows), Powers(columns=by.rows))
        condition = row_norm(factors[1]) * row_norm(inverse)
        if condition <= _WELL_CONDITIONED:
            return order, s, factors
        if not min(condition, 2.0**1000) <= 2.0 ** min(_MOST_GAINED * (MOST_FACTORS + 1 - count), 1000):
            break
        s = product_of_inverses(s, inverse, count)
        product = product_within(a[order], s, 2.0**-70)
        # Columns that are far larger than others, of what is left of rows far apart, would hide these in float64.
        back = Powers(columns=-where_far(tops_or_zero(product, 0), apart=False))
        s, product = scaled(s, back), scaled(product, back)
        again, *factors = native(_regular_factors, rounded(product), _ILL_CONDITIONED)
        order = order[again]
    raise np.linalg.LinAlgError(f"a: {_ILL_CONDITIONED}")


def _regular_factors(a: Any) -> tuple[Any, Any, Any]:
    """As `_native_factors`, of a square matrix, with upper factors that have inverses.

    A zero on the diagonal is replaced by 2**-52 times the largest element; corrections remove the difference.
    """
    xp = array_library(a)
    order, lower, upper = _native_factors(a)
    missing = (xp.diagonal(upper) == 0) * (abs(upper).max() * 2.0**-52)
    return order, lower, upper + xp.diag(missing)


def _native_factors(a: Any) -> tuple[Any, Any, Any]:
    """The order of the rows, and the factors of the matrix in that order, which has no fewer rows than columns."""
    xp, (m, n) = array_library(a), a.shape
    packed, exchanges = _factors(a)
    p = np.arange(m)
    for i, j in enumerate(exchanges.tolist()):
        p[i], p[j] = p[j], p[i]
    lower, upper = xp.tril(packed, -1), xp.triu(packed[:n])
    places = xp.arange(n)
    lower[places, places] = 1
    return xp.asarray(p), lower, upper


def _factors_of_stack(a: Any) -> tuple[Any, Any, Any]:
    """As `_native_factors`, of square matrices, shape (..., n, n); on a GPU those of a stack are found together."""
    xp, shape, n = array_library(a), a.shape, a.shape[-1]
    if a.ndim == 2:
        return _native_factors(a)
    if xp is not np:
        order, _, inverses, upper = eliminated(a)
        return order, xp.tril(inverse(inverses)), upper
    packed, exchanges = map(np.stack, zip(*map(_factors, a.reshape(-1, n, n)), strict=True))
    every, order = np.arange(len(packed)), np.zeros((len(packed), n), int) + np.arange(n)
    for i in range(n):
        rows = exchanges[:, i]
        order[:, i], order[every, rows] = order[every, rows], order[:, i].copy()
    lower, places = np.tril(packed, -1), np.arange(n)
    lower[:, places, places] = 1
    return order.reshape(shape[:-1]), lower.reshape(shape), np.triu(packed).reshape(shape)


def _factors(a: Any) -> tuple[Any, Any]:
    """The factors of a matrix in one, and the row that each row was exchanged with."""
    if array_library(a) is not np:
        from cupyx.scipy.linalg import lu_factor as factorise
    else:
        try:
            from scipy.linalg import lu_factor as factorise
        except ImportError:
            raise ImportError("lu_factor: SciPy factors NumPy arrays; install it, or use ozaki.linalg.solve") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a zero on the diagonal
        packed, exchanges = factorise(a, check_finite=False)
    return packed, exchanges


@any_arrays("factors", "b", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("lu_solve", solves=True)
def lu_solve(
    factors: LU,
    b: Any,
    trans: Transposition = 0,
    *,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> Solution:
    """Solve a x = b to a named accuracy with what `lu_factor` found for a, with a proven bound of the error.

    Parameters
    ----------
    factors : LU
    b : array or MPArray, shape (n,) or (..., n, columns)
        As in `solve`, whose leading axes broadcast with those of a.
    trans : {0, 1, 2, "N", "T", "C"}, optional
        1 or "T" for a^T x = b, 2 or "C" for a^H x = b. The first system with a transpose takes another inverse.
    accuracy, dtype
        As in `solve`, but that None is "dtype"; they need not be those of the factors.

    Returns
    -------
    Solution

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, TypeError, OverflowError
        As in `solve`.

    Notes
    -----
    The inverse of a that `lu_factor` found, or with accuracy=None the first of these systems finds, solves and corrects
    as in `solve`; rounded factors take no part in it (docs/linalg.md, L1 and L8).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> factors = ozaki.linalg.lu_factor(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> found = ozaki.linalg.lu_solve(factors, np.array([4.0, 6.0]), trans=1)
    >>> found.x, found.error_bound < 2e-16
    (array([1., 1.]), True)
    """
    if not isinstance(factors, LU):
        raise TypeError(f"factors: {type(factors).__name__}; expected an LU, as ozaki.linalg.lu_factor returns it")
    of_a = transposition(trans)
    (b,), formats = matrices(b=b)
    found: Solution = factors.system.solve(b, target_of(accuracy, dtype, [*factors.system.formats, *formats]), of_a)
    return found
