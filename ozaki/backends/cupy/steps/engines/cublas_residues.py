"""Residues by cuBLAS int8, on every GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.engines.cublas import Cublas, Room
from ozaki.backends.cupy.steps.gemm import INT8, check_row, gemms
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Moduli, Planes
from ozaki.caches import cached
from ozaki.schemes import Residues
from ozaki.schemes.moduli import products_of
from ozaki.schemes.residues import ACCUMULATOR_DEPTH

_ACCUMULATORS = 2**30
"""Bytes of int32 accumulators that gather the slice products of several moduli before they are reduced, unless those of
one modulus take more."""


@dataclass(frozen=True)
class CublasResidues(Cublas):
    """Slice products modulus by modulus, reduced to bytes, then the Chinese remainders."""

    def layout(self, scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: one after the other."""
        return _layout(scheme, batch, rows, k)

    def workspace(self, scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices, for a batch of any length: its matrices are multiplied one after the other."""
        entries = rows * round_up(cols, 16)
        return entries * (4 * _gathered(scheme, entries) + scheme.bytes)

    def room(self, b: Builder, scheme: Residues, left: Slices, kept: int, m: int, columns: int) -> Room:
        """Bytes of residues, and the accumulators of some moduli."""
        accumulators = b.array("accumulators", (_gathered(scheme, m * columns), m, columns), "i")
        return Room(b.array("y", (kept, scheme.bytes, m, columns), "B"), accumulators)

    def multiply_matrix(
        self, b: Builder, product: Planes, products: Array | None, left: Slices, right: Slices, i: int
    ) -> None:
        """Multiply the slices of as many moduli at once as there are accumulators for, and reduce them."""
        assert products is not None and isinstance(product.scheme, Residues)
        together, m, ld = products.shape
        la, lb = left.layout, right.layout
        for some in _groups(product.scheme, together):
            for h in range(0, la.k, ACCUMULATOR_DEPTH):
                depth = min(ACCUMULATOR_DEPTH, la.k - h)
                at = (
                    left.place_of_matrix(i).plus(some.product * la.slice_bytes + h),
                    right.place_of_matrix(i).plus(some.product * lb.slice_bytes + h),
                    products.at,
                )
                gemms(
                    b, INT8, at, (m, ld, depth), (la.row_bytes, lb.row_bytes, ld), some.products,
                    (la.slice_bytes, lb.slice_bytes, m * ld),
                )  # fmt: skip
                product.add_residues(b, products, some, first=h == 0)


@cached(1024)
def _layout(scheme: Residues, batch: int, rows: int, k: int) -> Layout:
    rows, k = round_up(rows, 16), round_up(k, 128)
    check_row(k)
    each = batch * rows * k
    return Layout(rows, k, rows * k, k, each, k, 0, scheme.products * each)


def _gathered(scheme: Residues, entries: int) -> int:
    """Slice products that are gathered before they are reduced: those of several moduli, or of one."""
    most = products_of(scheme.moduli[-1])  # the last modulus has the most digits
    return max(most, min(scheme.products, _ACCUMULATORS // max(4 * entries, 1)))


@cached(1024)
def _groups(scheme: Residues, gathered: int) -> tuple[Moduli, ...]:
    """Moduli with equally many digits whose products are gathered together, in order."""
    groups, before = [], (0, 0)
    for digits, count in enumerate(scheme.by_digits, 1):
        together = max(gathered // (digits * (digits + 1) // 2), 1)
        for first in range(0, count, together):
            groups.append(Moduli(digits, first, min(together, count - first), *before))
            before = groups[-1].next
    return tuple(groups)
