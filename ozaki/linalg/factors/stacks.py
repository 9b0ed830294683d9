"""Factors in float64, all matrices of a stack at once (docs/linalg.md, L4 and L13).

The library's own factors are corrected once, by residuals of slices. The residuals of corrected factors, and of rounded
ones, follow from the same slices. What this leaves, as ill-conditioned matrices, is factored matrix by matrix.

Functions here raise nothing that depends on the numbers: NaN and Inf, of overflow and of matrices without factors, make
bounds that reach no target.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import adjoint, array_library, on_host, times_powers
from ozaki.linalg.common.products import UNIT, native_error, native_product
from ozaki.linalg.common.slices import count_for, exponents, power, residual_by_slices, tops
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import LEAST, UP, stacked_norms, stacked_norms_below
from ozaki.linalg.systems.stacks import at_once, inverse


class Factored(NamedTuple):
    """Factors of a stack, rounded to their format, and which of them meet the target.

    Attributes
    ----------
    factors : arrays; of LU the orders of rows first
    error_bounds : NumPy array of float64, shape (..., n): errors of columns of their product
    reached : NumPy array of bools, shape (...)
    steps : corrections
    """

    factors: tuple[Any, ...]
    error_bounds: Any
    reached: Any
    steps: int


def takes(target: Target, a: Any) -> bool:
    """Whether factors of a are tried here.

    Not those of one large matrix on a GPU, where what takes less time here, Python's steps, takes little of it.
    """
    columns = min(a.shape[-2:])
    if not (a.size and at_once(target, columns, a)):
        return False
    return a.ndim > 2 or columns <= _MOST_ROWS or array_library(a) is np


_MOST_ROWS = 64


def in_parts(find: Callable[[Any, Target], Factored], a: Any, target: Target) -> Factored:
    """What a function here finds of a matrix, or of a stack, so many matrices at once that they fit into a cache."""
    xp, shape = array_library(a), a.shape
    count = max((_CACHED if xp is np else _ON_GPU) // (shape[-1] * shape[-2]), 1)
    total = prod(shape[:-2])
    if total <= count:
        return find(a, target)
    a = a.reshape(total, *shape[-2:])
    each = [find(a[begin : begin + count], target) for begin in range(0, total, count)]

    def joined(library: Any, parts: tuple[Any, ...]) -> Any:
        found = library.concatenate(parts)
        return found.reshape(*shape[:-2], *found.shape[1:])

    factors = tuple(joined(xp, parts) for parts in zip(*(part.factors for part in each), strict=True))
    bounds, reached = (joined(np, parts) for parts in zip(*(part[1:3] for part in each), strict=True))
    return Factored(factors, bounds, reached, max(part.steps for part in each))


_CACHED = 2**17
"""Elements of matrices that are factored at once on the host: some ten such arrays are in use."""

_ON_GPU = 2**24


def cholesky_at_once(a: Any, target: Target) -> Factored:
    """Lower factors of Hermitian matrices, shape (..., n, n), n > 0.

    Matrices that reach the target are proven to be positive definite.
    """
    xp, n = array_library(a), a.shape[-1]
    scales = -(exponents(abs(xp.diagonal(a, axis1=-2, axis2=-1).real)) // 2)  # diagonals become about 1
    a = times_powers(a, scales[..., :, None] + scales[..., None, :])
    low = _lower_factors(a.reshape(-1, n, n)).reshape(a.shape)
    near = _Near(a, low, adjoint(low), target.tolerance)
    x = xp.tril(inverse(low))
    definite = near.norm() * UP < _least_singular_value(low, x) ** 2
    f = native_product(native_product(x, near.rest), adjoint(x)) * (xp.tri(n) - xp.eye(n) / 2)
    if holds_complex(f):  # the diagonal stays real
        f.imag = f.imag * (1 - xp.eye(n))

    def ratios(low: Any, change: Any = None) -> Any:
        return near.ratios(low, adjoint(low), *(() if change is None else (change, adjoint(change))))

    return _rounded((low,), (native_product(low, f),), ratios, (-scales[..., :, None],), definite, target)


def _lower_factors(a: Any) -> Any:
    """The library's Cholesky factors of matrices, shape (count, n, n); where there are none, any matrices."""
    xp = array_library(a)
    try:
        return xp.linalg.cholesky(a[0])[None] if len(a) == 1 else xp.linalg.cholesky(a)
    except np.linalg.LinAlgError:  # which names no matrix
        if len(a) == 1:
            return xp.full(a.shape, np.nan, a.dtype)
        half = len(a) // 2
        return xp.concatenate([_lower_factors(a[:half]), _lower_factors(a[half:])])


def lu_at_once(factors: Callable[[Any], tuple[Any, Any, Any]], a: Any, target: Target) -> Factored:
    """Orders of the rows, and factors, of regular matrices, shape (..., n, n), n > 0.

    `factors` finds them of matrices with columns of about 1: orders, lower factors and upper ones, in float64.
    """
    xp = array_library(a)
    columns = tops(a, -2)[..., None, :]
    a = a * power(-columns)
    order, low, high = factors(a)
    near = _Near(xp.take_along_axis(a, order[..., None], axis=-2), low, high, target.tolerance)
    f = native_product(native_product(xp.tril(inverse(low)), near.rest), xp.triu(inverse(high)))
    changes = native_product(low, xp.tril(f, -1)), native_product(xp.triu(f), high)
    found = _rounded(
        (low, high), changes, near.ratios, (xp.zeros(1, int), columns), xp.ones(a.shape[:-2], bool), target
    )
    return found._replace(factors=(order, *found.factors))


def qr_at_once(a: Any, target: Target) -> Factored:
    """Factors q and r of matrices, shape (..., m, n), m and n > 0.

    Of matrices that reach the target the first columns are proven to be independent.
    """
    xp, k = array_library(a), min(a.shape[-2:])
    columns = tops(a, -2)[..., None, :]
    a = a * power(-columns)
    q, r = xp.linalg.qr(a)
    of_a = _Near(a, q, r, target.tolerance, by_columns=True)
    of_eye = _Near(xp.eye(k), adjoint(q), q, target.tolerance)
    square, wide = r[..., :k], r[..., k:]
    s = xp.triu(inverse(square))
    gap, missed = _least_singular_value(square, s), of_eye.norm()
    independent = (missed < 0.5) & (of_a.norm() * UP < (1 - missed) * gap)
    change = native_product(of_a.rest[..., :k], s)
    turned = native_product(adjoint(q), change)
    y = (turned + adjoint(turned) - of_eye.rest) * (xp.tri(k).T - xp.eye(k) / 2)
    beyond = native_product(adjoint(q), of_a.rest[..., k:]) + native_product(y - turned, wide)
    changes = change - native_product(q, y), xp.concatenate([native_product(y, square), beyond], axis=-1)

    def ratios(q: Any, r: Any, *by: Any) -> Any:
        errors = of_a.ratios(q, r, *by)
        others = of_eye.ratios(adjoint(q), q, *((adjoint(by[0]), by[0]) if by else ()))
        return xp.concatenate([xp.maximum(errors[..., :k], others), errors[..., k:]], axis=-1)

    return _rounded((q, r), changes, ratios, (xp.zeros(1, int), columns), independent, target)


def _least_singular_value(x: Any, inverse: Any) -> Any:
    """Lower bounds of the least singular values of matrices, by inverses in float64; NaN where these tell nothing.

    If the Euclidean norm of I - inverse x is at most e < 1, that is (1 - e) / norm(inverse).
    """
    xp, norm = array_library(x), stacked_norms(inverse)
    e = stacked_norms(xp.eye(x.shape[-1]) - native_product(inverse, x)) * (1 + UNIT)
    e = (e + (native_error(inverse, x) + UNIT) * norm * stacked_norms(x) + LEAST) * UP
    return xp.where(e < 0.5, (1 - e) / norm * (2 - UP), np.nan)


class _Near:
    """Residuals C - X Y of products in float64, of stacks; those of other factors, not far away, follow (L4).

    Parameters
    ----------
    wanted, x, y : C, X and Y, stacks of matrices, scaled so that rows of X and columns of Y have norms of about 1
    tolerance : which errors of the product, relative to these norms, are to be told
    by_columns : whether errors are relative to the norms of columns of Y alone

    Attributes
    ----------
    rest : the residual in float64, but for errors of at most UNIT times it, `missed` of each column, and `LEAST`
    """

    def __init__(self, wanted: Any, x: Any, y: Any, tolerance: float, by_columns: bool = False) -> None:
        count = count_for(min(tolerance, UNIT) / 256, x, y)
        (high, low), self._missed = residual_by_slices(wanted, x, y, count, x_tops=tops(x, -1))
        self.rest = high + low
        self._x, self._rows, self._by_columns = x, stacked_norms(x, -1), by_columns
        # Beside products of changes this holds roundings of these, and of their sums: at most 2**-49 of the products.
        self._off = native_error(x, y) + 2.0**-49

    def norm(self) -> Any:
        """Upper bounds of the Euclidean norms of the residuals."""
        n = max(self.rest.shape[-2:])
        return (stacked_norms(self.rest) * (1 + 2 * UNIT) + n * (self._missed.max(axis=-1) + LEAST)) * UP

    def ratios(self, x: Any, y: Any, dx: Any = None, dy: Any = None) -> Any:
        """Upper bounds of the errors of columns of (X + dx) (Y + dy), which round to x and y; Inf or NaN if unknown.

        They are relative to norms of rows of x, and of columns of y. Without dx and dy those of X Y.
        """
        rest, off = self.rest, 0.0
        weights = array_library(x).ones(x.shape[:-1]) if self._by_columns else 1 / stacked_norms_below(x, -1)
        if dx is not None:
            rest = rest - (native_product(self._x, dy) + native_product(dx, y))
            of_x, of_dx = ((each * weights).max(axis=-1)[..., None] for each in (self._rows, stacked_norms(dx, -1)))
            off = self._off * (of_x * stacked_norms(dy, -2) + of_dx * stacked_norms(y, -2))
        worst = (abs(rest) * weights[..., None]).max(axis=-2) * (1 + 4 * UNIT) + off
        return (worst + (self._missed + LEAST) * weights.max(axis=-1)[..., None]) / stacked_norms_below(y, -2) * UP


def _rounded(
    first: tuple[Any, ...],
    changes: tuple[Any, ...],
    ratios: Callable[..., Any],
    powers: tuple[Any, ...],
    good: Any,
    target: Target,
) -> Factored:
    """Factors, corrected where they need it, times powers of two, rounded to the format of the target.

    Parameters
    ----------
    first, changes : factors, and what a correction adds to them
    ratios : a function of factors in float64 and of how much they differ from the first ones, if they do, that returns
        upper bounds of the errors of columns of their product
    powers : exponents of powers of two that undo the scaling of each factor
    good : bools, shape (...): which matrices may reach the target
    """
    xp = array_library(first[0])
    corrected, steps = first, 0
    errors = ratios(*first)
    enough = (errors <= target.tolerance).all(axis=-1)
    step("0 corrections: error of the factors up to %s", errors)
    if on_host(good & ~enough).any():
        # A matrix that needs none is not corrected, whatever others in its stack need.
        as_it_is, steps = enough[..., None, None], 1
        changes = tuple(xp.where(as_it_is, 0, change) for change in changes)
        corrected = tuple(xp.where(as_it_is, x, x + change) for x, change in zip(first, changes, strict=True))
        errors = ratios(*corrected, *changes)
        enough = (errors <= target.tolerance).all(axis=-1)
        step("1 corrections: error of the factors up to %s", errors)
    found, kept = zip(*(_formatted(x, by, target.dtype) for x, by in zip(corrected, powers, strict=True)), strict=True)
    bounds = ratios(*kept, *(x - y for x, y in zip(kept, first, strict=True)))
    finite = xp.isfinite(bounds).all(axis=-1)  # then factors are, too
    return Factored(found, on_host(bounds), on_host(good & enough & finite), steps)


def _formatted(x: Any, by: Any, dtype: str) -> tuple[Any, Any]:
    """Numbers times powers of two, rounded to a format; and the rounded ones without these powers, in float64."""
    found = (x * power(by)).astype(dtype, copy=False)
    return found, found.astype(np.result_type(found.dtype, np.float64), copy=False) * power(-by)
