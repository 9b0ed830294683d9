"""Some entries of a product, roughly: of which rows and columns, and by which exact sums (docs/bounds.md, B14).

Elements are cut to `PARTS` parts of w = `part_bits` bits below their row's top, which is integers x_0, x_1, x_2 below
2**w in magnitude. What is summed are the products x_p y_q with p + q < `PARTS`, in one sum for each p + q: integers of
at most 53 bits, so that all backends find the same, in any order of additions. Of entries without a product that large,
the exponent of the largest product stands for them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

PARTS = 3
"""Parts of an element: 57 bits below the row's top for k = 4096. PARTS of kernels/proof/crossings.cu."""

NONE = -(2**20)
"""Below the exponent of any entry: that of zero. NONE of that kernel."""

_ROWS, _MATRICES, _ELEMENTS = 48, 4, 2**18
"""What is looked at: at most so many rows of A and columns of B of a matrix, so many matrices, and rows of so many
elements together, but four rows."""

_PART, _FEW = 24, 8
"""And of a matrix one row in so many, but so many rows."""

_GOLDEN = 2654435769
"""2**32 times the golden ratio less 1, as in that kernel."""


def part_bits(k: int) -> int:
    """Bits w of a part, at most 20: `PARTS` k products below 4**w have a sum below 2**53."""
    return min((51 - k.bit_length()) // 2, 20)


def least_exponent(k: int) -> int:
    """The exponent below which sums of parts say nothing of an entry, since so much is cut off."""
    return k.bit_length() + PARTS - PARTS * part_bits(k)


def exponents_of(entries: npt.NDArray[np.float64], largest: Indices, k: int) -> Indices:
    """The frexp exponents of entries, about; `NONE` for zeros.

    Parameters
    ----------
    entries : the sums of parts, in units of 2**(top_i + top_j)
    largest : the largest sum of the frexp exponents of two elements that are multiplied, less top_i + top_j; `NONE` or
        less where no product is nonzero. Read where entries are below 2**`least_exponent`.
    """
    exponents = np.where(entries == 0, NONE, np.frexp(entries)[1]).astype(np.int64)
    cut_off = (exponents <= least_exponent(k)) & (largest <= least_exponent(k))
    return np.where(cut_off, np.maximum(largest, NONE), exponents)


def looked_at(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many matrices, and how many of their rows, are looked at, of an operand of shape (batch, rows, k)."""
    batch, rows, k = shape
    few = max(rows // _PART, _FEW)
    return min(batch, _MATRICES), min(rows, max(_ELEMENTS // max(k, 1), 4), _ROWS, few)


def spread(size: int, count: int) -> Indices:
    """`count` numbers below `size`, all over it, at distances that no period of rows has: by the golden ratio."""
    i = np.arange(count, dtype=np.uint64)
    if size <= count:
        return i.astype(np.int64)
    return ((i * np.uint64(_GOLDEN) % np.uint64(2**32)) * np.uint64(size) >> np.uint64(32)).astype(np.int64)
