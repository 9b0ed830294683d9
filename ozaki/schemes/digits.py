"""Scheme I: balanced digits, one shared exponent a row (Ozaki, Ogita, Oishi, Rump 2012; docs/definitions.md, 3)."""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal

from ozaki.caches import cached
from ozaki.schemes.image import Scaling, ceil_log2, max_scaling

MAX_DIGITS = 64
"""The largest `Digits.count` that a caller may give: images then have 511 bits, more than twice what "qd" needs.

Nothing else limits the count; that of products grows with its square.
"""


@dataclass(frozen=True)
class Digits:
    """`count` balanced digits of `bits` bits for each element; the pairs with s + t <= count + 1 are multiplied.

    Parameters
    ----------
    count : int
        Number of digits p, the most significant first.
    bits : int
        8 (an int8 with no bit wasted), 7 (as in the first int8 implementations), or what FP16 products leave exact. Of
        these alone kernels know; NumPy takes up to 22, whose products float64 still adds exactly over a slab.
    word : {"int8", "fp16"}
        The format in which tensor cores multiply digits; a product has the same bits with either.
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
    @cached(256)
    def products(self) -> int:
        """Number of slice products."""
        return self.count * (self.count + 1) // 2

    @property
    @cached(256)
    def largest(self) -> int:
        """The largest integer that `count` digits represent: every digit is 2**(bits-1) - 1."""
        r = self.bits
        return ((1 << (r - 1)) - 1) * ((1 << (r * self.count)) - 1) // ((1 << r) - 1)

    @cached(1024)
    def scaling(self, k: int) -> Scaling:
        """The rule of max scaling for rows of length k, which determines their exponents."""
        return max_scaling(self.largest, self.bits * self.count - 1, k)

    @property
    @cached(256)
    def drop(self) -> float:
        """Largest absolute value, for each inner index, of the pairs of digits that are left out of Cbar.

        For each digit s >= 2 of the left element, the digits t > p + 1 - s of the right one are left out; together they
        are at most half a unit of the last digit that is kept, times 2**r / (2**r - 1) (docs/bounds.md, B1).
        """
        r, p = self.bits, self.count
        low = 2.0 ** (r - 1) / (2.0**r - 1)  # of the digits left out, in units of the last digit kept
        return (p - 1) * 2.0 ** (r - 1) * low * 2.0 ** (r * (p - 1))

    def dropped(self, k: int, spans: tuple[int, int]) -> float:
        """Largest absolute value of the pairs of digits that are left out of an entry of Cbar (docs/bounds.md, B1).

        Zero where trailing digits that are zero make all these pairs vanish. `spans`: the largest exponent span, top -
        bottom, of a row of the left and of the right operand. An image has scaling.base bits or more, so it is a
        multiple of 2**(scaling.base - span), and its last (scaling.base - span) // bits digits are zero.
        """
        base = self.scaling(k).base
        used = sum(self.count - max(base - span, 0) // self.bits for span in spans)
        return k * self.drop if used > self.count + 1 else 0.0

    @property
    @cached(256)
    def usual_drop(self) -> float:
        """Estimated root mean square, for ordinary operands, of what is left out of Cbar for each inner index."""
        radix, p = 2.0**self.bits, self.count
        return sqrt(p - 1) * radix**2 / 12 * radix ** (p - 2)

    @property
    @cached(256)
    def growth(self) -> int:
        """Least factor by which error bounds grow when a digit is taken away (`ExactScheme.growth`).

        A digit adds `bits` bits, but a third digit doubles the pairs that are left out, which takes one bit back. A
        single digit leaves no pair out, so its error may be no larger than that of two: then the factor is 0.
        """
        return 2 ** (self.bits - 1) if self.count > 2 else 0

    def depth(self, diagonals_limit: int = 2**31) -> int:
        """Largest k for which no sum of a diagonal, even of the longest one, reaches `diagonals_limit`."""
        return (diagonals_limit - 1) // (self.count << (2 * (self.bits - 1)))


LEAST_FP16_BITS, MOST_FP16_BITS = 2, 12
"""Fewest and most bits of an FP16 digit; FP16 represents balanced digits of up to 12 bits."""


def fp16_digit_bits(k: int) -> int:
    """Most bits of digits whose FP16 products an FP32 accumulator adds exactly over k: k 2**(2 (bits-1)) <= 2**24.

    Mukunoki, Ozaki, Ogita and Imamura (ISC 2020).
    """
    return max(LEAST_FP16_BITS, min(MOST_FP16_BITS, (24 - ceil_log2(max(k, 1))) // 2 + 1))


def fp16_depth(bits: int) -> int:
    """Largest k over which an FP32 accumulator adds products of FP16 digits of `bits` bits exactly."""
    return 2**24 >> 2 * (bits - 1)


@dataclass(frozen=True)
class Rectangle:
    """Digit pairs that one matrix product multiplies: left digits s0+1..s0+rows, right digits t0+1..t0+cols."""

    s0: int
    rows: int
    t0: int
    cols: int


@cached(1024)
def rectangles(count: int, span: int) -> tuple[Rectangle, ...]:
    """Cover the pairs s + t <= count + 1, each once, by few rectangles with rows + cols <= span.

    Float64 BLAS, whose products are exact for more bits than a digit has, multiplies several digits at once; span = 2
    gives single pairs of digits, as an int8 machine multiplies them.
    """
    return tuple(_tile(count, span, 0, 0))


@cached(1024)
def _cost(size: int, span: int) -> tuple[int, int]:
    """Fewest rectangles that cover a triangle of `size` rows and columns, and the height of the first of them."""
    if size == 0:
        return 0, 0
    return min(
        (-(-(size + 1 - rows) // (span - rows)) + _cost(rows - 1, span)[0] + _cost(size - rows, span)[0], rows)
        for rows in range(1, min(size, span - 1) + 1)
    )


def _tile(size: int, span: int, s0: int, t0: int) -> list[Rectangle]:
    """Cover the triangle of `size` rows and columns whose corner is the pair (s0 + 1, t0 + 1)."""
    if size == 0:
        return []
    rows = _cost(size, span)[1]
    width = size + 1 - rows
    step = span - rows
    first = [Rectangle(s0, rows, t0 + c, min(step, width - c)) for c in range(0, width, step)]
    return first + _tile(rows - 1, span, s0, t0 + width) + _tile(size - rows, span, s0 + rows, t0)
