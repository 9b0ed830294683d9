"""How many digits a row needs, from what is known of it and of B: the kinds of rows (docs/bounds.md, B15)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.schemes import magnitude_bits
from ozaki.schemes.row_digits import THRESHOLD_BITS, THRESHOLDS, RowDigits, dropped_pairs, steps

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class RowStatistics(NamedTuple):
    """What the proof asks of rows at a number of digits; all integers.

    With h = 8 digits - 1 - bits, 0 or 1, bits those of the image.

    Attributes
    ----------
    inexact : elements whose image is rounded, times 4**h; shape (...)
    low : sum of the squares of digit s, times 4**h 4**(8 (digits - s)), for the last `RowDigits.low` digits s; shape
        (low, ...)
    squares : as in the description; shape (...)
    counts : elements that are no less than th_b 2**top in magnitude, for each threshold b; shape (..., THRESHOLDS), of
        any integers
    """

    inexact: Ints
    low: Ints
    squares: Ints
    counts: npt.NDArray[Any]


def summarised(of: RowStatistics, filled: npt.NDArray[np.bool_], k: int) -> RowStatistics:
    """The summary of the columns of each matrix, shapes without their last axis: the least counts, else the largest.

    `filled`, shape (batch, columns), says which columns have a nonzero finite element; no others count.
    """
    inexact, squares = (np.where(filled, each, 0).max(axis=-1, initial=0) for each in (of.inexact, of.squares))
    low = np.where(filled, of.low, 0).max(axis=-1, initial=0)
    counts = np.where(filled[..., None], of.counts, k).min(axis=-2, initial=k)
    return RowStatistics(inexact, low, squares, counts)


def of_rows(of: RowStatistics, index: Any) -> RowStatistics:
    """The statistics of some rows, or the summaries of some matrices."""
    return RowStatistics(of.inexact[index], of.low[:, *index], of.squares[index], of.counts[index])


def errors(scheme: RowDigits, digits: int, k: int, rows: RowStatistics, columns: RowStatistics) -> Floats:
    """Upper bounds of the errors of all entries of each row, before the rounding, in units of 2**(top_i + top_j).

    `columns` has for each row the summary of the columns. The kind of a row decides its bits: the operations and their
    order are part of the definition (docs/definitions.md, 11).
    """
    row_bits, column_bits, unit = 8 * digits - 1, 8 * scheme.columns - 1, 2.0 ** -magnitude_bits(k)
    row_error = np.sqrt(rows.inexact.astype(np.float64)) * 2.0 ** -(row_bits + 1)
    column_error = np.sqrt(columns.inexact.astype(np.float64)) * 2.0 ** -(column_bits + 1)
    row_norm, column_norm = (np.sqrt(each.squares.astype(np.float64)) * unit for each in (rows, columns))
    dropped = np.zeros(row_error.shape)
    for s, t in dropped_pairs(digits, scheme.columns):
        # The first digits that are in such a pair come first in `low`.
        of_row, of_column = rows.low[s - digits + scheme.low - 1], columns.low[t - scheme.columns + scheme.low - 1]
        of_pair = of_row.astype(np.float64) * of_column.astype(np.float64)
        dropped = dropped + np.sqrt(of_pair) * 2.0 ** -(row_bits + column_bits)
    total: Floats = row_error * column_norm + column_error * (row_norm + row_error)
    return (total + dropped) * (1 + 2.0**-30)


class LeastTables(NamedTuple):
    """What `least_products` asks of the counts N of the summaries of all matrices, as integers.

    Attributes
    ----------
    missing : k - N, ascending; shape (batch, THRESHOLDS)
    weight, product : sums of the `steps` of thresholds, and of these times `missing`, before each one; shape
        (batch, THRESHOLDS + 1)
    steps : those of all thresholds, the largest threshold first
    """

    missing: Ints
    weight: Ints
    product: Ints
    steps: Ints


def least_tables(k: int, columns: npt.NDArray[Any]) -> LeastTables:
    """The tables of counts of summaries, shape (batch, THRESHOLDS)."""
    weights = np.array(steps(), np.int64)
    missing = np.ascontiguousarray(k - columns[:, ::-1].astype(np.int64))
    of_steps = np.broadcast_to(weights[::-1], missing.shape), weights[::-1] * missing
    zeros = np.zeros((len(missing), 1), np.int64)
    sums = (np.cumsum(np.concatenate((zeros, each), axis=1), axis=1) for each in of_steps)
    weight, product = map(np.ascontiguousarray, sums)
    return LeastTables(missing, weight, product, weights)


def least_products(k: int, counts: npt.NDArray[Any], tables: LeastTables, matrices: Ints) -> Ints:
    """Lower bounds of all entries of abs(A) abs(B) of each row, in units of 2**(top_i + top_j - 2 THRESHOLD_BITS).

    Sum over b and b' of D_b D_b' max(0, c_b + N_b' - k), D the `steps`: of c elements of a row and N of a column that
    are no less than both thresholds, c + N - k at least stand at the same indices.

    Parameters
    ----------
    counts : of each row, shape (rows, THRESHOLDS)
    tables : of the summaries
    matrices : the summary that each row goes with, shape (rows,)
    """
    # In one list of all summaries the numbers of each one, 0 to k, follow those of the one before it.
    first = matrices[:, None] * (k + 1)
    in_order = (tables.missing + np.arange(len(tables.missing))[:, None] * (k + 1)).ravel()
    place = np.searchsorted(in_order, (counts + first).ravel()).reshape(counts.shape) - matrices[:, None] * THRESHOLDS
    at = matrices[:, None], place
    least: Ints = (counts * tables.weight[at] - tables.product[at]) @ tables.steps
    return least


def as_units(least: Ints) -> Floats:
    """Lower bounds of `least_products` in units of 2**(top_i + top_j), each rounded once."""
    return least.astype(np.float64) * 2.0 ** -(2 * THRESHOLD_BITS)
