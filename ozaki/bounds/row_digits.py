"""How many digits a row needs, from what is known of it and of B: the kinds of rows (docs/bounds.md, B15)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.schemes import magnitude_bits
from ozaki.schemes.row_digits import THRESHOLD_BITS, RowDigits, dropped_pairs, steps

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class RowStatistics(NamedTuple):
    """What the proof asks of rows at a number of digits; all integers.

    With h = 8 digits - 1 - bits, 0 or 1, bits those of the image.

    Attributes
    ----------
    inexact : elements whose image is rounded, times 4**h; shape (...)
    low : sum of the squares of digit s, times 4**h 4**(8 (digits - s)), for s = 2, 3, ...; shape (digits - 1, ...)
    squares : as in the description; shape (...)
    counts : elements that are no less than th_b 2**top in magnitude, for each threshold b; shape (..., THRESHOLDS)
    """

    inexact: Ints
    low: Ints
    squares: Ints
    counts: Ints


def summarised(of: RowStatistics, filled: npt.NDArray[np.bool_], k: int) -> RowStatistics:
    """The summary of the columns of each matrix, shapes without their last axis: the least counts, else the largest.

    `filled`, shape (batch, columns), says which columns have a nonzero finite element; no others count.
    """
    inexact, squares = (np.where(filled, each, 0).max(axis=-1, initial=0) for each in (of.inexact, of.squares))
    low = np.where(filled, of.low, 0).max(axis=-1, initial=0)
    counts = np.where(filled[..., None], of.counts, k).min(axis=-2, initial=k)
    return RowStatistics(inexact, low, squares, counts)


def errors(scheme: RowDigits, digits: int, k: int, rows: RowStatistics, columns: RowStatistics) -> Floats:
    """Upper bounds of the errors of all entries of each row, before the rounding, in units of 2**(top_i + top_j).

    `columns` is the summary of the columns, whose shapes broadcast with those of the rows. The kind of a row decides
    its bits: the operations and their order are part of the definition (docs/definitions.md, 11).
    """
    of_rows, of_columns, unit = 8 * digits - 1, 8 * scheme.columns - 1, 2.0 ** -magnitude_bits(k)
    row_error = np.sqrt(rows.inexact.astype(np.float64)) * 2.0 ** -(of_rows + 1)
    column_error = np.sqrt(columns.inexact.astype(np.float64)) * 2.0 ** -(of_columns + 1)
    row_norm, column_norm = (np.sqrt(each.squares.astype(np.float64)) * unit for each in (rows, columns))
    dropped = np.zeros(row_error.shape)
    for s, t in dropped_pairs(digits, scheme.columns):
        of_pair = rows.low[s - 2].astype(np.float64) * columns.low[t - 2].astype(np.float64)
        dropped = dropped + np.sqrt(of_pair) * 2.0 ** -(of_rows + of_columns)
    total: Floats = row_error * column_norm + column_error * (row_norm + row_error)
    return (total + dropped) * (1 + 2.0**-30)


def least_products(k: int, counts: Ints, columns: Ints) -> Ints:
    """Lower bounds of all entries of abs(A) abs(B), in units of 2**(top_i + top_j - 2 THRESHOLD_BITS).

    Sum over b and b' of D_b D_b' max(0, c_b + N_b' - k), D the `steps`: of c elements of a row and N of a column that
    are no less than both thresholds, c + N - k at least stand at the same indices.

    Parameters
    ----------
    counts : of some rows of a matrix, shape (rows, THRESHOLDS)
    columns : the summary's, shape (THRESHOLDS,)
    """
    weights = np.array(steps(), np.int64)
    missing = k - columns[::-1]  # ascending; c counts with those that are below it
    weight, product = (np.concatenate(([0], np.cumsum(each))) for each in (weights[::-1], weights[::-1] * missing))
    place = np.searchsorted(missing, counts, side="left")
    found: Ints = (counts * weight[place] - product[place]) @ weights
    return found


def as_units(least: Ints) -> Floats:
    """Lower bounds of `least_products` in units of 2**(top_i + top_j)."""
    return least.astype(np.float64) * 2.0 ** -(2 * THRESHOLD_BITS)
