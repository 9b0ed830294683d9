"""Complex products as real ones: rows of real parts, and the real product whose entries are all parts of C.

In this way complex products are computed by digits, by words, by NumPy's simulated int8 engine, with one real operand,
and of multiprecision numbers. Residues of two complex operands of floats are cut from complex rows instead
(`schemes.ComplexSlices`).

`parts` are those of `records/shapes.py`. Rows of real parts are, x + i y an element of A and u + i v one of B:

- both complex: the row (x, y, ...) of A, twice as long; the rows (u, -v, ...) and (v, u, ...) of each column of B. So a
  row of A and such a pair of rows give the real and the imaginary part of an entry of C.
- one complex: for each of its rows the row of real parts and the row of imaginary ones; the other operand as it is.

Slices and descriptions of such rows are those of real operands (docs/definitions.md, section 9).
"""

from __future__ import annotations

from typing import Any

from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.numbers import Numbers, as_complex, beside_zeros, of_parts
from ozaki.records.formats import part_of
from ozaki.records.shapes import Parts


def real_rows(x: Any, side: str, parts: Parts) -> Any:
    """The rows of real parts of an operand, whose rows x have shape (batch, rows, k); a view where one has that shape.

    x itself, if it is real.
    """
    own, other = parts if side == "left" else parts[::-1]
    if own == 1:
        return x
    if isinstance(x, Numbers):
        return _real_rows_of_numbers(x, side, other)
    dtype = part_of(str(x.dtype))
    if other == 1:
        return _rows_of_parts(x, dtype)
    if side == "left":
        return contiguous(x, str(x.dtype)).view(dtype)
    pairs = _pairs(x.real, x.imag)
    pairs[..., 0, :, 1] *= -1
    return _joined(pairs)


def _real_rows_of_numbers(x: Numbers, side: str, other: int) -> Numbers:
    """The rows of real parts that `real_rows` describes, of multiprecision numbers; `other` as `parts`."""
    batch, rows, k = x.shape
    if other == 1:
        return x.parts.swapaxes(2, 3).reshape(batch, 2 * rows, k)
    if side == "left":
        return x.parts.reshape(batch, rows, 2 * k)
    planes = zip(
        (x.real.signs, x.real.exponents, x.real.limbs), (x.imag.signs, x.imag.exponents, x.imag.limbs), strict=True
    )
    signs, exponents, limbs = (_pairs(u, v) for u, v in planes)
    signs[..., 0, :, 1] *= -1
    return Numbers(_joined(signs), _joined(exponents), _joined(limbs), x.bits)


def _pairs(real: Any, imag: Any) -> Any:
    """For each row (u, ...) of real parts and (v, ...) of imaginary ones the rows (u, v, ...) and (v, u, ...).

    The last two axes are rows and k; those of the pairs, with an element's two parts, (rows, 2, k, 2).
    """
    *lead, rows, k = real.shape
    pairs = library(real).empty((*lead, rows, 2, k, 2), real.dtype)
    pairs[..., 0, :, 0] = pairs[..., 1, :, 1] = real
    pairs[..., 1, :, 0] = pairs[..., 0, :, 1] = imag
    return pairs


def _joined(pairs: Any) -> Any:
    """Pairs of rows as rows."""
    *lead, rows, _, k, _ = pairs.shape
    return pairs.reshape(*lead, 2 * rows, 2 * k)


def real_entries(c: Any, dtype: str, parts: Parts) -> Any:
    """Entries of shape (batch, m, n), as the real product has them: a view where one has that shape, if c is complex.

    `dtype` is the complex format that a copy gets; c may be multiprecision numbers, whose copies keep theirs.
    """
    if isinstance(c, Numbers):
        batch, m, n = c.shape
        if parts == (2, 1):  # real ones are copied once, in the order that they are to have
            x = c.parts.swapaxes(2, 3) if c.is_complex else beside_zeros(c, -2)
            return x.reshape(batch, 2 * m, n)
        return as_complex(c).parts.reshape(batch, m, 2 * n)
    if parts == (2, 1):
        return _rows_of_parts(c, part_of(dtype))
    return contiguous(c, dtype).view(part_of(dtype))


def _rows_of_parts(x: Any, dtype: str) -> Any:
    """x, shape (batch, rows, k), with two rows for each: that of real parts and that of imaginary ones.

    A view, if x is complex, and neighbouring rows are neighbours in memory.
    """
    batch, rows, k = x.shape
    if x.size and x.strides[1] == x.itemsize and x.dtype.kind == "c":
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


def numbers_of_entries(entries: Numbers, parts: Parts) -> Numbers:
    """The complex numbers, shape (batch, m, n), whose parts are the entries of the real product: a view."""
    batch, m, n = entries.shape
    if parts == (2, 1):
        return of_parts(entries.reshape(batch, m // 2, 2, n).swapaxes(2, 3))
    return of_parts(entries.reshape(batch, m, n // 2, 2))


def join_into(entries: Any, c: Any) -> None:
    """Write the entries of the real product of parts (2, 1) into c, complex, shape (batch, m, n)."""
    batch, m, n = c.shape
    found = entries.reshape(batch, m, 2, n)
    c.real[...], c.imag[...] = found[:, :, 0], found[:, :, 1]
