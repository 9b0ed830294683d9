"""Linear systems, inverses and least squares to a named accuracy."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ozaki.driver.watching import named
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import array_library, on_host
from ozaki.linalg.common.matrices import check_matrix, columns_for, matrices
from ozaki.linalg.common.scaling import ZERO, Exponents, Powers, nonzero_tops, scaled, tops, tops_or_zero, without_tiny
from ozaki.linalg.common.targets import OF_DTYPE, Target, target_of
from ozaki.linalg.nearest.asking import to_nearest
from ozaki.linalg.nearest.solutions import nearest_solutions
from ozaki.linalg.systems.as_found import solution_as_found
from ozaki.linalg.systems.gathering import Index, gathered, named_in_stack, place, returned, without_elements
from ozaki.linalg.systems.inverses import left_inverse
from ozaki.linalg.systems.least_squares import least_squares_of
from ozaki.linalg.systems.refinement import Inversion, Refinement
from ozaki.linalg.systems.solution import Solution, solution
from ozaki.linalg.systems.stacks import Inverses, at_once, least_squares
from ozaki.linalg.systems.structure import structured
from ozaki.multiprecision.numbers import Numbers
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import is_multiprecision


@any_arrays("a", "b", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("solve", solves=True)
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    *,
    assume_a: str | None = None,
    transposed: bool = False,
    accuracy: Accuracy | str | float | None = OF_DTYPE,
    dtype: Any = None,
    reproducible: bool = False,
) -> Solution:
    """Solve a x = b to a named accuracy, with a proven bound of the error.

    The library's own inverse, in float64, is a first one; residuals of this library correct it, and x, in as many bits
    as are needed. So a condition number of 1e30 takes more time than one of 10, but no digit. A stack is solved at
    once; of its matrices only those that take more bits, and multiprecision ones, are solved one by one.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
    b : array or MPArray, shape (n,) or (..., n, columns)
        Leading axes broadcast to those of a; with one axis, the right-hand side of every matrix.
    lower : bool, optional
        Which triangle is read of a matrix that `assume_a` says is symmetric or Hermitian; else it is ignored.
    assume_a : str, optional
        What is read of a, by the names of SciPy; NaN and Inf may stand in the rest of an array. "diagonal",
        "tridiagonal", "upper triangular", "lower triangular": the elements there. "symmetric" or "sym", "hermitian" or
        "her", "positive definite" or "pos": one triangle, of Hermitian matrices ("her", "pos") real parts of the
        diagonal. "banded", "general" or "gen", and None: every element. No name is a claim: nothing of the bound rests
        on it, and "pos" solves matrices that are not positive definite, too (`cholesky` refuses these).
    transposed : bool, optional
        Solve a.T x = b, with the transpose of a that is read so. Complex matrices are not conjugated.
    accuracy : Accuracy, str, int or float, optional
        Before x is rounded to its dtype. "fp64", a number of bits, or a tolerance t: no element of x may differ from
        the exact solution by more than t times the largest element of its column. `Accuracy("relative", t)`: by no
        more than t times itself. Up to 900 bits. Default: "dtype", as many bits as the dtype has. None: the array
        library's own solution of floats, found in float64 and not corrected, in some 1.5 times its time; what is proven
        is that it solves a system near this one. Of numbers of more bits None means "dtype".
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
        x, of shape (..., n) if b has one axis, else (..., n, columns), its proven error bound, and how many corrections
        it took. `error_bounds` has one for each column, or of a relative accuracy for each element. With accuracy=None
        a `SolutionAsFound`, whose `backward_errors` say how near the system is that each column solves.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a is singular, or its condition number above 2^300, rows and columns scaled, with accuracy=None only if the
        array library finds that; if `reproducible`, for an entry
        that is zero, or halfway between two floats, of a matrix that is too large to decide that exactly.
    ValueError, TypeError
        For operands that cannot be used, and accuracies that no solution can have, before any work; for a relative
        accuracy where an element of the solution is zero, unless `reproducible`, and of that for a dtype of many bits.
    OverflowError
        If an element of x is too large for the dtype, or a whole column of x, of a relative accuracy an element, too
        small.

    Notes
    -----
    Errors about one matrix of a stack end with its index, as "(matrix [3] of the stack)".

    With R the inverse found, E = I - R a and d = R (b - a x), the solution is x + (I - E)^-1 d, so x + d is off by no
    more than norm(E) norm(d) / (1 - norm(E)). The norm of E, and everything that products and roundings add, is
    bounded; norm(E) is at most 2^-5 (docs/linalg.md, L1 and L13). S. M. Rump, "Verification methods", Acta Numerica
    2010.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> hilbert = 1 / (1 + np.add.outer(np.arange(12.0), np.arange(12.0)))  # condition number 2e16
    >>> x, error_bound, iterations = ozaki.linalg.solve(hilbert, np.ones(12), accuracy="fp64")
    >>> x[:3].round(3), error_bound < 2e-16
    (array([-1.1581000e+01,  1.6647410e+03, -5.8495268e+04]), True)
    >>> stack = np.array([np.eye(2), [[2.0, 1.0], [1.0, 2.0]]])
    >>> found = ozaki.linalg.solve(stack, np.array([[3.0, 6.0], [3.0, 0.0]]))
    >>> found.x[1], found.error_bound.shape, found.error_bounds.shape
    (array([[ 1.,  4.],
           [ 1., -2.]]), (2,), (2, 2))
    """
    a = structured(a, assume_a, lower, transposed)
    (a, b), formats = matrices(a=a, b=b)
    check_matrix("a", a, square=True)
    columns, batch = columns_for("b", b, a)
    nearest, asked = to_nearest(accuracy, reproducible)
    target = target_of(asked, dtype, formats)
    in_many_bits = is_multiprecision(target.dtype) or any(isinstance(x, Numbers) for x in (a, b))
    if accuracy is None and not nearest and not in_many_bits:
        return solution_as_found(a, columns, batch, target, b)
    if nearest:
        in_bits = lambda x, y, bits: solve(x, y, accuracy=bits, dtype="mp")  # noqa: E731
        return returned(nearest_solutions(a, columns, batch, target, in_bits), a, target, b)
    return System(a, formats, target, columns.shape[-1]).solve(b, target)


@any_arrays("a", numpy=("error_bound",))
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
    a : array or MPArray, shape (..., n, n), real or complex
    accuracy, dtype, reproducible
        As in `solve`, whose x the columns of the inverse are, but that None is "dtype".

    Returns
    -------
    Solution
        x of the shape of a, with bounds as of `solve`.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, TypeError, OverflowError
        As in `solve`.

    Notes
    -----
    With E = I - X a the inverse is (I - E)^-1 X, so that its columns differ from those of X by no more than
    norm(E) / (1 - norm(E)) times their largest elements (docs/linalg.md, L2 and L13). G. Schulz, 1933.

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
        eye = array_library(a).eye(a.shape[-1])
        in_bits = lambda x, _, bits: inv(x, accuracy=bits, dtype="mp")  # noqa: E731
        return returned(nearest_solutions(a, eye, a.shape[:-2], target, in_bits), a, target)
    if not a.size:
        return returned(without_elements(a.shape, target, a), a, target)
    solved = Inverses(a).inverses(target) if at_once(target, a.shape[-1], a) else None

    def one(index: Index) -> Solution:
        scales, unit, cleared = equilibrated(a[index])
        return solution(Inversion(left_inverse(unit)), Powers(scales.columns, scales.rows), target, cleared)

    return returned(gathered(solved, a.shape[:-2], one), a, target)


@any_arrays("a", "b", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("lstsq", solves=True)
def lstsq(a: Any, b: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> Solution:
    """Find the x that makes the norm of b - a x least, to a named accuracy, with a proven bound of the error.

    Parameters
    ----------
    a : array or MPArray, shape (..., m, n), m >= n, real or complex, of n independent columns
    b : array or MPArray, shape (m,) or (..., m, columns)
        As in `solve`.
    accuracy, dtype
        As in `solve`, but that None is "dtype".

    Returns
    -------
    Solution
        x of shape (..., n) or (..., n, columns), with bounds as of `solve`.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the columns of a are dependent, its condition number is above 2^300, columns scaled (of a square one rows and
        columns), or it is too ill-conditioned for so many bits.
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
    columns, batch = columns_for("b", b, a)
    target = target_of(accuracy, dtype, formats)
    n, count = a.shape[-1], columns.shape[-1]
    if not n or 0 in batch:
        return returned(without_elements((*batch, n, count), target, a, b), a, target, b)
    if not count:  # columns of a may be dependent nevertheless
        columns = array_library(a).zeros((a.shape[-2], 1))
    solved = least_squares(a, columns, target) if at_once(target, columns.shape[-1], a, columns) else None

    def one(index: Index) -> Solution:
        of_a, of_b = a[place(a, index)], columns[place(columns, index)]
        try:
            return least_squares_of(of_a, of_b, target)
        except np.linalg.LinAlgError:
            if a.shape[-2] == n:  # rows may be scaled then, as they may not be of more rows than columns
                with suppress(np.linalg.LinAlgError):
                    return _Single(of_a).solve(of_b, target)
            raise

    found = gathered(solved, batch, one)
    return returned(found if count else without_elements((*batch, n, 0), target, a, b), a, target, b)


class System:
    """Linear equations with one matrix, or with each of a stack, of which inverses are found first.

    Parameters
    ----------
    a : square matrices, shape (..., n, n), which must not change
    formats : the formats that a solution depends on
    target, columns : that of all solutions, if it is known, and how many right-hand sides there are at once

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is singular, or its condition number is too large.
    """

    def __init__(self, a: Any, formats: list[str], target: Target | None = None, columns: int = 1) -> None:
        self.formats, self.a = formats, a
        self._single: dict[Index, _Single] = {}
        self._inverses = Inverses(a) if a.size and at_once(target, columns, a) else None
        good = np.zeros(a.shape[:-2], bool) if self._inverses is None else self._inverses.good
        if a.size and not good.all():
            for index in map(tuple, np.argwhere(~good).tolist()):
                with named_in_stack(index):
                    self._of(index)

    def __repr__(self) -> str:
        return f"System({self.a.shape[-1]} equations)"

    def solve(self, b: Any, target: Target) -> Solution:
        """The solutions for right-hand sides of shape (n,) or (..., n, columns)."""
        columns, batch = columns_for("b", b, self.a)
        shape = (*batch, *columns.shape[-2:])
        if 0 in shape:
            return returned(without_elements(shape, target, self.a, b), self.a, target, b)
        inverses = self._inverses if at_once(target, columns.shape[-1], self.a, columns) else None
        solved = None if inverses is None else inverses.solve(columns, target)

        def one(index: Index) -> Solution:
            return self._of(place(self.a, index)).solve(columns[place(columns, index)], target)

        return returned(gathered(solved, batch, one), self.a, target, b)

    def _of(self, index: Index) -> _Single:
        """The matrix at an index, with an inverse for as many bits as are asked for."""
        if index not in self._single:
            self._single[index] = _Single(self.a[index])
        return self._single[index]


class _Single:
    """A matrix, scaled, and its inverse."""

    def __init__(self, a: Any) -> None:
        self._scales, unit, self._cleared = equilibrated(a)
        self._inverse = left_inverse(unit)

    def solve(self, b: Any, target: Target) -> Solution:
        """The solution for right-hand sides of shape (n, columns)."""
        rows = self._scales.rows
        sizes = tops_or_zero(b, 0, Powers(rows))
        unit, cleared = without_tiny(scaled(b, Powers(rows, -sizes)))
        refinement = Refinement(self._inverse, unit)
        return solution(refinement, Powers(self._scales.columns, sizes), target, cleared or self._cleared)


def equilibrated(a: Any) -> tuple[Powers, Any, bool]:
    """Powers of two for rows and columns of a square matrix, and the matrix times these, its elements below 1.

    It is cleared of tiny elements; whether it had any comes last. Rows are scaled first. Where that would leave most
    elements tiny, since columns are far apart, and a row has a zero in a large one, columns are; or rows and columns by
    the means of the exponents in them, which find the powers that a matrix was scaled by, zeros or not. Of these orders
    it is the one that leaves elements larger in the geometric mean.
    """
    rows = -nonzero_tops(a, 1, "singular, row")
    scales = Powers(rows, -nonzero_tops(a, 0, "singular, column", Powers(rows)))
    if np.ptp(rows) > _FAR:
        exponents, present = _exponents(a)
        candidates = [scales]
        for columns in (-tops(a, 0), _mean_exponents(exponents, present)):
            rows = -tops(a, 1, Powers(columns=columns))
            candidates.append(Powers(rows, -tops(a, 0, Powers(rows))))
        xp = array_library(a)
        growth = lambda powers: float((powers.of_elements(xp) * present).sum(dtype=np.float64))  # noqa: E731
        scales = max(candidates, key=growth)
    return scales, *without_tiny(scaled(a, scales))


def _exponents(a: Any) -> tuple[Any, Any]:
    """The exponents of elements, of complex ones of the larger part, and whether they are not zero."""
    if isinstance(a, Numbers):
        exponents, present = a.exponents, a.signs != 0
    else:
        parts = array_library(a).stack((a.real, a.imag), axis=-1) if a.dtype.kind == "c" else a
        exponents, present = array_library(a).frexp(parts)[1].astype(np.int64), parts != 0
    exponents = array_library(a).where(present, exponents, ZERO)
    return (exponents.max(axis=2), present.any(axis=2)) if exponents.ndim == 3 else (exponents, present)


def _mean_exponents(exponents: Any, present: Any) -> Exponents:
    """Exponents for columns, with which and with others for rows those of elements have means of about 0."""
    xp = array_library(exponents)
    known = xp.where(present, exponents, 0).astype(np.float64)
    of_rows, of_columns = present.sum(axis=1), present.sum(axis=0)
    columns = xp.zeros(len(of_columns))
    for _ in range(_MEANS):
        rows = -(known + columns * present).sum(axis=1) / of_rows
        columns = -(known + rows[:, None] * present).sum(axis=0) / of_columns
    found: Exponents = np.rint(on_host(columns)).astype(np.int64)
    return found


_MEANS = 30
"""Means of rows and of columns in turn: where most elements are not zero a few are enough."""

_FAR = 200
"""How far apart exponents of rows are where it is asked whether columns are why."""
