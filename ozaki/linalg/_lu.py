"""Triangular factors of a square matrix with rows exchanged, and systems that are solved with them."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from ozaki._accuracy import Accuracy
from ozaki._environment import default_environment
from ozaki.interchange.calls import any_arrays
from ozaki.linalg._arrays import array_library, rounded
from ozaki.linalg._correcting import corrected, factor_target, native, rounded_factors
from ozaki.linalg._matrices import check_matrix, matrices
from ozaki.linalg._scaling import scaled, tops_or_zero
from ozaki.linalg._solution import Solution, empty
from ozaki.linalg._solving import System
from ozaki.linalg._targets import target_of


class LU(NamedTuple):
    """Triangular factors, and what is proven of them.

    Attributes
    ----------
    p : int array, shape (n,)
        The rows of a in the order of those of l: a[p] is nearly l u.
    l : array or MPArray, shape (n, n); ones on the diagonal, zeros above
    u : array or MPArray, shape (n, n); zeros below the diagonal
    error_bound : float
        abs(a[p] - l u)_ij <= error_bound norm(row i of l) norm(column j of u), with Euclidean norms. Proven, rounding
        to the dtype included; inf if that underflows.
    iterations : int
        Corrections.
    system
        What `lu_solve` needs: a copy of the matrix, and, after the first call, an inverse with its residual.
    """

    p: Any
    l: Any  # noqa: E741
    u: Any
    error_bound: float
    iterations: int
    system: Any


@any_arrays("a")
@default_environment
@np.errstate(all="ignore")
def lu_factor(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> LU:
    """Factor a square matrix a[p] = l u to a named accuracy, which is proven, to solve many systems with it.

    The systems are solved by an inverse of a, which `lu_solve` finds at its first call, not by these factors.

    Parameters
    ----------
    a : array or MPArray, shape (n, n), real or complex
    accuracy : str, int or float, optional
        As in `cholesky`, of a[p] - l u.
    dtype : optional
        As in `solve`.

    Returns
    -------
    LU

    Raises
    ------
    numpy.linalg.LinAlgError
        If a is singular, or its condition number is above some 1e15.
    ImportError
        Without SciPy, which factors NumPy arrays (CuPy brings its own).
    OverflowError
        If an element is too large for the dtype.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> factors = ozaki.linalg.lu_factor(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> factors.p, ozaki.linalg.lu_solve(factors, np.array([5.0, 11.0])).x
    (array([1, 0]...), array([1., 2.]))
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    target = factor_target(accuracy, dtype, formats)
    xp = array_library(a)
    if not a.size:
        no_elements = empty(a.shape, target.dtype, a)
        return LU(xp.zeros(0, int), no_elements, no_elements, 0.0, 0, System(a, formats))
    system = System(a.copy(), formats)  # whose inverse is found later, when the caller may have changed a
    scales = -tops_or_zero(a, 0)
    unit = scaled(a, np.zeros_like(scales), scales)
    packed, exchanges = native(_factors, rounded(unit), "singular, or too ill-conditioned for float64 to tell")
    p = list(range(a.shape[0]))
    for i, j in enumerate(exchanges.tolist()):
        p[i], p[j] = p[j], p[i]
    order = xp.asarray(p)
    unit, eye = unit[order], xp.eye(a.shape[0])
    strict = xp.tri(a.shape[0], k=-1)

    def correction(factors: tuple[Any, ...], rests: list[Any]) -> tuple[Any, ...]:
        left, right = map(rounded, factors)
        f = xp.linalg.inv(left) @ rests[0] @ xp.linalg.inv(right)
        return left @ (f * strict), (f * (1 - strict)) @ right

    first = packed * strict + eye, packed * (1 - strict)
    powers = xp.zeros(1, int), xp.asarray(-scales)

    def products(x: tuple[Any, ...]) -> list[tuple[Any, Any, Any]]:
        return [(unit, *x)]

    found, steps = corrected(target.tolerance, first, products, correction)
    factors, bound = rounded_factors(target, found, products, powers)
    return LU(order, factors[0], factors[1], bound, steps, system)


def _factors(a: Any) -> tuple[Any, Any]:
    """The factors of a matrix in one, and the row that each row was exchanged with.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is a zero on the diagonal.
    """
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
    if not bool(packed.diagonal().all()):
        raise np.linalg.LinAlgError
    return packed, exchanges


@any_arrays("b")
@default_environment
@np.errstate(all="ignore")
def lu_solve(factors: LU, b: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> Solution:
    """Solve a x = b to a named accuracy with what `lu_factor` found for a, with a proven bound of the error.

    Parameters
    ----------
    factors : LU
    b : array or MPArray, shape (n,) or (n, columns)
    accuracy, dtype
        As in `solve`; they need not be those of the factors.

    Returns
    -------
    Solution

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, TypeError, OverflowError
        As in `solve`.
    """
    if not isinstance(factors, LU):
        raise TypeError(f"factors: {type(factors).__name__}; expected an LU, as ozaki.linalg.lu_factor returns it")
    (b,), formats = matrices(b=b)
    found: Solution = factors.system.solve(b, target_of(accuracy, dtype, [*factors.system.formats, *formats]))
    return found
