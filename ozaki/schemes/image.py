"""Fixed-point images: how many bits each row gets (docs/definitions.md, 1 and 2), and the schemes that slice them."""

from __future__ import annotations

from dataclasses import Field, dataclass
from math import isqrt, log
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeGuard

from ozaki.caches import cached

if TYPE_CHECKING:
    from ozaki.schemes.words import Words

EMPTY_TOP = -4096
"""`top` and `bottom` of a row without nonzero elements: below every exponent of a float64."""


def ceil_log2(x: int) -> int:
    """Smallest e >= 0 with x <= 2**e."""
    return max(x - 1, 0).bit_length()


@cached(1024)
def magnitude_bits(k: int) -> int:
    """Bits W of the magnitudes that a description adds up: k squares of them are at most 2**60."""
    return min(20, (60 - ceil_log2(max(k, 1))) // 2)


@dataclass(frozen=True)
class Scaling:
    """The rule that turns a statistic of a row's description into the bits of its image.

    bits = base + g, with g the largest integer >= 0 for which statistic * step**g <= threshold;
    the row is scaled by 2**(bits - top). The statistic is of magnitudes of `width` bits (`magnitude_bits`).
    """

    statistic: Literal["peak", "squares"]
    step: int
    base: int
    threshold: int
    width: int

    @property
    def room(self) -> float:
        """Bits of the image of a row whose statistic is 1, not yet rounded down to an integer."""
        return self.base + log(self.threshold, self.step)

    @property
    def most_bits(self) -> int:
        """Most bits that the image of a row can have.

        The largest magnitude alone makes the statistic step ** (width - 1) or more.
        """
        steps = (self.threshold.bit_length() - 1) // (self.step.bit_length() - 1)
        return self.base + max(steps - (self.width - 1), 0)


def norm_scaling(largest_norm: int, k: int) -> Scaling | None:
    """The rule that keeps norm(Abar) <= largest_norm for every row; None if rounding k elements alone may exceed it."""
    width = magnitude_bits(k)
    room = largest_norm - (isqrt(max(k - 1, 0)) // 2 + 1)  # rounding adds at most sqrt(k)/2 to the norm
    if room <= 0:
        return None
    square = room * room
    base = (square.bit_length() - 61) // 2 + width
    shift = 2 * (base - width)
    return Scaling("squares", 4, base, square >> shift if shift >= 0 else square << -shift, width)


def max_scaling(largest: int, bits: int, k: int) -> Scaling:
    """The rule that keeps abs(Abar) <= largest for every element, where 2**(bits - 1) <= largest < 2**bits."""
    width = magnitude_bits(k)
    base = bits - 1
    shift = width - base - 1
    doubled = 2 * largest - 1  # largest - 1/2: the rounding adds at most 1/2
    return Scaling("peak", 2, base, doubled << shift if shift >= 0 else doubled >> -shift, width)


class ExactScheme(Protocol):
    """A scheme that slices fixed-point images and sums slice products exactly: the images alone decide the bits.

    Bounds ask a scheme nothing else, nor does planning, but for names where it chooses between digits and residues
    (docs/design.md, 9). Backends ask for what their engines need of it. Schemes are frozen dataclasses: plans hold
    them, caches have them as keys, and `dataclasses.replace` makes one of another count.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __hash__(self) -> int: ...

    exact: ClassVar[bool]
    """True: the bits are the same on every backend."""

    @property
    def name(self) -> str:
        """Name of the family; together with `count` it determines the scheme (`named.scheme_of`)."""
        ...

    @property
    def count(self) -> int:
        """Number of slices of each operand."""
        ...

    @property
    def products(self) -> int:
        """Number of slice products."""
        ...

    def scaling(self, k: int) -> Scaling | None:
        """The rule that scales rows of length k so that no sum overflows; None if `count` is too small for this k."""
        ...

    @property
    def largest(self) -> int:
        """Largest absolute value of an image element (max scaling), or largest norm of an image row (norm scaling)."""
        ...

    @property
    def drop(self) -> float:
        """Largest absolute value of what is left out of an entry of Cbar for each inner index."""
        ...

    def dropped(self, k: int, spans: tuple[int, int]) -> float:
        """Largest absolute value of what is left out of an entry of Cbar; at most k `drop`.

        `spans`: the largest exponent span, top - bottom, of a row of the left and of the right operand.
        """
        ...

    @property
    def usual_drop(self) -> float:
        """Estimated root mean square, for ordinary operands, of what is left out of Cbar for each inner index."""
        ...

    @property
    def growth(self) -> int:
        """The factor by which one slice less enlarges the error bound at least; 0 if the bound may stay or shrink.

        It holds for each k, each measure and all operands. The search tries one slice less only where this may meet the
        target: too large a factor costs slices that are not needed, too small a one proofs that fail. The bound of the
        slices that run is right with any factor.
        """
        ...


def is_exact(scheme: ExactScheme | Words | None) -> TypeGuard[ExactScheme]:
    """Whether a product runs by slices with exact integer products: neither by words nor natively (None)."""
    return scheme is not None and scheme.exact


@cached(1024)
def scaling_of(scheme: ExactScheme, k: int) -> Scaling:
    """The rule by which a scheme scales rows of length k.

    Raises
    ------
    ValueError
        If the scheme has too few slices for this k.
    """
    scaling = scheme.scaling(k)
    if scaling is None:
        raise ValueError(f"slices: {scheme.count} {scheme.name} leave no room for k = {k}; give more")
    return scaling
