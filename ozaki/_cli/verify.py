"""Checks sampled entries of a computed product against exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import ozaki
from ozaki import reference
from ozaki._cli.files import Matrix
from ozaki._cli.sampling import Array, Sample, out_of_range, samples, stack_of
from ozaki.reference._exact import finite_elements
from ozaki.reference._measures import squared_norms

MEASURES = {
    "componentwise": reference.componentwise_error,
    "row-column": reference.row_column_error,
    "normwise": reference.normwise_error,
    "relative": reference.relative_error,
}


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
    found = [_check(sample, measure, bound, exponent) for sample in samples(stack_of(c, a, b), rows, cols, seed)]
    errors = [one.error for one in found]
    # max() would drop a NaN that does not come first.
    error = float(np.max(errors, initial=0.0))
    return Checked(error, sum(one.entries for one in found), sum(one.skipped for one in found))


def _check(sample: Sample, measure: str, bound: float, exponent: int) -> Checked:
    """Check the sample of one matrix."""
    a, b, c = sample.a, sample.b, sample.c
    total = sample.rows.size * sample.cols.size
    of_rows, of_columns = (np.asarray(finite_elements(x).all(axis=axis)) for x, axis in ((a, 1), (b, 0)))
    i, j = sample.rows[of_rows[sample.rows]], sample.cols[of_columns[sample.cols]]
    # Rows of a and columns of b that have NaN or Inf become zeros, so norms of a whole matrix leave them out.
    finite_a = a if of_rows.all() else np.where(of_rows[:, None], a, 0)
    finite_b = b if of_columns.all() else np.where(of_columns, b, 0)
    if not isinstance(c, ozaki.MPArray):
        skipped = out_of_range(*reference.exact_entries(a, b, i, j), c.dtype)
        infinite = np.isinf(c[np.ix_(i, j)])
        if bound > 0 and infinite.any() and measure != "relative":
            largest_errors = (
                np.log2(bound) + _log2_norms(finite_a, measure)[i, None] + _log2_norms(finite_b.T, measure)[j]
            )
            skipped |= infinite & (largest_errors >= np.finfo(c.dtype).maxexp - 1)
        j = j[~skipped.any(axis=0)]
    error = MEASURES[measure](c, finite_a, finite_b, rows=i, cols=j, exponent=exponent)
    return Checked(error, i.size * j.size, total - i.size * j.size)


def _log2_norms(rows: Matrix, measure: str) -> Array:
    """Return log2 of the norm of each row or, for "normwise", of all rows together; -inf for zeros."""
    squares, exponent = squared_norms(rows)
    if measure == "normwise":
        squares = [sum(squares)] * len(squares)
    return np.array([(math.log2(x) + exponent) / 2 if x else -math.inf for x in squares])
