"""Factors of a matrix, corrected until their product is the matrix to a named accuracy.

A correction is computed in float64 from the residual, for example A - L U, which has as many bits as are needed. One
residual is often enough: those of factors that differ little from these follow from it by native products (`Near`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import ceil, inf, log2
from typing import Any, NamedTuple

import numpy as np

from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import added, array_library, exactly, masked, on_host, rounded
from ozaki.linalg.common.products import UNIT, Bounds, native_error, native_product, not_tiny, residual
from ozaki.linalg.common.scaling import Powers
from ozaki.linalg.common.targets import Target, target_of
from ozaki.linalg.common.upper import LEAST, UP, are_real_floats, magnitudes, norm_bounds
from ozaki.linalg.systems.solution import formatted, too_small
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.accuracy import Accuracy, of_text
from ozaki.records.formats import is_multiprecision

MOST_CORRECTIONS = 60
"""The most corrections of factors: one that gains no bit ends the iteration earlier."""

_NOT_CONVERGING = "a: too ill-conditioned for its factors to be corrected"


class Product(NamedTuple):
    """A product x y that is exactly `wanted` if the factors are exact.

    Attributes
    ----------
    wanted, x, y : matrices
    by_columns : whether its error is relative to the norms of columns of y alone, in place of row-column. For Q R:
        where a row of Q is zero, or tiny, an error relative to that would be large, whatever is corrected.
    """

    wanted: Any
    x: Any
    y: Any
    by_columns: bool = False


Products = Callable[[tuple[Any, ...]], list[Product]]
"""A function of factors that returns the products that they are to have."""


def factor_target(
    accuracy: Any, dtype: Any, formats: list[str], measure: str = "of factors it is row-column"
) -> Target:
    """The target of functions whose errors have one measure.

    Raises
    ------
    ValueError, TypeError
        If the accuracy or the dtype cannot be had.
    """
    if isinstance(of_text(accuracy), Accuracy):
        raise ValueError(f"accuracy: an Accuracy; expected a name, bits or a tolerance ({measure})")
    return target_of(accuracy, dtype, formats)


def native(factorise: Callable[[Any], Any], a: Any, why: str) -> Any:
    """The factors that NumPy or CuPy finds; `why` says what it means that it finds none.

    Raises
    ------
    numpy.linalg.LinAlgError
        If it finds none.
    """
    try:
        found = factorise(a)
        if all(bool(array_library(x).isfinite(x).all()) for x in (found if isinstance(found, tuple) else (found,))):
            return found
    except np.linalg.LinAlgError:
        pass
    raise np.linalg.LinAlgError(f"a: {why}")


class _Residual(NamedTuple):
    """The residual wanted - x y of a product, and what is known of it.

    Attributes
    ----------
    rest : the residual, but for errors of its elements (i, j) of at most `roundings` times their abs, the sum of
        u[i] v[j] for all pairs of vectors in `missed`, and `LEAST`
    missed, roundings
    rows, columns : lower and upper bounds of the norms of rows of x, and of columns of y, in NumPy as those vectors
    """

    rest: Any
    missed: tuple[tuple[Bounds, Bounds], ...]
    roundings: float
    rows: tuple[Bounds, Bounds]
    columns: tuple[Bounds, Bounds]

    @classmethod
    def of(cls, product: Product, tolerance: float, multiprecision: bool) -> _Residual:
        """That of a product, in many bits or in float64, computed to a tolerance."""
        wanted, x, y, _ = product
        tolerance = not_tiny(min(tolerance, 2.0**-8))
        rest = residual(wanted, x, y, tolerance, multiprecision)
        rows, columns = norm_bounds(x, 1), norm_bounds(y, 0)
        if multiprecision:  # then off by t abs(wanted) as well, where abs(wanted) is at most abs(x y) + abs(rest)
            return cls(rest, ((2.02 * tolerance * rows[1], columns[1]),), 1.01 * tolerance, rows, columns)
        return cls(rest, ((tolerance * rows[1], columns[1]),), UNIT, rows, columns)

    def changed(self, product: Product, change: Product) -> _Residual:
        """That of (x + dx) (y + dy): as x y + x dy + dx (y + dy), of which float64 finds what is added."""
        _, x, y, _ = product
        dx, dy, z = change.x, change.y, y + change.y
        rest = self.rest - (native_product(x, dy) + native_product(dx, z))
        # Of the sums here, of changes that are differences of floats, and of this residual, which is at most the one
        # that is found and what is added: at most 2**-49 of the products.
        off = native_error(x, y) + 2.0**-49
        columns = norm_bounds(z, 0)
        of_changes = ((off * self.rows[1], norm_bounds(dy, 0)[1]), (off * norm_bounds(dx, 1)[1], columns[1]))
        return _Residual(rest, self.missed + of_changes, 3 * self.roundings, norm_bounds(x + dx, 1), columns)

    def ratios(self, by_columns: bool) -> Bounds:
        """Of each column the largest element of wanted - x y over the norms of row of x and column of y, rounded up.

        With `by_columns` over the norm of the column alone.
        """
        (rows, most_of_rows), (columns, most_of_columns) = self.rows, self.columns
        alive = np.ones(rows.shape, bool) if by_columns else rows > 0
        weights = np.ones_like(rows) if by_columns else np.where(alive, 1 / rows, 0.0)
        sizes = abs(self.rest) if are_real_floats(self.rest) else magnitudes(self.rest)
        weighted = sizes * array_library(sizes).asarray(weights)[:, None]
        worst = on_host(weighted.max(axis=0)) * (1 + self.roundings) + LEAST * weights.max()
        for u, v in self.missed:
            worst = worst + (u * weights).max() * v
        found: Bounds = np.where(columns > 0, worst / columns, 0.0) * UP
        if not (alive.all() and (columns > 0).all()):
            # Where a norm may have underflowed, nothing is known; where it is zero, no residual may be left.
            nonzero = on_host(sizes != 0)
            lost = nonzero[~alive].any(axis=0) | ((most_of_rows > 0) & ~alive).any() & (most_of_columns > 0)
            lost |= (columns == 0) & (nonzero.any(axis=0) | (most_of_rows > 0).any() & (most_of_columns > 0))
            found[lost] = inf
        return found


class Near:
    """Factors in float64, and the residuals of their products; those of other factors, not far away, follow.

    Since (x + dx) (y + dy) = x y + x dy + dx (y + dy), a residual changes by two products that are as small as dx and
    dy, and so is what float64 errs by in them.

    Attributes
    ----------
    factors : the factors
    rests : the residuals wanted - x y of their products, in float64
    """

    def __init__(self, factors: tuple[Any, ...], products: Products, tolerance: float) -> None:
        self.factors, self._products = factors, products
        self._residuals = [_Residual.of(each, tolerance, multiprecision=False) for each in products(factors)]
        self.rests = tuple(each.rest for each in self._residuals)

    def errors(self, changes: tuple[Any, ...] | None = None) -> Bounds:
        """Upper bounds of the errors of columns of the products of the factors, with `changes` added to them."""
        products, residuals = self._products(self.factors), self._residuals
        if changes is not None:
            changed = zip(residuals, products, self._products(changes), strict=True)
            residuals = [each.changed(product, change) for each, product, change in changed]
        return _largest(each.ratios(product.by_columns) for each, product in zip(residuals, products, strict=True))

    def error(self, changes: tuple[Any, ...] | None = None) -> float:
        """The largest of `errors`."""
        return float(self.errors(changes).max())


class Corrected(NamedTuple):
    """Factors that are corrected.

    Attributes
    ----------
    factors : float64 arrays, Sums or MPArrays
    steps : corrections
    near : the float64 factors that they were found from, if these are so near that no other residual was needed
    """

    factors: tuple[Any, ...]
    steps: int
    near: Near | None = None


Correction = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
"""A function of factors and of the residuals, wanted - x y of each product, in float64, that returns what is added to
each factor, in float64."""

_FINEST = 2.0**-100
"""Of residuals that are rounded to float64 no more is asked: factors near others are known to some 100 bits at most."""


def corrected(tolerance: float, first: tuple[Any, ...], products: Products, correction: Correction) -> Corrected:
    """Correct factors in float64 until their products are what they should be, to a tolerance.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a correction gains nothing.
    """
    near = Near(first, products, max(tolerance, _FINEST) / 16)
    before = near.error()
    step("0 corrections: error of the factors up to %s", before)
    if before <= tolerance:
        return Corrected(first, 0, near)
    changes = _changes(correction, first, near.rests)
    factors, reached = tuple(map(added, first, changes)), near.error(changes)
    step("1 corrections: error of the factors up to %s", reached)
    if reached <= tolerance:
        return Corrected(factors, 1, near)
    bits, steps, reached = ceil(-log2(tolerance)) + 8, 1, before
    found = tuple(exactly(x).round_to(bits) for x in factors)
    while True:
        residuals, errors = _measured(found, products, tolerance)
        before, reached = reached, float(errors.max())
        if steps > 1:
            step("%d corrections: error of the factors up to %s", steps, reached)
        if reached <= tolerance:
            return Corrected(found, steps)
        # The first corrections may make a residual larger, by their terms of second order: only later ones must gain.
        if steps == MOST_CORRECTIONS or (steps > 2 and not reached < before / 2):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        changes = _changes(correction, found, tuple(rounded(each.rest) for each in residuals))
        found = tuple((x + exactly(change)).round_to(bits) for x, change in zip(found, changes, strict=True))
        steps += 1


def _changes(correction: Correction, factors: tuple[Any, ...], rests: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a correction adds to factors.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is no such correction.
    """
    try:
        changes = correction(factors, rests)
    except np.linalg.LinAlgError:  # a native inverse of a singular factor
        raise np.linalg.LinAlgError(_NOT_CONVERGING) from None
    if not all(bool(array_library(change).isfinite(change).all()) for change in changes):
        raise np.linalg.LinAlgError(_NOT_CONVERGING)
    return changes


def transformed(
    tolerance: float,
    n: int,
    factors_at: Callable[[float], Corrected],
    products: Products,
    why: str,
) -> Corrected:
    """Factors of an n x n or m x n matrix to a tolerance from those of a well-conditioned transformed matrix.

    `factors_at` takes the tolerance of the transformed matrix and its factors, and returns factors of the matrix itself
    and how many corrections they took. Two tolerances are tried in turn, both at most 2**-60: a coarser product might
    lose small eigenvalues of the transformed matrix. `why` says what it means that neither suffices.

    Raises
    ------
    numpy.linalg.LinAlgError
        If neither suffices.
    """
    first = min(tolerance / (64 * n), 2.0**-60)
    for finer in (first, first * 2.0**-40):
        with suppress(np.linalg.LinAlgError):
            found = factors_at(finer)
            if _measured(found.factors, products, tolerance)[1].max() <= tolerance:
                return found
    raise np.linalg.LinAlgError(f"a: {why}")


def triangle(x: Any, kept: Any, tolerance: float) -> Any:
    """A triangular factor from a product that is triangular but for rounding errors, which are cleared.

    `kept` is 1 in the triangle and 0 elsewhere; elements are rounded to as many bits as the tolerance asks for.
    """
    return masked(x.round_to(ceil(-log2(tolerance)) + 8), kept)


def _measured(factors: tuple[Any, ...], products: Products, tolerance: float) -> tuple[list[_Residual], Bounds]:
    """The residuals of factors to a sixteenth of the tolerance, and upper bounds of the errors of columns."""
    wanted = products(factors)
    found = [_Residual.of(each, tolerance / 16, multiprecision=True) for each in wanted]
    return found, _largest(each.ratios(product.by_columns) for each, product in zip(found, wanted, strict=True))


def _largest(errors: Iterable[Bounds]) -> Bounds:
    """The larger of the errors of columns of several products; those with fewer columns count as far as they go."""
    found, *others = sorted(errors, key=len, reverse=True)
    for each in others:
        found[: len(each)] = np.maximum(found[: len(each)], each)
    return found


def rounded_factors(
    target: Target, found: Corrected, products: Products, powers: tuple[Powers, ...], cleared: bool
) -> tuple[tuple[Any, ...], Bounds]:
    """Factors of a scaled matrix in the target's format, and upper bounds of the errors of columns of their products.

    They are multiplied by powers of two that undo the scaling. If the matrix was `cleared` of tiny elements, `LEAST` is
    added to the bounds (docs/linalg.md, L6).

    Raises
    ------
    OverflowError
        If an element is too large for the dtype, or a whole row or column too small.
    """
    result, kept = _all_formatted(found.factors, powers, target.dtype)
    if found.near is None or any(isinstance(x, Numbers) for x in kept):
        _, bounds = _measured(kept, products, target.tolerance)
    else:
        bounds = found.near.errors(tuple(x - first for x, first in zip(kept, found.near.factors, strict=True)))
    if bounds.max() == inf:
        too_small(target.dtype)
    return result, bounds + LEAST * cleared


def _all_formatted(
    factors: tuple[Any, ...], powers: tuple[Powers, ...], dtype: str
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What `formatted` makes of each factor: the results, and these without powers.

    Raises
    ------
    OverflowError
        If an element is too large for the format.
    """
    result, kept = zip(*(formatted(x, each, dtype) for x, each in zip(factors, powers, strict=True)), strict=True)
    return result, kept


def as_found(asked: Any, a: Any, target: Target) -> bool:
    """Whether factors of a matrix are taken as they are found: no accuracy is asked for, and all are floats."""
    return asked is None and not isinstance(a, Numbers) and not is_multiprecision(target.dtype)


def uncorrected(
    target: Target, factors: tuple[Any, ...], errors: Bounds, products: Products, powers: tuple[Powers, ...]
) -> tuple[tuple[Any, ...], Bounds]:
    """As `rounded_factors`, of factors in float64 whose errors are known, and which are not corrected.

    `errors` are those of columns of their product; where rounding changes a factor, others are found. Factors that the
    format holds as they are, and no power multiplies, are not copied.

    Raises
    ------
    OverflowError
        As of `rounded_factors`.
    """
    if all(x.dtype.name == target.dtype for x in factors) and all(each.alike for each in powers):
        return factors, errors
    result, kept = _all_formatted(factors, powers, target.dtype)
    if all(bool((x == y).all()) for x, y in zip(kept, factors, strict=True)):
        return result, errors
    return rounded_factors(target, Corrected(factors, 0), products, powers, cleared=False)
