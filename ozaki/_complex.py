"""Complex products as real ones: rows of real parts, and the real product whose entries are all parts of C.

So are computed products by digits, by words, by the slices of int8 engines on NumPy, and those of a real and a complex
operand. Residues of two complex operands are cut from complex rows (`schemes.ComplexSlices`).

`parts` has the number of real parts of an element of A and of B: (2, 2) of complex operands, (1, 2) or (2, 1) of a real
and a complex one, (1, 1) of real ones. Rows of real parts are, x + i y an element of A and u + i v one of B:

- both complex: the row (x, y, ...) of A, twice as long; the rows (u, -v, ...) and (v, u, ...) of each column of B. So a
  row of A and such a pair of rows give the real and the imaginary part of an entry of C.
- one complex: for each of its rows the row of real parts and the row of imaginary ones; the other operand as it is.

Slices and descriptions of such rows are those of real operands (docs/definitions.md, section 9).
"""

from __future__ import annotations

from typing import Any

from ozaki._formats import part_of
from ozaki.multiprecision.limbs import library

Parts = tuple[int, int]

REAL: Parts = (1, 1)
COMPLEX: Parts = (2, 2)


def length_of(k: int, parts: Parts) -> int:
    """Products of real numbers whose sum is a part of an entry of C."""
    return k * min(parts)


def spread_of(parts: Parts) -> float:
    """Factor on a bound of the real product that gives the bound of complex entries in the same measure (B11)."""
    return _SQRT_2 if parts == (2, 2) else 1.0


_SQRT_2 = 1.4142135623730952
"""The square root of 2, rounded up."""


def real_stack(stack: tuple[int, int, int], parts: Parts) -> tuple[int, int, int]:
    """Shape (batch, rows, columns) of the real product of a complex one of shape `stack`."""
    batch, m, n = stack
    return batch, m * (2 if parts == (2, 1) else 1), n * parts[1]


def real_rows(x: Any, side: str, parts: Parts) -> Any:
    """The rows of real parts of an operand, whose rows x have shape (batch, rows, k); a view where one has that shape.

    x itself, if it is real.
    """
    own, other = parts if side == "left" else parts[::-1]
    if own == 1:
        return x
    dtype = part_of(str(x.dtype))
    if other == 1:
        return _rows_of_parts(x, dtype)
    if side == "left":
        return contiguous(x, str(x.dtype)).view(dtype)
    batch, rows, k = x.shape
    pairs = library(x).empty((batch, rows, 2, k, 2), dtype)
    pairs[:, :, 0, :, 0] = pairs[:, :, 1, :, 1] = x.real
    pairs[:, :, 1, :, 0] = x.imag
    pairs[:, :, 0, :, 1] = -x.imag
    return pairs.reshape(batch, 2 * rows, 2 * k)


def real_entries(c: Any, dtype: str, parts: Parts) -> Any:
    """Entries of shape (batch, m, n), as the real product has them: a view where one has that shape, if c is complex.

    `dtype` is the complex format that a copy gets.
    """
    if parts == (2, 1):
        return _rows_of_parts(c, part_of(dtype))
    return contiguous(c, dtype).view(part_of(dtype))


def _rows_of_parts(x: Any, dtype: str) -> Any:
    """x, shape (batch, rows, k), with two rows for each: that of real parts and that of imaginary ones.

    A view, if neighbouring rows are neighbours in memory.
    """
    batch, rows, k = x.shape
    if x.size and x.strides[1] == x.itemsize:
        return x.swapaxes(1, 2).view(dtype).swapaxes(1, 2)
    found = library(x).empty((batch, rows, 2, k), dtype)
    found[:, :, 0], found[:, :, 1] = x.real, x.imag
    return found.reshape(batch, 2 * rows, k)


def contiguous(x: Any, dtype: str) -> Any:
    """x itself, if it has the dtype and is contiguous in row-major order, else a copy that is."""
    if str(x.dtype) == dtype and x.flags.c_contiguous:
        return x
    found = library(x).empty(x.shape, dtype)
    found[...] = x
    return found


def join_into(entries: Any, c: Any) -> None:
    """Write the entries of the real product of parts (2, 1) into c, complex, shape (batch, m, n)."""
    batch, m, n = c.shape
    found = entries.reshape(batch, m, 2, n)
    c.real[...], c.imag[...] = found[:, :, 0], found[:, :, 1]
