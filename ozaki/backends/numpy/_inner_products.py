"""Correctly rounded inner products of a list of entries, for those whose error interval holds a rounding boundary.

Each is the sum of products of a row of x and a row of y, rounded once. Compiled code computes them where there is such
code, else NumPy: the bits are the same, since the correctly rounded value is one. Both first compute in twice the
working precision, with a bound of the error, and then exactly what this leaves undecided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import add_to_odd, two_sum
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.backends.numpy.compiled import Compiled, compiled
from ozaki.backends.numpy.compiled.calls import can_read
from ozaki.backends.numpy.compiled.inner_products import LISTED, SCRATCH, along_k
from ozaki.backends.numpy.compiled.inner_products import inner_products as compiled_products
from ozaki.process.threads import threads

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

_COPIED = 2**20
"""Elements of rows that are copied at a time, where the elements of no operand are neighbours along k."""

_AT_ONCE = 2**14
"""Products that NumPy adds up at a time: fewer than a tile, since their arrays are many."""

_ARRAYS = 20
"""Most arrays of so many products that NumPy holds at once."""

_EXACT = 400
"""Bytes that the exact sum holds for each product, at most: objects of Python."""


def inner_products(x: npt.NDArray[Any], y: npt.NDArray[Any], entries: _Ints, out: npt.NDArray[Any]) -> None:
    """Write RN(sum over t of x[b, i, t] y[b, j, t]) into out[b, i, j], for each of the entries (b, i, j).

    An exact zero is +0; too large sums become Inf, too small ones are rounded once into the subnormal numbers.

    Parameters
    ----------
    x : shape (batch or 1, m, k), float32 or float64, with any strides; NaN and Inf count as zero
    y : shape (batch or 1, n, k), likewise
    entries : shape (3, count): b, i, j of each entry, in any order
    out : shape (batch, m, n), float32 or float64, with any strides; all other entries are left as they are
    """
    count, k = entries.shape[1], x.shape[2]
    library = compiled()
    for first in range(0, count, TILE):
        some = entries[:, first : first + TILE]
        if k == 0:
            values: npt.NDArray[Any] = np.zeros(some.shape[1], out.dtype)
        elif isinstance(library, Compiled):
            values = _compiled_values(library.library, x, y, some, out.dtype)
        else:
            values = _values(x, y, some, out.dtype)
        out[tuple(some)] = values


def inner_products_bytes(x: npt.NDArray[Any], y: npt.NDArray[Any], count: int) -> int:
    """Bytes that `inner_products` holds at most for so many entries, beside its arguments."""
    k: int = x.shape[2]
    listed: int = LISTED * min(count, TILE) + OBJECTS
    if not isinstance(compiled(), Compiled):
        return listed + 8 * _ARRAYS * min(_AT_ONCE, count * k) + _EXACT * k
    copied = 0
    if not (along_k(x) and can_read(y)) and not (along_k(y) and can_read(x)):
        copied = LISTED * min(count, TILE)  # where entries come by rows that are copied together
        copied += 2 * max(x.itemsize, y.itemsize) * min(max(_COPIED, k), max(x.size, y.size))
    if not can_read(x) and not can_read(y):
        copied += y.nbytes
    return listed + copied + threads() * SCRATCH


def _compiled_values(
    library: Any, x: npt.NDArray[Any], y: npt.NDArray[Any], entries: _Ints, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """The values of entries by compiled code, one of whose operands has neighbours along k that are neighbours."""
    if not (along_k(x) and can_read(y)) and can_read(x):
        x, y, entries = y, x, entries[[0, 2, 1]]
    if along_k(x) and can_read(y):
        return compiled_products(library, x, y, entries, dtype)
    if not can_read(y):
        y = y.copy()
    values = np.empty(entries.shape[1], dtype)
    k = x.shape[2]
    rows, of_rows = np.unique((entries[0] if len(x) > 1 else 0) * x.shape[1] + entries[1], return_inverse=True)
    order = np.argsort(of_rows)
    at_once = max(_COPIED // k, 1)
    for first in range(0, len(rows), at_once):
        begin, end = np.searchsorted(of_rows[order], (first, first + at_once))
        at = order[begin:end]
        copied = np.ascontiguousarray(x[np.divmod(rows[first : first + at_once], x.shape[1])])[None]
        some = np.stack((entries[0, at], of_rows[at] - first, entries[2, at]))
        values[at] = compiled_products(library, copied, y, some, dtype)
    return values


# Without compiled code ------------------------------------------------------------------------------------------------


def _values(x: npt.NDArray[Any], y: npt.NDArray[Any], entries: _Ints, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values of entries by NumPy, some at a time."""
    values = np.empty(entries.shape[1], dtype)
    at_once = max(_AT_ONCE // x.shape[2], 1)
    with np.errstate(all="ignore"):
        for first in range(0, len(values), at_once):
            at = slice(first, first + at_once)
            b, i, j = entries[:, at]
            left, right = (x, b if len(x) > 1 else 0 * b, i), (y, b if len(y) > 1 else 0 * b, j)
            found, decided = _enclosed(left, right, dtype)
            values[at] = found
            for e in np.flatnonzero(~decided):
                of_x, of_y = (rows[batch[e], row[e]] for rows, batch, row in (left, right))
                values[first + e] = _exact(of_x, of_y, dtype)
    return values


_Rows = tuple[npt.NDArray[Any], _Ints, _Ints]
"""An operand, and the matrix and the row in it that each entry takes."""


def _enclosed(left: _Rows, right: _Rows, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """What the intervals of some entries round to, and whether that is decided: both ends round alike.

    In twice the working precision (T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, 2005), pairwise.
    """
    k, count = left[0].shape[2], len(left[1])
    value, rest, size = np.zeros((3, count))
    decided = np.ones(count, bool)
    additions = 8
    for h in range(0, k, _AT_ONCE):
        x, y = (rows[batch, row, h : h + _AT_ONCE].astype(np.float64, copy=False) for rows, batch, row in (left, right))
        product = x * y
        decided &= ~((np.abs(product) < _LEAST_PRODUCT) & (x != 0) & (y != 0)).any(axis=1)
        error = _product_error(x, y, product)
        size += np.abs(error).sum(axis=1)
        while (width := product.shape[1]) > 1:
            half = (width + 1) // 2
            total, left_over = two_sum(product[:, : width - half], product[:, half:])
            product[:, : width - half] = total
            size += np.abs(left_over).sum(axis=1)
            error[:, : width - half] += error[:, half:] + left_over
            product, error = product[:, :half], error[:, :half]
            additions += 2
        value, left_over = two_sum(value, product[:, 0])
        size += np.abs(left_over)
        rest += error[:, 0] + left_over
        additions += 2
    # Each addition of errors is wrong by 2**-53 of its result at most; so many were one after the other. The factor
    # covers that `size` is rounded, 2**-1073 that products may underflow.
    radius = size * (additions * 2.0**-53 * (1 + 2.0**-8)) + np.abs(rest) * 2.0**-51 + 2.0**-1073
    radius[size == 0] = 0
    least, largest = (_rounded_sum(value, rest + each, dtype) for each in (-radius, radius))
    decided &= (size < 2.0**1000) & (least.view(f"i{dtype.itemsize}") == largest.view(f"i{dtype.itemsize}"))
    return least, decided


_LEAST_PRODUCT = 2.0**-967
"""Least product that is not 0 whose error does not underflow.

x y is a multiple of the product of units of both, which is above 2**-106 abs(x y): from 2**-968 on, what is rounded off
is a multiple of 2**-1074.
"""


def _product_error(a: _Floats, b: _Floats, product: _Floats) -> _Floats:
    """What is rounded off of a product (T. J. Dekker, 1971); NaN where an element is beyond 2**996."""
    (high_a, low_a), (high_b, low_b) = (_halves(each) for each in (a, b))
    error: _Floats = low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)
    return error


def _halves(x: _Floats) -> tuple[_Floats, _Floats]:
    """Two numbers of at most 26 bits whose sum is x."""
    far = x * (2.0**27 + 1)
    high = far - (far - x)
    return high, x - high


def _rounded_sum(a: _Floats, b: _Floats, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """RN(a + b) in either format."""
    total, left_over = two_sum(a, b)
    if dtype.itemsize == 8:
        return total
    # Float32, of less than half as many bits, rounds a sum that was rounded to odd as it would round the exact one.
    return add_to_odd(total, left_over).astype(dtype)


def _exact(x: npt.NDArray[Any], y: npt.NDArray[Any], dtype: np.dtype[Any]) -> Any:
    """The inner product of two rows, in Python's integers, rounded once."""
    counts = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
    (p, p_exponents), (q, q_exponents) = (np.frexp(each[counts].astype(np.float64)) for each in (x, y))
    if not p.size:
        return dtype.type(0)
    exponents = p_exponents + q_exponents
    first = int(exponents.min())
    mantissas = (np.ldexp(each, 53).astype(np.int64).tolist() for each in (p, q))
    total = sum(a * b << s for a, b, s in zip(*mantissas, (exponents - first).tolist(), strict=True))
    return _rounded(total, first - 106, dtype)


def _rounded(integer: int, exponent: int, dtype: np.dtype[Any]) -> Any:
    """RN(integer * 2**exponent), ties to even; an exact zero is +0."""
    form, magnitude = np.finfo(dtype), abs(integer)
    unit = max(magnitude.bit_length() + exponent - form.nmant - 1, int(form.minexp) - form.nmant)
    drop = unit - exponent
    if drop <= 0:
        count = magnitude << -drop
    else:
        count, rest, half = magnitude >> drop, magnitude & ((1 << drop) - 1), 1 << drop - 1
        count += rest > half or (rest == half and count % 2 == 1)
    return dtype.type(np.ldexp(-float(count) if integer < 0 else float(count), unit))
