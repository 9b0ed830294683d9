"""Residues by cuBLAS int8, on every GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import RESIDUES, reads_of_rows
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import cutting
from ozaki.backends.cupy.steps.epilogue import Epilogue, Keep
from ozaki.backends.cupy.steps.gemm import INT8, check_row, gemms
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Moduli, Planes, Unrounded
from ozaki.caches import cached
from ozaki.schemes import Residues
from ozaki.schemes.moduli import products_of
from ozaki.schemes.residues import ACCUMULATOR_DEPTH

_ACCUMULATORS = 2**30
"""Bytes of int32 accumulators that gather the slice products of several moduli before they are reduced, unless those of
one modulus take more."""


@dataclass(frozen=True)
class CublasResidues:
    """Slice products modulus by modulus, reduced to bytes, then the Chinese remainders."""

    keeps: ClassVar[bool] = True
    device: Device
    label: str = "cuBLAS int8"

    def layout(self, scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: one after the other."""
        return _layout(scheme, batch, rows, k)

    def workspace(self, scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices, for a batch of any length: its matrices are multiplied one after the other."""
        entries = rows * round_up(cols, 16)
        return entries * (4 * _gathered(scheme, entries) + scheme.bytes)

    def split(self, b: Builder, operand: Described, side: str, scheme: Residues) -> Slices:
        """The slices of a whole operand."""
        return cutting.split(b, self.device, operand, side, scheme, _layout(scheme, *operand.x.shape))

    def splits_in_one_read(self, scheme: Residues, side: str, operand: Array, whole: bool) -> bool:
        """Never: there is no such kernel for slices without tiles."""
        return False

    def multiply(
        self, b: Builder, scheme: Residues, left: Slices, right: Slices, epilogue: Epilogue
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (batch, m, n), returned to be kept, or finished by the epilogue, matrix by matrix."""
        batch, m, n = epilogue.shape
        kept = batch if isinstance(epilogue, Keep) else 1
        ld = round_up(n, 16)
        accumulators = b.array("accumulators", (_gathered(scheme, m * ld), m, ld), "i")
        memory = b.array("y", (kept, scheme.bytes, m, ld), "B")
        whole = Planes.of_matrices(scheme, memory, left.scales, right.scales)
        la, lb = left.layout, right.layout
        for i in range(batch):
            product = whole.matrix(i)
            for some in _groups(scheme, accumulators.shape[0]):
                for h in range(0, la.k, ACCUMULATOR_DEPTH):
                    depth = min(ACCUMULATOR_DEPTH, la.k - h)
                    at = (
                        left.place_of_matrix(i).plus(some.product * la.slice_bytes + h),
                        right.place_of_matrix(i).plus(some.product * lb.slice_bytes + h),
                    )
                    gemms(
                        b, INT8, (*at, accumulators.at), (m, ld, depth), (la.row_bytes, lb.row_bytes, ld),
                        some.products, (la.slice_bytes, lb.slice_bytes, m * ld),
                    )  # fmt: skip
                    product.add_residues(b, accumulators, some, first=h == 0)
            if not isinstance(epilogue, Keep):
                product.finish(b, self.device, epilogue.part(0, i, i + 1))
        b.release(accumulators)
        if isinstance(epilogue, Keep):
            return whole
        whole.release(b)
        return None

    def seconds(self, scheme: Residues, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data."""
        each = self.device.rates.cublas(m, n, batch * prod(_layout(scheme, 1, x, k).rows for x in (m, n)))
        return self.device.rates.slices(
            batch, m, k, n, dtype, scheme, operation_ps=each, product_bytes=6 * scheme.products, reads=reads_of_rows(k),
            planned=RESIDUES,
        )  # fmt: skip


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
