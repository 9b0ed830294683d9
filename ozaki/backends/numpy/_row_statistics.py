"""The statistics of rows that decide how many digits each one has, on NumPy (docs/definitions.md, 11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.backends.numpy.compiled import Compiled, compiled
from ozaki.backends.numpy.compiled.row_digits import can_see, least_by_library, row_statistics
from ozaki.bounds.row_digits import (
    Ints,
    RowStatistics,
    as_units,
    errors,
    least_products,
    least_tables,
    of_rows,
    summarised,
)
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes import Digits
from ozaki.schemes.row_digits import THRESHOLDS, RowDigits

Kinds = npt.NDArray[np.int8]
"""Digits of each row; 0 of exact ones."""

EXACT = 0


def statistics_of(rows: Described, digits: int, last: int) -> RowStatistics:
    """The statistics of described rows of floats, shape (batch, rows, k), at so many digits, the last few summed."""
    batch, m, k = rows.x.shape
    x, library = rows.unscaled, compiled()
    bits = rows.on_host.bits(Digits(digits).scaling(k))
    doubled = 2 * (8 * digits - 1 - bits)  # 4**h = 2**doubled
    mu = rows.on_host.exponents(Digits(digits).scaling(k))
    squares = rows.on_host.squares
    if can_see(x, digits, last) and isinstance(library, Compiled):
        return _scaled_up(*row_statistics(library.library, x, rows.on_host.top, mu, last), doubled, squares)
    inexact, low = np.zeros((batch, m), np.int64), np.zeros((last, batch, m), np.int64)
    counts = np.zeros((batch, m, THRESHOLDS), np.int64)
    for b, r in tiles_of_rows(batch, m, k, TILE):
        for h in range(0, k, TILE):
            values = x[b, r, h : h + TILE].astype(np.float64)
            if not rows.finite:
                values[~np.isfinite(values)] = 0
            _add_digits(values, mu[b, r], inexact[b, r], low[:, b, r])
            counts[b, r] += _counted(values, rows.on_host.top[b, r])
    return _scaled_up(inexact, low, np.cumsum(counts, axis=-1, out=counts), doubled, squares)


def _scaled_up(inexact: Ints, low: Ints, counts: npt.NDArray[Any], doubled: Ints, squares: Ints) -> RowStatistics:
    """The statistics from sums without their powers of 4, in which 4**h is 2**doubled."""
    inexact <<= doubled
    for i, each in enumerate(low[::-1]):
        each <<= doubled + 16 * i
    return RowStatistics(inexact, low, squares, counts)


def _add_digits(x: Floats, mu: Ints, inexact: Ints, low: Ints) -> None:
    """Add the elements x of some rows, whose images have exponents mu: the rounded ones, and squares of digits."""
    scaled = x * np.ldexp(1.0, mu.astype(np.int32))[..., None]
    image = np.rint(scaled)
    inexact += np.count_nonzero(image != scaled, axis=-1)
    rest = image.astype(np.int64)
    for of_digit in low[::-1]:
        digit = (rest + 128 & 255) - 128
        of_digit += np.vecdot(digit, digit)
        rest = rest - digit >> 8


def _counted(x: Floats, tops: Ints) -> Ints:
    """Elements between each threshold and the one above it, shape (..., THRESHOLDS)."""
    # The exponent and the two bits after the leading one count the quarters of all binades.
    quarters = np.abs(x).view(np.int64) >> 50
    place = np.minimum((4 * (tops + 1022) + 3)[..., None] - quarters, THRESHOLDS)
    place[quarters == 0] = THRESHOLDS  # zeros, also those of rows of zeros
    rows = place.reshape(-1, place.shape[-1])
    flat = rows + np.arange(len(rows))[:, None] * (THRESHOLDS + 1)
    found = np.bincount(flat.ravel(), minlength=len(rows) * (THRESHOLDS + 1)).reshape(len(rows), THRESHOLDS + 1)
    between: Ints = found[:, :THRESHOLDS].reshape(*tops.shape, THRESHOLDS)
    return between


def summary_of(scheme: RowDigits, columns: Described) -> RowStatistics:
    """The summary of the columns of B, described as rows: of each matrix of a stack one."""
    batch, n, k = columns.x.shape
    found = RowStatistics(
        np.zeros(batch, np.int64),
        np.zeros((scheme.low, batch), np.int64),
        np.zeros(batch, np.int64),
        np.full((batch, THRESHOLDS), k, np.int64),
    )
    for b, r in tiles_of_rows(batch, n, 1, _AT_ONCE):
        part = columns.part(b, r)
        of_part = summarised(statistics_of(part, scheme.columns, scheme.low), part.on_host.peak > 0, k)
        for so_far, more in zip(found, of_part, strict=True):
            at = (slice(None), b) if so_far is found.low else b
            (np.minimum if so_far is found.counts else np.maximum)(so_far[at], more, out=so_far[at])
    return found


_AT_ONCE = 1024
"""Rows whose statistics are held at a time."""

_GATHERED = 2**20
"""Elements of rows that are gathered at a time to find more statistics of theirs, or a row."""


def statistics_bytes(batch: int, rows: int, k: int) -> int:
    """Bytes that are held at most while the kinds of such rows are found, or they are summarised."""
    of_rows = min(batch * rows, max(_AT_ONCE, rows))
    gathered = 4 * min(of_rows * k, max(_GATHERED, k))
    return 8 * (6 * THRESHOLDS * min(of_rows, _AT_ONCE) + 8 * min(TILE, of_rows * k)) + gathered + OBJECTS


def kinds_of(scheme: RowDigits, rows: Described, summary: RowStatistics) -> tuple[Kinds, float]:
    """The kinds of rows of A, shape (batch, rows), and the largest proven error relative to abs(A) abs(B).

    Those of matrix b follow from the summary of matrix b of B, or of its only one.
    """
    batch, m, k = rows.x.shape
    kinds, worst = np.full((batch, m), EXACT, np.int8), 0.0
    for b, r in tiles_of_rows(batch, m, 1, _AT_ONCE):
        some = rows.part(b, r)
        several = slice(0, 1) if len(summary.squares) == 1 else b
        of_matrices = of_rows(summary, (several,))
        matrices = np.arange(len(of_matrices.squares)).repeat(
            some.x.shape[0] * some.x.shape[1] // len(of_matrices.squares)
        )
        found = np.full(len(matrices), EXACT, np.int8)
        left = np.arange(len(matrices))
        for digits in scheme.kinds:
            step = len(left) if digits == scheme.fewest else max(1, min(len(left), _GATHERED // max(k, 1)))
            for first in range(0, len(left), max(step, 1)):
                at = left[first : first + step]
                part = some if len(at) == len(matrices) else _gathered(some, at)
                proven, ratio = _proven(scheme, digits, part, of_matrices, matrices[at])
                found[at[proven]] = digits
                worst = max(worst, ratio)
            left = left[found[left] == EXACT]
        kinds[b, r] = found.reshape(some.x.shape[:2])
    return kinds, worst


def _gathered(rows: Described, at: npt.NDArray[np.intp]) -> Described:
    """Some rows, counted through all matrices, as one matrix."""
    index = np.divmod(at, rows.x.shape[1])
    return Described(rows.unscaled[index][None], np.ascontiguousarray(rows.fields[:, *index])[:, None], rows.finite)


def _proven(
    scheme: RowDigits, digits: int, rows: Described, summary: RowStatistics, matrices: Ints
) -> tuple[npt.NDArray[np.bool_], float]:
    """Which rows so many digits are proven for, shape (rows,) of all matrices, and the largest error of these."""
    k = rows.x.shape[2]
    inexact, low, squares, counts = statistics_of(rows, digits, scheme.low)
    flat = RowStatistics(inexact.ravel(), low.reshape(len(low), -1), squares.ravel(), counts.reshape(-1, THRESHOLDS))
    error = errors(scheme, digits, k, flat, of_rows(summary, (matrices,)))
    tables, library = least_tables(k, summary.counts), compiled()
    if flat.counts.dtype == np.int32 and isinstance(library, Compiled):
        least = as_units(least_by_library(library.library, flat.counts, tables, matrices))
    else:
        least = as_units(least_products(k, flat.counts, tables, matrices))
    proven = error <= scheme.tolerance * least
    some = proven & (error > 0)
    return proven, float((error[some] / least[some]).max(initial=0.0))
