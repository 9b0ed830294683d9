"""Solutions of systems, each entry the nearest float."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ozaki.functions.products import matmul
from ozaki.linalg.common.arrays import exactly_on_host
from ozaki.linalg.common.scaling import ZERO, Powers, scaled, tops, tops_or_zero
from ozaki.linalg.common.targets import Target
from ozaki.linalg.nearest.asking import check_format
from ozaki.linalg.nearest.bounds import vector_errors
from ozaki.linalg.nearest.intervals import KNOWN, UNKNOWN, Interval, Mask, exponent_of
from ozaki.linalg.nearest.patterns import Pattern, of_solution, pattern_of
from ozaki.linalg.nearest.quotients import quotients
from ozaki.linalg.nearest.settling import Problem, settled
from ozaki.linalg.nearest.wholes import bits_of, solved, wholes_of, work
from ozaki.linalg.systems.gathering import Index, gathered, place, without_elements
from ozaki.linalg.systems.solution import Solution, too_small
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved


def nearest_solutions(
    a: Any, b: Any, batch: Index, target: Target, solve: Callable[[Any, Any, int], Solution]
) -> Solution:
    """The solutions of a x = b rounded to nearest, of matrices or stacks that broadcast to the leading axes `batch`.

    `solve` is a function of two matrices and a number of bits: as of `nearest_solution`.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, OverflowError
        As of `nearest_solution`; if a matrix is singular, of a stack without right-hand sides, too.
    """
    check_format(target.dtype)
    shape = (*batch, *b.shape[-2:])
    if 0 in shape:
        if a.size:  # no entry shows that it is regular
            solve(a, b, 53)
        return without_elements(shape, target, a, b)

    def one(index: Index) -> Solution:
        x, y = a[place(a, index)], b[place(b, index)]
        return nearest_solution(x, y, target, partial(solve, x, y))

    return gathered(None, batch, one)


def nearest_solution(a: Any, b: Any, target: Target, solve: Callable[[int], Solution]) -> Solution:
    """The solution of a x = b, b of shape (n, columns), rounded to nearest.

    Parameters
    ----------
    a, b : matrices of floats or MPArrays
    target : of which the format counts, and the measure of the bound
    solve : a function of a number of bits that returns the solution as an `MPArray`, normwise accurate to these

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, OverflowError
        As `solve`; a LinAlgError for an entry that cannot be decided (`settled`).
    """
    problem = _Equations(a, b, solve)
    (x,), (vanished,) = settled(problem, target.dtype, a)
    errors = vector_errors(x, 0)
    # A column of zeros is exact, or nothing is left of it.
    known = problem.zero_columns
    if (np.isinf(errors) & ~known).any() or (vanished and target.measure == "relative"):
        too_small(target.dtype)
    errors[known] = 0.0
    if target.measure == "relative":
        errors = _relative(x)
    return Solution.of(x, float(errors.max()), problem.iterations, error_bounds=errors)


def _relative(x: Any) -> Any:
    """Upper bounds of the relative errors of entries; zeros are exact."""
    entries = vector_errors(x.reshape(1, -1), 0).reshape(x.shape)
    return np.where(np.isinf(entries), 0.0, entries)


class _Equations(Problem):
    """Equations whose solution is one matrix.

    Attributes
    ----------
    iterations : corrections of the last solution
    zero_columns : which columns of the solution are zero
    """

    names: tuple[str, ...] = ("x",)
    first_bits = 96

    def __init__(self, a: Any, b: Any, solve: Callable[[int], Solution]) -> None:
        self._a, self._b, self._solve = a, b, solve
        self._tops = tops_or_zero(a, 0)
        self.iterations = 0
        self.zero_columns = np.zeros(b.shape[1], np.bool_)

    def enclose(self, bits: int) -> list[Interval]:
        found = self._solve(bits)
        x, self.iterations = moved(found.x, np).reshape(self._b.shape), found.iterations
        sizes = tops(x, 0)
        self.zero_columns = sizes == ZERO  # relative to its largest element nothing else is near a column of zeros
        # The largest part of an element is below 2**sizes, so moduli are below 2**(sizes + 1/2); the largest true one
        # is below that over 1 - error_bound.
        errors = np.where(self.zero_columns, KNOWN, sizes + exponent_of(found.error_bound) + 1)
        return [Interval(x, errors)]

    def patterns(self) -> list[Pattern]:
        return [of_solution(*(pattern_of(exactly_on_host(each)) for each in (self._a, self._b)))]

    def sharpened(self, intervals: list[Interval], bits: int) -> list[Interval]:
        """Columns of few bits, as wholes and their halves are, solve the equations exactly if they are the solution."""
        x, sizes = intervals[0].x, tops_or_zero(intervals[0].x, 0)
        # Sums with 3, whose parts lie between 2 and 4, round to multiples of one power of two.
        three = 3.0 + 3.0j if x.is_complex else 3.0
        coarse = ((x.ldexp(-sizes) + three).round_to(bits // 2) - three).ldexp(sizes)
        solves = matmul(exactly_on_host(self._a), coarse, accuracy="exact", dtype="mp") == exactly_on_host(self._b)
        return [Interval(coarse, np.where(solves.all(axis=0), KNOWN, sizes + UNKNOWN))]

    def work(self, which: list[Mask]) -> float:
        n, columns = len(self._a), int(which[0].any(axis=0).sum())
        joined = self._joined(which[0].any(axis=0))
        # Numbers above the diagonal change, too.
        return 2 * work(n, n + 2 * columns, n, bits_of(joined, by_rows=True), joined.is_complex)

    def exact(self, which: list[Mask]) -> list[MPArray]:
        columns = which[0].any(axis=0)
        wholes, _ = wholes_of(self._joined(columns), by_rows=True)  # powers of rows do not change a solution
        det, over = solved(wholes)
        if len(over) == 2:
            real, imag = det
            over = over[0] * real + over[1] * imag, over[1] * real - over[0] * imag
            det = (real * real + imag * imag,)
        found = quotients(over, det[0], -self._tops[:, None])
        places = np.cumsum(columns) - 1
        return [found[:, np.where(columns, places, 0)]]  # columns that are known take any place

    def _joined(self, columns: Any) -> MPArray:
        a, b = scaled(exactly_on_host(self._a), Powers(columns=-self._tops)), exactly_on_host(self._b)[:, columns]
        found: Any = np.concatenate([a, b], axis=1)
        return MPArray._of(found)
