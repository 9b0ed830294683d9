"""What engines by cuBLAS share: the matrices of a batch are multiplied one after the other, and k in slabs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import DIGITS, RESIDUES, reads_of_rows
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import cutting
from ozaki.backends.cupy.steps.epilogue import Epilogue, Keep
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes, Unrounded
from ozaki.schemes import Residues


class Room(NamedTuple):
    """Memory of a product.

    Attributes
    ----------
    planes : of the un-rounded product, shape (matrices, planes, m, columns)
    products : of slice products, before they are added to these; None where they are these
    """

    planes: Array
    products: Array | None


@dataclass(frozen=True)
class Cublas:
    """Slice products by cuBLAS, on every GPU, gathered in planes."""

    keeps: ClassVar[bool] = True
    device: Device
    label: str = "cuBLAS int8"

    def layout(self, scheme: Any, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie."""
        raise NotImplementedError

    def room(self, b: Builder, scheme: Any, left: Slices, kept: int, m: int, columns: int) -> Room:
        """New memory for a product: planes of `kept` matrices, and what one matrix needs beside them."""
        raise NotImplementedError

    def multiply_matrix(
        self, b: Builder, product: Planes, products: Array | None, left: Slices, right: Slices, i: int
    ) -> None:
        """Gather the slice products of matrix i of the batch; `products` as of `Room`."""
        raise NotImplementedError

    def split(self, b: Builder, operand: Described, side: str, scheme: Any) -> Slices:
        """The slices of a whole operand."""
        return cutting.split(b, self.device, operand, side, scheme, self.layout(scheme, side, *operand.x.shape))

    def splits_in_one_read(self, scheme: Any, side: str, operand: Array, whole: bool) -> bool:
        """Never: there is no such kernel for slices without tiles."""
        return False

    def multiply(
        self, b: Builder, scheme: Any, left: Slices, right: Slices, epilogue: Epilogue
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (batch, m, n), returned to be kept, or finished by the epilogue, matrix by matrix."""
        batch, m, n = epilogue.shape
        kept = batch if isinstance(epilogue, Keep) else 1
        planes, products = self.room(b, scheme, left, kept, m, round_up(n, 16))
        whole = Planes.of_matrices(scheme, planes, left.scales, right.scales)
        for i in range(batch):
            product = whole.matrix(i)
            self.multiply_matrix(b, product, products, left, right, i)
            if not isinstance(epilogue, Keep):
                product.finish(b, self.device, epilogue.part(0, i, i + 1))
        if products is not None:
            b.release(products)
        if isinstance(epilogue, Keep):
            return whole
        whole.release(b)
        return None

    def seconds(self, scheme: Any, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data, at cuBLAS's rate of int8."""
        rows = (self.layout(scheme, side, 1, x, k).rows for side, x in (("left", m), ("right", n)))
        reads, planned = (reads_of_rows(k), RESIDUES) if isinstance(scheme, Residues) else (2, DIGITS)
        return self.device.rates.slices(
            batch, m, k, n, dtype, scheme, operation_ps=self.device.rates.cublas(m, n, batch * prod(rows)),
            product_bytes=6 * scheme.products, reads=reads, planned=planned,
        )  # fmt: skip


def slabs(left: Slices, right: Slices, i: int) -> Iterator[tuple[Place, Place]]:
    """Where the slices of matrix i of the batch lie, in each slab of k."""
    la, lb = left.layout, right.layout
    for g in range(la.k // la.slab):
        yield (
            left.place_of_matrix(i).plus(g * la.slab_stride),
            right.place_of_matrix(i).plus(g * lb.slab_stride),
        )
