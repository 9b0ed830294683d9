"""Triangular systems to a named accuracy."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ozaki.driver.watching import inside, named
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint, rounded
from ozaki.linalg.common.matrices import check_matrix, columns_for, matrices
from ozaki.linalg.common.scaling import ZERO, Exponents, Powers, scaled, tops, tops_or_zero, without_tiny
from ozaki.linalg.common.targets import Target, target_of
from ozaki.linalg.common.transposition import Transposition, transposition
from ozaki.linalg.common.triangles import check_diagonal, read, with_ones
from ozaki.linalg.common.upper import magnitudes
from ozaki.linalg.systems.gathering import Index, gathered, place, returned, without_elements
from ozaki.linalg.systems.inverses import LIMIT
from ozaki.linalg.systems.solution import Solution, solution
from ozaki.linalg.systems.solving import System
from ozaki.linalg.systems.stacks import Inverses, at_once
from ozaki.linalg.systems.substitution import Substitution, condition
from ozaki.planning.checks import check_flag
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


@any_arrays("a", "b", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("solve_triangular", solves=True)
def solve_triangular(
    a: Any,
    b: Any,
    trans: Transposition = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> Solution:
    """Solve a x = b for a triangular a to a named accuracy, with a proven bound of the error.

    Substitution, corrected by residuals, needs no inverse, and takes condition numbers of 2^n and more, as triangular
    matrices often have them; where its bound does not suffice, an inverse is found, as in `solve`.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
        One triangle is read; what stands in the other, NaN too, counts as 0.
    b : array or MPArray, shape (n,) or (..., n, columns)
        As in `solve`.
    trans : {0, 1, 2, "N", "T", "C"}, optional
        1 or "T" for a^T x = b, 2 or "C" for a^H x = b.
    lower : bool, optional
        Whether the lower triangle of a is read; the upper one is the default, as in SciPy.
    unit_diagonal : bool, optional
        Whether the diagonal of a counts as ones, and is not read.
    accuracy, dtype
        As in `solve`, but that None is "dtype".

    Returns
    -------
    Solution

    Raises
    ------
    numpy.linalg.LinAlgError
        If an element on the diagonal is zero; if the error can be bounded neither way: sums of abs of the elements of
        products in the inverse overflow float64, and the condition number is above 2^300, rows and columns scaled.
    ValueError, TypeError, OverflowError
        As in `solve`.

    Notes
    -----
    With <a> the comparison matrix, abs(a_ii) on the diagonal and -abs(a_ij) elsewhere, no error of an element of x is
    larger than that of inv(<a>) abs(b - a x), which is found by substitution, too, in blocks of rows (docs/linalg.md,
    L8). Matrices of up to 64 rows are inverted first, all of a stack at once, as by `solve` (L13): it is quicker, where
    it is enough.
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 8.2.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> a = np.array([[1.0, np.nan], [2.0, 4.0]])
    >>> ozaki.linalg.solve_triangular(a, np.array([3.0, 7.0]), lower=True).x
    array([3.  , 0.25])
    """
    of_a = transposition(trans)
    check_flag("lower", lower)
    check_flag("unit_diagonal", unit_diagonal)
    (a, b), formats = matrices(a=read("a", a, lower, "ones" if unit_diagonal else "read"), b=b)
    check_matrix("a", a, square=True)
    columns, batch = columns_for("b", b, a)
    target = target_of(accuracy, dtype, formats)
    if unit_diagonal:
        a = with_ones(a)
    check_diagonal("a", a)
    if of_a:
        a, lower = adjoint(a) if of_a == 2 else a.swapaxes(-1, -2), not lower
    if 0 in (shape := (*batch, *columns.shape[-2:])):
        return returned(without_elements(shape, target, a, b), a, target, b)
    solved = None
    if a.shape[-1] <= _MOST_ROWS and at_once(target, columns.shape[-1], a, columns):
        inverses = Inverses(a)
        solved = inverses.solve(columns, target) if inverses.good.any() else None

    def one(index: Index) -> Solution:
        return _of_one(a[place(a, index)], columns[place(columns, index)], formats, target, lower)

    return returned(gathered(solved, batch, one), a, target, b)


_MOST_ROWS = 64
"""Rows of matrices of which inverses are tried, those of a stack at once: of larger ones substitution is quicker."""


def _of_one(a: Any, b: Any, formats: list[str], target: Target, lower: bool) -> Solution:
    """The solution of one system, shapes (n, n) and (n, columns)."""
    with suppress(np.linalg.LinAlgError):  # of substitution, whose bound may be too large
        return _substituted(a, b, target, lower)
    try:
        with inside():
            return System(a, formats).solve(b, target)
    except np.linalg.LinAlgError:
        message = f"a: too ill-conditioned, for substitution and for an inverse ({LIMIT}, rows and columns scaled)"
        raise np.linalg.LinAlgError(message) from None


def _substituted(a: Any, b: Any, target: Target, lower: bool) -> Solution:
    """The solution of a triangular system, shapes (n, n) and (n, columns).

    Raises
    ------
    numpy.linalg.LinAlgError
        If substitution does not reach the target, or not as soon as an inverse does.
    """
    u, b = (a[::-1, ::-1], b[::-1]) if lower else (a, b)
    powers = _powers(u, b)
    assert powers.rows is not None and powers.columns is not None
    whole = scaled(u, powers)
    sizes = tops_or_zero(b, 0, Powers(powers.rows))
    (unit, _), (right, _) = without_tiny(whole), without_tiny(scaled(b, Powers(powers.rows, -sizes)))
    # An error relative to the largest element of a column is one of elements as large as these are.
    shown = (powers.columns - powers.columns.max()) * (target.measure == "normwise")
    iteration = Substitution(unit, right, magnitudes(whole), shown, lower)
    if iteration.growth > _SLOW and _well_conditioned(u):
        raise np.linalg.LinAlgError("a: an inverse is sooner found than substitution is proven to be accurate")
    rows = powers.columns - shown
    return solution(iteration, Powers(rows[::-1] if lower else rows, sizes), target)


_SLOW = 2.0**100
"""A growth of errors above which substitution takes more than three corrections, each of more and more bits."""


def _well_conditioned(u: Any) -> bool:
    """Whether native products are likely to prove that an inverse in float64 is good."""
    columns = -tops_or_zero(u, 0)
    rows = -tops_or_zero(u, 1, Powers(columns=columns))
    return condition(rounded(scaled(u, Powers(rows, columns)))) * len(u) < 2.0**30


_NONE = ZERO // 2
"""The exponent of zeros, to which others may be added."""

_FARTHEST = 2**40
"""Exponents from which on sums of many might leave the range of integers."""


def _powers(u: Any, b: Any) -> Powers:
    """Powers of two by which the diagonal becomes about 1, and no element, of the solution neither, much larger.

    Those of columns are the sizes that elements of a solution may have: the exponents of the largest terms in
    substitution, which is done with exponents alone. Each row is divided by its largest term.

    Raises
    ------
    numpy.linalg.LinAlgError
        If elements are too far apart for that.
    """
    exponents, of_b, n = _exponents(u), _exponents(b), len(u)
    if any(abs(each[each > _NONE]).max(initial=0) > _FARTHEST for each in (exponents, of_b)):
        raise np.linalg.LinAlgError("a: elements are too far apart for substitution")
    rows, columns = (of_b - tops_or_zero(b, 0)).max(axis=1), np.full(n, _NONE)
    for i in reversed(range(n)):
        rows[i] = max(rows[i], (exponents[i, i + 1 :] + columns[i + 1 :]).max(initial=_NONE))
        if rows[i] > _NONE // 2:
            columns[i] = rows[i] - exponents[i, i]
    zeros = np.flatnonzero(columns == _NONE)
    largest = columns.max() if len(zeros) < n else 0
    for i in zeros.tolist():  # elements of the solution, whose columns need be no larger than others
        others = exponents[:i, i] > _NONE
        columns[i] = (rows[:i] - exponents[:i, i])[others].min(initial=largest)
        rows[i] = columns[i] + exponents[i, i]
    return Powers(-rows, columns)


def _exponents(x: Any) -> Exponents:
    """The exponent e of each element of a matrix, the larger of two parts: below 2**e; `_NONE` of zeros. In NumPy."""
    return np.maximum(tops(x.reshape(-1, 1), 1), _NONE).reshape(x.shape)
