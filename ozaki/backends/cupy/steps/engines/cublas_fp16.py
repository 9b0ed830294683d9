"""Digits by cuBLAS FP16 with FP32 accumulators, which add so narrow ones exactly (docs/definitions.md, section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import DIGITS
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import DTYPES, Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import cutting
from ozaki.backends.cupy.steps.epilogue import Epilogue, Keep
from ozaki.backends.cupy.steps.gemm import FP16, check_row, gemms
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes, Unrounded
from ozaki.caches import cached
from ozaki.schemes import Digits
from ozaki.schemes.digits import fp16_depth


@dataclass(frozen=True)
class CublasFp16:
    """Diagonals of digits as far as FP32 adds them exactly, gathered as integers."""

    keeps: ClassVar[bool] = True
    device: Device
    label: str = "cuBLAS FP16"

    def layout(self, scheme: Digits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Slices side by side along k."""
        return _layout(scheme, batch, rows, k)

    def workspace(self, scheme: Digits, batch: int, rows: int, cols: int, k: int) -> int:
        """The same for each matrix of a batch, since they are multiplied one after the other."""
        return rows * round_up(cols, 16) * (4 + scheme.count * DTYPES[_sums(scheme, k)].itemsize)

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
        k, p, ld = left.described.k, scheme.count, round_up(n, 16)
        la, lb = left.layout, right.layout
        most = max(1, fp16_depth(scheme.bits) // k)  # pairs whose sum is exact
        products = b.array("products", (m, ld), "f")
        memory = b.array("sums", (kept, p, m, ld), _sums(scheme, k))
        whole = Planes.of_matrices(scheme, memory, left.scales, right.scales)
        for i in range(batch):
            product = whole.matrix(i)
            for g in range(la.k // la.slab):
                at_a, at_b = (
                    left.place_of_matrix(i).plus(g * la.slab_stride),
                    right.place_of_matrix(i).plus(g * lb.slab_stride),
                )
                for pairs in range(1, p + 1):  # left slices 1 .. pairs with the reversed right slices pairs .. 1
                    for first in range(0, pairs, most):
                        at = (
                            at_a.plus(first * la.slice_bytes),
                            at_b.plus((p - pairs + first) * lb.slice_bytes),
                            products.at,
                        )
                        depth = min(most, pairs - first) * la.slab
                        gemms(b, FP16, at, (m, ld, depth), (la.row_bytes // 2, lb.row_bytes // 2, ld))
                        product.add_diagonals(b, products, g == 0 and first == 0, pairs - 1)
            if not isinstance(epilogue, Keep):
                product.finish(b, self.device, epilogue.part(0, i, i + 1))
        b.release(products)
        if isinstance(epilogue, Keep):
            return whole
        whole.release(b)
        return None

    def seconds(self, scheme: Digits, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data, at cuBLAS's rate of int8."""
        each = self.device.rates.cublas(m, n, batch * prod(_layout(scheme, 1, x, k).rows for x in (m, n)))
        return self.device.rates.slices(
            batch, m, k, n, dtype, scheme, operation_ps=each, product_bytes=6 * scheme.products, reads=2, planned=DIGITS
        )


@cached(1024)
def _layout(scheme: Digits, batch: int, rows: int, k: int) -> Layout:
    rows = round_up(rows, 16)
    slab = round_up(min(k, fp16_depth(scheme.bits)), 128)
    slabs = -(-k // slab)
    check_row(scheme.count * slab * slabs)
    row = 2 * scheme.count * slab * slabs
    return Layout(rows, slab * slabs, rows * row, row, 2 * slab, slab, 2 * scheme.count * slab, batch * rows * row)


def _sums(scheme: Digits, k: int) -> str:
    """The dtype of sums."""
    return "i" if k <= scheme.depth() else "q"
