"""Eigenvalues, their vectors and singular values in float64, all matrices of a stack at once (docs/linalg.md, L16).

The library's own eigenvectors take one residual by slices and native products to correct the values, as L11 has it, and
a few more for the vectors themselves. A stack takes as many calls as one matrix. What this leaves, as values that lie
close together and elements that are far apart, is decomposed matrix by matrix.

Functions here raise nothing that depends on the numbers: NaN and Inf make bounds that reach no target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import Sum, added, adjoint, array_library, on_host
from ozaki.linalg.common.products import UNIT, Bounds, native_error, native_product
from ozaki.linalg.common.results import largest_of_each
from ozaki.linalg.common.slices import count_for, exponents, parts, power, residual_by_slices, tops
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import UP, stacked_norms
from ozaki.linalg.systems.stacks import at_once
from ozaki.records.formats import part_of

_MOST_ROWS = 64
"""Rows of eigenvectors, at most: of larger matrices Python's share of the time is small."""

_TINY = 2.0**-500
"""More than everything that underflows makes up, of matrices whose largest elements are about 1: in norms these are
numbers whose squares do."""

_FINER = 2.0**-16
"""How much sharper a residual is than values need, from which angles of vectors are bounded: by its share of gaps."""

_MOST_TURNED = 2.0**-27
"""By how much eigenvectors of float64 are turned, at most: squares of that are left."""

_FARTHEST = 1000
"""Exponents of the largest elements of matrices that are decomposed here, at most, of abs."""


class Values(NamedTuple):
    """Values of a stack, rounded to their format, and of which matrices they meet the target.

    Attributes
    ----------
    values : array, shape (..., count), ascending
    error_bounds : NumPy array of float64, of the same shape
    reached : NumPy array of bools, shape (...)
    """

    values: Any
    error_bounds: Bounds
    reached: Any

    @property
    def error_bound(self) -> Any:
        """The largest bound of each matrix; a float of one matrix."""
        return largest_of_each(self.error_bounds)


class Vectors(NamedTuple):
    """Values and vectors of a stack, rounded to their formats, and of which matrices the values meet the target.

    Attributes
    ----------
    values : as of `Values`, which has the bounds and says which matrices meet the target
    vectors : array, shape (..., n, count)
    vector_bounds : NumPy array of float64, shape (..., count): upper bounds of the sines of angles to exact vectors
    """

    values: Values
    vectors: Any
    vector_bounds: Bounds


def eigenvalues(a: Any, target: Target, places: slice) -> Values | None:
    """The eigenvalues of Hermitian matrices, shape (..., n, n), at some places; None if these are not taken here."""
    if (decomposed := _decomposed(a, target, places)) is None:
        return None
    unit, by, values, x = decomposed
    found = _refined(unit, values, x, target.tolerance)
    return _rounded(found.values, found.errors, by, target, places)


def eigenvectors(a: Any, target: Target, places: slice) -> Vectors | None:
    """As `eigenvalues`, with eigenvectors that are corrected once."""
    if (decomposed := _decomposed(a, target, places)) is None:
        return None
    xp, (unit, by, values, x) = array_library(a), decomposed
    found = _refined(unit, values, x, _FINER * target.tolerance)
    of_values = _rounded(found.values, found.errors, by, target, places)
    # The residual of Y = X + X C and D + diag(change) is P + A X C - X C D - Y diag(change).
    turned = native_product(x, found.turns)
    rest = found.rest + (native_product(unit, turned) - turned * values[..., None, :])
    rest = rest - (x + turned) * found.change[..., None, :]
    norm_turned, largest = stacked_norms(turned), abs(values).max(axis=-1) * UP
    terms = (stacked_norms(unit) + largest) * norm_turned + stacked_norms(found.rest)
    terms = terms + (stacked_norms(x) + norm_turned) * abs(found.change).max(axis=-1)
    error = (found.of_rest + (native_error(unit, turned) + 8 * UNIT) * terms) * UP + _TINY
    # Lower bounds of the distances of each value to the exact ones of its neighbours.
    high, errors = found.values.high, found.errors + 2 * UNIT * largest[..., None]
    between = (high[..., 1:] - high[..., :-1]) * (1 - 2.0**-50)
    none = xp.full((*between.shape[:-1], 1), np.inf)
    above = xp.concatenate([between - errors[..., 1:], none], axis=-1)
    gaps = xp.minimum(above, xp.concatenate([none, between - errors[..., :-1]], axis=-1))
    sines = xp.where(gaps > 0, (stacked_norms(rest, -2) + error[..., None]) / xp.where(gaps > 0, gaps, 1.0), np.inf)
    vector, lost = added(x, turned)
    kept = vector[..., places].astype(target.dtype)
    missed = abs(vector[..., places] - kept) + abs(lost[..., places])
    length = 1 - found.gram - norm_turned  # of columns of Y, at least
    bounds = (sines[..., places] + stacked_norms(missed, -2)) / length[..., None] * UP
    reached = of_values.reached & on_host((norm_turned <= _MOST_TURNED) & xp.isfinite(kept).all(axis=(-2, -1)))
    return Vectors(of_values._replace(reached=reached), kept, on_host(bounds))


def singular_values(a: Any, target: Target) -> Values | None:
    """The singular values of matrices, shape (..., m, n), m >= n, ascending; None if these are not taken here.

    They are the largest n eigenvalues of [[0, A], [A^H, 0]], of which [u; v] and [u; -v] are eigenvectors, u and v
    singular vectors.
    """
    xp, (m, n) = array_library(a), a.shape[-2:]
    if not _takes(target, m + n, a):
        return None
    unit, by = _about_one(a)
    try:
        u, s, vh = xp.linalg.svd(unit, full_matrices=True)
    except np.linalg.LinAlgError:
        return None
    whole, vectors = (xp.zeros((*a.shape[:-2], m + n, m + n), unit.dtype) for _ in range(2))
    whole[..., :m, m:], whole[..., m:, :m] = unit, adjoint(unit)
    values = xp.zeros((*a.shape[:-2], m + n))
    values[..., :n], values[..., m:] = -s, s[..., ::-1]
    if _are_close(values, slice(m, m + n)):
        return None
    left, right = u[..., :n] * 0.5**0.5, adjoint(vh) * 0.5**0.5
    vectors[..., :m, :n], vectors[..., m:, :n] = left, -right
    vectors[..., :m, n:m] = u[..., n:]
    vectors[..., :m, m:], vectors[..., m:, m:] = left[..., ::-1], right[..., ::-1]
    found = _refined(whole, values, vectors, target.tolerance)
    return _rounded(found.values, found.errors, by, target, slice(m, m + n))


def _decomposed(a: Any, target: Target, places: slice) -> tuple[Any, Any, Any, Any] | None:
    """Hermitian matrices and exponents as of `_about_one`, and the library's own eigenvalues and eigenvectors of these.

    None if they are not taken here, or not worth being corrected.
    """
    if not _takes(target, a.shape[-1], a):
        return None
    unit, by = _about_one(a)
    try:
        values, vectors = array_library(a).linalg.eigh(unit)
    except np.linalg.LinAlgError:  # which names no matrix
        return None
    return None if _are_close(values, places) else (unit, by, values, vectors)


def _takes(target: Target, rows: int, a: Any) -> bool:
    """Whether values of a are found here for a target, by eigenvectors of so many rows."""
    return 0 not in a.shape and rows <= _MOST_ROWS and at_once(target, rows, a)


def _are_close(values: Any, places: slice) -> bool:
    """Whether in each matrix a wanted value is so close to another that float64 hardly tells them apart."""
    close = values[..., 1:] - values[..., :-1] <= 2.0**-51 * abs(values).max(axis=-1)[..., None]
    return bool(close[..., max(places.start - 1, 0) : places.stop].any(axis=-1).all())


def _about_one(a: Any) -> tuple[Any, Any]:
    """Matrices times powers of two, so that the largest part of an element is in [1/2, 1); and minus their exponents.

    Zeros in place of those with NaN or Inf, or with a largest element of more than 2**1000 or less than 2**-1000.
    """
    xp, sizes = array_library(a), parts(a).max(axis=(-2, -1))
    by = exponents(xp.where(xp.isfinite(sizes), sizes, 0.0))
    usual = xp.isfinite(sizes) & (abs(by) <= _FARTHEST)
    by = xp.where(usual, by, 0)
    return xp.where(usual[..., None, None], a, 0.0) * power(-by)[..., None, None], by


class _Refined(NamedTuple):
    """What is known of the eigenvalues D and eigenvectors X that float64 finds of Hermitian matrices A.

    Attributes
    ----------
    values, errors : D with errors of second order, and upper bounds of these; inf where a value is too close to another
    change : what was added to D for that, in float64
    rest, of_rest : A X - X D, rounded, and an upper bound of the Frobenius norm of what it is off by
    gram : an upper bound of that of I - X^H X
    turns : C, with which X + X C has errors of second order
    """

    values: Sum
    errors: Any
    change: Any
    rest: Any
    of_rest: Any
    gram: Any
    turns: Any


def _refined(a: Any, values: Any, x: Any, tolerance: float) -> _Refined:
    """What corrects values and vectors.

    Parameters
    ----------
    a : Hermitian matrices with elements of about 1
    values, x : approximate eigenvalues, ascending, and eigenvectors
    tolerance : of the values, relative to the largest
    """
    xp, n = array_library(a), a.shape[-1]
    diagonal = ..., xp.arange(n), xp.arange(n)
    # P = A X - X D of L5, as minus a residual of [A, X] and [X; -D].
    minus_d = xp.zeros(x.shape, x.dtype)
    minus_d[diagonal] = -values
    left, right = xp.concatenate([a, x], axis=-1), xp.concatenate([x, minus_d], axis=-2)
    count = count_for(tolerance / (64 * n * n), left, right)
    (high, low), missed = residual_by_slices(xp.zeros(()), left, right, count, x_tops=tops(left, -1))
    rest = -(high + low)
    of_rest = n * (missed + UNIT * abs(rest).max(axis=-2)).max(axis=-1) * UP
    # Frobenius norms from here on.
    adjoint_x, norm_x, norm_rest = adjoint(x), stacked_norms(x), stacked_norms(rest)
    of_product = native_error(adjoint_x, x) + 4 * UNIT
    orthogonal = xp.eye(n) - native_product(adjoint_x, x)
    gram = (stacked_norms(orthogonal) + of_product * (norm_x**2 + 1)) * UP
    coupling = native_product(adjoint_x, rest)
    missed = (of_product * norm_x * norm_rest + (1 + gram) * of_rest) * UP + _TINY
    half = (coupling + adjoint(coupling)) / 2
    size = (stacked_norms(half) + missed) * UP
    largest = abs(values).max(axis=-1) * UP
    missed = (missed + 2 * UNIT * size + 5 * gram**2 * largest + 2 * gram * size) * UP
    change = half[diagonal].real.copy()
    half[diagonal] = 0.0
    # A value that is a block of its own in L11, all others being at least so far away.
    between = (values[..., 1:] - values[..., :-1]) * (1 - 2.0**-50)
    none = xp.full((*between.shape[:-1], 1), np.inf)
    away = xp.minimum(xp.concatenate([between, none], axis=-1), xp.concatenate([none, between], axis=-1))
    away = away - 2 * size[..., None]
    coupled = stacked_norms(half, -2)
    apart = (away >= 6 * size[..., None]) & (2 * coupled <= away) & (gram <= 0.25)[..., None]
    second = 2 * coupled * (coupled / xp.where(apart, away, 1.0))
    errors = xp.where(apart, (second + missed[..., None]) * UP, np.inf)
    step("values in float64, corrected, of matrices with elements of about 1: errors up to %s", errors.max(axis=-1))
    distances = values[..., None, :] - values[..., :, None]
    turns = coupling / xp.where(distances == 0, np.inf, distances)
    turns[diagonal] = orthogonal[diagonal] / 2
    return _Refined(added(values, change), errors, change, rest, of_rest, gram, turns)


def _rounded(x: Sum, errors: Any, by: Any, target: Target, places: slice) -> Values:
    """Values times 2**by at some places, rounded to the format of the target."""
    xp = array_library(x)
    sizes = (abs(x.high) * (2 - UP) - errors).clip(0)
    high, low, errors = x.high[..., places], x.low[..., places], errors[..., places]
    sizes = sizes[..., places] if target.measure == "relative" else sizes.max(axis=-1)[..., None]
    reached = (errors <= target.tolerance * sizes).all(axis=-1)
    up = power(by)[..., None]
    found = (high * up).astype(part_of(target.dtype), copy=False)
    # What it lost is seen where that is a float64 number: it was multiplied by a power of two.
    kept = found.astype(np.float64, copy=False) / up
    missing = (abs(high - kept) + abs(low)) * UP
    bounds = (errors + missing) / xp.where(sizes > 0, sizes, 1.0) * UP
    held = xp.isfinite(found) & (bounds < 1)  # too large or too small for the format
    return Values(found, on_host(bounds), on_host(reached & held.all(axis=-1)))
