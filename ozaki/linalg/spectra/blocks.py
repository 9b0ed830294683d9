"""Diagonal blocks of a Hermitian matrix that is nearly diagonal: one for each cluster of its eigenvalues."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import Sum, adjoint, array_library, on_host
from ozaki.linalg.common.products import UNIT, Bounds, native_error, native_product
from ozaki.linalg.common.upper import LEAST, column_norm, magnitudes, norms, row_norm
from ozaki.multiprecision.numbers import Numbers


def frobenius(x: Any) -> float:
    """An upper bound of the root of the sum of squares of a matrix's elements, and so of its spectral norm."""
    if not isinstance(x, Numbers | Sum):
        flat = x.reshape(-1)
        squares = float(array_library(x).vdot(flat, flat).real)
        if 2.0**-900 < squares < 2.0**900:  # what underflows is far smaller
            return float(squares**0.5 * (1 + (x.size + 8) * UNIT))
    return float(norms(norms(x, 0)[None, :], 1)[0])


def ranges(together: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The ranges (first, behind the last) of ascending numbers, of which a flag says whether each joins the next."""
    ends = [0, *(np.flatnonzero(~together) + 1).tolist(), len(together) + 1]
    return [*pairwise(ends)]


def decomposed_block(block: Any, offsets: Any) -> tuple[Any, Any, float]:
    """Eigenvalues and eigenvectors of a Hermitian block + diag(offsets), and an upper bound of errors of the first.

    All in float64, by native products; the bound is that of L5, relative to which offsets are rounded.
    """
    xp = array_library(block)
    whole = block + xp.diag(offsets)
    values, y = xp.linalg.eigh(whole)
    product, left = native_product(whole, y), adjoint(y)
    rest, gram = product - y * values, xp.eye(len(values)) - native_product(left, y)
    largest, norm_y, columns_y = float(on_host(magnitudes(values)).max()), row_norm(y), column_norm(y)
    of_rest = (native_error(whole, y) + 4 * UNIT) * (row_norm(whole) + largest) * norm_y
    of_gram = (native_error(left, y) + 2 * UNIT) * (columns_y * norm_y + 1)
    norm_gram = row_norm(gram) + of_gram
    if not norm_gram < 0.5:
        return values, y, inf
    missed = columns_y * (row_norm(rest) + of_rest) + 2 * norm_gram * largest
    roundings = 2 * UNIT * (row_norm(whole) + float(on_host(magnitudes(offsets)).max()))
    return values, y, (missed / (1 - norm_gram) + roundings) * (1 + 2.0**-40) + LEAST


def errors_by_coupling(columns: Bounds, gaps: Bounds, blocks: list[tuple[int, int]], size: float) -> Bounds:
    """By how much eigenvalues of blocks may differ from those of the matrix that has elements outside of them, too.

    Parameters
    ----------
    columns : upper bounds of the Euclidean norms of columns, without the diagonal
    gaps : lower bounds of the distances of eigenvalues of each block to those of the matrix without it: between
        neighbours
    blocks : ranges
    size : an upper bound of the spectral norm of the matrix without its diagonal
    """
    starts = np.array([first for first, _ in blocks])
    unit = columns.max() + LEAST  # squares of small numbers underflow
    coupled = unit * np.sqrt(np.add.reduceat((columns / unit) ** 2, starts)) * (1 + 2.0**-40) + LEAST
    around = np.full(len(blocks) + 1, inf)
    around[1:-1] = gaps[starts[1:] - 1]
    between = np.minimum(around[1:], around[:-1])
    second = 2 * coupled * (coupled / np.where(between > 0, between, 1.0))
    found = np.where(2 * coupled <= between, np.minimum(second, size), size) if len(blocks) > 1 else np.zeros(1)
    errors: Bounds = np.repeat(found, [last - first for first, last in blocks])
    return errors
