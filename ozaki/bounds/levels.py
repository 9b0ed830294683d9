"""Levels of the lower bound of (abs(A) abs(B))_ij that componentwise proofs compare with (B7; docs/bounds.md).

The lower bounds are products of magnitudes that are exact integers, so every backend finds the same worst ratios. A
level costs more than the one before it and is sharper:

"sampled"  7-bit magnitudes of the first SAMPLE of every EVERY inner indices, for k > MOST_UNSAMPLED; of complex
           operands the first SAMPLE of every EVERY / 2
"narrow"   7-bit magnitudes of all inner indices
"wide"     magnitudes of `wide_bits(k)` bits of all inner indices, as a float64 product
"""

from __future__ import annotations

from typing import Literal

Level = Literal["sampled", "narrow", "wide"]

SAMPLE, EVERY = 32, 128
"""The sampled level reads the first SAMPLE of every EVERY inner indices of real operands."""

SAMPLED_EVERY = {1: EVERY, 2: EVERY // 2}
"""Of how many inner indices the sampled level reads the first SAMPLE, by the real parts of an element.

Of complex elements it reads half of them, since the bounds of ordinary ones are looser by the root of 2 (B11).
"""

MOST_UNSAMPLED = 1024
"""Largest k without a sampled level: all of k is read from the start."""

NARROW_BITS = 7
"""Bits of the magnitudes of the sampled and the narrow level: int8."""

NARROW_DEPTH = 2**17 - 128
"""Most inner indices that the sampled and the narrow level read, so that their sums fit int32."""

FEW_ROWS = 128
"""Rows of A compared first, to rule out a scheme before it is compared in all rows."""


def levels(k: int) -> tuple[Level, ...]:
    """The levels for inner dimension k, the cheapest first."""
    return ("sampled", "narrow", "wide") if k > MOST_UNSAMPLED else ("narrow", "wide")


def wide_bits(k: int) -> int:
    """Bits of magnitudes whose products a float64 accumulator sums exactly over k."""
    return min(21, (53 - (max(k, 2) - 1).bit_length()) // 2)


def bits_of(level: Level, k: int) -> int:
    """Bits of a level's magnitudes: its products are in units of 4**-bits."""
    return wide_bits(k) if level == "wide" else NARROW_BITS
