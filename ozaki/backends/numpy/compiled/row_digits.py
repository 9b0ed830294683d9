"""Calls of the compiled library for rows with digits of their own count (row_statistics.h, short_floats.h)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.compiled.calls import can_read, cost_of, result_of, set_factors
from ozaki.backends.numpy.compiled.digits import DigitTables, digit_room, operands_of_digits
from ozaki.backends.numpy.compiled.memory import Block
from ozaki.backends.numpy.compiled.panels import Panels
from ozaki.backends.numpy.compiled.sharing import share_out
from ozaki.backends.numpy.compiled.structures import Addend, LeastProducts, RowStatistics, ShortFormat
from ozaki.bounds.row_digits import LeastTables
from ozaki.records.combination import Combination
from ozaki.schemes.image import EMPTY_TOP
from ozaki.schemes.row_digits import THRESHOLDS, Sixteen, pairs

_Ints = npt.NDArray[np.int64]

_SEEN = 16
"""Rows of a block of statistics (row_statistics.h)."""

_MOST_DIGITS = 4
"""Most digits of an image of which the library finds statistics, in int32."""

_MOST_LAST = 2
"""Most digits, the last ones, whose squares it adds up; one is the least."""


def can_see(x: npt.NDArray[Any], digits: int, last: int) -> bool:
    """Whether `row_statistics` takes rows x at so many digits, with the squares of the last few."""
    return x.dtype == np.float32 and can_read(x) and x.size > 0 and digits <= _MOST_DIGITS and 1 <= last <= _MOST_LAST


def row_statistics(
    library: Any, x: npt.NDArray[Any], tops: _Ints, mu: _Ints, last: int
) -> tuple[_Ints, _Ints, npt.NDArray[np.int32]]:
    """What the library finds in rows x, shape (batch, rows, k), whose images have exponents mu.

    Returns
    -------
    inexact : elements whose image is rounded, shape (batch, rows)
    low : sums of the squares of the last digits, shape (last, batch, rows)
    counts : elements no less than each threshold, shape (batch, rows, THRESHOLDS)
    """
    batch, rows, k = x.shape
    inexact, low = np.empty((batch, rows), np.int64), np.empty((last, batch, rows), np.int64)
    counts = np.empty((batch, rows, THRESHOLDS), np.int32)
    tops, mu = np.ascontiguousarray(tops), np.ascontiguousarray(mu)
    given = RowStatistics(
        x.ctypes.data, batch, rows, k, *(step // 4 for step in x.strides), tops.ctypes.data, mu.ctypes.data,
        last, EMPTY_TOP, inexact.ctypes.data, low.ctypes.data, counts.ctypes.data,
    )  # fmt: skip
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_row_statistics(at, begin, end)

    share_out(batch * -(-rows // _SEEN), 4.0 * x.size, call, x, tops, mu, inexact, low, counts)
    return inexact, low, counts


def least_by_library(library: Any, counts: npt.NDArray[np.int32], tables: LeastTables, matrices: _Ints) -> _Ints:
    """Lower bounds of rows, as `bounds.row_digits.least_products` finds them."""
    counts, matrices = np.ascontiguousarray(counts), np.ascontiguousarray(matrices, np.int64)
    out = np.empty(len(counts), np.int64)
    given = LeastProducts(*(x.ctypes.data for x in (counts, matrices, *tables, out)))
    library.ozaki_cpu_least_products(ctypes.byref(given), 0, len(counts))
    return out


_FARTHEST = 300
"""Largest exponent of factors, up to which what they multiply is in the normal range of float64."""


def can_combine(combination: Combination | None) -> bool:
    """Whether the library has an expression: with powers of two, and an addend of float32 whose rows are contiguous."""
    if combination is None:
        return True
    factors = [combination.alpha] if combination.c is None else [combination.alpha, combination.beta]
    if not all(each.is_power and abs(each.exponent) <= _FARTHEST for each in factors):
        return False
    c = combination.c
    if c is None:
        return True
    return isinstance(c, np.ndarray) and c.dtype == np.float32 and can_read(c) and c.strides[2] == c.itemsize


def can_write_short(out: npt.NDArray[np.uint16]) -> bool:
    """Whether the library writes entries of 16 bits where they are: neighbours of a row are neighbours in memory."""
    return out.strides[2] == out.itemsize and can_read(out)


def multiply_short(
    library: Any,
    a: Panels,
    b: Panels,
    tables: DigitTables,
    mu: _Ints,
    nu: _Ints,
    out: npt.NDArray[np.uint16],
    of: Sixteen,
    combination: Combination | None = None,
) -> None:
    """Write the product, rounded once to a format of 16 bits, into out.

    Columns have no more digits than rows; `tables` are those of a row's digits, but for the weights. `combination` is
    an expression of which `can_combine` says that the library has it: NaN and Inf of its addend count as zero.
    """
    if not can_write_short(out):
        apart = np.empty(out.shape, out.dtype)
        multiply_short(library, a, b, tables, mu, nu, apart, of, combination)
        out[...] = apart
        return
    p, q = len(a.memory), len(b.memory)
    result, tiles = result_of(out)
    alpha, beta = (1.0, 0.0) if combination is None else combination.values
    factors = set_factors(result, mu, nu)
    np.multiply(factors[0], alpha, out=factors[0])
    c = None if combination is None else combination.c
    steps = (0, 0) if c is None else (step // 4 for step in c.strides[:2])
    addend = Addend(None if c is None else c.ctypes.data, *steps, beta)
    weights = np.array([2.0 ** (8 * (p + q - d)) for d in range(2, p + 2)])
    operands = operands_of_digits(a, b, tables.half, weights)
    form = ShortFormat(of.precision, of.least, of.infinity)
    given = ctypes.byref(operands), ctypes.byref(result), ctypes.byref(form), ctypes.byref(addend)
    room = digit_room(result.tile_rows, p)

    def call(begin: int, end: int) -> None:
        own = Block((room,))
        library.ozaki_cpu_multiply_digits_short(*given, begin, end, own.address)

    share_out(tiles, cost_of(a, b, len(pairs(p, q))), call, a, b, tables, weights, out, c, *factors)
