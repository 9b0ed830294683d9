"""The error measures of the literature, taken against exact products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ozaki._environment import default_environment
from ozaki.multiprecision.array import MPArray
from ozaki.reference._exact import (
    Array,
    Indices,
    Matrix,
    Operand,
    exact_matmul,
    finite_elements,
    index,
    integers_of,
    magnitudes,
    on_host,
    operand,
)

# The ratio of an error to a scale; None for infinity, the ratio to a scale of zero. (An error of zero to a scale of
# zero counts as 0.)
_Ratio: TypeAlias = Fraction | None


@default_environment
def componentwise_error(
    c: Operand,
    a: Operand,
    b: Operand,
    *,
    rows: Indices = None,
    cols: Indices = None,
    rms: bool = False,
    exponent: int = 0,
) -> float:
    """Measure the largest ``abs(c - a b)_ij / (abs(a) abs(b))_ij``.

    Parameters
    ----------
    c : array, shape (m, n), floats or integers; or an MPArray
        A computed product of `a` and `b`.
    a : array, shape (m, k), or an MPArray
    b : array, shape (k, n), or an MPArray
    rows, cols : sequence of int, mask or slice, optional
        Measure only these rows and columns of `c`.
    rms : bool, optional
        The root mean square over the entries instead of the largest. It is
        accurate to a few units in the last place.
    exponent : int, optional
        The error is returned in units of 2**exponent, as `Report.bound` is in
        units of 2**Report.exponent: for errors below the range of a float.

    Returns
    -------
    error : float
        The exact value rounded up, so that ``error <= bound`` holds if and
        only if it holds without any rounding; it is 0 only where there is no
        error. NaN where `c` has a NaN, Inf
        where it has an Inf or misses an entry whose products are all zero.

    Raises
    ------
    ValueError, TypeError
        As `exact_entries`; also if `c` is no matrix of shape (m, n).
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    if rms:
        return _root_mean_square(componentwise_errors(measured, left, right, exponent=exponent).ravel().tolist())
    errors, unit = _differences(measured, exact_matmul(left, right))
    scales, scale_unit = exact_matmul(magnitudes(left), magnitudes(right))
    return _round_up(_largest(zip(errors.flat, scales.flat, strict=True)), unit - scale_unit - exponent)


@default_environment
def componentwise_errors(c: Operand, a: Operand, b: Operand, *, exponent: int = 0) -> Array:
    """Measure ``abs(c - a b)_ij / (abs(a) abs(b))_ij`` of every entry.

    Parameters
    ----------
    c : array, shape (..., m, n), or an MPArray
        One or several computed products of `a` and `b`; the exact product is
        computed once for all.
    a : array, shape (m, k), or an MPArray
    b : array, shape (k, n), or an MPArray
    exponent : int, optional
        The errors are returned in units of 2**exponent.

    Returns
    -------
    errors : array, float64, shape (..., m, n)
        The exact values rounded up. NaN where `c` is NaN, Inf where it is
        infinite or misses an entry whose products are all zero.

    Raises
    ------
    ValueError, TypeError
        As `componentwise_error`.
    """
    left, right, results = operand("a", a), operand("b", b), on_host("c", c)
    expected = (left.shape[0], right.shape[1])
    if results.shape[-2:] != expected:
        raise ValueError(f"c: expected shape (..., {expected[0]}, {expected[1]}), got {results.shape}")
    rows = operand("c", results.reshape(math.prod(results.shape[:-1]), expected[1]), finite=False)
    finite = finite_elements(rows)
    copies = math.prod(results.shape[:-2]), 1
    exact, exact_unit = exact_matmul(left, right)
    measured = rows if isinstance(rows, MPArray) else np.where(finite, rows, 0)
    errors, unit = _differences(measured, (np.tile(exact, copies), exact_unit))
    scales, scale_unit = exact_matmul(magnitudes(left), magnitudes(right))
    ratios = map(_ratio, errors.flat, np.tile(scales, copies).flat)
    rounded = np.array([_round_up(ratio, unit - scale_unit - exponent) for ratio in ratios], np.float64)
    rounded = rounded.reshape(rows.shape)
    if not isinstance(rows, MPArray):
        rounded = np.where(finite, rounded, abs(rows)).astype(np.float64)
    return rounded.reshape(results.shape)


@default_environment
def row_column_error(
    c: Operand,
    a: Operand,
    b: Operand,
    *,
    rows: Indices = None,
    cols: Indices = None,
    exponent: int = 0,
) -> float:
    """Measure the largest ``abs(c - a b)_ij / (norm(a_i) norm(b_j))``.

    Norms are Euclidean, of row i of `a` and of column j of `b`. Parameters,
    result and errors are those of `componentwise_error`.
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    errors, unit = _differences(measured, exact_matmul(left, right))
    left_squares, left_unit = squared_norms(left)
    right_squares, right_unit = squared_norms(right.T)
    largest = _largest(
        (errors[i, j] ** 2, x * y) for i, x in enumerate(left_squares) for j, y in enumerate(right_squares)
    )
    return _root_up(largest, 2 * (unit - exponent) - left_unit - right_unit)


@default_environment
def normwise_error(
    c: Operand,
    a: Operand,
    b: Operand,
    *,
    rows: Indices = None,
    cols: Indices = None,
    exponent: int = 0,
) -> float:
    """Measure ``norm(c - a b) / (norm(a) norm(b))``, in Frobenius norms.

    With `rows` and `cols`, the error is that of the selected entries, and the
    norms are those of all of `a` and `b`: as in the other measures, a sample
    never shows more than the whole. Parameters, result and errors are those
    of `componentwise_error`.
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    errors, unit = _differences(measured, exact_matmul(left, right))
    left_squares, left_unit = squared_norms(operand("a", a))
    right_squares, right_unit = squared_norms(operand("b", b))
    ratio = _ratio(_sum_of_squares(errors), sum(left_squares) * sum(right_squares))
    return _root_up(ratio, 2 * (unit - exponent) - left_unit - right_unit)


@default_environment
def relative_error(
    c: Operand,
    a: Operand,
    b: Operand,
    *,
    rows: Indices = None,
    cols: Indices = None,
    exponent: int = 0,
) -> float:
    """Measure the largest ``abs(c - a b)_ij / abs(a b)_ij``.

    It is Inf where an entry of the exact product is zero, and that of `c` is
    not. Parameters, result and errors are those of `componentwise_error`.
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    exact, exact_unit = product = exact_matmul(left, right)
    errors, unit = _differences(measured, product)
    return _round_up(_largest(zip(errors.flat, magnitudes(exact).flat, strict=True)), unit - exact_unit - exponent)


@default_environment
def relative_residual(
    c: Operand,
    a: Operand,
    b: Operand,
    *,
    rows: Indices = None,
    cols: Indices = None,
    exponent: int = 0,
) -> float:
    """Measure ``norm(a b - c) / norm(a b)``, in Frobenius norms.

    Equation 7 of Ootomo and Yokota, "Recovering single precision accuracy from
    Tensor Cores while surpassing the FP32 theoretical peak performance"
    (2022), against the exact product. Parameters, result and errors are those
    of `componentwise_error`.
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    exact, exact_unit = product = exact_matmul(left, right)
    errors, unit = _differences(measured, product)
    ratio = _ratio(_sum_of_squares(errors), _sum_of_squares(exact))
    return _root_up(ratio, 2 * (unit - exact_unit - exponent))


def _selected(c: Operand, a: Operand, b: Operand, rows: Indices, cols: Indices) -> tuple[Matrix, Matrix, Matrix]:
    """Return the selected rows of a, columns of b and entries of c."""
    left, right = operand("a", a, finite=False), operand("b", b, finite=False)
    measured = operand("c", c, finite=False)
    if measured.shape != (expected := (left.shape[0], right.shape[1])):
        raise ValueError(f"c: expected shape {expected}, got {measured.shape}")
    row_index, col_index = index("rows", rows, len(left)), index("cols", cols, right.shape[1])
    return left[row_index], right[:, col_index], measured[row_index][:, col_index]


def _nonfinite(c: Matrix) -> float | None:
    """Return the error of a result that has a NaN (NaN) or an Inf (Inf); None if it has neither."""
    if isinstance(c, MPArray):
        return None
    if np.isnan(c).any():
        return math.nan
    return math.inf if np.isinf(c).any() else None


def _differences(c: Matrix, product: tuple[Array, int]) -> tuple[Array, int]:
    """Return abs(c - a b) as (integers, exponent); `product` is a b as `exact_matmul` returns it."""
    exact, exact_exponent = product
    integers, exponent = integers_of(c)
    lowest = min(exact_exponent, exponent)
    difference = _shifted(integers, exponent - lowest) - _shifted(exact, exact_exponent - lowest)
    return abs(difference), lowest


def _shifted(integers: Array, by: int) -> Array:
    """Return integers 2**by; zeros alone may be shifted by more than memory holds."""
    return integers << by if integers.any() else integers


def squared_norms(rows: Matrix) -> tuple[list[int], int]:
    """Return the squared norms of rows as (integers, exponent)."""
    integers, exponent = integers_of(rows)
    return [sum(x * x for x in row) for row in integers.tolist()], 2 * exponent


def _sum_of_squares(integers: Array) -> int:
    return sum(x * x for x in integers.flat)


def _ratio(error: int, scale: int) -> _Ratio:
    """Return error / scale; for a scale of zero, 0 without error, else None."""
    if scale:
        return Fraction(error, scale)
    return None if error else Fraction(0)


def _largest(pairs: Iterator[tuple[int, int]]) -> _Ratio:
    """Return the largest ratio error / scale of the pairs (error, scale), exactly."""
    most, over = 0, 1
    for error, scale in pairs:
        if error * over > most * scale:
            if not scale:
                return None
            most, over = error, scale
    return Fraction(most, over)


def _times_power(value: Fraction, exponent: int) -> Fraction:
    """Return value 2**exponent."""
    if value == 0:
        return value
    return value * Fraction(1 << exponent) if exponent >= 0 else value / (1 << -exponent)


def _float(value: Fraction) -> float:
    """Return the nearest float; Inf beyond the largest one."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf


def _round_up(ratio: _Ratio, exponent: int) -> float:
    """Return the smallest float that is not below ratio 2**exponent."""
    if ratio is None:
        return math.inf
    value = _times_power(ratio, exponent)
    nearest = _float(value)
    if nearest < math.inf and Fraction(nearest) < value:
        return math.nextafter(nearest, math.inf)
    return nearest


def _root_up(ratio: _Ratio, exponent: int) -> float:
    """Return a float that is not below the square root of ratio 2**exponent, and barely above it."""
    if ratio is None:
        return math.inf
    square = _times_power(ratio, exponent)
    numerator, denominator = square.numerator, square.denominator
    # At least 64 bits of the root, rounded down.
    places = max(0, 66 + (denominator.bit_length() - numerator.bit_length()) // 2)
    root = _float(Fraction(math.isqrt((numerator << 2 * places) // denominator), 1 << places))
    while root < math.inf and Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def _root_mean_square(values: list[float]) -> float:
    largest = max(values, default=0.0)
    if largest in (0.0, math.inf):
        return largest
    return largest * math.sqrt(math.fsum((x / largest) ** 2 for x in values) / len(values))
