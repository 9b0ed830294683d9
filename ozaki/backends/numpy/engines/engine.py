"""What an engine of NumPy does: the driver of one scheme's exact products through float64 BLAS."""

from __future__ import annotations

from typing import Protocol

from ozaki.backends.numpy._limbs import Floats
from ozaki.schemes import Scheme


class Engine(Protocol):
    """How a scheme's product goes through float64 BLAS, exactly, for inner dimension k."""

    @property
    def scheme(self) -> Scheme: ...
    @property
    def k(self) -> int: ...
    @property
    def slab(self) -> int:
        """Inner indices that are multiplied at a time."""
        ...

    @property
    def planes(self) -> int:
        """Matrix products for each slab of k."""
        ...

    @property
    def what(self) -> str:
        """What the planes are, for people."""
        ...

    @property
    def sums(self) -> int:
        """Matrices that hold sums over slabs, beside the products of a slab."""
        ...

    @property
    def split_copies(self) -> int:
        """Arrays as large as a tile of an operand that are held while it is split, at most, beside its slices."""
        ...

    @property
    def rounding_copies(self) -> int:
        """Arrays as large as a tile of the result that are held while it is rounded, at most, beside its sums."""
        ...

    @property
    def shift(self) -> int:
        """The exact integer is 2**shift times the value of its limbs."""
        ...

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """The slices of a tile of an image, contiguous, into out, shape (planes, *image.shape)."""
        ...

    def add(self, product: Floats, sums: Floats | None) -> Floats:
        """The sums over slabs with one more product, shape (planes, batch, m, n), which is overwritten; None: none."""
        ...

    def limbs(self, sums: Floats) -> Floats:
        """The exact integers of some entries as limbs (`_limbs`), of sums of shape (..., entries), overwritten."""
        ...
