"""Checks sampled entries of a computed product against exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ozaki import reference
from ozaki._operands import broadcast

Array: TypeAlias = npt.NDArray[Any]

MEASURES = {
    "componentwise": reference.componentwise_error,
    "row-column": reference.row_column_error,
    "normwise": reference.normwise_error,
}

MOST_MATRICES = 4
"""Most matrices of a stack that are checked."""


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes
    ----------
    error : the largest error found, rounded up
    entries : number of entries that were checked
    skipped : number of sampled entries for which no bound holds: NaN or Inf touch them, or they over- or underflow
    """

    error: float
    entries: int
    skipped: int


def sampled(
    c: Array, a: Array, b: Array, measure: str, rows: int, cols: int, seed: int = 0, bound: float = 0.0
) -> Checked:
    """Measure the error of a product in some rows and columns, picked at random.

    Parameters
    ----------
    c : array, the computed product of `a` and `b`
    a, b : arrays as `matmul` takes them
    measure : {"componentwise", "row-column", "normwise"}
    rows, cols : int
        How many rows and columns to check, in each matrix of a stack.
    seed : int
        Seed of the random choice.
    bound : float
        The proven bound: entries that came out as Inf are skipped if an error as large as that may overflow the format.
    """
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    stack = broadcast(left.shape[:-2], right.shape[:-2])
    result = c.reshape(*stack, left.shape[-2], right.shape[-1])
    left, right = np.broadcast_to(left, (*stack, *left.shape[-2:])), np.broadcast_to(right, (*stack, *right.shape[-2:]))

    rng = np.random.default_rng(seed)
    where = [np.unravel_index(i, stack) for i in _picked(rng, np.arange(int(np.prod(stack))), MOST_MATRICES)]
    found = [_check_matrix(result[i], left[i], right[i], measure, rows, cols, rng, bound) for i in where]
    errors = [one.error for one in found]
    # max() would drop a NaN that does not come first.
    error = float(np.max(errors, initial=0.0))
    return Checked(error, sum(one.entries for one in found), sum(one.skipped for one in found))


def _check_matrix(
    c: Array, a: Array, b: Array, measure: str, rows: int, cols: int, rng: np.random.Generator, bound: float
) -> Checked:
    """Check one matrix of a stack."""
    picked = _picked(rng, np.arange(c.shape[0]), rows), _picked(rng, np.arange(c.shape[1]), cols)
    total = picked[0].size * picked[1].size
    i, j = picked[0][np.isfinite(a[picked[0]]).all(axis=1)], picked[1][np.isfinite(b[:, picked[1]]).all(axis=0)]
    # Rows of a and columns of b that have NaN or Inf become zeros, so norms of a whole matrix leave them out.
    finite_a, finite_b = (np.where(np.isfinite(x).all(axis=axis, keepdims=True), x, 0) for x, axis in ((a, 1), (b, 0)))
    skipped = _out_of_range(a, b, i, j, c.dtype)
    infinite = np.isinf(c[np.ix_(i, j)])
    if bound > 0 and infinite.any():
        largest_errors = np.log2(bound) + _log2_norms(finite_a, measure)[i, None] + _log2_norms(finite_b.T, measure)[j]
        skipped |= infinite & (largest_errors >= np.finfo(c.dtype).maxexp - 1)
    j = j[~skipped.any(axis=0)]
    error = MEASURES[measure](c, finite_a, finite_b, rows=i, cols=j)
    return Checked(error, i.size * j.size, total - i.size * j.size)


def _out_of_range(a: Array, b: Array, rows: Array, cols: Array, dtype: np.dtype[Any]) -> Array:
    """Return for each exact entry whether it over- or underflows the format."""
    limits = np.finfo(dtype)
    integers, exponent = reference.exact_entries(a, b, rows, cols)
    tops = np.array([int(x).bit_length() + exponent for x in integers.flat], dtype=np.int64).reshape(integers.shape)
    return np.asarray((integers != 0) & ((tops >= limits.maxexp) | (tops <= limits.minexp)))


def _log2_norms(rows: Array, measure: str) -> Array:
    """Return log2 of the norm of each row or, for "normwise", of all rows together; -inf for zeros."""
    x = np.abs(rows.astype(np.float64))
    largest = x.max(axis=1, initial=0.0)
    scaled = x / np.where(largest > 0, largest, 1.0)[:, None]
    with np.errstate(divide="ignore"):
        norms = np.log2(largest) + np.log2(np.sqrt((scaled * scaled).sum(axis=1)))
    top = norms.max(initial=-np.inf)
    if measure != "normwise" or top == -np.inf:
        return np.asarray(norms)
    return np.full_like(norms, top + np.log2(np.exp2(2 * (norms - top)).sum()) / 2)


def _picked(rng: np.random.Generator, x: Array, count: int) -> Array:
    """Return `count` random elements of x, in order; all if it has no more."""
    return np.sort(rng.choice(x, min(x.size, count), replace=False))
