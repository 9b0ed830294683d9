"""Digits by cuBLAS int8, on every GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.engines.cublas import Cublas, Room, slabs
from ozaki.backends.cupy.steps.gemm import INT8, check_row, gemms
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes
from ozaki.caches import cached
from ozaki.schemes import Digits


@dataclass(frozen=True)
class CublasDigits(Cublas):
    """Slice products diagonal by diagonal, in int32, or int64 where k is cut into slabs; then their sum."""

    def layout(self, scheme: Digits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: side by side along k, so that a diagonal is one product."""
        return _layout(scheme, batch, rows, k)

    def workspace(self, scheme: Digits, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices, for a batch of any length: its matrices are multiplied one after the other."""
        return rows * round_up(cols, 16) * scheme.count * (4 if k <= _deepest(scheme) else 12)

    def room(self, b: Builder, scheme: Digits, left: Slices, kept: int, m: int, columns: int) -> Room:
        """Diagonals; of several slabs their sums, and beside them the diagonals of one."""
        p, lay = scheme.count, left.layout
        if lay.k == lay.slab:
            return Room(b.array("diagonals", (kept, p, m, columns), "i"), None)
        return Room(b.array("sums", (kept, p, m, columns), "q"), b.array("diagonals", (p, m, columns), "i"))

    def multiply_matrix(
        self, b: Builder, product: Planes, products: Array | None, left: Slices, right: Slices, i: int
    ) -> None:
        """Multiply each diagonal of a slab at once."""
        diagonals = product.planes if products is None else products
        p, (m, ld) = product.scheme.count, diagonals.shape[-2:]
        la, lb = left.layout, right.layout
        for g, (at_a, at_b) in enumerate(slabs(left, right, i)):
            for pairs in range(1, p + 1):  # left slices 1 .. pairs with the reversed right slices pairs .. 1
                at = at_a, at_b.plus((p - pairs) * lb.slice_bytes), diagonals.at_index(0, pairs - 1).at
                gemms(b, INT8, at, (m, ld, pairs * la.slab), (la.row_bytes, lb.row_bytes, ld))
            if products is not None:
                product.add_diagonals(b, products, first=g == 0)


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
