"""Systems with a positive definite matrix that is factored."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.driver.watching import named
from ozaki.functions.products import matmul
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint
from ozaki.linalg.common.matrices import check_matrix, columns_for, matrices
from ozaki.linalg.common.scaling import WIDEST, Powers, scaled, tops_or_zero
from ozaki.linalg.common.targets import target_of
from ozaki.linalg.common.triangles import check_diagonal, read
from ozaki.linalg.factors.cholesky import Cholesky
from ozaki.linalg.factors.equations import Equations
from ozaki.linalg.systems.gathering import one_by_one
from ozaki.linalg.systems.solution import Solution
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.checks import check_flag
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


@any_arrays("c_and_lower", "b", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("cho_solve", solves=True)
def cho_solve(
    c_and_lower: Cholesky | tuple[Any, bool],
    b: Any,
    *,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> Solution:
    """Solve a x = b to a named accuracy with a factor of the positive definite a, with a proven bound of the error.

    Parameters
    ----------
    c_and_lower : Cholesky, or a tuple of a factor and a flag
        Of what `cholesky` returns a itself is solved, not the product of its rounded factors: the first call finds an
        inverse of a, which the result of `cholesky` then has for later ones. Of a tuple (c, lower), as
        `scipy.linalg.cho_factor` returns it, a is exactly c c^H, c the lower triangle, or c^H c, c the upper one; the
        other triangle is not read. So the factor's own errors count there as if they were those of a.
    b : array or MPArray, shape (n,) or (..., n, columns)
        As in `solve`, whose leading axes broadcast with those of the factor.
    accuracy, dtype
        As in `solve`, but that None is "dtype"; they need not be those of the factor.

    Returns
    -------
    Solution

    Raises
    ------
    numpy.linalg.LinAlgError
        As in `solve`; if an element on the diagonal of c is zero.
    ValueError, TypeError, OverflowError
        As in `solve`; if a row of c spans more than 2^16384.

    Notes
    -----
    An inverse of a, found once and whose residual is bounded, solves and corrects as in `solve`; rounded factors take
    no part in it (docs/linalg.md, L1 and L8).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> factor = ozaki.linalg.cholesky(np.array([[3.0, 1.0], [1.0, 2.0]]))
    >>> ozaki.linalg.cho_solve(factor, np.array([5.0, 5.0])).x
    array([1., 2.])
    >>> ozaki.linalg.cho_solve((np.array([[1.0, 9.0], [2.0, 1.0]]), True), np.array([3.0, 7.0])).x
    array([1., 1.])
    """
    (b,), formats = matrices(b=b)
    equations = c_and_lower.system if isinstance(c_and_lower, Cholesky) else _product(*_checked(c_and_lower))
    target = target_of(accuracy, dtype, [*equations.formats, *formats])
    columns_for("b", b, equations.a)  # refuses other shapes before any work
    return equations.solve(b, target)


def _checked(c_and_lower: Any) -> tuple[Any, bool]:
    """A factor, and which triangle it is.

    Raises
    ------
    TypeError
        If it is no pair of a factor and a flag.
    """
    if not isinstance(c_and_lower, tuple) or len(c_and_lower) != 2:
        raise TypeError(
            f"c_and_lower: {type(c_and_lower).__name__}; expected a Cholesky, as ozaki.linalg.cholesky returns it, or "
            "a tuple (c, lower)"
        )
    check_flag("c_and_lower[1]", c_and_lower[1])
    return c_and_lower


def _product(c: Any, lower: bool) -> Equations:
    """Equations with exactly c c^H of a lower factor, or c^H c of an upper one.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the factor is singular.
    ValueError
        If its elements are too far apart for an exact product.
    """
    name = "c_and_lower[0]"
    (c,), formats = matrices(**{name: read(name, c, lower)})
    check_matrix(name, c, square=True)
    low = c if lower else adjoint(c)
    one_by_one(c.shape[:-2], lambda index: _check_factor(name, low[index]))
    return Equations(matmul(low, adjoint(low), accuracy="exact", dtype="mp"), formats)


def _check_factor(name: str, low: Any) -> None:
    """Refuse a lower factor that is singular, or whose elements are too far apart for an exact product.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError
    """
    check_diagonal(name, low)
    if isinstance(low, Numbers) and low.size:
        unit = scaled(low, Powers(rows=-tops_or_zero(low, 1)))
        if (least := int(unit.exponents[unit.signs != 0].min())) < -WIDEST:
            where = "row of l, a column of an upper factor"
            raise ValueError(
                f"c_and_lower: an element is below 2^{least} times the largest of its {where}; expected "
                f"at least 2^-{WIDEST}, or 0"
            )
