"""Scheme I: balanced digits with one exponent per row (Ozaki, Ogita, Oishi, Rump 2012; docs/definitions.md, 3)."""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import ClassVar, Literal

from ozaki.schemes.image import Scaling, ceil_log2, max_scaling

MAX_DIGITS = 64


@dataclass(frozen=True)
class Digits:
    """`count` balanced digits of `bits` bits for each element, pairs s + t <= count + 1.

    Parameters
    ----------
    count : int
        Number of digits p, the most significant first.
    bits : int
        8 (an int8 with no bit wasted), 7 (as in the first int8 implementations), or what FP16 products leave exact.
    word : {"int8", "fp16"}
        What a digit is for the tensor cores; a product has the same bits either way.
    """

    count: int
    bits: int = 8
    word: Literal["int8", "fp16"] = "int8"

    exact: ClassVar[bool] = True
    """Slice products and their sums are exact: the bits are the same on every backend."""

    @property
    def name(self) -> str:
        if self.word == "fp16":
            return f"fp16-digits{self.bits}"
        return "digits" if self.bits == 8 else f"digits{self.bits}"

    @property
    def products(self) -> int:
        """Number of slice products."""
        return self.count * (self.count + 1) // 2

    @property
    def largest(self) -> int:
        """The largest integer whose digits exist: all of them 2**(bits-1) - 1."""
        r = self.bits
        return ((1 << (r - 1)) - 1) * ((1 << (r * self.count)) - 1) // ((1 << r) - 1)

    @lru_cache(maxsize=1024)  # noqa: B019 - few at a time, and frozen
    def scaling(self, k: int) -> Scaling:
        """The rule for the rows' exponents."""
        return max_scaling(self.largest, self.bits * self.count - 1, k)

    @property
    def drop(self) -> float:
        """Largest absolute value, for each inner index, of the pairs that are left out.

        For each digit s >= 2 of the left element the digits t > p + 1 - s of the right one are left out; they
        are worth at most half a unit of the last digit kept, times 2**r / (2**r - 1).
        """
        r, p = self.bits, self.count
        low = 2.0 ** (r - 1) / (2.0**r - 1)  # of a unit of the last digit kept
        return (p - 1) * 2.0 ** (r - 1) * low * 2.0 ** (r * (p - 1))

    def dropped(self, k: int, spans: tuple[int, int]) -> float:
        """Largest worth of the pairs that are left out of an entry, in image units (docs/bounds.md, B1).

        Zero where trailing zero digits make them all vanish. The spans are the largest top - bottom of the rows of both
        operands; an image has at least scaling.base bits for them, the rest at its end being zeros.
        """
        base = self.scaling(k).base
        used = sum(self.count - max(base - span, 0) // self.bits for span in spans)
        return k * self.drop if used > self.count + 1 else 0.0

    @property
    def usual_drop(self) -> float:
        """Root mean square of what is left out for each inner index of ordinary data, an estimate."""
        radix, p = 2.0**self.bits, self.count
        return sqrt(p - 1) * radix**2 / 12 * radix ** (p - 2)

    @property
    def growth(self) -> int:
        """Least factor by which the error bound grows when a digit is taken away.

        A digit holds all of its bits, but the third one doubles the pairs that are left out. A single digit leaves none
        out: its error may be no larger than that of two.
        """
        return 2 ** (self.bits - 1) if self.count > 2 else 0

    def depth(self, diagonals_limit: int = 2**31) -> int:
        """Largest k for which the longest diagonal stays below `diagonals_limit`."""
        return (diagonals_limit - 1) // (self.count << (2 * (self.bits - 1)))


LEAST_FP16_BITS, MOST_FP16_BITS = 2, 12
"""FP16 itself holds digits of up to 12 bits."""


def fp16_digit_bits(k: int) -> int:
    """Bits of digits whose FP16 products an FP32 accumulator adds exactly over k: k 2**(2 (bits-1)) <= 2**24.

    Mukunoki, Ozaki, Ogita and Imamura (ISC 2020).
    """
    return max(LEAST_FP16_BITS, min(MOST_FP16_BITS, (24 - ceil_log2(max(k, 1))) // 2 + 1))


def fp16_depth(bits: int) -> int:
    """Largest k that FP16 digits of so many bits leave exact."""
    return 2**24 >> 2 * (bits - 1)


@dataclass(frozen=True)
class Rectangle:
    """A block of digit pairs multiplied at once: left digits s0+1..s0+rows, right digits t0+1..t0+cols."""

    s0: int
    rows: int
    t0: int
    cols: int


@lru_cache(maxsize=1024)
def rectangles(count: int, span: int) -> tuple[Rectangle, ...]:
    """Tile the pairs s + t <= count + 1 by rectangles of rows + cols <= span, with few of them.

    A machine with wide exact products (float64 BLAS) multiplies several digits at once; span = 2 gives the single
    pairs of an int8 machine.
    """
    return tuple(_tile(count, span, 0, 0))


@lru_cache(maxsize=1024)
def _cost(size: int, span: int) -> tuple[int, int]:
    """Fewest rectangles for a triangle of that size, and the height of the first."""
    if size == 0:
        return 0, 0
    return min(
        (-(-(size + 1 - rows) // (span - rows)) + _cost(rows - 1, span)[0] + _cost(size - rows, span)[0], rows)
        for rows in range(1, min(size, span - 1) + 1)
    )


def _tile(size: int, span: int, s0: int, t0: int) -> list[Rectangle]:
    if size == 0:
        return []
    rows = _cost(size, span)[1]
    width = size + 1 - rows
    step = span - rows
    first = [Rectangle(s0, rows, t0 + c, min(step, width - c)) for c in range(0, width, step)]
    return first + _tile(rows - 1, span, s0, t0 + width) + _tile(size - rows, span, s0 + rows, t0)
