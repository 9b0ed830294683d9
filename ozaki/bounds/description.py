"""What the describing pass finds in an operand, as integers (docs/definitions.md, section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.caches import cached
from ozaki.schemes import Scaling, magnitude_bits
from ozaki.schemes.image import EMPTY_TOP

FIELDS = ("top", "peak", "magnitudes", "squares", "bottom", "nonfinite")

NO_SPAN = 2**16
"""A number above top - bottom of any row."""

LEAST_LEADING = -1000
"""Least exponent of the leading bits of a multiprecision element, relative to the row's top: smaller ones count as that
one, so that they stay nonzero float64 numbers (definitions.md, section 8)."""

Ints = npt.NDArray[np.int64]

SAMPLED = 384
"""Most elements of a row that are sampled (B9, E4): its first ones.

B9 proves something only if in every row more than half of the sampled elements count (its N). Of 16384 rows of normal
data the worst one has 0.53 times 384 of them; with 256 sampled elements it would have 0.51 times 256.
"""


@dataclass(frozen=True)
class Description:
    """The description of rows of length k, each field of shape (batch, rows).

    The rows are 2**scale times those described: `scale` has that shape, too, or is 0.
    """

    k: int
    top: Ints
    peak: Ints
    magnitudes: Ints
    squares: Ints
    bottom: Ints
    nonfinite: Ints
    scale: Ints | int = 0

    def part(self, batch: slice, rows: slice) -> Description:
        """The description of some of the rows of some matrices."""
        fields = {name: getattr(self, name)[batch, rows] for name in FIELDS}
        scale = self.scale if isinstance(self.scale, int) else self.scale[batch, rows]
        return Description(self.k, scale=scale, **fields)

    @cached_property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Rows without a nonzero finite element."""
        rows: npt.NDArray[np.bool_] = self.peak == 0
        return rows

    @cached_property
    def filled(self) -> slice | npt.NDArray[np.bool_]:
        """An index for the rows that are not empty: a slice if that is all of them, as most often, else a mask."""
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
        """Lower bound of (sum abs(x))**2 / sum x**2 of all rows that are not empty; n for a row of n equal elements."""
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
        """Lower bounds of the exponents of nonzero elements: none of a row is below 2**least.

        In a short row all elements are multiples of 2**bottom, bottom = top - W. In any other, bottom lies 24 or 53
        below the frexp exponent of the smallest element: below top - W, since W is at most 20.
        """
        short = self.bottom >= self.top - magnitude_bits(self.k)
        return np.where(short, self.bottom, self.bottom + 23)

    def bits(self, scaling: Scaling) -> Ints:
        """Bits of each row's image: mu + top."""
        statistic = self.peak if scaling.statistic == "peak" else self.squares
        limits = limits_of(scaling)
        # statistic * step**g <= threshold for g = 1, 2, ...: count the limits it stays below.
        found: Ints = (scaling.base + len(limits)) - np.searchsorted(limits, statistic, side="left")
        return found.astype(np.int64, copy=False)

    def exponents(self, scaling: Scaling) -> Ints:
        """The image exponents mu."""
        exponents = self.bits(scaling) - self.top
        if np.count_nonzero(self.peak) < self.peak.size:
            exponents[self.peak == 0] = 0
        return exponents


class Least(NamedTuple):
    """What a sample of each row says of the worst row of an operand: least values over all rows.

    Rows whose sampled elements are all zeros are left out. With the description of a row's sample:

    Attributes
    ----------
    elements : the least `least_sums`**2 / (sum of squares), without unit: at most the number of sampled elements
    sums : the least `least_sums`, each in units of 2**(top of the sample)
    steps : the least (top of the sample) - (top of the whole row), 0 or less
    every_row_seen : whether each row with nonzero elements has some in its sample
    """

    elements: float
    sums: float
    steps: int
    every_row_seen: bool

    @classmethod
    def of(cls, some: Description, whole: Description) -> Least:
        """The least values from two descriptions of the same rows: of `some` elements, the sample, and of all."""
        rows, tops = some.filled, whole.top
        every_row_seen = isinstance(rows, slice) or not (tops[~rows] != EMPTY_TOP).any()
        steps = int((some.top - tops)[rows].min(initial=0))
        return cls(some.least_elements, float(some.least_sums[rows].min(initial=inf)), steps, every_row_seen)


@cached(256)
def limits_of(scaling: Scaling) -> Ints:
    """The numbers threshold step**-g, rounded down, for g = 1, 2, ... as far as they are positive; ascending."""
    threshold, shift = scaling.threshold, scaling.step.bit_length() - 1
    return np.array([limit for g in range(63 // shift, 0, -1) if (limit := threshold >> (shift * g))], np.int64)
