"""The error measures of the literature, taken against exact products; of complex numbers abs is the modulus.

A modulus is the square root of a sum of squares, which is exact in integers where the root is not. So errors are
squared, compared as squares, and the root of the result alone is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import zip_longest

import numpy as np

from ozaki.multiprecision.array import MPArray
from ozaki.process.environment import default_environment
from ozaki.reference._exact import (
    Array,
    Indices,
    Matrix,
    Operand,
    aligned,
    exact_matmul,
    exact_parts,
    finite_elements,
    index,
    integers_of,
    on_host,
    operand,
)
from ozaki.reference._moduli import moduli_from_below, squared_moduli


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
    c : array, shape (m, n), floats, complex numbers or integers; or an MPArray
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
        error. NaN where `c` has a NaN, also in one part of a complex entry;
        else Inf where it has an Inf or misses an entry whose products are all
        zero.
        Where `a` or `b` is complex, the moduli in abs(a) abs(b) are irrational
        in general: each is rounded down, by less than 2**-127 of it. So the
        error is still never below the exact value, but it may be one unit in
        the last place above the exact value rounded up. The other measures add
        squares of moduli only, and are the exact values rounded up.

    Raises
    ------
    ValueError, TypeError
        As `exact_entries`; also if `c` is no matrix of shape (m, n).

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> from ozaki import reference
    >>> a, b = np.random.default_rng(0).standard_normal((2, 5, 5, 2)).view(complex)[..., 0]
    >>> c, report = ozaki.matmul(a, b, return_report=True)
    >>> reference.componentwise_error(c, a, b) <= report.bound
    True
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    if rms:
        return _root_mean_square(componentwise_errors(measured, left, right, exponent=exponent).ravel().tolist())
    squares, unit = _squared_errors(measured, exact_parts(left, right))
    scales, scale_unit = _squared_scales(left, right)
    return root_up(*largest_ratio(zip(squares.flat, scales.flat, strict=True)), unit - scale_unit - 2 * exponent)


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
        The exact values rounded up; where `a` or `b` is complex, at most one
        unit in the last place more, as `componentwise_error` says. NaN where
        `c` is NaN, also in one part alone; else Inf where it is infinite or
        misses an entry whose products are all zero.

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
    exact, exact_unit = exact_parts(left, right)
    measured = rows if isinstance(rows, MPArray) else np.where(finite, rows, 0)
    squares, unit = _squared_errors(measured, ([np.tile(part, copies) for part in exact], exact_unit))
    scales, scale_unit = _squared_scales(left, right)
    pairs = zip(squares.flat, np.tile(scales, copies).flat, strict=True)
    rounded = np.array([root_up(*pair, unit - scale_unit - 2 * exponent) for pair in pairs], np.float64)
    rounded = rounded.reshape(rows.shape)
    if not isinstance(rows, MPArray):
        rounded = np.where(finite, rounded, np.where(np.isnan(rows), math.nan, math.inf))
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

    Norms are Euclidean, of row i of `a` and of column j of `b`.

    Parameters
    ----------
    c : array, shape (m, n), floats, complex numbers or integers; or an MPArray
        A computed product of `a` and `b`.
    a : array, shape (m, k), or an MPArray
    b : array, shape (k, n), or an MPArray
    rows, cols : sequence of int, mask or slice, optional
        Measure only these rows and columns of `c`.
    exponent : int, optional
        The error is returned in units of 2**exponent.

    Returns
    -------
    float
        The exact value rounded up; NaN where `c` has a NaN, else Inf where it has an Inf or
        misses an entry whose row or column is all zero.

    Raises
    ------
    ValueError, TypeError
        As `exact_entries`; also if `c` is no matrix of shape (m, n).

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import reference
    >>> a, b = np.array([[3.0, 4.0]]), np.array([[0.0], [1.0]])
    >>> reference.row_column_error(a @ b + 0.5, a, b)  # 0.5 / (5 * 1)
    0.1
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    squares, unit = _squared_errors(measured, exact_parts(left, right))
    left_squares, left_unit = squared_norms(left)
    right_squares, right_unit = squared_norms(right.T)
    pairs = ((squares[i, j], x * y) for i, x in enumerate(left_squares) for j, y in enumerate(right_squares))
    return root_up(*largest_ratio(pairs), unit - left_unit - right_unit - 2 * exponent)


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

    Parameters
    ----------
    c : array, shape (m, n), floats, complex numbers or integers; or an MPArray
        A computed product of `a` and `b`.
    a : array, shape (m, k), or an MPArray
    b : array, shape (k, n), or an MPArray
    rows, cols : sequence of int, mask or slice, optional
        Measure only these rows and columns of `c`. The error is that of these
        entries, and the norms are those of all of `a` and `b`: as in the
        other measures, a sample never shows more than the whole.
    exponent : int, optional
        The error is returned in units of 2**exponent.

    Returns
    -------
    float
        The exact value rounded up; NaN where `c` has a NaN, else Inf where it has an Inf or
        `a` or `b` is all zero and `c` is not.

    Raises
    ------
    ValueError, TypeError
        As `exact_entries`; also if `c` is no matrix of shape (m, n).

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import reference
    >>> a, b = np.array([[3.0], [4.0]]), np.array([[2.0]])
    >>> reference.normwise_error(a @ b + [[1.0], [0.0]], a, b)  # 1 / (5 * 2)
    0.1
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    squares, unit = _squared_errors(measured, exact_parts(left, right))
    left_squares, left_unit = squared_norms(operand("a", a))
    right_squares, right_unit = squared_norms(operand("b", b))
    scale = sum(left_squares) * sum(right_squares)
    return root_up(sum(squares.flat), scale, unit - left_unit - right_unit - 2 * exponent)


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

    Parameters
    ----------
    c : array, shape (m, n), floats, complex numbers or integers; or an MPArray
        A computed product of `a` and `b`.
    a : array, shape (m, k), or an MPArray
    b : array, shape (k, n), or an MPArray
    rows, cols : sequence of int, mask or slice, optional
        Measure only these rows and columns of `c`.
    exponent : int, optional
        The error is returned in units of 2**exponent.

    Returns
    -------
    float
        The exact value rounded up; NaN where `c` has a NaN, else Inf where it has an Inf or
        misses an entry of the exact product that is zero.

    Raises
    ------
    ValueError, TypeError
        As `exact_entries`; also if `c` is no matrix of shape (m, n).

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import reference
    >>> a, b = np.array([[1.0, 1.0]]), np.array([[1.0], [-0.5]])
    >>> reference.relative_error(a @ b + 0.25, a, b)  # 0.25 / 0.5
    0.5
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    exact, exact_unit = product = exact_parts(left, right)
    squares, unit = _squared_errors(measured, product)
    pairs = zip(squares.flat, squared_moduli(exact).flat, strict=True)
    return root_up(*largest_ratio(pairs), unit - 2 * exact_unit - 2 * exponent)


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
    (2022), against the exact product.

    Parameters
    ----------
    c : array, shape (m, n), floats, complex numbers or integers; or an MPArray
        A computed product of `a` and `b`.
    a : array, shape (m, k), or an MPArray
    b : array, shape (k, n), or an MPArray
    rows, cols : sequence of int, mask or slice, optional
        Measure only these rows and columns of `c`. Both
        norms are those of these entries.
    exponent : int, optional
        The residual is returned in units of 2**exponent.

    Returns
    -------
    float
        The exact value rounded up; NaN where `c` has a NaN, else Inf where it has an Inf or
        the exact product is all zero and `c` is not.

    Raises
    ------
    ValueError, TypeError
        As `exact_entries`; also if `c` is no matrix of shape (m, n).

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import reference
    >>> a, b = np.array([[3.0], [4.0]]), np.array([[1.0]])
    >>> reference.relative_residual(a @ b + [[0.0], [1.0]], a, b)  # 1 / 5
    0.2
    """
    left, right, measured = _selected(c, a, b, rows, cols)
    if (worst := _nonfinite(measured)) is not None:
        return worst
    exact, exact_unit = product = exact_parts(left, right)
    squares, unit = _squared_errors(measured, product)
    return root_up(sum(squares.flat), sum(squared_moduli(exact).flat), unit - 2 * exact_unit - 2 * exponent)


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


def _squared_errors(c: Matrix, product: tuple[list[Array], int]) -> tuple[Array, int]:
    """Return abs(c - a b)**2 as (integers, exponent); `product` is a b as `exact_parts` returns it."""
    exact, exact_unit = product
    own, own_unit = integers_of(c)
    found, unit = aligned([*((part, own_unit) for part in own), *((part, exact_unit) for part in exact)])
    # A real matrix beside a complex one has imaginary parts of 0.
    zero: Array = np.zeros((), dtype=object)
    pairs = zip_longest(found[: len(own)], found[len(own) :], fillvalue=zero)
    return squared_moduli([x - y for x, y in pairs]), 2 * unit


def _squared_scales(left: Matrix, right: Matrix) -> tuple[Array, int]:
    """Return (abs(a) abs(b))**2, entry by entry, as (integers, exponent); less by a few 2**-127 of complex operands."""
    scales, unit = exact_matmul(moduli_from_below(left), moduli_from_below(right))
    return scales * scales, 2 * unit


def squared_norms(rows: Matrix) -> tuple[list[int], int]:
    """Return the squared norms of rows as (integers, exponent)."""
    parts, exponent = integers_of(rows)
    return [sum(row) for row in squared_moduli(parts).tolist()], 2 * exponent


def largest_ratio(pairs: Iterator[tuple[int, int]]) -> tuple[int, int]:
    """Return the pair (error, scale) of the largest ratio error / scale; (0, 1) where no pair has an error."""
    most, over = 0, 1
    for error, scale in pairs:
        if error * over > most * scale:
            most, over = error, scale
            if not scale:
                break
    return most, over


def root_up(square: int, scale: int, exponent: int) -> float:
    """Return the smallest float that is not below the square root of square / scale 2**exponent.

    For a scale of zero that is Inf, or 0 if the square is zero, too.
    """
    if not square or not scale:
        return math.inf if square else 0.0
    # The root of a quotient of so many bits has at least 64, more than a float. It takes half the exponent, which so
    # has to be even.
    places = max(0, 128 + scale.bit_length() - square.bit_length())
    places += (exponent - places) % 2
    quotient, rest = divmod(square << places, scale)
    root = math.isqrt(quotient)
    # One bit more says that the root goes on: rounding up needs no other of the bits that are cut off.
    goes_on = rest > 0 or root * root < quotient
    return _round_up(2 * root + goes_on, (exponent - places) // 2 - 1)


def _round_up(integer: int, exponent: int) -> float:
    """Return the smallest float that is not below integer 2**exponent, a number above zero."""
    # The float's last bit: 53 bits below its top, or that of a subnormal.
    last = max(integer.bit_length() + exponent - 53, -1074)
    shift = last - exponent
    significand = -(-integer >> shift) if shift >= 0 else integer << -shift
    try:
        return math.ldexp(significand, last)
    except OverflowError:
        return math.inf


def _root_mean_square(values: list[float]) -> float:
    largest = max(values, default=0.0)
    if largest in (0.0, math.inf):
        return largest
    return largest * math.sqrt(math.fsum((x / largest) ** 2 for x in values) / len(values))
