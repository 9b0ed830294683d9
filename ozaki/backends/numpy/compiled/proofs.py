"""Calls of the compiled library for proofs (kernels/cpu/proof.h): sums of products of magnitudes, and worst ratios."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy.compiled.calls import can_read, inner_factors, inner_fields
from ozaki.backends.numpy.compiled.memory import Block
from ozaki.backends.numpy.compiled.panels import DEPTH, WIDTHS, padded
from ozaki.backends.numpy.compiled.sharing import share_out
from ozaki.backends.numpy.compiled.structures import Magnitudes, Ratios, Sums
from ozaki.bounds.exact import ErrorTerms

_Ints = npt.NDArray[np.int64]


def magnitude_bytes(batch: int, rows: int, count: int, side: str) -> int:
    """Bytes of the panels of magnitudes of a side, with what the call takes besides."""
    return batch * (padded(rows, count, side) + 16 * rows) + 1024


def sums_of_products(
    library: Any, left: Block, right: Block, rows: tuple[int, int], count: int
) -> npt.NDArray[np.int32]:
    """Sums of products of magnitudes of both operands, shape (batch, m, n).

    Parameters
    ----------
    library : as `Compiled` has it
    left, right : their panels, of so many rows (`magnitudes`)
    count : of inner indices, at most 2**17
    """
    (a, b), (m, n) = (left.array, right.array), rows
    batch = max(len(a), len(b))
    out = np.zeros((batch, m, n), np.int32) if count == 0 else np.empty((batch, m, n), np.int32)
    steps = (0 if len(x) == 1 else x.strides[0] for x in (a, b))
    depth = -(-count // DEPTH) * DEPTH
    given = Sums(a.ctypes.data, b.ctypes.data, *steps, depth, m, n, out.ctypes.data)
    at, cost = ctypes.byref(given), float(batch) * m * n * (depth + 64) / 16

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_sums(at, begin, end)

    share_out(batch * -(-m // WIDTHS["left"]), cost, call, left, right, out)
    return out


def magnitudes(
    library: Any, of: npt.NDArray[Any] | ScaledRows, exponents: _Ints, side: str, count: int, every: int
) -> Block:
    """Panels of the magnitudes floor(abs(x) 2**exponent), at most 127, of an operand, shape (batch, bytes of a matrix).

    Parameters
    ----------
    library : as `Compiled` has it
    of : rows, shape (batch, rows, k), of floats or complex numbers, whose larger parts count; NaN and Inf count as zero
    exponents : of each row, shape (batch, rows)
    side : "left" or "right"
    count : of inner indices that are read, at most 2**17
    every : of so many the first 32 are read; 32 for all of them
    """
    x, inner = inner_factors(of if can_read(of) else of.copy())
    batch, rows, _ = x.shape
    complex_ = x.dtype.kind == "c"
    real, imaginary = (x.real, x.imag) if complex_ else (x, None)
    block = Block((batch, padded(rows, count, side)))
    exponents = np.ascontiguousarray(exponents, np.int64)
    given = Magnitudes(
        real.ctypes.data, None if imaginary is None else imaginary.ctypes.data, real.itemsize == 4, batch, rows,
        *(step // real.itemsize for step in real.strides), exponents.ctypes.data, count, every,
        block.array.ctypes.data, block.array.strides[0], -(-count // DEPTH) * DEPTH, *inner_fields(inner),
    )  # fmt: skip
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_magnitudes(at, side == "right", begin, end)

    share_out(batch * -(-rows // WIDTHS[side]), 2.0 * batch * rows * count, call, x, inner, exponents, block)
    return block


def worst_ratio(library: Any, terms: ErrorTerms, lower: npt.NDArray[Any], rows: int) -> float:
    """The largest ratio of the sum of three outer products, the error terms, to `lower` in the first rows.

    Parameters
    ----------
    library : as `Compiled` has it
    terms : of the left operand, shape (3, batch or 1, m), and of the right one
    lower : int32 or float64, contiguous, shape (batch, m, n); where it is 0, the ratio is inf unless the error is 0
    rows : so many of the m are compared, at most all
    """
    batch, m, n = lower.shape
    assert rows <= m  # else what is beyond the end is read
    if 0 in (batch, rows, n):
        return 0.0
    left, right = (np.ascontiguousarray(side, np.float64) for side in (terms.left, terms.right))
    found = np.empty(batch * rows)
    given = Ratios(
        lower.ctypes.data, lower.dtype == np.int32, m, n, rows, left.ctypes.data, right.ctypes.data,
        left.strides[0] // 8, right.strides[0] // 8, *(0 if x.shape[1] == 1 else x.shape[2] for x in (left, right)),
        found.ctypes.data,
    )  # fmt: skip
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_ratios(at, begin, end)

    share_out(batch * rows, float(batch) * rows * n, call, left, right, lower, found)
    return float(found.max())
