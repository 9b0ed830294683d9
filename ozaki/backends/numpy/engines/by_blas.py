"""What NumPy's engines share: slices are float64 arrays, which float64 BLAS multiplies and adds exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import along_memory, scale
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._undecided import Undecided
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.progress import Progress
from ozaki.records.shapes import Side
from ozaki.schemes import Scaling, Scheme

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BlasEngine(ABC):
    """An engine whose slices are integers in float64 (`Engine`).

    Attributes
    ----------
    scheme, k, slab : see `Engine`
    """

    scheme: Scheme
    k: int
    slab: int

    parts: ClassVar[int] = 1
    sum_bytes: ClassVar[int] = 8
    rounds: ClassVar[bool] = False
    by: ClassVar[str] = "BLAS"

    @property
    @abstractmethod
    def planes(self) -> int:
        """Number of matrix products for each slab."""

    @property
    @abstractmethod
    def of_int8(self) -> bool:
        """Whether slices are those that an int8 machine multiplies, instead of fewer and wider ones."""

    @cached_property
    def label(self) -> str:
        """The engine, as reports name it."""
        return "int8 slices" if self.of_int8 else "float64 BLAS"

    def shortened(self) -> Self | None:
        """Return None: panels of few rows take little memory as they are."""
        return None

    def symmetric(self) -> Self | None:
        """The engine of a matrix times its own transpose whose slices serve both operands; None if there is none."""
        return None

    def joined(self) -> Self:
        """Return itself: float64 adds no more products exactly than a slab has."""
        return self

    def slice_bytes(
        self, together: int, rows: int, columns: int, threads: int, limbs: int, sides: tuple[Side, ...]
    ) -> int:
        """Bytes of the slices of a slab of so many rows and columns, of the sides that are not split already."""
        sizes = {"left": rows, "right": columns}
        return 8 * self.planes * sum(sizes[side] for side in sides) * self.slab

    def whole_panels(self, rows: int, columns: int) -> tuple[int, int]:
        """So many rows and columns: arrays are cut anywhere."""
        return rows, columns

    def multiply_into(
        self, a: Floats, b: Floats, mu: Ints, nu: Ints, out: Any, triangle: bool, undecided: Undecided | None = None
    ) -> bool:
        """Return False: BLAS has no such epilogue."""
        return False

    def multiply_whole(self, x: Any, y: Any, scaling: Scaling, out: Any, most: int) -> int | None:
        """Return None: BLAS multiplies slices alone."""
        return None

    @abstractmethod
    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the slices of a tile of an image, which is contiguous, into out, shape (planes, *image.shape)."""

    @abstractmethod
    def sums_of(self, products: Floats) -> Floats:
        """What the products of a slab, shape (planes, batch, m, n), are in sums over slabs, which NumPy adds exactly.

        `products` may be overwritten, and returned.
        """

    def split_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool) -> Floats:
        """The slices of rows of floats, as `Engine` says."""
        planes = np.empty((self.planes, x.size))
        return in_shape(planes, x.shape, self.split_real_rows(x, mu, side, finite, planes))

    def split_real_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool, out: Floats) -> bool:
        """Split real rows x, shape (batch, rows, k), into out, shape (planes, batch rows k), in the memory order of x.

        So a transposed operand, too, is read and written along memory; returns whether its last two axes are exchanged.
        """
        batch, m, k = x.shape
        turned, tiles = along_memory(x, mu)
        planes = out.reshape(len(out), batch, k, m) if turned else out.reshape(len(out), batch, m, k)
        for (b, rows), tile, exponents in tiles:
            values = tile.astype(np.float64, copy=False)
            image = scale(values if finite else np.where(np.isfinite(values), values, 0.0), exponents)
            self.split(np.rint(image, out=image), side, planes[:, b, rows])
        return turned

    def split_numbers(self, x: Numbers, mu: Ints, side: str) -> Floats:
        """The slices of rows of multiprecision numbers, as `Engine` says."""
        raise NotImplementedError(f"{self.scheme.name}: no slices of multiprecision numbers")

    def multiply(self, a: Floats, b: Floats, progress: Progress | None = None) -> Floats:
        """The sums of a slab, as `Engine` says."""
        b = b.swapaxes(-1, -2)
        if progress is None:
            return self.sums_of(np.matmul(a, b))
        products = np.empty((*a.shape[:-1], b.shape[-1]))
        for left, right, product in zip(a, b, products, strict=True):  # the same products, one after another
            np.matmul(left, right, out=product)
            progress.step()
        return self.sums_of(products)


def in_shape(planes: Floats, shape: tuple[int, ...], turned: bool) -> Floats:
    """Planes of rows as (planes, batch, rows, k); if `turned`, they lie in memory with the last two axes exchanged."""
    batch, m, k = shape
    if turned:
        return planes.reshape(len(planes), batch, k, m).swapaxes(-1, -2)
    return planes.reshape(len(planes), batch, m, k)
