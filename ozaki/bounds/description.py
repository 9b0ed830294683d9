"""What the describing pass finds in an operand, as integers (docs/definitions.md, section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.schemes import Scaling, magnitude_bits
from ozaki.schemes.image import EMPTY_TOP

FIELDS = ("top", "peak", "magnitudes", "squares", "bottom", "nonfinite")

NO_SPAN = 2**16
"""More than top - bottom of any row."""

Ints = npt.NDArray[np.int64]


SAMPLED = 384
"""Elements at the beginning of a row that are looked at, at most, to tell what is ordinary.

Of 16384 rows of normal data each has 0.53 times as many or more that count in B9; with 256 0.51, and half is too few.
"""


@dataclass(frozen=True)
class Description:
    """The fields of a description, each of shape (batch, rows)."""

    k: int
    top: Ints
    peak: Ints
    magnitudes: Ints
    squares: Ints
    bottom: Ints
    nonfinite: Ints

    @cached_property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Rows without a nonzero finite element."""
        rows: npt.NDArray[np.bool_] = self.peak == 0
        return rows

    @cached_property
    def filled(self) -> slice | npt.NDArray[np.bool_]:
        """What selects the rows that are not empty, most often all."""
        return slice(None) if self.peak.all() else ~self.empty

    @cached_property
    def sums(self) -> npt.NDArray[np.float64]:
        """Upper bounds of sum abs(x) 2**-top."""
        return self.magnitudes.astype(np.float64) * 2.0 ** -magnitude_bits(self.k)

    @cached_property
    def least_sums(self) -> npt.NDArray[np.float64]:
        """Lower bounds of sum abs(x) 2**-top: rounding magnitudes up added at most k units."""
        lower = np.multiply(self.magnitudes - self.k, 2.0 ** -magnitude_bits(self.k))
        np.maximum(lower, 0.5, out=lower)  # the largest element alone is at least 1/2
        if not isinstance(self.filled, slice):
            lower[self.empty] = 0.0
        return lower

    @property
    def least_elements(self) -> float:
        """Lower bound of (sum abs(x))**2 / sum x**2 over all rows that are not empty: so many elements, if equal."""
        sums = self.least_sums[self.filled]
        return float((sums * sums / self.squares[self.filled]).min(initial=inf)) * 4.0 ** magnitude_bits(self.k)

    @cached_property
    def norms(self) -> npt.NDArray[np.float64]:
        """Lower bounds of norm(x) 2**-top: rounding magnitudes up added at most sqrt(k) units."""
        unit = 2.0 ** -magnitude_bits(self.k)
        lower = (np.sqrt(self.squares.astype(np.float64)) - np.sqrt(self.k)) * unit * (1 - 2.0**-40)
        return np.where(self.empty, 0.0, np.maximum(lower, 0.5))  # the largest element alone is at least 1/2

    def below(self, exponent: int) -> npt.NDArray[np.bool_]:
        """Rows that may hold a nonzero element below 2**(top + exponent)."""
        rows: npt.NDArray[np.bool_] = ~self.empty & (self.least < self.top + exponent)
        return rows

    @cached_property
    def least(self) -> Ints:
        """Exponents of the smallest nonzero elements, or less: none is below 2**least.

        `bottom` is that of short rows, whose elements are multiples of it, or 24 or 53 below an element's exponent; 24
        exceeds the magnitude bits, so it tells which.
        """
        short = self.bottom >= self.top - magnitude_bits(self.k)
        return np.where(short, self.bottom, self.bottom + 23)

    def bits(self, scaling: Scaling) -> Ints:
        """Bits of each row's image: mu + top."""
        statistic = self.peak if scaling.statistic == "peak" else self.squares
        shift = scaling.step.bit_length() - 1
        limits = [scaling.threshold >> (shift * g) for g in range(1, 63 // shift) if scaling.threshold >> (shift * g)]
        # statistic * step**g <= threshold for g = 1, 2, ...: count the limits it stays below.
        ascending = np.array(limits[::-1], np.int64)
        growth = len(limits) - np.searchsorted(ascending, statistic, side="left")
        return scaling.base + growth.astype(np.int64)

    def exponents(self, scaling: Scaling) -> Ints:
        """The image exponents mu."""
        return np.where(self.empty, 0, self.bits(scaling) - self.top)

    def rounded(self, scaling: Scaling) -> npt.NDArray[np.bool_]:
        """Rows whose image may differ from 2**mu x."""
        return ~self.empty & (self.exponents(scaling) + self.bottom < 0)


class Least(NamedTuple):
    """The least numbers of rows of which some elements were described, over those that are not empty.

    Attributes
    ----------
    elements : least_sums**2 / squares, with squares in units of 2**(2 top)
    sums : least_sums
    steps : top of what was described minus that of the whole row
    told : whether each row that has elements showed some
    """

    elements: float
    sums: float
    steps: int
    told: bool

    @classmethod
    def of(cls, some: Description, whole: Description) -> Least:
        """Of the descriptions of some elements and of all."""
        rows, tops = some.filled, whole.top
        told = isinstance(rows, slice) or not (tops[~rows] != EMPTY_TOP).any()
        steps = int((some.top - tops)[rows].min(initial=0))
        return cls(some.least_elements, float(some.least_sums[rows].min(initial=inf)), steps, told)


def empty_fields(batch: int, rows: int) -> Ints:
    """The description of rows without elements."""
    fields = np.zeros((len(FIELDS), batch, rows), np.int64)
    fields[FIELDS.index("top")] = fields[FIELDS.index("bottom")] = EMPTY_TOP
    return fields
