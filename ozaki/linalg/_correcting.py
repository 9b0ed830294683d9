"""Factors of a matrix, corrected until their product is the matrix to a named accuracy.

A correction is computed in float64 from the residual, for example A - L U, which has as many bits as are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import ceil, inf, log2
from typing import Any, NamedTuple

import numpy as np

from ozaki.driver.watching import step
from ozaki.functions.products import gemm
from ozaki.linalg._arrays import array_library, masked, rounded
from ozaki.linalg._products import componentwise
from ozaki.linalg._solution import in_format, too_small
from ozaki.linalg._targets import Target, target_of
from ozaki.linalg._upper import LEAST, least_norms, magnitudes
from ozaki.multiprecision.objects import mparray
from ozaki.records.accuracy import Accuracy, of_text

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


def corrected(
    tolerance: float,
    factors: tuple[Any, ...],
    products: Products,
    correction: Callable[[tuple[Any, ...], list[Any]], tuple[Any, ...]],
) -> tuple[tuple[Any, ...], int]:
    """Correct factors until their products are what they should be, to a tolerance, and count the steps.

    `correction` takes the factors and the residuals, wanted - x y of each product, in float64, and returns what is
    added to each factor.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a correction gains nothing.
    """
    bits = ceil(-log2(tolerance)) + 8
    found = tuple(mparray(x) for x in factors)
    reached, steps = inf, 0
    while True:
        rests, ratios = zip(*(_residual(each, tolerance / 16) for each in products(found)), strict=True)
        before, reached = reached, max(ratios)
        step("%d corrections: error of the factors up to %s", steps, reached)
        if reached <= tolerance:
            return found, steps
        # The first corrections may make a residual larger, by their terms of second order: only later ones must gain.
        if steps == MOST_CORRECTIONS or (steps > 2 and not reached < before / 2):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        try:
            changes = correction(found, [rounded(rest) for rest in rests])
        except np.linalg.LinAlgError:  # a native inverse of a singular factor
            raise np.linalg.LinAlgError(_NOT_CONVERGING) from None
        if not all(bool(array_library(change).isfinite(change).all()) for change in changes):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        found = tuple((x + mparray(change)).round_to(bits) for x, change in zip(found, changes, strict=True))
        steps += 1


def transformed(
    tolerance: float,
    n: int,
    factors_at: Callable[[float], tuple[tuple[Any, ...], int]],
    products: Products,
    why: str,
) -> tuple[tuple[Any, ...], int]:
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
            factors, steps = factors_at(finer)
            if largest_error(factors, products, tolerance) <= tolerance:
                return factors, steps
    raise np.linalg.LinAlgError(f"a: {why}")


def triangle(x: Any, kept: Any, tolerance: float) -> Any:
    """A triangular factor from a product that is triangular but for rounding errors, which are cleared.

    `kept` is 1 in the triangle and 0 elsewhere; elements are rounded to as many bits as the tolerance asks for.
    """
    return masked(x.round_to(ceil(-log2(tolerance)) + 8), kept)


def largest_error(factors: tuple[Any, ...], products: Products, tolerance: float) -> float:
    """An upper bound of the largest error of the products of factors.

    Residuals are computed to a sixteenth of the tolerance, which the bound includes.
    """
    return max(_residual(each, tolerance / 16)[1] for each in products(factors))


def rounded_factors(
    target: Target, factors: tuple[Any, ...], products: Products, powers: tuple[Any, ...], cleared: bool
) -> tuple[tuple[Any, ...], float]:
    """Factors times 2**powers, since they are those of a scaled matrix, in the format of the target, and their error.

    If that matrix was `cleared` of tiny elements, `LEAST` is added to the error (docs/linalg.md, L6).

    Raises
    ------
    OverflowError
        If an element is too large for the dtype, or a whole row or column too small.
    """
    result = tuple(in_format(x.ldexp(by), target.dtype) for x, by in zip(factors, powers, strict=True))
    kept = tuple(mparray(x).ldexp(-by) for x, by in zip(result, powers, strict=True))
    bound = largest_error(kept, products, target.tolerance)
    if bound == inf:
        too_small(target.dtype)
    return result, bound + LEAST * cleared


def _residual(product: Product, tolerance: float) -> tuple[Any, float]:
    """wanted - x y, and its largest element over the norms of a row of x and a column of y, rounded up.

    The residual is off by no more than the tolerance times abs(wanted) + abs(x) abs(y), which the ratio counts; abs(x)
    abs(y) is no larger than the product of the norms (Cauchy and Schwarz).
    """
    wanted, x, y, by_columns = product
    xp, tolerance = array_library(x), min(tolerance, 2.0**-8)
    rest = gemm(-1, x, y, 1, wanted, accuracy=componentwise(tolerance), dtype="mp")
    rows, columns = least_norms(x, 1)[:, None], least_norms(y, 0)
    terms = rows * columns * (1 + 2.0**-20)
    sizes = xp.ones_like(rows) * columns if by_columns else rows * columns
    missed = magnitudes(rest) + tolerance * (magnitudes(wanted) + terms) * (1 + 2.0**-40)
    # Where a norm may have underflowed, nothing is known of the error of the residual.
    unknown = magnitudes(x).any(axis=1)[:, None] & magnitudes(y).any(axis=0)
    ratios = xp.where(sizes > 0, missed / sizes, xp.where(unknown | (missed > 0), inf, 0.0))
    return rest, float(ratios.max()) * (1 + 2.0**-48)
