"""Checks sampled entries of a computed product against exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ozaki
from ozaki import reference
from ozaki._cli.files import Matrix
from ozaki._operands import broadcast
from ozaki.multiprecision.arithmetic import broadcast_to
from ozaki.reference._exact import finite_elements
from ozaki.reference._measures import squared_norms

Array = npt.NDArray[Any]

MEASURES = {
    "componentwise": reference.componentwise_error,
    "row-column": reference.row_column_error,
    "normwise": reference.normwise_error,
    "relative": reference.relative_error,
}

MOST_MATRICES = 4
"""Most matrices of a stack that are checked."""


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes
    ----------
    error : the largest error found, rounded up, in the units of the bound
    entries : number of entries that were checked
    skipped : number of sampled entries for which no bound holds: NaN or Inf touch them, or they over- or underflow
    """

    error: float
    entries: int
    skipped: int


def sampled(
    c: Matrix,
    a: Matrix,
    b: Matrix,
    measure: str,
    rows: int,
    cols: int,
    seed: int = 0,
    bound: float = 0.0,
    exponent: int = 0,
) -> Checked:
    """Measure the error of a product in some rows and columns, picked at random.

    Parameters
    ----------
    c : array or MPArray, the computed product of `a` and `b`
    a, b : arrays or MPArrays as `matmul` takes them
    measure : {"componentwise", "row-column", "normwise", "relative"}
    rows, cols : int
        How many rows and columns to check, in each matrix of a stack.
    seed : int
        Seed of the random choice.
    bound : float
        The proven bound: entries that came out as Inf are skipped if an error as large as that may overflow the format.
    exponent : int
        The bound and the error are in units of 2**exponent.
    """
    a, b, c = (_without_integers(x) for x in (a, b, c))
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    stack = broadcast(left.shape[:-2], right.shape[:-2])
    result = c.reshape(*stack, left.shape[-2], right.shape[-1])
    left, right = (_broadcast_to(x, (*stack, *x.shape[-2:])) for x in (left, right))

    rng = np.random.default_rng(seed)
    where = [np.unravel_index(i, stack) for i in _picked(rng, np.arange(int(np.prod(stack))), MOST_MATRICES)]
    options = measure, rows, cols, rng, bound, exponent
    found = [_check_matrix(result[i], left[i], right[i], *options) for i in where]
    errors = [one.error for one in found]
    # max() would drop a NaN that does not come first.
    error = float(np.max(errors, initial=0.0))
    return Checked(error, sum(one.entries for one in found), sum(one.skipped for one in found))


def _without_integers(x: Matrix) -> Matrix:
    """Return floats, real or complex, and multiprecision numbers as they are, integers as multiprecision numbers."""
    return x if isinstance(x, ozaki.MPArray) or x.dtype.kind in "fc" else ozaki.mparray(x)


def _broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    return ozaki.MPArray._of(broadcast_to(x, shape)) if isinstance(x, ozaki.MPArray) else np.broadcast_to(x, shape)


def _check_matrix(
    c: Any,
    a: Any,
    b: Any,
    measure: str,
    rows: int,
    cols: int,
    rng: np.random.Generator,
    bound: float,
    exponent: int,
) -> Checked:
    """Check one matrix of a stack."""
    picked = _picked(rng, np.arange(c.shape[0]), rows), _picked(rng, np.arange(c.shape[1]), cols)
    total = picked[0].size * picked[1].size
    of_rows, of_columns = (np.asarray(finite_elements(x).all(axis=axis)) for x, axis in ((a, 1), (b, 0)))
    i, j = picked[0][of_rows[picked[0]]], picked[1][of_columns[picked[1]]]
    # Rows of a and columns of b that have NaN or Inf become zeros, so norms of a whole matrix leave them out.
    finite_a = a if of_rows.all() else np.where(of_rows[:, None], a, 0)
    finite_b = b if of_columns.all() else np.where(of_columns, b, 0)
    if not isinstance(c, ozaki.MPArray):
        skipped = _out_of_range(a, b, i, j, c.dtype)
        infinite = np.isinf(c[np.ix_(i, j)])
        if bound > 0 and infinite.any() and measure != "relative":
            largest_errors = (
                np.log2(bound) + _log2_norms(finite_a, measure)[i, None] + _log2_norms(finite_b.T, measure)[j]
            )
            skipped |= infinite & (largest_errors >= np.finfo(c.dtype).maxexp - 1)
        j = j[~skipped.any(axis=0)]
    error = MEASURES[measure](c, finite_a, finite_b, rows=i, cols=j, exponent=exponent)
    return Checked(error, i.size * j.size, total - i.size * j.size)


def _out_of_range(a: Matrix, b: Matrix, rows: Array, cols: Array, dtype: np.dtype[Any]) -> Array:
    """Return for each exact entry whether it, or a part of a complex one, over- or underflows the format."""
    limits = np.finfo(dtype)
    integers, exponent = reference.exact_entries(a, b, rows, cols)
    tops = np.array([int(x).bit_length() + exponent for x in integers.flat], dtype=np.int64).reshape(integers.shape)
    out = (integers != 0) & ((tops >= limits.maxexp) | (tops <= limits.minexp))
    return np.asarray(out.any(axis=-1) if out.ndim == 3 else out)  # a complex entry is two integers, its parts


def _log2_norms(rows: Matrix, measure: str) -> Array:
    """Return log2 of the norm of each row or, for "normwise", of all rows together; -inf for zeros."""
    squares, exponent = squared_norms(rows)
    if measure == "normwise":
        squares = [sum(squares)] * len(squares)
    return np.array([(math.log2(x) + exponent) / 2 if x else -math.inf for x in squares])


def _picked(rng: np.random.Generator, x: Array, count: int) -> Array:
    """Return `count` random elements of x, in order; all if it has no more."""
    return np.sort(rng.choice(x, min(x.size, count), replace=False))
