"""What a scheme with exact slice products answers for itself."""

from __future__ import annotations

from typing import ClassVar, Protocol

from ozaki.schemes.image import Scaling


class ExactScheme(Protocol):
    """Slices of fixed-point images, whose products are summed exactly, so that one image decides everything.

    Planning and bounds ask a scheme nothing else; how its slices are made and multiplied is a driver of each backend.
    Schemes are frozen, hashable and comparable: plans hold them, and tables are kept by them.
    """

    exact: ClassVar[bool]
    """True: the bits are the same on every backend."""

    @property
    def name(self) -> str:
        """The family, as a caller names it: with `count` it tells the scheme (`named.scheme_of`)."""
        ...

    @property
    def count(self) -> int:
        """Slices of each operand."""
        ...

    @property
    def products(self) -> int:
        """Slice products."""
        ...

    def scaling(self, k: int) -> Scaling | None:
        """How rows of length k are scaled, so that no sum overflows; None if nothing of an element is left."""
        ...

    @property
    def largest(self) -> int:
        """The largest image: of an element with max scaling, of a row's norm with norm scaling."""
        ...

    @property
    def drop(self) -> float:
        """Largest absolute worth, for each inner index, of what is left out of the product, in image units."""
        ...

    def dropped(self, k: int, spans: tuple[int, int]) -> float:
        """The same of an entry, for operands of these spans (largest top - bottom of rows); at most k `drop`."""
        ...

    @property
    def usual_drop(self) -> float:
        """Root mean square of what is left out for each inner index of ordinary operands, an estimate."""
        ...

    @property
    def growth(self) -> int:
        """Least factor by which the error bound grows when a slice is taken away; 0 if it may not grow."""
        ...
