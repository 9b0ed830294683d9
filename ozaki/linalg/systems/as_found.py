"""Solutions of systems as the array library finds them, with proven backward errors (docs/linalg.md, L15)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import reached
from ozaki.linalg.common.arrays import Floats, array_library, on_host, times_powers
from ozaki.linalg.common.products import UNIT, native_error, native_product, residual
from ozaki.linalg.common.slices import exponents, parts, power, residual_by_slices
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import LEAST, UP, norms
from ozaki.linalg.systems.gathering import Index, one_by_one, place, stacked, without_elements
from ozaki.linalg.systems.solution import Solution, too_small, widened
from ozaki.linalg.systems.stacks import at_once, right_sides


class SolutionAsFound(Solution):
    """A solution that was not corrected, or those of a stack: as `Solution`, with other proofs.

    Attributes
    ----------
    error_bound, error_bounds
        Inf: how far x is from the exact solution is not known.
    backward_errors : NumPy array of float64, shape (..., columns)
        For each column of x, abs(b - a x)_i <= backward_errors (abs(a) abs(x) + abs(b))_i in each row i. So x is the
        exact solution of a system whose elements differ from those of a and b by no more than that times themselves.
        Proven, rounding to the dtype of x included.
    """

    backward_errors: npt.NDArray[np.float64]

    def _replace(self, **changes: Any) -> SolutionAsFound:
        backward_errors = changes.pop("backward_errors", self.backward_errors)
        found: SolutionAsFound = super()._replace(**changes)
        found.backward_errors = backward_errors
        return found


def solution_as_found(a: Any, columns: Any, batch: Index, target: Target, b: Any) -> SolutionAsFound:
    """The array library's solutions of a x = b, as `solve` returns them, logged and recorded by backward errors.

    Columns of extreme sizes are scaled by powers of two, which changes no bit of a solution, unless something over- or
    underflows.

    Parameters
    ----------
    a, columns : float64 or complex128 arrays, shapes (..., n, n) and (..., n, columns), of leading axes `batch`
    b : `columns` as the caller gave it, perhaps of one axis

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is none that is finite.
    OverflowError
        If an element is too large for the dtype, or all of a column are too small.
    """
    shape = (*batch, *columns.shape[-2:])
    if 0 in shape:
        none = without_elements(shape, target, a, b)
        x, backward_errors, bounds = none.x, none.error_bounds, none.error_bounds
    else:
        x, backward_errors = _found(a, columns, batch, target)
        bounds = np.full(backward_errors.shape, np.inf)
    largest = bounds.max(axis=-1, initial=0.0)
    found = SolutionAsFound.of(x, largest if batch else float(largest), 0, error_bounds=bounds)
    found.backward_errors = backward_errors
    reached(found._replace(error_bound=float(backward_errors.max(initial=0.0))), a.shape, x, "backward")
    return found if b.ndim > 1 else found._replace(x=x[..., 0])


def _found(a: Any, b: Any, batch: Index, target: Target) -> tuple[Any, Floats]:
    """Solutions, rounded to the format of the target, and the backward errors of their columns."""
    xp, by_slices = array_library(a), at_once(target, b.shape[-1], a, b)
    if batch and not by_slices:
        each = one_by_one(batch, lambda index: _found(a[place(a, index)], b[place(b, index)], (), target))
        return stacked([x for x, _ in each], batch), stacked([errors for _, errors in each], batch)
    powers, scaled = -exponents(parts(a).max(axis=-2)), a
    if bool((abs(powers) > _FAR).any()):
        powers = powers.clip(max=1000)  # whose powers are floats
        scaled = a * power(powers)[..., None, :]
    else:
        powers = powers * 0
    sizes, unit = right_sides(b, xp.zeros(a.shape[-2], np.int32))
    by = powers[..., :, None] + sizes[..., None, :]
    unscaled = _solved(scaled, unit, batch)
    x = times_powers(unscaled, by).astype(target.dtype)
    if bool(((unscaled != 0).any(axis=-2) > (x != 0).any(axis=-2)).any()):
        too_small(target.dtype)
    if not bool(xp.isfinite(x).all()):
        raise OverflowError(f"dtype: an element of the result is too large for {target.dtype}; ask for dtype='mp'")
    errors, certain = _backward_errors(scaled, times_powers(widened(x), -by), unit, by_slices)
    if not certain.all():
        # No backward error is above 1, and of a row in which all that is added up is zero it is 0.
        zero = native_product(*((each != 0).astype(np.float64) for each in (a, x))) + (b != 0) == 0
        errors = np.where(certain, errors, np.where(on_host(zero), 0.0, 1.0))
    return x, errors.max(axis=-2)


def _solved(a: Any, b: Any, batch: Index) -> Any:
    """The array library's solutions.

    Raises
    ------
    numpy.linalg.LinAlgError
        If one is not finite; of a stack the message ends with the index.
    """
    xp, x = array_library(a), None
    with suppress(np.linalg.LinAlgError):  # which names no matrix
        x = xp.linalg.solve(xp.broadcast_to(a, batch + a.shape[-2:]), xp.broadcast_to(b, batch + b.shape[-2:]))
    if x is not None and bool(xp.isfinite(x).all()):
        return x
    if not batch:
        raise np.linalg.LinAlgError("a: singular, as far as float64 tells; ask for an accuracy")
    return stacked(one_by_one(batch, lambda index: _solved(a[place(a, index)], b[place(b, index)], ())), batch)


def _backward_errors(a: Any, x: Any, b: Any, by_slices: bool) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Upper bounds of the backward errors of rows and columns of x, and which of these are known to be such.

    Elements may be off by 2**-1074.
    """
    size = 1 + abs(x).max(axis=-2)[..., None, :]
    found, certain, are_own = _bounds(a, x, b, size, _FEW_SLICES, by_slices)
    if are_own:
        # Errors of the residual are relative to the largest x of a column, unless columns of a are scaled by these.
        tops = parts(x).max(axis=-1)
        by = exponents(tops).clip(-1000, 1000) - 2000 * (tops == 0)
        a, x = times_powers(a, by[..., None, :]), times_powers(x, -by[..., :, None])
        found, certain, _ = _bounds(a, x, b, size, _SLICES, by_slices)
    return found, certain


def _bounds(
    a: Any, x: Any, b: Any, size: Any, count: int, by_slices: bool
) -> tuple[Floats, npt.NDArray[np.bool_], bool]:
    """As `_backward_errors`, with so many slices, and whether more than half of a bound is the residual's own error.

    What elements are off by counts `size` times.
    """
    # Residuals by slices err relative to the largest element of all rows, so these are made alike.
    rows = -exponents(parts(a).max(axis=-1)).clip(min=-1000)[..., None]
    a, b = a * power(rows), b * power(rows)
    sizes_a, sizes_x = abs(a), abs(x)
    lost = LEAST * power(rows.clip(min=0)) * size
    sizes = native_product(sizes_a, sizes_x) + abs(b)
    least = sizes * (1 - 2 * (native_error(sizes_a, sizes_x) + UNIT)) - lost
    if by_slices:
        (high, low), missed = residual_by_slices(b, a, x, count)
        rest, missed = high + low, missed[..., None, :]
    else:
        tolerance = 2.0 ** (-22 * count - 48)
        rest = residual(b, a, x, tolerance, multiprecision=False)
        missed = tolerance * norms(a, 1)[:, None] * norms(x, 0)
    own = missed * UP + lost
    found = on_host((abs(rest) * (1 + 2 * UNIT) + own) / least) * UP
    known = on_host(least > 0)
    largest = found.max(axis=-2, where=known, initial=_ENOUGH)
    are_own = bool((2 * on_host(own / least) > largest[..., None, :])[known].any())
    return found, known & (found <= 1), are_own


_FAR = 200
"""An exponent of a column beyond which it is scaled."""

_FEW_SLICES, _SLICES = 1, 3
"""Slices of residuals; more where their own errors are most of what is seen, as of elements of x that are far apart."""

_ENOUGH = 2.0**-53
"""A backward error that is so small that none is sought that is less."""
