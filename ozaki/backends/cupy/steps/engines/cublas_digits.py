"""Digits by cuBLAS int8, on every GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import DIGITS
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import cutting
from ozaki.backends.cupy.steps.epilogue import Epilogue, Keep
from ozaki.backends.cupy.steps.gemm import INT8, check_row, gemms
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes, Unrounded
from ozaki.caches import cached
from ozaki.schemes import Digits


@dataclass(frozen=True)
class CublasDigits:
    """Slice products diagonal by diagonal, in int32, or int64 where k is cut into slabs; then their sum."""

    keeps: ClassVar[bool] = True
    device: Device
    label: str = "cuBLAS int8"

    def layout(self, scheme: Digits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: side by side along k, so that a diagonal is one product."""
        return _layout(scheme, batch, rows, k)

    def workspace(self, scheme: Digits, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices, for a batch of any length: its matrices are multiplied one after the other."""
        return rows * round_up(cols, 16) * scheme.count * (4 if k <= _deepest(scheme) else 12)

    def split(self, b: Builder, operand: Described, side: str, scheme: Digits) -> Slices:
        """The slices of a whole operand."""
        return cutting.split(b, self.device, operand, side, scheme, _layout(scheme, *operand.x.shape))

    def splits_in_one_read(self, scheme: Digits, side: str, operand: Array, whole: bool) -> bool:
        """Never: there is no such kernel for slices without tiles."""
        return False

    def multiply(
        self, b: Builder, scheme: Digits, left: Slices, right: Slices, epilogue: Epilogue
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (batch, m, n), returned to be kept, or finished by the epilogue, matrix by matrix."""
        batch, m, n = epilogue.shape
        kept = batch if isinstance(epilogue, Keep) else 1
        p, ld = scheme.count, round_up(n, 16)
        la, lb = left.layout, right.layout
        slabs = la.k // la.slab
        memory = b.array("sums", (kept, p, m, ld), "q") if slabs > 1 else b.array("diagonals", (kept, p, m, ld), "i")
        whole = Planes.of_matrices(scheme, memory, left.scales, right.scales)
        of_slab = b.array("diagonals", (p, m, ld), "i") if slabs > 1 else None
        for i in range(batch):
            product = whole.matrix(i)
            diagonals = product.planes if of_slab is None else of_slab
            for g in range(slabs):
                at_a, at_b = (
                    left.place_of_matrix(i).plus(g * la.slab_stride),
                    right.place_of_matrix(i).plus(g * lb.slab_stride),
                )
                for pairs in range(1, p + 1):  # left slices 1 .. pairs with the reversed right slices pairs .. 1
                    at = at_a, at_b.plus((p - pairs) * lb.slice_bytes), diagonals.at_index(0, pairs - 1).at
                    gemms(b, INT8, at, (m, ld, pairs * la.slab), (la.row_bytes, lb.row_bytes, ld))
                if of_slab is not None:
                    product.add_diagonals(b, of_slab, first=g == 0)
            if not isinstance(epilogue, Keep):
                product.finish(b, self.device, epilogue.part(0, i, i + 1))
        if of_slab is not None:
            b.release(of_slab)
        if isinstance(epilogue, Keep):
            return whole
        whole.release(b)
        return None

    def seconds(self, scheme: Digits, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data."""
        each = self.device.rates.cublas(m, n, batch * prod(_layout(scheme, 1, x, k).rows for x in (m, n)))
        return self.device.rates.slices(
            batch, m, k, n, dtype, scheme, operation_ps=each, product_bytes=6 * scheme.products, reads=2, planned=DIGITS
        )


@cached(1024)
def _layout(scheme: Digits, batch: int, rows: int, k: int) -> Layout:
    rows = round_up(rows, 16)
    slabs = max(-(-k // _deepest(scheme)), 1)
    slab = round_up(-(-k // slabs), 128)
    row = scheme.count * slab * slabs
    check_row(row)
    return Layout(rows, slab * slabs, rows * row, row, slab, slab, scheme.count * slab, batch * rows * row)


def _deepest(scheme: Digits) -> int:
    """Elements of k, a multiple of 128, whose products an int32 accumulator takes."""
    return scheme.depth() // 128 * 128
