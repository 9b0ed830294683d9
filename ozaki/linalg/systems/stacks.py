"""Systems, inverses and least squares in float64, all matrices of a stack at once (docs/linalg.md, L13).

Where the library's own inverse is a good one, it takes one native product to prove that, and one residual to correct a
solution to more bits than float64 has. A stack takes as many calls as one matrix. What this leaves, as ill-conditioned
matrices and elements that are far apart, `refinement.py` solves matrix by matrix.

Functions here raise nothing that depends on the numbers: NaN and Inf, of overflow and of singular matrices, make bounds
that reach no target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends import backend_of
from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import Sum, added, adjoint, array_library, on_host, times_powers
from ozaki.linalg.common.products import UNIT, native_error, native_product
from ozaki.linalg.common.slices import MOST, count_for, exponents, parts, power, residual_by_slices, tops
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import LEAST, UP
from ozaki.linalg.systems.inverses import CONTRACTION
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.formats import is_multiprecision

_MOST_CONTRACTION = 2.0**-5
"""The largest bound of norm(I - R A) with which R is taken as an inverse. It has more than 2**-200 norm(R) in it, so
that norms of R are below 2**200."""

_MOST_CORRECTIONS = 6
"""A condition number of 2**40 takes two or three of a solution, and four of an inverse."""

_TINY = 2.0**-600
"""More than everything that underflows makes up, of matrices and solutions with largest elements of about 1: at most
2**-1074 in an element, times norms of two matrices, which are below 2**400, and numbers of elements."""


class Solved(NamedTuple):
    """Solutions of a stack, rounded to their format, and which of them meet the target.

    Attributes
    ----------
    x : array, shape (..., n, columns)
    error_bounds : float64 array, shape (..., columns), or of a relative accuracy (..., n, columns)
    reached : array of bools, shape (...)
    steps : corrections
    """

    x: Any
    error_bounds: Any
    reached: Any
    steps: int = 1


def at_once(target: Target | None, columns: int, *operands: Any) -> bool:
    """Whether functions here take these operands, and results with so many columns, for a target, if that is known."""
    if any(isinstance(x, Numbers) for x in operands) or (target is not None and is_multiprecision(target.dtype)):
        return False
    a = operands[0]
    if min(columns, a.shape[-1]) > _MANY and a.ndim == 2 and array_library(a) is not np:
        return False
    return not backend_of(("a", a)).native_obstacle("float64")


_MANY = 1024
"""Up to so many rows and columns of a matrix on a GPU native products of slices are taken. Six are 13 Gflop then: 13 ms
where float64 is slow, 1 Tflop/s; planning and rounding a product of this library takes more, of larger ones less."""


class Inverses:
    """Inverses R in float64 of the square matrices A of a stack, rows and columns scaled, and what is proven of them.

    Parameters
    ----------
    a : float64 or complex128 array, shape (..., n, n), n > 0

    Attributes
    ----------
    good : NumPy array of bools, shape (...): of which matrices norm(I - R A) is proven to be at most 2**-5
    """

    def __init__(self, a: Any) -> None:
        xp = array_library(a)
        sizes = parts(a)
        self._rows = -exponents(sizes.max(axis=-1))
        sizes *= power(self._rows)[..., None]
        self._columns = -exponents(sizes.max(axis=-2))
        # Columns first: that loses no bits, since their powers are 1 at least.
        self._a = a * power(self._columns)[..., None, :] * power(self._rows)[..., None]
        self._r = inverse(self._a)
        self._norm_a, self._norm_r = _norm(self._a), _norm(self._r)
        e = xp.eye(a.shape[-1]) - native_product(self._r, self._a)
        self._unit = native_error(self._r, self._a) + UNIT
        self._contraction = (_norm(e) + self._unit * self._norm_r * self._norm_a) * UP + _TINY
        if not (enough := on_host(self._contraction <= _MOST_CONTRACTION)).all():
            self._look_closer(~enough)
        self._is_good = self._contraction <= _MOST_CONTRACTION
        self.good: npt.NDArray[np.bool_] = on_host(self._is_good)
        step("inverses in float64: norms of I - R A up to %s", self._contraction)

    def _look_closer(self, which: npt.NDArray[np.bool_]) -> None:
        """Bound the norms of I - R A of some matrices by residuals of slices."""
        xp, stack = array_library(self._a), self._a.ndim > 2
        index = tuple(xp.asarray(each) for each in np.nonzero(which)) if stack else ...
        a, r = self._a[index], self._r[index]
        rest, missed = residual_by_slices(xp.eye(a.shape[-1]), r, a, MOST, x_tops=tops(r, -1))
        norm = _norm(rest.high + rest.low) * (1 + UNIT)
        found = (norm + missed.sum(axis=-1)) * UP + _TINY
        if stack:
            self._contraction[index] = found
        else:
            self._contraction = found

    def solve(self, b: Any, target: Target) -> Solved:
        """Solutions of A x = b for b of shape (..., n, columns), whose leading axes broadcast to those of A.

        Those of matrices that are not `good` do not reach the target.
        """
        sizes, unit = right_sides(b, self._rows)
        live = _largest(unit) > 0
        gain = on_host(self._norm_r)[self.good].max(initial=1.0)
        contraction, norm_a, norm_r = (each[..., None] for each in (self._contraction, self._norm_a, self._norm_r))
        x = Sum(native_product(self._r, unit), 0.0)
        count = count_for(target.tolerance / (32 * gain), self._a, x.high)
        for steps in range(1, _MOST_CORRECTIONS + 1):
            (high, low), missed = residual_by_slices(unit, self._a, x.high, count)
            if steps > 1:
                low = low - native_product(self._a, x.low)
                missed = missed + self._unit * norm_a * _largest(x.low) + UNIT * _largest(low)
            r = high + low
            d = native_product(self._r, r)
            # (norm(E) norm(d) + norm(f)) / (1 - norm(E)) of L1
            f = norm_r * (missed + (self._unit + UNIT) * _largest(r))
            errors = (contraction * _largest(d) + f) / (1 - contraction)
            before, x = x.high, _sum(x, d)
            errors = (errors + _OF_SUM * (_largest(before) + _largest(x.high))) * UP + _TINY
            found = _rounded(x, errors * live, (self._columns, sizes), target, self._is_good)
            if not on_host(self._is_good > found.reached).any():
                break
        return found._replace(steps=steps)

    def inverses(self, target: Target) -> Solved:
        """The inverses, corrected by Newton-Schulz steps."""
        xp, a, n = array_library(self._a), self._a, self._a.shape[-1]
        x = Sum(self._r, 0.0)
        gain = 2 * on_host(_largest(x.high).max(axis=-1))[self.good].max(initial=1.0)
        count = count_for(target.tolerance / (32 * n * gain), x.high, a)
        for steps in range(1, _MOST_CORRECTIONS + 1):
            (high, low), missed = residual_by_slices(xp.eye(n), x.high, a, count, x_tops=tops(x.high, -1))
            of_e, norm_x, norm_low = missed.sum(axis=-1), _norm(x.high), 0.0
            if steps > 1:
                norm_low = _norm(x.low)
                low = low - native_product(x.low, a)
                of_e = of_e + self._unit * norm_low * self._norm_a + UNIT * _norm(low)
            e = high + low
            # norm(E)^2 + norm(F) (1 + norm(E)) + norm(H) norm(A) of L2
            of_e = of_e + UNIT * _norm(e)
            contraction = _norm(e) + of_e
            x = _sum(x, native_product(e, x.high))
            h = (self._unit * norm_x + norm_low) * contraction + _OF_SUM * (norm_x + _norm(x.high))
            contraction = (contraction**2 + of_e * (1 + contraction) + h * self._norm_a) * UP + _TINY
            errors = xp.where(contraction < 0.5, contraction / (1 - contraction), np.inf)[..., None]
            found = _rounded(x, errors * _largest(x.high) * UP, (self._columns, self._rows), target, self._is_good)
            if not on_host(self._is_good > found.reached).any():
                break
        return found._replace(steps=steps)


def least_squares(a: Any, b: Any, target: Target) -> Solved:
    """Solutions of least squares; a of shape (..., m, n), b of shape (..., m, columns), leading axes broadcast."""
    xp = array_library(a)
    columns = -tops(a, -2)
    a = a * power(columns)[..., None, :]
    sizes, unit = right_sides(b, xp.zeros(a.shape[-2], np.int32))
    live = _largest(unit) > 0
    s = xp.triu(inverse(xp.linalg.qr(a, mode="r")))
    of_a, of_s = adjoint(a), adjoint(s)
    norm_a, columns_a, norm_s, columns_s = _norm(a), _norm(of_a), _norm(s), _norm(of_s)
    w = native_product(a, s)
    norm_w, columns_w, of_w = _norm(w), _norm(adjoint(w)), native_error(a, s) + UNIT
    gram = xp.eye(a.shape[-1]) - native_product(adjoint(w), w)
    # norm(D^H) norm(W) + norm(W^H) norm(D) + norm(D^H) norm(D) of L3
    rows_d, columns_d = of_w * norm_a * norm_s, of_w * columns_a * columns_s
    missed = native_error(of_a, a) * columns_w * norm_w + columns_d * norm_w + columns_w * rows_d + columns_d * rows_d
    contraction = (_norm(gram) + missed) * UP + _TINY
    good = contraction <= CONTRACTION
    step("inverses in float64: norms of I - (A S)^H (A S) up to %s", contraction)
    x = native_product(s, native_product(of_s, native_product(of_a, unit)))
    gains = on_host(norm_s * columns_s * columns_a)[on_host(good)].max(initial=1.0)
    count = count_for(target.tolerance / (64 * gains), a, x)
    rest, of_rest = residual_by_slices(unit, a, x, count)
    minus, of_minus = residual_by_slices(0 * x, of_a, rest.high, count)
    right = native_product(of_a, rest.low) - (minus.high + minus.low)
    # norm(S) (norm(G) norm(u) + norm(f)) / (1 - norm(G)) + norm(g) of L3
    gain, tall = (norm_s * columns_s)[..., None], native_error(of_a, a) + UNIT
    u = native_product(of_s, right)
    d = native_product(s, u)
    f = columns_a[..., None] * (of_rest + (tall + UNIT) * _largest(rest.low)) + of_minus
    f = f + UNIT * (_largest(minus.high) + _largest(minus.low))
    f = gain * (f + (of_w + UNIT) * _largest(right)) * UP
    spread = norm_s[..., None] * contraction[..., None] * _largest(u) + f
    errors = spread / (1 - contraction[..., None]) + (of_w + UNIT) * norm_s[..., None] * _largest(u)
    return _rounded(added(x, d), (errors * UP + _TINY) * live, (columns, sizes), target, good)


def right_sides(b: Any, rows: Any) -> tuple[Any, Any]:
    """Exponents of the columns of right-hand sides, and these with rows times 2**rows, divided by powers of these.

    What underflows is far below the largest element of its column, which is about 1.
    """
    xp = array_library(b)
    top = xp.where(b != 0, exponents(parts(b)) + rows[..., None], _LEAST_TOP).max(axis=-2)
    top = xp.where(top == _LEAST_TOP, 0, top)
    by = rows[..., None] - top[..., None, :]
    return top, times_powers(b, by)


_LEAST_TOP = -(2**20)
"""Less than any exponent: of a column of zeros."""


def inverse(a: Any) -> Any:
    """The library's own inverses; that of a singular matrix is no inverse, but any matrix."""
    xp = array_library(a)
    try:
        return xp.linalg.inv(a)
    except np.linalg.LinAlgError:  # which names no matrix
        if a.ndim == 2:
            return xp.eye(len(a))
        return xp.stack([inverse(each) for each in a.reshape(-1, *a.shape[-2:])]).reshape(a.shape)


_OF_SUM = UNIT * UNIT
"""More than `_sum` errs by, relative to the sum of abs of x and of the result."""


def _sum(x: Sum, d: Any) -> Sum:
    """The sum of x and d: what x.high + d leaves, and x.low, are roundings of the first parts, and so is their sum."""
    high, low = added(x.high, d)
    return added(high, low + x.low)


def _norm(x: Any) -> Any:
    """Upper bounds of the largest sum of abs of a row, of each matrix."""
    return abs(x).sum(axis=-1).max(axis=-1) * (1 + (x.shape[-1] + 64) * 2.0**-52)


def _largest(x: Any) -> Any:
    """Upper bounds of the largest abs of each column."""
    return abs(x).max(axis=-2) * UP


def _rounded(x: Sum, errors: Any, powers: tuple[Any, Any], target: Target, good: Any) -> Solved:
    """Solutions times powers of two, of rows and columns, rounded to the format of the target.

    `errors` are upper bounds of the largest error of each column, `good` says of which matrices they hold.
    """
    xp = array_library(x)
    relative = target.measure == "relative"
    largest = powers[0].max(axis=-1)[..., None]
    up, columns = power(powers[0] - largest)[..., None], powers[1] + largest
    across, nonzero = power(columns)[..., None, :], errors > 0
    high, low = x.high * up, x.low * up
    if relative:
        errors, nonzero = errors[..., None, :] * up, nonzero[..., None, :]
    # Of columns the largest rows have the power 1. What underflows in the product is less than LEAST.
    errors = errors + LEAST * nonzero
    axes = (-2, -1) if relative else -1
    reached = good & (_ratio(errors, _sizes(high, relative)) <= target.tolerance).all(axis=axes)
    found = kept = high * across
    missing = abs(low)
    if found.dtype.name != target.dtype:
        found = found.astype(target.dtype)
        kept = found.astype(np.result_type(found.dtype, np.float64), copy=False) / across
        missing = missing + abs(high - kept)
        high = kept
    # An element that becomes subnormal loses less than 2**-1074.
    lost = power(xp.maximum(-1074 - columns, -1000))
    errors = errors + (_sizes(missing, relative) * UP + (lost[..., None, :] if relative else lost)) * nonzero
    bounds = _ratio(errors, _sizes(high, relative))
    finite = xp.isfinite(found).all(axis=(-2, -1)) & xp.isfinite(bounds).all(axis=axes)
    return Solved(found, bounds, reached & finite)


def _sizes(x: Any, relative: bool) -> Any:
    """The abs of elements, or of the largest one of each column."""
    return abs(x) if relative else abs(x).max(axis=-2)


def _ratio(errors: Any, sizes: Any) -> Any:
    """Errors relative to numbers of abs sizes - errors at least, rounded up; 0 for 0, Inf where these may be zero."""
    xp = array_library(errors)
    gap = sizes * (2 - UP) - errors
    return xp.where(errors == 0, 0.0, xp.where(gap > 0, errors / gap, np.inf) * UP)
