"""Scheme I with digits counted row by row, for products of 16-bit floats (docs/definitions.md, 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ozaki.caches import cached
from ozaki.schemes.digits import Digits
from ozaki.schemes.image import Scaling

LONGEST = 2**24
"""Largest k for which the proof of a row is made, in int64; longer rows are all exact."""

THRESHOLDS = 64
"""Numbers that elements of a row are counted against: four to each power of two, so down to 2**-16."""

THRESHOLD_BITS = 19
"""Thresholds are integers in units of 2**-THRESHOLD_BITS."""


class Sixteen(NamedTuple):
    """A format of 16 bits, and how products in it are multiplied.

    Attributes
    ----------
    precision : bits of the significand, of which the first is not stored
    least : exponent of the smallest number
    infinity : bits of Inf
    columns : digits of each column of B
    kinds : digits that a row of A may have, the fewest first, none fewer than those of a column; a row that none of
        them is proven for is exact
    """

    precision: int
    least: int
    infinity: int
    columns: int
    kinds: tuple[int, ...]


FORMATS = {
    "bfloat16": Sixteen(precision=8, least=-133, infinity=0x7F80, columns=2, kinds=(2, 3)),
    "float16": Sixteen(precision=11, least=-24, infinity=0x7C00, columns=3, kinds=(3, 4)),
}
"""The formats of 16 bits by name."""


@cached(1)
def thresholds() -> tuple[int, ...]:
    """th_b 2**THRESHOLD_BITS, th_b = (1 - (b % 4 + 1) / 8) 2**-(b // 4), for b = 0, 1, ...; descending."""
    return tuple((7 - b % 4) << THRESHOLD_BITS - 3 >> b // 4 for b in range(THRESHOLDS))


@cached(1)
def steps() -> tuple[int, ...]:
    """th_b - th_(b+1) in the same units, and the last threshold itself: what is above each one sums to it."""
    found = thresholds()
    return tuple(x - y for x, y in zip(found, (*found[1:], 0), strict=True))


@dataclass(frozen=True)
class RowDigits:
    """Products of 16-bit floats rounded once to 16 bits, whose rows have as many digits as each one needs.

    The columns of B have `columns` digits of 8 bits. A row of A has the fewest digits of `kinds` for which its own
    description and a summary of B prove `tolerance` (docs/bounds.md, B15), whatever other rows there are. Every entry
    of a row for which none does is the exact inner product, rounded once.

    Parameters
    ----------
    format : {"bfloat16", "float16"}
        Of the result.
    """

    format: str

    exact: ClassVar[bool] = True
    """Slice products and their sums are exact: the bits are the same on every backend."""

    name: ClassVar[str] = "row-digits"

    @property
    def sixteen(self) -> Sixteen:
        """What is known of the format."""
        return FORMATS[self.format]

    @property
    def columns(self) -> int:
        """Digits q of each column of B."""
        return self.sixteen.columns

    @property
    def kinds(self) -> tuple[int, ...]:
        """Digits p that a row of A may have, the fewest first."""
        return self.sixteen.kinds

    @property
    def fewest(self) -> int:
        """Digits p of most rows of A."""
        return self.kinds[0]

    @property
    def low(self) -> int:
        """How many of the last digits of rows and of columns are in pairs that are left out (`dropped_pairs`)."""
        return self.columns - 1

    @property
    def tolerance(self) -> float:
        """Proven error before the rounding, in units of abs(A) abs(B): the format's unit roundoff."""
        return 2.0**-self.sixteen.precision

    @property
    def count(self) -> int:
        """Slices of each operand, for most rows."""
        return max(self.fewest, self.columns)

    @property
    def products(self) -> int:
        """Slice products, for most rows."""
        return len(pairs(self.fewest, self.columns))

    def scaling(self, k: int) -> Scaling:
        """The rule that scales most rows of A."""
        return Digits(self.fewest).scaling(k)

    # What else `ExactScheme` asks, of rows with the fewest digits: no plan by this scheme is searched for.

    @property
    def largest(self) -> int:
        """Largest absolute value of an element of an image."""
        return Digits(self.fewest).largest

    @property
    def drop(self) -> float:
        """Largest absolute value of what is left out of an entry of Cbar for each inner index."""
        return Digits(self.count).drop

    def dropped(self, k: int, spans: tuple[int, int]) -> float:
        """Largest absolute value of what is left out of an entry of Cbar."""
        return k * self.drop

    @property
    def usual_drop(self) -> float:
        """Estimated root mean square, for ordinary operands, of what is left out of Cbar for each inner index."""
        return Digits(self.count).usual_drop

    growth: ClassVar[int] = 0
    """No count is searched for."""

    def scaling_of_columns(self, k: int) -> Scaling:
        """The rule that scales the columns of B."""
        return Digits(self.columns).scaling(k)


@cached(64)
def pairs(p: int, q: int) -> tuple[tuple[int, int], ...]:
    """The pairs of digits (s, t) that are multiplied where a row has p of them and a column q, counted from 1."""
    most = max(p, q) + 1
    return tuple((s, t) for s in range(1, p + 1) for t in range(1, q + 1) if s + t <= most)


@cached(64)
def dropped_pairs(p: int, q: int) -> tuple[tuple[int, int], ...]:
    """The pairs of digits that are left out, in the order in which the proof adds what they are at most."""
    kept = pairs(p, q)
    return tuple((s, t) for s in range(1, p + 1) for t in range(1, q + 1) if (s, t) not in kept)
