"""Sampled entries of a product beside the exact ones, in integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

import ozaki
from ozaki import reference
from ozaki._cli.files import Matrix
from ozaki._cli.sampling import Array, Sample, out_of_range
from ozaki.records.accuracy import Measure
from ozaki.reference._exact import aligned, exact_parts, finite_elements, integers_of, parts_of
from ozaki.reference._measures import root_up, squared_norms
from ozaki.reference._moduli import moduli_from_below

Parts = tuple[int, ...]
"""A number: itself, or the real and the imaginary part of a complex one."""


@dataclass(frozen=True)
class Entry:
    """An entry of a product, and the exact one. Numbers are integers in units of 2**unit.

    Attributes
    ----------
    place : its indices in the stack of products, the last two of them row and column
    found, exact : the number in the product (of NaN or Inf, 0), and the exact one
    halves : half a unit in the last place of each part of the number in the product; 0 of a number that is not rounded
    total : (abs(A) abs(B)), the sum of the absolute values of the terms that the exact number is the sum of; of complex
        terms up to 2**-127 of it less
    """

    place: tuple[int, ...]
    unit: int
    found: Parts
    exact: Parts
    halves: Parts
    total: int

    @property
    def squared_error(self) -> int:
        """The square of abs(c - C), c the number in the product and C the exact one."""
        return sum((c - exact) ** 2 for c, exact in zip(self.found, self.exact, strict=True))

    @property
    def squared_error_before_rounding(self) -> int:
        """The square of the least abs(y - C) of the numbers y within half a unit in the last place of c."""
        parts = zip(self.found, self.exact, self.halves, strict=True)
        return sum(max(abs(c - exact) - half, 0) ** 2 for c, exact, half in parts)

    @property
    def squared_exact(self) -> int:
        """The square of abs(C)."""
        return sum(exact**2 for exact in self.exact)

    @property
    def componentwise(self) -> float:
        """Log2 of the error over `total`."""
        return log2_ratio(self.squared_error, self.total**2)

    def componentwise_error(self) -> float:
        """Return the error over `total`, rounded up."""
        return root_up(self.squared_error, self.total**2, 0)

    @property
    def relative(self) -> float:
        """Log2 of the error over the exact number."""
        return log2_ratio(self.squared_error, self.squared_exact)

    @property
    def cancelled(self) -> float:
        """Log2 of `total` over the exact number: how many bits cancel."""
        return log2_ratio(self.total**2, self.squared_exact)


@dataclass(frozen=True)
class Compared:
    """The sample of one matrix beside the exact product.

    Attributes
    ----------
    sample : what was compared
    entries : those that were compared
    nonfinite : those that are NaN or Inf, though the exact number neither over- nor underflows
    skipped : number of all others: NaN or Inf in A or B touch them, or the exact number over- or underflows
    """

    sample: Sample
    entries: list[Entry]
    nonfinite: list[Entry]
    skipped: int

    def squares(self, measure: Measure) -> tuple[list[tuple[int, int]], int]:
        """Return squared errors before rounding, and the squares that a measure compares them with.

        Returns
        -------
        pairs : list of (error, scale)
        exponent : int
            ``error / scale * 2**exponent`` are the squares of the errors in that measure.
        """
        errors = [entry.squared_error_before_rounding for entry in self.entries]
        if measure == "componentwise":
            return [(x, entry.total**2) for x, entry in zip(errors, self.entries, strict=True)], 0
        if measure == "relative":
            return [(x, entry.squared_exact) for x, entry in zip(errors, self.entries, strict=True)], 0
        a, b = self.sample.a, self.sample.b
        if measure == "normwise":
            rows, cols = (np.flatnonzero(finite_rows(x)).tolist() for x in (a, b.T))
        else:
            rows, cols = (sorted({entry.place[axis] for entry in self.entries}) for axis in (-2, -1))
        (left, left_unit), (right, right_unit) = squared_norms(a[rows]), squared_norms(b[:, cols].T)
        exponent = 2 * self.entries[0].unit - left_unit - right_unit if self.entries else 0
        if measure == "normwise":
            return [(sum(errors), sum(left) * sum(right))], exponent
        of_rows, of_cols = (dict(zip(x, y, strict=True)) for x, y in ((rows, left), (cols, right)))
        scales = [of_rows[entry.place[-2]] * of_cols[entry.place[-1]] for entry in self.entries]
        return list(zip(errors, scales, strict=True)), exponent


def compared(sample: Sample, rounded: bool) -> Compared:
    """Compare a sample with the exact product; `rounded` says whether its numbers are rounded ones, as floats are."""
    rows = sample.rows[finite_rows(sample.a[sample.rows])]
    cols = sample.cols[finite_rows(sample.b[:, sample.cols].T)]
    a, b, c = sample.a[rows], sample.b[:, cols], sample.c[rows][:, cols]
    exact, unit = exact_parts(a, b)
    taken = finite = np.ones(c.shape, bool)
    if not isinstance(c, ozaki.MPArray):
        taken = ~np.any([out_of_range(part, unit, c.dtype) for part in exact], axis=0)
        finite = np.isfinite(c)
        c = np.where(finite, c, 0)
    (of_found, of_exact, of_halves, (totals,)), unit = _in_one_unit(
        [_integers(part) for part in parts_of(c)],
        [(part, unit) for part in exact],
        [_half_units_in_the_last_place(part) for part in parts_of(c) if rounded],
        [reference.exact_matmul(moduli_from_below(a), moduli_from_below(b))],
    )

    def entry(i: int, j: int) -> Entry:
        # A real number beside a complex one has the imaginary part 0.
        parts = zip_longest(*([part[i, j] for part in x] for x in (of_found, of_exact, of_halves)), fillvalue=0)
        found, exact, halves = zip(*parts, strict=True)
        return Entry((*sample.place, int(rows[i]), int(cols[j])), unit, found, exact, halves, totals[i, j])

    entries, nonfinite = ([entry(i, j) for i, j in np.argwhere(x).tolist()] for x in (taken & finite, taken & ~finite))
    skipped = sample.rows.size * sample.cols.size - len(entries) - len(nonfinite)
    return Compared(sample, entries, nonfinite, skipped)


def finite_rows(x: Any) -> Array:
    """Return which rows have no NaN and no Inf."""
    return np.asarray(finite_elements(x).all(axis=-1))


def log2_ratio(square: int, other: int) -> float:
    """Return log2 of the square root of square / other: -inf for 0, whatever it is divided by, and inf for x / 0."""
    if not square or not other:
        return math.inf if square else -math.inf
    return (math.log2(square) - math.log2(other)) / 2


def _in_one_unit(*groups: list[tuple[Array, int]]) -> tuple[list[list[Array]], int]:
    """Return groups of arrays (integers, exponent) as integers in units of 2**unit, one for all, and the unit."""
    numbers, unit = aligned([number for group in groups for number in group])
    left = iter(numbers)
    return [[next(left) for _ in group] for group in groups], unit


def _integers(x: Matrix) -> tuple[Array, int]:
    """Return a real matrix as (integers, exponent)."""
    (integers,), exponent = integers_of(x)
    return integers, exponent


def _half_units_in_the_last_place(x: Matrix) -> tuple[Array, int]:
    """Return half a unit in the last place of real numbers as (integers, exponent); 0 of a multiprecision 0."""
    if isinstance(x, ozaki.MPArray):
        units = ozaki.mparray((x.signs != 0).astype(np.int64)).ldexp(x.exponents - x.bits)
    else:
        units = np.spacing(abs(x))
    integers, exponent = _integers(units)
    return integers, exponent - 1
