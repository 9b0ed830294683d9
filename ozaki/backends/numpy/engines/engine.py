"""The protocol of NumPy's engines: exact products of a scheme through float64 BLAS."""

from __future__ import annotations

from typing import Protocol

from ozaki.backends.numpy._limbs import Floats
from ozaki.schemes import Scheme


class Engine(Protocol):
    """Splits images of a scheme, and recombines their products by float64 BLAS, exactly, for inner dimension k.

    A plane is a matrix of slices, one for each matrix product; a slab is a part of k. Programs keep engines, so that
    what is not in their fields is computed once (`functools.cached_property`).
    """

    @property
    def scheme(self) -> Scheme: ...
    @property
    def k(self) -> int: ...
    @property
    def slab(self) -> int:
        """Most inner indices that are multiplied at a time: so few that float64 adds their products exactly.

        A slab of both operands is held as slices, so `blas.DEPTH` at most, which bounds the workspace.
        """
        ...

    @property
    def planes(self) -> int:
        """Number of matrix products for each slab."""
        ...

    @property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        ...

    @property
    def sums(self) -> int:
        """Number of matrices, as large as a panel, that `sums_of` makes; 0 if it returns the products themselves."""
        ...

    @property
    def split_copies(self) -> int:
        """Most arrays, as large as a tile of an operand, that are held while the tile is split, without its slices."""
        ...

    @property
    def rounding_copies(self) -> int:
        """Most arrays, as large as a tile of the result, that are held while the tile is rounded, without its sums."""
        ...

    @property
    def shift(self) -> int:
        """Exponent for which the exact integer Cbar is 2**shift times the value of its limbs."""
        ...

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the slices of a tile of an image, which is contiguous, into out, shape (planes, *image.shape)."""
        ...

    def sums_of(self, products: Floats) -> Floats:
        """What the products of a slab, shape (planes, batch, m, n), are in sums over slabs, which NumPy adds exactly.

        `products` may be overwritten, and returned.
        """
        ...

    def limbs(self, sums: Floats) -> Floats:
        """The exact integers of some entries as limbs (`_limbs`), shape (count, entries), the lowest first.

        Each limb is an integer of magnitude below 2**52, and there are so many that the highest is below 2**26 once
        they are carried. Overwrites the sums of the entries, shape (..., entries).
        """
        ...
