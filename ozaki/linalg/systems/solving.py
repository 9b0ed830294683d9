"""Linear systems, inverses and least squares to a named accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.driver.watching import named, reached
from ozaki.functions.products import matmul
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint, array_library, masked, rounded
from ozaki.linalg.common.matrices import as_columns, check_matrix, matrices
from ozaki.linalg.common.products import UNIT, componentwise, native_error, native_product
from ozaki.linalg.common.scaling import Exponents, Powers, check_span, nonzero_tops, scaled, tops_or_zero, without_tiny
from ozaki.linalg.common.targets import Target, target_of
from ozaki.linalg.common.upper import column_norm, column_sizes
from ozaki.linalg.nearest.asking import to_nearest
from ozaki.linalg.nearest.solutions import nearest_solution
from ozaki.linalg.systems.inverses import least_squares_inverse, left_inverse
from ozaki.linalg.systems.refinement import Inversion, Refinement
from ozaki.linalg.systems.solution import Solution, empty, solution
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


@any_arrays("a", "b")
@default_environment
@np.errstate(all="ignore")
@named("solve", solves=True)
def solve(
    a: Any,
    b: Any,
    *,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
    reproducible: bool = False,
) -> Solution:
    """Solve a x = b to a named accuracy, with a proven bound of the error.

    The library's own inverse, in float64, is a first one; residuals of this library correct it, and x, in as many bits
    as are needed. So a condition number of 1e30 takes more time than one of 10, but no digit.

    Parameters
    ----------
    a : array or MPArray, shape (n, n), real or complex
    b : array or MPArray, shape (n,) or (n, columns)
    accuracy : Accuracy, str, int or float, optional
        Before x is rounded to its dtype. "fp64", a number of bits, or a tolerance t: no element of x may differ from
        the exact solution by more than t times the largest element of its column. `Accuracy("relative", t)`: by no
        more than t times itself. Up to 900 bits. Default: as many bits as the dtype has.
    dtype : {"float64", "float32", "complex128", "complex64", "mp"}, optional
        Of x; "mp" for an `MPArray` of the bits that the accuracy takes, "mp300" for one of 300 bits. Default: that of a
        and b, as in `matmul`.
    reproducible : bool, optional
        Make each entry of x, of complex ones each part, the float nearest to that of the exact solution, ties to even:
        the same bits on every processor, with every library and any number of threads. So does accuracy="exact". An
        entry that cannot be decided is refused (docs/linalg.md, L12).

    Returns
    -------
    Solution
        x, of the shape of b, its proven error bound, and how many corrections it took.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a is singular, or its condition number above 2^300, rows and columns scaled; if `reproducible`, for an entry
        that is zero, or halfway between two floats, of a matrix that is too large to decide that exactly.
    ValueError, TypeError
        For operands that cannot be used, and accuracies that no solution can have, before any work; for a relative
        accuracy where an element of the solution is zero, unless `reproducible`, and of that for a dtype of many bits.
    OverflowError
        If an element of x is too large for the dtype, or a whole column of x, of a relative accuracy an element, too
        small.

    Notes
    -----
    With R the inverse found, E = I - R a and d = R (b - a x), the solution is x + (I - E)^-1 d, so x + d is off by no
    more than norm(E) norm(d) / (1 - norm(E)). The norm of E, and everything that products and roundings add, is
    bounded; norm(E) is at most 2^-10 (docs/linalg.md, L1). S. M. Rump, "Verification methods", Acta Numerica 2010.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> hilbert = 1 / (1 + np.add.outer(np.arange(12.0), np.arange(12.0)))  # condition number 2e16
    >>> x, error_bound, iterations = ozaki.linalg.solve(hilbert, np.ones(12), accuracy="fp64")
    >>> x[:3], error_bound < 2e-16
    (array([   -11.6...,   1657...]), True)
    """
    (a, b), formats = matrices(a=a, b=b)
    check_matrix("a", a, square=True)
    as_columns("b", b, a.shape[0])  # refuses other shapes before any work
    nearest, accuracy = to_nearest(accuracy, reproducible)
    target = target_of(accuracy, dtype, formats)
    if nearest:
        return nearest_solution(a, b, target, lambda bits: solve(a, b, accuracy=bits, dtype="mp"))
    return System(a, formats).solve(b, target)


@any_arrays("a")
@default_environment
@np.errstate(all="ignore")
@named("inv", solves=True)
def inv(
    a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None, reproducible: bool = False
) -> Solution:
    """Invert a matrix to a named accuracy, with a proven bound of the error.

    Newton-Schulz steps X + (I - X a) X follow the library's own inverse, in float64; each squares the residual I - X a,
    whose norm is bounded.

    Parameters
    ----------
    a : array or MPArray, shape (n, n), real or complex
    accuracy, dtype, reproducible
        As in `solve`, whose x the columns of the inverse are.

    Returns
    -------
    Solution

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, TypeError, OverflowError
        As in `solve`.

    Notes
    -----
    With E = I - X a the inverse is (I - E)^-1 X, so that its columns differ from those of X by no more than
    norm(E) / (1 - norm(E)) times their largest elements (docs/linalg.md, L2). G. Schulz, 1933.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> x, error_bound, _ = ozaki.linalg.inv(np.array([[3.0, 1.0], [1.0, 0.5]]), accuracy=100, dtype="mp")
    >>> x
    mparray([[ 1.0, -2.0],
             [-2.0,  6.0]], bits=102)
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    nearest, accuracy = to_nearest(accuracy, reproducible)
    target = target_of(accuracy, dtype, formats)
    if nearest:
        return nearest_solution(a, np.eye(len(a)), target, lambda bits: inv(a, accuracy=bits, dtype="mp"))
    if not a.size:
        found = Solution(empty(a.shape, target.dtype, a), 0.0, 0)
    else:
        scales, unit, cleared = _equilibrated(a)
        found = solution(Inversion(left_inverse(unit)), Powers(scales.columns, scales.rows), target, cleared)
    return reached(found, a.shape, found.x, target.measure)


@any_arrays("a", "b")
@default_environment
@np.errstate(all="ignore")
@named("lstsq", solves=True)
def lstsq(a: Any, b: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> Solution:
    """Find the x that makes the norm of b - a x least, to a named accuracy, with a proven bound of the error.

    Parameters
    ----------
    a : array or MPArray, shape (m, n), m >= n, real or complex, of n independent columns
    b : array or MPArray, shape (m,) or (m, columns)
    accuracy, dtype
        As in `solve`.

    Returns
    -------
    Solution
        x of shape (n,) or (n, columns).

    Raises
    ------
    numpy.linalg.LinAlgError
        If the columns of a are dependent, its condition number is above 2^300, columns scaled, or it is too
        ill-conditioned for so many bits.
    ValueError, TypeError, OverflowError
        As in `solve`.

    Notes
    -----
    With S an inverse of the triangular factor of a, G = I - (a S)^H (a S) and u = S^H a^H (b - a x), the solution is
    x + S (I - G)^-1 u: residuals are exact, so that the normal equations lose nothing (docs/linalg.md, L3).
    Å. Björck, "Iterative refinement of linear least squares solutions", BIT 7 (1967) and 8 (1968).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> a = np.vander(np.arange(1.0, 21.0), 6)
    >>> x, error_bound, _ = ozaki.linalg.lstsq(a, a @ np.arange(6.0), accuracy="fp64")
    >>> x.round(8)
    array([0., 1., 2., 3., 4., 5.])
    """
    (a, b), formats = matrices(a=a, b=b)
    check_matrix("a", a, tall=True)
    columns = as_columns("b", b, a.shape[0])
    target = target_of(accuracy, dtype, formats)
    shape = (a.shape[1], *b.shape[1:])
    if not a.shape[1]:
        none = empty(shape, target.dtype, a)
        return reached(Solution(none, 0.0, 0), a.shape, none, target.measure)
    scales = -nonzero_tops(a, 0, "columns are dependent, column")
    unit = scaled(a, Powers(columns=scales))  # rows are left: other weights would be another problem
    sizes = tops_or_zero(columns, 0)
    unit, columns, of_solutions, cleared = _projected(unit, scaled(columns, Powers(columns=-sizes)))
    inverse = least_squares_inverse(unit)
    if not columns.shape[1]:
        none = empty(shape, target.dtype, a)
        return reached(Solution(none, 0.0, 0), a.shape, none, target.measure)
    refinement = Refinement(inverse, scaled(columns, Powers(columns=-of_solutions)))
    found = solution(refinement, Powers(scales, sizes + of_solutions), target, cleared)
    return reached(found._replace(x=found.x.reshape(shape)), a.shape, found.x, target.measure)


class System:
    """Linear equations with one matrix `a`, of which an inverse is found first.

    Parameters
    ----------
    a : square matrix, which must not change
    formats : the formats that a solution depends on

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular, or its condition number is too large.
    """

    def __init__(self, a: Any, formats: list[str]) -> None:
        self.formats, self.a = formats, a
        self._scales, unit, self._cleared = _equilibrated(a)
        self._inverse = left_inverse(unit) if a.size else None

    def __repr__(self) -> str:
        return f"System({self.a.shape[0]} equations)"

    def solve(self, b: Any, target: Target) -> Solution:
        """The solution for right-hand sides of shape (n,) or (n, columns)."""
        given = as_columns("b", b, self.a.shape[0])
        if self._inverse is None or not given.size:
            none = empty(b.shape, target.dtype, b)
            return reached(Solution(none, 0.0, 0), self.a.shape, none, target.measure)
        rows = self._scales.rows
        sizes = tops_or_zero(given, 0, Powers(rows))
        unit, cleared = without_tiny(scaled(given, Powers(rows, -sizes)))
        refinement = Refinement(self._inverse, unit)
        found = solution(refinement, Powers(self._scales.columns, sizes), target, cleared or self._cleared)
        return reached(found._replace(x=found.x.reshape(b.shape)), self.a.shape, found.x, target.measure)


def _equilibrated(a: Any) -> tuple[Powers, Any, bool]:
    """Powers of two for rows and columns of a square matrix, and the matrix times these, its elements below 1.

    It is cleared of tiny elements; whether it had any comes last.
    """
    rows = -nonzero_tops(a, 1, "singular, row")
    scales = Powers(rows, -nonzero_tops(a, 0, "singular, column", Powers(rows)))
    return scales, *without_tiny(scaled(a, scales))


def _projected(a: Any, b: Any) -> tuple[Any, Any, Exponents, bool]:
    """A least squares problem as it is solved, exponents of the size of a^H b, which solutions have, and if it differs.

    The matrix and right-hand sides are cleared of tiny elements, and the last item says if there were any; but where a
    solution is much smaller than b, it may depend on these, and they stay. Where a solution is zero, since b is
    orthogonal to all columns of a, b becomes zero: no correction would come near to that, relative to its size.

    Raises
    ------
    ValueError
        If the smallest elements matter, and are too small.
    """
    (large, cleared_a), (large_b, cleared_b) = without_tiny(a), without_tiny(b)
    of_a, of_b, sizes = adjoint(rounded(large)), rounded(large_b), column_sizes(large_b)
    terms = column_norm(large) * sizes
    products, missed = native_product(of_a, of_b), 2 * native_error(of_a, of_b) + 4 * UNIT
    if not _clear(products, (_LEAST_SHARE + missed) * terms):
        products, missed = matmul(adjoint(large), large_b, accuracy=componentwise(2.0**-60), dtype="mp"), 0.0
    if _clear(products, (_LEAST_SHARE + missed) * terms):
        return large, large_b, tops_or_zero(products, 0), cleared_a or cleared_b
    check_span("a", a)
    check_span("b", b)
    products = matmul(adjoint(a), b, accuracy="exact", dtype="mp")
    kept = np.broadcast_to(column_sizes(products) > 0, b.shape).astype(np.int8)
    return a, masked(b, array_library(b).asarray(kept)), tops_or_zero(products, 0), False


_LEAST_SHARE = 2.0**-50
"""Where a^H b is larger than this share of the sums of its terms, tiny elements do not matter (docs/linalg.md, L6)."""


def _clear(products: Any, limits: Any) -> bool:
    """Whether each column of a^H b has an element above its limit; the limit of a column of zeros is 0."""
    return bool(((column_sizes(products) > limits) | (limits == 0)).all())
