"""The protocol of schemes with exact slice products, by which planning, bounds and backends ask them."""

from __future__ import annotations

from dataclasses import Field
from typing import Any, ClassVar, Protocol

from ozaki.schemes.image import Scaling


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

        The spans are the largest top - bottom of the rows of the left and of the right operand.
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
