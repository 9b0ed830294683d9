"""Clusters of eigenvalues or singular values that lie too close to be told apart: their blocks, and what turns them.

A matrix that is nearly diagonal has a block on the diagonal for each cluster; a value that is close to no other is a
block of its own.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, comb, inf, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import adjoint, array_library
from ozaki.linalg.common.products import UNIT, Bounds, componentwise, native_error, native_product
from ozaki.linalg.common.upper import LEAST, UP, column_norm, largest_abs, row_norm
from ozaki.multiprecision.objects import mparray

FINER = 2.0**-16
"""How much sharper the first residuals are than the values need: of vectors they bound errors divided by gaps."""

LESS = "ask for a lower accuracy, or for one relative to the largest"
"""What may be had where corrections of vectors do not converge, as of values that are far apart."""

NOT_CONVERGING = f"a: corrections of its eigenvectors do not converge; {LESS}"


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
    largest, norm_y, columns_y = largest_abs(values), row_norm(y), column_norm(y)
    of_rest = (native_error(whole, y) + 4 * UNIT) * (row_norm(whole) + largest) * norm_y
    of_gram = (native_error(left, y) + 2 * UNIT) * (columns_y * norm_y + 1)
    norm_gram = row_norm(gram) + of_gram
    if not norm_gram < 0.5:
        return values, y, inf
    missed = columns_y * (row_norm(rest) + of_rest) + 2 * norm_gram * largest
    roundings = 2 * UNIT * (row_norm(whole) + largest_abs(offsets))
    return values, y, (missed / (1 - norm_gram) + roundings) * UP + LEAST


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
    coupled = unit * np.sqrt(np.add.reduceat((columns / unit) ** 2, starts)) * UP + LEAST
    around = np.full(len(blocks) + 1, inf)
    around[1:-1] = gaps[starts[1:] - 1]
    between = np.minimum(around[1:], around[:-1])
    second = 2 * coupled * (coupled / np.where(between > 0, between, 1.0))
    found = np.where(2 * coupled <= between, np.minimum(second, size), size) if len(blocks) > 1 else np.zeros(1)
    errors: Bounds = np.repeat(found, [last - first for first, last in blocks])
    return errors


def orthonormal(x: Any, bits: int) -> Any:
    """A matrix of orthonormal columns near x, whose columns are nearly so, in so many bits.

    With G = I - x^H x that is x (I - G)^(-1/2), a power series. If G is not small, x (I + G / 2) takes its place first,
    of which G is smaller.
    """
    found, eye = mparray(x), array_library(x).eye(x.shape[1])
    while True:
        gram = gemm(-1, adjoint(found), found, 1, eye, accuracy=componentwise(2.0**-bits), dtype="mp")
        size = max(row_norm(gram), 2.0**-bits)
        if not size < 0.5:
            return found
        count = 1 if size > 2.0**-30 else max(1, ceil(-bits / log2(size)) - 1)
        # Horner's scheme: each term is smaller than the one before, and takes fewer bits.
        series = gram * _series(count)
        for k in range(count - 1, 0, -1):
            within = componentwise(2.0**-bits / size ** (k + 1))
            series = gram * _series(k) + matmul(gram, series, accuracy=within, dtype="mp")
        change = matmul(found, series, accuracy=componentwise(2.0**-bits / size), dtype="mp")
        found = (found + change).round_to(bits)
        if count > 1 or size <= 2.0 ** (-bits / 2):  # a term squares what is missing
            return found


def _series(k: int) -> float:
    """The coefficient of z^k in (1 - z)^(-1/2)."""
    return comb(2 * k, k) / 4.0**k
