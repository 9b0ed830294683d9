"""The fixed-point image: how many bits each row of an operand gets (docs/definitions.md, sections 1 and 2)."""

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, log
from typing import Literal

EMPTY_TOP = -4096
"""`top` and `bottom` of a row without nonzero elements: below every exponent of a float64."""


def ceil_log2(x: int) -> int:
    """Smallest e >= 0 with x <= 2**e."""
    return max(x - 1, 0).bit_length()


@lru_cache(maxsize=1024)
def magnitude_bits(k: int) -> int:
    """Bits W of the magnitudes that a description adds up: k squares of them are at most 2**60."""
    return min(20, (60 - ceil_log2(max(k, 1))) // 2)


@dataclass(frozen=True)
class Scaling:
    """The rule that turns a statistic of a row's description into the bits of its image.

    bits = base + g, with g the largest integer >= 0 for which statistic * step**g <= threshold;
    the row is scaled by 2**(bits - top).
    """

    statistic: Literal["peak", "squares"]
    step: int
    base: int
    threshold: int

    @property
    def room(self) -> float:
        """Bits of the image of a row whose statistic is 1, not yet rounded down to an integer."""
        return self.base + log(self.threshold, self.step)

    def most_bits(self, k: int) -> int:
        """Most bits that the image of a row of length k can have.

        The largest magnitude alone makes the statistic step ** (magnitude_bits(k) - 1) or more.
        """
        steps = (self.threshold.bit_length() - 1) // (self.step.bit_length() - 1)
        return self.base + max(steps - (magnitude_bits(k) - 1), 0)


def norm_scaling(largest_norm: int, k: int) -> Scaling | None:
    """The rule that keeps norm(Abar) <= largest_norm for every row; None if rounding k elements alone may exceed it."""
    width = magnitude_bits(k)
    room = largest_norm - (isqrt(max(k - 1, 0)) // 2 + 1)  # rounding adds at most sqrt(k)/2 to the norm
    if room <= 0:
        return None
    square = room * room
    base = (square.bit_length() - 61) // 2 + width
    shift = 2 * (base - width)
    return Scaling("squares", 4, base, square >> shift if shift >= 0 else square << -shift)


def max_scaling(largest: int, bits: int, k: int) -> Scaling:
    """The rule that keeps abs(Abar) <= largest for every element, where 2**(bits - 1) <= largest < 2**bits."""
    width = magnitude_bits(k)
    base = bits - 1
    shift = width - base - 1
    doubled = 2 * largest - 1  # largest - 1/2: the rounding adds at most 1/2
    return Scaling("peak", 2, base, doubled << shift if shift >= 0 else doubled >> -shift)
