"""`Solution`, and how refined numbers become one."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, NamedTuple, NoReturn, Protocol

from ozaki.linalg.common.arrays import Sum, array_library, exactly, on_host
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.results import Bounded
from ozaki.linalg.common.scaling import Powers, bounds_scaled, scaled, tops_or_zero
from ozaki.linalg.common.targets import SMALLEST, Target
from ozaki.linalg.common.upper import LEAST, UP, column_sizes, least_magnitudes, magnitudes
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray
from ozaki.records.formats import is_multiprecision, precision_of

_UNREACHED = {
    "relative": "accuracy: an element of the solution is zero, or too small to be told from it; ask for "
    "Accuracy('normwise', tolerance)",
    "normwise": "accuracy: out of reach, since elements of the solution have sizes that are too far apart; scale the "
    "columns of a",
}


class _Items(NamedTuple):
    x: Any
    error_bound: Any
    iterations: int


class Solution(Bounded, _Items):
    """A solution, or those of a stack, and what is proven of it: the tuple (x, error_bound, iterations), and more.

    Attributes
    ----------
    x : array or MPArray
    error_bound : float, or of a stack a NumPy array of float64, one bound for each matrix
        No element differs from the exact solution by more than this times the largest element of its column
        ("normwise", the default), or times itself ("relative"). Proven for these operands, rounding to the dtype of x
        included.
    iterations : int
        Corrections of the first solution, or steps of an iteration; of a stack the most of any matrix.
    error_bounds : NumPy array of float64, shape (..., columns), or ("relative") the shape of x
        Such a bound for each column of x, of which a vector has one, or ("relative") for each element.
    """


class Iteration(Protocol):
    """An iteration towards x, shape (n, columns).

    Attributes
    ----------
    x : float64 array, Sum or MPArray
    errors : an upper bound of the largest error in each column of x
    steps : how many steps it took so far
    """

    x: Any
    steps: int

    @property
    def errors(self) -> Bounds: ...

    def reach(self, goal: float) -> None:
        """Go on until the errors of each column are at most `goal` times its largest element."""
        ...


def solution(iteration: Iteration, powers: Powers, target: Target, cleared: bool = False) -> Solution:
    """Iterate until x times powers of two, of all rows and columns, meets the target; round it.

    If the iteration's operands were `cleared` of tiny elements, that adds `LEAST` to errors (docs/linalg.md, L6).

    Raises
    ------
    ValueError
        If an element cannot be told from zero, and its relative error is to be small.
    OverflowError
        If an element is too large for the dtype, or a whole column, of "relative" an element, too small.
    """
    goal = target.tolerance / 4
    while True:
        iteration.reach(goal)
        x, errors = iteration.x, iteration.errors
        assert powers.columns is not None
        to_unit = powers._replace(columns=powers.columns - tops_or_zero(x, 0, powers))
        errors = (errors + LEAST * column_sizes(x) if cleared else errors) * UP
        errors = array_library(x).asarray(errors)[None, :]
        errors = bounds_scaled(errors, to_unit) + LEAST * (errors > 0)
        unit = scaled(x, to_unit)  # the largest elements of columns are about 1
        reached = _largest(_ratios(unit, errors, target.measure))
        if reached <= target.tolerance:
            break
        goal *= target.tolerance / (2 * reached) if isfinite(reached) else 2.0**-60
        if goal < SMALLEST:
            raise ValueError(_UNREACHED[target.measure])
    found, kept = formatted(x, powers, target.dtype)
    kept = scaled(kept, to_unit)
    bounds = _ratios(kept, errors + missing(unit, kept), target.measure)
    if (bound := _largest(bounds)) == inf:
        too_small(target.dtype)
    return Solution.of(found, bound, iteration.steps, error_bounds=on_host(bounds))


def formatted(x: Any, powers: Powers, dtype: str) -> tuple[Any, Any]:
    """Numbers times powers of two, rounded to a format; and the rounded ones without these powers, exactly.

    Raises
    ------
    OverflowError
        If one is too large for the format.
    """
    found = in_format(scaled(x, powers), dtype)
    return found, scaled(widened(found), powers.inverse())


def widened(x: Any) -> Any:
    """A result, exactly, in a format in which it can be compared with what it was rounded from: no float32 one."""
    if isinstance(x, Numbers):
        return x
    return x.astype("complex128" if x.dtype.kind == "c" else "float64", copy=False)


def missing(x: Any, kept: Any) -> Any:
    """Upper bounds of abs(x - kept)."""
    if isinstance(x, Numbers) or isinstance(kept, Numbers):
        return magnitudes(exactly(x) - exactly(kept))
    high, low = x if isinstance(x, Sum) else (x, x - x)
    return magnitudes(high - kept) + magnitudes(low)


def too_small(dtype: str) -> NoReturn:
    """Refuse a result of which nothing is left in its format.

    Raises
    ------
    OverflowError
    """
    raise OverflowError(f"dtype: elements of the result are too small for {dtype}; ask for dtype='mp'")


def in_format(x: Any, dtype: str) -> Any:
    """Floats, sums or multiprecision numbers rounded to a format, once.

    Raises
    ------
    OverflowError
        If one is too large for it.
    """
    if is_multiprecision(dtype):
        return exactly(x).round_to(precision_of(dtype))
    if isinstance(x, Sum):
        x = x.high if x.high.dtype.name == dtype else exactly(x)
    found = x.astype(dtype)
    if not bool(array_library(found).isfinite(found).all()):
        raise OverflowError(f"dtype: an element of the result is too large for {dtype}; ask for dtype='mp'")
    return found


def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    """A result without elements, or with none that are not zero, in the library of `like`."""
    wide = is_multiprecision(dtype)
    x = array_library(like).zeros(shape, "float64" if wide else dtype)
    return mparray(x) if wide else x


def _ratios(x: Any, errors: Any, measure: str) -> Any:
    """The errors of x in a measure, of each column or element, rounded up."""
    xp, sizes = array_library(errors), least_magnitudes(x)
    if measure == "normwise":
        sizes, errors = sizes.max(axis=0), errors.max(axis=0)
    found = xp.where(errors > 0, errors / (sizes - errors).clip(0), 0.0) * UP
    return xp.where(xp.isnan(found), inf, found)


def _largest(bounds: Any) -> float:
    return float(bounds.max())
