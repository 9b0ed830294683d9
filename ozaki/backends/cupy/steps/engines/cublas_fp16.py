"""Digits by cuBLAS FP16 with FP32 accumulators, which add so narrow ones exactly (docs/definitions.md, section 7)."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import DTYPES, Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.engines.cublas import Cublas, Room, slabs
from ozaki.backends.cupy.steps.gemm import FP16, check_row, gemms
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes
from ozaki.caches import cached
from ozaki.schemes import Digits
from ozaki.schemes.digits import fp16_depth


@dataclass(frozen=True)
class CublasFp16(Cublas):
    """Diagonals of digits as far as FP32 adds them exactly, gathered as integers."""

    label: str = "cuBLAS FP16"

    def layout(self, scheme: Digits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Slices side by side along k."""
        return _layout(scheme, batch, rows, k)

    def workspace(self, scheme: Digits, batch: int, rows: int, cols: int, k: int) -> int:
        """The same for each matrix of a batch, since they are multiplied one after the other."""
        return rows * round_up(cols, 16) * (4 + scheme.count * DTYPES[_sums(scheme, k)].itemsize)

    def room(self, b: Builder, scheme: Digits, left: Slices, kept: int, m: int, columns: int) -> Room:
        """Sums of diagonals, and a product of some pairs of slices."""
        products = b.array("products", (m, columns), "f")
        sums = _sums(scheme, left.described.k)
        return Room(b.array("sums", (kept, scheme.count, m, columns), sums), products)

    def multiply_matrix(
        self, b: Builder, product: Planes, products: Array | None, left: Slices, right: Slices, i: int
    ) -> None:
        """Multiply as many pairs of a diagonal of a slab at once as FP32 adds exactly."""
        assert products is not None and isinstance(product.scheme, Digits)
        p, (m, ld) = product.scheme.count, products.shape
        la, lb = left.layout, right.layout
        most = max(1, fp16_depth(product.scheme.bits) // left.described.k)  # pairs whose sum is exact
        for g, (at_a, at_b) in enumerate(slabs(left, right, i)):
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
