"""Residuals C - X Y of stacks of float64 matrices by native products of slices.

Leading slices have so few bits that native products of them are exact, whatever the order of summation (S. M. Rump, T.
Ogita and S. Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput. 31, 2008; K. Ozaki and others, "Error-free
transformations of matrix multiplication", Numer. Algorithms 59, 2012). What the slices leave is multiplied natively,
too, with an error that is as small as these rests. Of a few columns, or of small matrices, this takes less time than
planning a product.
"""

from __future__ import annotations

from typing import Any

from ozaki.call.operands import holds_complex
from ozaki.linalg.common.arrays import Sum, added, array_library
from ozaki.linalg.common.products import UNIT, native_error

MOST = 4
"""The most slices: with four, fifteen products err by some 2**-125 of sums of 100 terms."""


def count_for(tolerance: float, x: Any, y: Any) -> int:
    """The fewest slices with which native products of a residual err by at most the tolerance, y below 1; or `MOST`."""
    return next((count for count in range(1, MOST) if _error(count, x, y) <= tolerance), MOST)


def residual_by_slices(c: Any, x: Any, y: Any, count: int, x_tops: Any = None) -> tuple[Sum, Any]:
    """C - X Y as the sum of two float64 arrays, and upper bounds of its errors in each column, but for underflow.

    The second array is far smaller than sums that are formed on the way. No rounding to one array is in the bound.

    Parameters
    ----------
    c : stack of matrices, shape (..., m, n)
    x : stack of matrices, shape (..., m, k); parts of elements are below 1, or below 2**e, e of its rows in `x_tops`
    y : stack of matrices, shape (..., k, n), of any size
    count : how many slices
    """
    xp, bits, y_tops = array_library(x), _bits(x, y), tops(y, -2)
    of_y, y_rests, above = [], [y], power(y_tops)[..., None, :]
    for i in range(1, count + 1):
        of_y.append(_slice(y_rests[-1], above, i * bits))
        y_rests.append(y_rests[-1] - of_y[-1])
    high, low, rests, left_over, sums = c, None, 0.0, x, 0.0
    above = xp.ones(1) if x_tops is None else power(x_tops)[..., :, None]
    for i in range(count):
        of_x = _slice(left_over, above, (i + 1) * bits)
        left_over = left_over - of_x
        for each in of_y[: count - i]:
            high, lost = added(high, -(of_x @ each))
            low = lost if low is None else low + lost
            sums = sums + abs(low)
        rests = rests + of_x @ y_rests[count - i]
    low = low - (rests + left_over @ y)
    sizes = power(y_tops) if x_tops is None else power(x_tops.max(axis=-1))[..., None] * power(y_tops)
    # Each sum that is rounded errs by half of UNIT times what it is.
    return Sum(high, low), _error(count, x, y) * sizes + UNIT * (sums + abs(low)).max(axis=-2)


def _error(count: int, x: Any, y: Any) -> float:
    """A bound of what native products and their sums in an element of a residual err by, parts of x and y below 1.

    Of each of the count + 1 products one factor is at most 2**(-p bits), the other 2**(-q bits), p + q = count. Abs of
    complex numbers are at most the root of 2 times those of parts.
    """
    k, moduli = max(int(x.shape[-1]), 1), 2 if holds_complex(x) or holds_complex(y) else 1
    return moduli * k * native_error(x, y) * (count + 1) * 2.0 ** (-count * _bits(x, y))


def tops(x: Any, axis: int) -> Any:
    """Along an axis of a stack of matrices, the exponents e of the largest part: below 2**e; 0 of zeros."""
    return exponents(parts(x).max(axis=axis))


def exponents(sizes: Any) -> Any:
    """The exponents e of numbers, which are below 2**e; 0 of 0."""
    return array_library(sizes).frexp(sizes)[1]


def power(exponents: Any) -> Any:
    """Powers of two as float64 numbers, which may over- or underflow."""
    xp = array_library(exponents)
    return xp.ldexp(xp.ones(exponents.shape), exponents)


def parts(x: Any) -> Any:
    """The abs of real elements, or of the larger part of complex ones."""
    return array_library(x).maximum(abs(x.real), abs(x.imag)) if x.dtype.kind == "c" else abs(x)


def _bits(x: Any, y: Any) -> int:
    """How many bits slices have, so that sums of k products are exact: at most 2**53 in units of the last ones.

    Complex products are four real ones, perhaps of sums of two parts.
    """
    terms = max(int(x.shape[-1]), 1) * (4 if holds_complex(x) or holds_complex(y) else 1)
    return (53 - (terms - 1).bit_length()) // 2


def _slice(x: Any, above: Any, bits: int) -> Any:
    """Elements, below 2**(51 - bits) times the powers of two `above`, rounded to multiples of 2**-bits times these.

    Adding and subtracting a number whose last bit has that weight rounds so, and what it leaves of x is a float, too.
    """
    weight = above * ((1.5 + 1.5j if x.dtype.kind == "c" else 1.5) * 2.0 ** (52 - bits))
    found = x + weight
    found -= weight
    return found
