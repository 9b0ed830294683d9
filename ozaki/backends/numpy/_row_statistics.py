"""The statistics of rows that decide how many digits each one has, on NumPy (docs/definitions.md, 11)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.bounds.row_digits import Ints, RowStatistics, as_units, errors, least_products, summarised
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes import Digits
from ozaki.schemes.row_digits import THRESHOLDS, RowDigits

Kinds = npt.NDArray[np.int8]
"""Digits of each row; 0 of exact ones."""

EXACT = 0


def statistics_of(rows: Described, digits: int) -> RowStatistics:
    """The statistics of described rows of floats, shape (batch, rows, k), at so many digits."""
    batch, m, k = rows.x.shape
    bits = rows.on_host.bits(Digits(digits).scaling(k))
    doubled = 2 * (8 * digits - 1 - bits)  # 4**h = 2**doubled
    mu = rows.on_host.exponents(Digits(digits).scaling(k))
    inexact, low = np.zeros((batch, m), np.int64), np.zeros((digits - 1, batch, m), np.int64)
    counts = np.zeros((batch, m, THRESHOLDS), np.int64)
    for b, r in tiles_of_rows(batch, m, k, TILE):
        for h in range(0, k, TILE):
            x = rows.unscaled[b, r, h : h + TILE].astype(np.float64)
            if not rows.finite:
                x[~np.isfinite(x)] = 0
            _add_digits(x, mu[b, r], digits, inexact[b, r], low[:, b, r])
            counts[b, r] += _counted(x, rows.on_host.top[b, r])
    inexact <<= doubled
    for s in range(2, digits + 1):
        low[s - 2] <<= doubled + 16 * (digits - s)
    return RowStatistics(inexact, low, rows.on_host.squares, np.cumsum(counts, axis=-1, out=counts))


def _add_digits(x: Floats, mu: Ints, digits: int, inexact: Ints, low: Ints) -> None:
    """Add the elements x of some rows, whose images have exponents mu: the rounded ones, and squares of digits."""
    scaled = x * np.ldexp(1.0, mu.astype(np.int32))[..., None]
    image = np.rint(scaled)
    inexact += np.count_nonzero(image != scaled, axis=-1)
    rest = image.astype(np.int64)
    for s in range(digits, 1, -1):
        digit = (rest + 128 & 255) - 128
        low[s - 2] += np.vecdot(digit, digit)
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
    n, k = columns.x.shape[1:]
    parts = [
        summarised(statistics_of(some, scheme.columns), some.on_host.peak > 0, k)
        for some in (columns.part(slice(None), slice(r, r + _AT_ONCE)) for r in range(0, max(n, 1), _AT_ONCE))
    ]
    inexact, squares = (np.max([getattr(part, name) for part in parts], axis=0) for name in ("inexact", "squares"))
    low, counts = np.max([part.low for part in parts], axis=0), np.min([part.counts for part in parts], axis=0)
    return RowStatistics(inexact, low, squares, counts)


_AT_ONCE = 2048
"""Rows of a matrix whose statistics are held at a time."""


def statistics_bytes(batch: int, rows: int, k: int) -> int:
    """Bytes that are held at most while the kinds of such rows are found, or they are summarised."""
    of_rows = batch * min(rows, _AT_ONCE)
    return 8 * (4 * THRESHOLDS * of_rows + 8 * min(TILE, of_rows * k) + 8 * batch * rows) + OBJECTS


def kinds_of(scheme: RowDigits, rows: Described, summary: RowStatistics) -> tuple[Kinds, float]:
    """The kinds of rows of A, shape (batch, rows), and the largest proven error relative to abs(A) abs(B).

    Those of matrix b follow from the summary of matrix b of B, or of its only one.
    """
    batch, m = rows.x.shape[:2]
    kinds, worst = np.full((batch, m), EXACT, np.int8), 0.0
    for r in range(0, m, _AT_ONCE):
        part = rows.part(slice(None), slice(r, r + _AT_ONCE))
        for b in range(batch):
            of_matrix = part.part(slice(b, b + 1), slice(None))
            found, ratio = _kinds_in(scheme, of_matrix, summary, min(b, len(summary.squares) - 1))
            kinds[b, r : r + _AT_ONCE] = found
            worst = max(worst, ratio)
    return kinds, worst


def _kinds_in(scheme: RowDigits, rows: Described, summary: RowStatistics, b: int) -> tuple[Kinds, float]:
    """The kinds of some rows of one matrix, shape (rows,), and the largest proven error."""
    _, m, k = rows.x.shape
    kinds, worst = np.full(m, EXACT, np.int8), 0.0
    columns = RowStatistics(summary.inexact[b], summary.low[:, b], summary.squares[b], summary.counts[b])
    left = np.arange(m)
    for digits in scheme.kinds:
        some = rows if len(left) == m else Described(
            rows.unscaled[:, left], rows.fields[:, :, left], rows.finite
        )  # fmt: skip
        found = statistics_of(some, digits)
        of_rows = RowStatistics(found.inexact[0], found.low[:, 0], found.squares[0], found.counts[0])
        error = errors(scheme, digits, k, of_rows, columns)
        least = as_units(least_products(k, of_rows.counts, columns.counts))
        proven = error <= scheme.tolerance * least
        kinds[left[proven]] = digits
        ratios = error[proven & (error > 0)] / least[proven & (error > 0)]
        worst = max(worst, float(ratios.max(initial=0.0)))
        left = left[~proven]
        if not len(left):
            break
    return kinds, worst
