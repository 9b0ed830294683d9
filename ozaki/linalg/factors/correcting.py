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
from ozaki.linalg.common.upper import LEAST, UP, least_norms, magnitudes, norms
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
        measured = [_residual(each, tolerance, multiprecision=False) for each in products(factors)]
        self.rests, self._missed = zip(*measured, strict=True)

    def errors(self, changes: tuple[Any, ...] | None = None) -> Bounds:
        """Upper bounds of the errors of columns of the products of the factors, with `changes` added to them."""
        products = self._products(self.factors)
        if changes is None:
            return _largest(map(_ratios, products, self.rests, self._missed))
        changed = zip(products, self.rests, self._missed, self._products(changes), strict=True)
        return _largest(self._ratios_of_changed(*each) for each in changed)

    def error(self, changes: tuple[Any, ...] | None = None) -> float:
        """The largest of `errors`."""
        return float(self.errors(changes).max())

    @staticmethod
    def _ratios_of_changed(product: Product, rest: Any, missed: Any, change: Product) -> Bounds:
        wanted, x, y, by_columns = product
        dx, dy, z = change.x, change.y, y + change.y
        rest = rest - (native_product(x, dy) + native_product(dx, z))
        sizes = norms(x, 1)[:, None] * norms(dy, 0) + norms(dx, 1)[:, None] * norms(z, 0)
        # Of the sums here, and of changes that are differences of floats, at most 2**-50 of the products.
        missed = missed + (native_error(x, y) + 2.0**-50) * sizes + UNIT * magnitudes(rest) + LEAST * (sizes > 0)
        return _ratios(Product(wanted, x + dx, z, by_columns), rest, missed)


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
        measured = [(each, *_residual(each, tolerance / 16, multiprecision=True)) for each in products(found)]
        before, reached = reached, float(_largest(_ratios(*each) for each in measured).max())
        if steps > 1:
            step("%d corrections: error of the factors up to %s", steps, reached)
        if reached <= tolerance:
            return Corrected(found, steps)
        # The first corrections may make a residual larger, by their terms of second order: only later ones must gain.
        if steps == MOST_CORRECTIONS or (steps > 2 and not reached < before / 2):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        changes = _changes(correction, found, tuple(rounded(rest) for _, rest, _ in measured))
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
            if _errors(found.factors, products, tolerance).max() <= tolerance:
                return found
    raise np.linalg.LinAlgError(f"a: {why}")


def triangle(x: Any, kept: Any, tolerance: float) -> Any:
    """A triangular factor from a product that is triangular but for rounding errors, which are cleared.

    `kept` is 1 in the triangle and 0 elsewhere; elements are rounded to as many bits as the tolerance asks for.
    """
    return masked(x.round_to(ceil(-log2(tolerance)) + 8), kept)


def _errors(factors: tuple[Any, ...], products: Products, tolerance: float) -> Bounds:
    """Upper bounds of the errors of columns of the products of factors.

    Residuals are computed to a sixteenth of the tolerance, which the bounds include.
    """
    return _largest(_ratios(each, *_residual(each, tolerance / 16, multiprecision=True)) for each in products(factors))


def _largest(errors: Iterable[Bounds]) -> Bounds:
    """The larger of the errors of columns of several products; those with fewer columns count as far as they go."""
    found, *others = sorted(errors, key=len, reverse=True)
    for each in others:
        found[: len(each)] = np.maximum(found[: len(each)], each)
    return found


def rounded_factors(
    target: Target, found: Corrected, products: Products, powers: tuple[Powers, ...], cleared: bool
) -> tuple[tuple[Any, ...], Bounds]:
    """Factors times powers of two, since they are those of a scaled matrix, in the target's format, and their errors.

    They are those of columns of the products. If that matrix was `cleared` of tiny elements, `LEAST` is added to them
    (docs/linalg.md, L6).

    Raises
    ------
    OverflowError
        If an element is too large for the dtype, or a whole row or column too small.
    """
    rounded_ones = (formatted(x, each, target.dtype) for x, each in zip(found.factors, powers, strict=True))
    result, kept = zip(*rounded_ones, strict=True)
    if found.near is None or any(isinstance(x, Numbers) for x in kept):
        bounds = _errors(kept, products, target.tolerance)
    else:
        bounds = found.near.errors(tuple(x - first for x, first in zip(kept, found.near.factors, strict=True)))
    if bounds.max() == inf:
        too_small(target.dtype)
    return result, bounds + LEAST * cleared


def as_found(asked: Any, a: Any, target: Target) -> bool:
    """Whether factors of a scaled matrix are taken as they are found: no accuracy is asked for, and all are floats."""
    return asked is None and not isinstance(a, Numbers) and not is_multiprecision(target.dtype)


def uncorrected(
    target: Target, factors: tuple[Any, ...], errors: Bounds, products: Products, powers: tuple[Powers, ...]
) -> tuple[tuple[Any, ...], Bounds]:
    """Factors as they were found, times powers of two, in the target's format, and errors of columns.

    `errors` are those of the factors; where rounding changes these, others are found.

    Raises
    ------
    OverflowError
        As of `rounded_factors`.
    """
    result, kept = zip(
        *(formatted(x, each, target.dtype) for x, each in zip(factors, powers, strict=True)), strict=True
    )
    if all(bool((x == y).all()) for x, y in zip(kept, factors, strict=True)):
        return result, errors
    return rounded_factors(target, Corrected(factors, 0), products, powers, cleared=False)


def _residual(product: Product, tolerance: float, multiprecision: bool) -> tuple[Any, Any]:
    """The residual wanted - x y, in many bits or in float64, and upper bounds of what its elements are off by."""
    wanted, x, y, _ = product
    tolerance = not_tiny(min(tolerance, 2.0**-8))
    rest = residual(wanted, x, y, tolerance, multiprecision)
    sizes = norms(x, 1)[:, None] * norms(y, 0)
    rounding = tolerance * magnitudes(wanted) if multiprecision else UNIT * magnitudes(rest) + LEAST * (sizes > 0)
    return rest, (tolerance * sizes + rounding) * UP


def _ratios(product: Product, rest: Any, missed: Any) -> Bounds:
    """Of each column the largest element of wanted - x y over the norms of a row of x and a column of y, rounded up.

    `rest` is the residual, but for errors of at most `missed`.
    """
    _, x, y, by_columns = product
    xp = array_library(x)
    rows, columns = least_norms(x, 1)[:, None], least_norms(y, 0)
    sizes = xp.ones_like(rows) * columns if by_columns else rows * columns
    missed = magnitudes(rest) + missed
    # Where a norm may have underflowed, nothing is known of the error of the residual.
    unknown = magnitudes(x).any(axis=1)[:, None] & magnitudes(y).any(axis=0)
    ratios = xp.where(sizes > 0, missed / sizes, xp.where(unknown | (missed > 0), inf, 0.0))
    found: Bounds = on_host(ratios.max(axis=0)) * UP
    return found
