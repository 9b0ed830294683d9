"""`Solution`, and how refined numbers become one."""

from __future__ import annotations

from math import inf, isfinite, isnan
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ozaki.linalg._arrays import array_library
from ozaki.linalg._inverses import Bounds
from ozaki.linalg._scaling import ZERO, Exponents, tops
from ozaki.linalg._targets import SMALLEST, Target
from ozaki.linalg._upper import LEAST, column_sizes, least_magnitudes, magnitudes
from ozaki.multiprecision.objects import mparray
from ozaki.records.formats import is_multiprecision, precision_of

_ROUNDINGS = 2.0**-40
"""More than all roundings of float64 in a bound make up, relative to it."""


_UNREACHED = {
    "relative": "accuracy: an element of the solution is zero, or too small to be told from it; ask for "
    "Accuracy('normwise', tolerance)",
    "normwise": "accuracy: out of reach, since elements of the solution have sizes that are too far apart; scale the "
    "columns of a",
}


class Solution(NamedTuple):
    """A solution, and what is proven of it.

    Attributes
    ----------
    x : array or MPArray
    error_bound : float
        No element differs from the exact solution by more than this times the largest element of its column
        ("normwise", the default), or times itself ("relative"). Proven for these operands, rounding to the dtype of x
        included.
    iterations : int
        Corrections of the first solution, or steps of an iteration.
    """

    x: Any
    error_bound: float
    iterations: int


class Iteration(Protocol):
    """An iteration towards x, shape (n, columns).

    Attributes
    ----------
    x : MPArray
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


def solution(
    iteration: Iteration, rows: Exponents, columns: Exponents, target: Target, cleared: bool = False
) -> Solution:
    """Iterate until x, its rows times 2**rows and its columns times 2**columns, meets the target; round it.

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
        xp = array_library(iteration.x)
        by = xp.asarray(rows)[:, None] + xp.asarray(columns)
        x = iteration.x.ldexp(by)
        top = tops(x, 0)  # of each column
        top[top == ZERO] = 0
        top = xp.asarray(top)
        errors = iteration.errors + LEAST * column_sizes(iteration.x) if cleared else iteration.errors
        errors = xp.asarray(errors) * (1 + _ROUNDINGS)
        errors = xp.ldexp(errors, xp.clip(by - top, -5000, 5000).astype(np.int32)) + LEAST * (errors > 0)
        reached = _ratio(x, errors, top, target.measure)
        if reached <= target.tolerance:
            break
        goal *= target.tolerance / (2 * reached) if isfinite(reached) else 2.0**-60
        if goal < SMALLEST:
            raise ValueError(_UNREACHED[target.measure])
    found = in_format(x, target.dtype)
    kept = mparray(found)
    rounding = magnitudes((x - kept).ldexp(-top))
    bound = _ratio(kept, errors + rounding, top, target.measure)
    if bound == inf:
        too_small(target.dtype)
    return Solution(found, bound, iteration.steps)


def too_small(dtype: str) -> NoReturn:
    """Refuse a result of which nothing is left in its format.

    Raises
    ------
    OverflowError
    """
    raise OverflowError(f"dtype: elements of the result are too small for {dtype}; ask for dtype='mp'")


def in_format(x: Any, dtype: str) -> Any:
    """Multiprecision numbers rounded to a format.

    Raises
    ------
    OverflowError
        If one is too large for it.
    """
    if is_multiprecision(dtype):
        return x.round_to(precision_of(dtype))
    found = x.astype(dtype)
    if not bool(array_library(found).isfinite(found).all()):
        raise OverflowError(f"dtype: an element of the result is too large for {dtype}; ask for dtype='mp'")
    return found


def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    """A result without elements, or with none that are not zero, in the library of `like`."""
    wide = is_multiprecision(dtype)
    x = array_library(like).zeros(shape, "float64" if wide else dtype)
    return mparray(x) if wide else x


def _ratio(x: Any, errors: Any, top: Any, measure: str) -> float:
    """The largest error of x in a measure, rounded up; `errors` and sizes of columns are in units of 2**top."""
    xp, sizes = array_library(x), least_magnitudes(x.ldexp(-top))
    if measure == "normwise":
        sizes, errors = sizes.max(axis=0), errors.max(axis=0)
    found = xp.where(errors > 0, errors / (sizes - errors).clip(0), 0.0)
    largest = float(found.max()) * (1 + _ROUNDINGS)
    return inf if isnan(largest) else largest
