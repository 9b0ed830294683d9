"""Eigenvalues of Hermitian matrices, each the nearest float.

Whether an eigenvalue is below a boundary m between two floats, on it or above, exact elimination of A - m I tells: how
many eigenvalues are negative there, and how many zero (Sylvester's law of inertia).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import inside, step
from ozaki.linalg.common.arrays import array_library, exactly_on_host
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.targets import MOST_BITS, Target
from ozaki.linalg.common.upper import LEAST, UP
from ozaki.linalg.nearest.bounds import vector_errors
from ozaki.linalg.nearest.intervals import Interval, Rounded, exponent_of, rounded
from ozaki.linalg.nearest.settling import AFFORDABLE, levels
from ozaki.linalg.nearest.wholes import bits_of, inertia, wholes_of, work
from ozaki.linalg.systems.solution import too_small
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved
from ozaki.multiprecision.objects import mparray
from ozaki.records.formats import part_of


def nearest_eigenvalues(
    a: Any, target: Target, decompose: Callable[[int], Any], places: slice
) -> tuple[Any, Bounds, int]:
    """Eigenvalues of a Hermitian matrix, ascending, rounded to nearest, their error bounds, and corrections.

    Bounds are relative to the largest eigenvalue, or, if the target is "relative", to each.

    Parameters
    ----------
    a : array or MPArray, shape (n, n)
    target : of which the format, that of the matrix, and the measure count
    decompose : a function of a number of bits that returns `values`, an `MPArray`, and an `error_bound` relative to
        the largest of them, as `eigh` does
    places : of the eigenvalues that are wanted

    Raises
    ------
    numpy.linalg.LinAlgError
        If an eigenvalue is zero, or lies on a boundary between two floats, and the matrix is too large to decide it.
    OverflowError
        If an eigenvalue is too large for the dtype, or all, of a "relative" target one of them, are too small.
    """
    part = part_of(target.dtype)
    matrix = exactly_on_host(a)
    values, steps = np.full(len(matrix), np.nan, part), 0
    zero = np.zeros(len(matrix), bool)  # known to be zero, and not only rounded to it
    wanted = np.zeros(len(matrix), bool)
    wanted[places] = True
    for place, bits in enumerate(levels(96) if len(matrix) else ()):
        try:
            with inside():
                found = decompose(bits)
        except np.linalg.LinAlgError:
            if place == 0:
                raise
            break
        near, steps = moved(found.values, np), found.iterations
        top = int(near.exponents[near.signs != 0].max()) if near.signs.any() else 0
        if target.measure == "normwise" and place == 0:  # the largest one is needed for bounds, too
            outer = abs(near.ldexp(-top).astype("float64"))[[0, -1]]
            wanted[[0, -1]] |= outer > outer.max() / 2
        ends = rounded(Interval(near, np.asarray(top + exponent_of(found.error_bound) + 1)), part)
        now = np.isnan(values) & ends.decided & ~ends.may_vanish
        values, zero = np.where(now, ends.low, values), zero | (now & (near.signs == 0))
        open_ones = np.flatnonzero(np.isnan(values) & wanted)
        step("intervals of %d bits: %d eigenvalues are undecided", bits, len(open_ones))
        for k in open_ones:
            zero[k] = ends.low[k] <= 0 <= ends.high[k] and _place(matrix, int(k), mparray(0.0)) == 0
            values[k] = 0 if zero[k] else _decided(matrix, int(k), ends, values[k])
        values[np.isnan(values) & ends.decided] = 0
        if np.isinf(values[places]).any():
            raise OverflowError(f"dtype: an eigenvalue is too large for {part}; ask for dtype='mp'")
        if not np.isnan(values[wanted]).any():
            break
    if (missing := np.flatnonzero(np.isnan(values) & wanted)).size:
        raise np.linalg.LinAlgError(
            f"reproducible: eigenvalue {missing[0]} is 0, or lies on a boundary between two floats, or nearer to one "
            f"than 2^-{MOST_BITS} of the largest, and the matrix is too large to decide it exactly; leave "
            "reproducible=False"
        )
    largest = min(float(abs(values[wanted]).max(initial=0.0)), float(np.finfo(part).max))
    values = values[places]
    vanished = (values == 0) & ~zero[places]
    if vanished.any() and (target.measure == "relative" or not largest):
        too_small(part)
    errors = np.where(values == 0, 0.0, vector_errors(values[None], 0))
    if target.measure == "normwise" and values.size:
        errors = errors * (abs(values).astype(np.float64) / (largest or 1.0)) * UP
        # Half the smallest number, relative to the largest value; and no bound is zero because it underflowed.
        errors[vanished] = 0.5 / (largest / float(np.finfo(part).smallest_subnormal)) * UP if largest else 0.0
        errors = np.where(zero[places], errors, np.maximum(errors, LEAST))
    return array_library(a).asarray(values), errors, steps


def _decided(a: MPArray, k: int, ends: Rounded, unknown: Any) -> Any:
    """The k-th eigenvalue, rounded, if the matrix is small enough to decide it, and its interval narrow enough."""
    low, high = ends.low[k], ends.high[k]
    if low == high or np.nextafter(low, high) != high:
        return unknown
    boundary = _middle(low, high)
    place = _place(a, k, boundary)
    if place is None:
        return unknown
    even = low if _is_even(low) else high
    return even if place == 0 else low if place < 0 else high


def _middle(low: Any, high: Any) -> MPArray:
    """The boundary between two neighbours; beyond the largest float, where the next one would be."""
    if np.isfinite(low) and np.isfinite(high):
        return (mparray(np.float64(low)) + mparray(np.float64(high))).ldexp(-1)
    finite = low if np.isfinite(low) else high
    return mparray(np.float64(finite)) + mparray(np.float64(np.spacing(finite))).ldexp(-1)


def _is_even(x: npt.NDArray[Any]) -> bool:
    """Whether the last bit of a float is 0; Inf counts as even, as rounding goes."""
    return int(np.asarray(x).view(f"u{x.dtype.itemsize}")) % 2 == 0


def _place(a: MPArray, k: int, boundary: MPArray) -> int | None:
    """-1, 0 or 1 where the k-th eigenvalue is below, at or above a number; None if that takes too long to find."""
    shifted = MPArray._of(a - mparray(np.eye(len(a))) * boundary)
    if work(len(a), len(a), len(a), bits_of(shifted), shifted.is_complex) >= AFFORDABLE:
        return None
    negative, zero = inertia(wholes_of(shifted)[0])
    return -1 if k < negative else 0 if k < negative + zero else 1
