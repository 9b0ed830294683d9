"""The error measures of the literature, taken against exact products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ozaki._environment import default_environment
from ozaki.reference._exact import Array, Indices, exact_matmul, index, integers_of, on_host, operand

# Stands for infinity as the ratio of an error to a scale of zero: a number that
# no other ratio reaches. (An error of zero to a scale of zero counts as 0.)
_UNBOUNDED = Fraction(1 << (1 << 16))


@default_environment
def componentwise_error(
    c: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    rows: Indices = None,
    cols: Indices = None,
    rms: bool = False,
) -> float:
    """Measure the largest ``abs(c - a b)_ij / (abs(a) abs(b))_ij``.

    Parameters
    ----------
    c : array, shape (m, n)
        A computed product of `a` and `b`.
    a : array, shape (m, k)
    b : array, shape (k, n)
    rows, cols : sequence of int, mask or slice, optional
        Measure only these rows and columns of `c`.
    rms : bool, optional
        The root mean square over the entries instead of the largest. It is
        accurate to a few units in the last place.

    Returns
    -------
    error : float
        The exact value rounded up, so that ``error <= bound`` holds if and
        only if it holds without any rounding. NaN where `c` has a NaN, Inf
        where it has an Inf or misses an entry whose products are all zero.

    Raises
    ------
    ValueError, TypeError
        As `exact_entries`; also if `c` is no matrix of floats of shape (m, n).
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    if rms:
        return _root_mean_square(componentwise_errors(measured, left, right).ravel().tolist())
    errors, exponent = _differences(measured, exact_matmul(left, right))
    scales, scale_exponent = exact_matmul(abs(left), abs(right))
    return _round_up(_power(exponent - scale_exponent) * _largest(zip(errors.flat, scales.flat, strict=True)))


@default_environment
def componentwise_errors(c: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """Measure ``abs(c - a b)_ij / (abs(a) abs(b))_ij`` of every entry.

    Parameters
    ----------
    c : array, shape (..., m, n)
        One or several computed products of `a` and `b`; the exact product is
        computed once for all.
    a : array, shape (m, k)
    b : array, shape (k, n)

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
    finite = np.isfinite(rows)
    copies = math.prod(results.shape[:-2]), 1
    exact, exact_exponent = exact_matmul(left, right)
    errors, exponent = _differences(np.where(finite, rows, 0), (np.tile(exact, copies), exact_exponent))
    scales, scale_exponent = exact_matmul(abs(left), abs(right))
    factor = _power(exponent - scale_exponent)
    ratios = map(_ratio, errors.flat, np.tile(scales, copies).flat)
    rounded = np.array([_round_up(factor * ratio) for ratio in ratios], np.float64)
    return np.where(finite, rounded.reshape(rows.shape), abs(rows)).astype(np.float64).reshape(results.shape)


@default_environment
def row_column_error(
    c: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    rows: Indices = None,
    cols: Indices = None,
) -> float:
    """Measure the largest ``abs(c - a b)_ij / (norm(a_i) norm(b_j))``.

    Norms are Euclidean, of row i of `a` and of column j of `b`. Parameters,
    result and errors are those of `componentwise_error`.
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    errors, exponent = _differences(measured, exact_matmul(left, right))
    left_squares, left_exponent = _squared_norms(left)
    right_squares, right_exponent = _squared_norms(right.T)
    largest = _largest(
        (errors[i, j] ** 2, x * y) for i, x in enumerate(left_squares) for j, y in enumerate(right_squares)
    )
    return _root_up(_power(2 * exponent - left_exponent - right_exponent) * largest)


@default_environment
def normwise_error(
    c: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    rows: Indices = None,
    cols: Indices = None,
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
    errors, exponent = _differences(measured, exact_matmul(left, right))
    left_squares, left_exponent = _squared_norms(operand("a", a))
    right_squares, right_exponent = _squared_norms(operand("b", b))
    ratio = _ratio(_sum_of_squares(errors), sum(left_squares) * sum(right_squares))
    return _root_up(_power(2 * exponent - left_exponent - right_exponent) * ratio)


@default_environment
def relative_residual(
    c: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    rows: Indices = None,
    cols: Indices = None,
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
    exact, exact_exponent = product = exact_matmul(left, right)
    errors, exponent = _differences(measured, product)
    ratio = _ratio(_sum_of_squares(errors), _sum_of_squares(exact))
    return _root_up(_power(2 * (exponent - exact_exponent)) * ratio)


def _selected(
    c: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, rows: Indices, cols: Indices
) -> tuple[Array, Array, Array]:
    """Return the selected rows of a, columns of b and entries of c."""
    left, right = operand("a", a, finite=False), operand("b", b, finite=False)
    measured = operand("c", c, finite=False)
    if measured.shape != (expected := (left.shape[0], right.shape[1])):
        raise ValueError(f"c: expected shape {expected}, got {measured.shape}")
    row_index, col_index = index("rows", rows, len(left)), index("cols", cols, right.shape[1])
    return left[row_index], right[:, col_index], measured[row_index][:, col_index]


def _nonfinite(c: Array) -> float | None:
    """Return the error of a result that has a NaN (NaN) or an Inf (Inf); None if it has neither."""
    if np.isnan(c).any():
        return math.nan
    return math.inf if np.isinf(c).any() else None


def _differences(c: Array, product: tuple[Array, int]) -> tuple[Array, int]:
    """Return abs(c - a b) as (integers, exponent); `product` is a b as `exact_matmul` returns it."""
    exact, exact_exponent = product
    integers, exponent = integers_of(c)
    lowest = min(exact_exponent, exponent)
    difference = (integers << (exponent - lowest)) - (exact << (exact_exponent - lowest))
    return abs(difference), lowest


def _squared_norms(rows: Array) -> tuple[list[int], int]:
    """Return the squared norms of rows as (integers, exponent)."""
    integers, exponent = integers_of(rows)
    return [sum(x * x for x in row) for row in integers.tolist()], 2 * exponent


def _sum_of_squares(integers: Array) -> int:
    return sum(x * x for x in integers.flat)


def _power(exponent: int) -> Fraction:
    """Return 2**exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def _ratio(error: int, scale: int) -> Fraction:
    """Return error / scale; for a scale of zero, 0 without error, else `_UNBOUNDED`."""
    if scale:
        return Fraction(error, scale)
    return _UNBOUNDED if error else Fraction(0)


def _largest(pairs: Iterator[tuple[int, int]]) -> Fraction:
    """Return the largest ratio error / scale of the pairs (error, scale), exactly."""
    most, over = 0, 1
    for error, scale in pairs:
        if error * over > most * scale:
            if not scale:
                return _UNBOUNDED
            most, over = error, scale
    return Fraction(most, over)


def _float(value: Fraction) -> float:
    """Return the nearest float; Inf beyond the largest one."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf


def _round_up(value: Fraction) -> float:
    """Return the smallest float that is not below the value."""
    nearest = _float(value)
    if nearest < math.inf and Fraction(nearest) < value:
        return math.nextafter(nearest, math.inf)
    return nearest


def _root_up(square: Fraction) -> float:
    """Return a float that is not below the square root, and barely above it."""
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
