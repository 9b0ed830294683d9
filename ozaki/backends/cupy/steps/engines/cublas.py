"""Slice products by cuBLAS int8: the engine for every GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import round_up
from ozaki.backends.cupy.steps import cutting
from ozaki.backends.cupy.steps.gemm import INT8, gemms
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Unrounded
from ozaki.schemes import Digits, Residues, Scheme
from ozaki.schemes.residues import ACCUMULATOR_DEPTH

_ACCUMULATORS = 2**30
"""Bytes of int32 accumulators that slice products of residues are gathered in before they are reduced."""


@dataclass(frozen=True)
class Cublas:
    """Residues are multiplied modulus by modulus, digits diagonal by diagonal."""

    device: Device
    label: str = "cuBLAS int8"

    def layout(self, scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
        """Residue slices one after the other; digit slices side by side along k, so that a diagonal is one product."""
        return _layout(scheme, batch, rows, k)

    def workspace(self, scheme: Scheme, batch: int, rows: int, cols: int, k: int) -> int:
        """The same for each matrix of a batch, since they are multiplied one after the other."""
        entries = rows * round_up(cols, 16)
        if isinstance(scheme, Residues):
            return entries * (4 * _group(scheme, entries) + scheme.count)
        return entries * scheme.count * (4 if k <= scheme.depth() // 128 * 128 else 12)

    def split(self, b: Builder, operand: Described, side: str, scheme: Scheme) -> Slices:
        """The slices of a whole operand."""
        return cutting.split(b, self.device, operand, side, scheme, _layout(scheme, *operand.x.shape))

    def splits_in_one_read(self, scheme: Scheme, side: str, operand: Array, sums: bool) -> bool:
        """Never: there is no such kernel for slices without tiles."""
        return False

    def multiply(self, b: Builder, scheme: Scheme, left: Slices, right: Slices, out: Array) -> None:
        """out = left right^T, shape (batch, m, n)."""
        if isinstance(scheme, Residues):
            _residues(b, self.device, scheme, left, right, out)
        else:
            _digits(b, self.device, scheme, left, right, out)

    def occupied(self, scheme: Scheme, batch: int, m: int, k: int, n: int) -> float:
        """Entries with their padding: cuBLAS has tiles of its own."""
        return batch * prod(_layout(scheme, 1, x, k).rows for x in (m, n))


@lru_cache(maxsize=1024)
def _layout(scheme: Scheme, batch: int, rows: int, k: int) -> Layout:
    rows = round_up(rows, 16)
    if isinstance(scheme, Residues):
        k = round_up(k, 128)
        check_row(k)
        each = batch * rows * k
        return Layout(rows, k, rows * k, k, each, k, 0, scheme.count * each)
    slabs = max(-(-k // (scheme.depth() // 128 * 128)), 1)
    slab = round_up(-(-k // slabs), 128)
    row = scheme.count * slab * slabs
    check_row(row)
    return Layout(rows, slab * slabs, rows * row, row, slab, slab, scheme.count * slab, batch * rows * row)


def check_row(entries: int) -> None:
    """Refuse rows that are longer than cuBLAS can be told.

    Raises
    ------
    ValueError
    """
    if entries >= 2**31:
        raise ValueError(
            f"engine: cuBLAS reads rows of less than 2**31 entries, not {entries}; use scheme='residues', or add up "
            "products of parts of the inner dimension"
        )


def _group(scheme: Residues, entries: int) -> int:
    """Moduli whose products are gathered before they are reduced."""
    return max(1, min(scheme.count, _ACCUMULATORS // max(4 * entries, 1)))


def _residues(b: Builder, device: Device, scheme: Residues, left: Slices, right: Slices, out: Array) -> None:
    """Residue products, reduced to bytes plane by plane, then the Chinese remainders."""
    batch, m, n = out.shape
    ld = round_up(n, 16)
    group = _group(scheme, m * ld)
    accumulators = b.array("accumulators", (group, m, ld), "i")
    planes = b.array("y", (scheme.count, m, ld), "B")
    la, lb = left.layout, right.layout
    for i in range(batch):
        product = Unrounded(scheme, planes.with_axis(1), left.exponents(i), right.exponents(i))
        for t in range(0, scheme.count, group):
            last = min(t + group, scheme.count)
            for h in range(0, la.k, ACCUMULATOR_DEPTH):
                depth = min(ACCUMULATOR_DEPTH, la.k - h)
                at = left.of_batch(i).plus(t * la.slice + h), right.of_batch(i).plus(t * lb.slice + h)
                gemms(
                    b, INT8, (*at, accumulators.at), (m, ld, depth), (la.row_bytes, lb.row_bytes, ld), last - t,
                    (la.slice, lb.slice, m * ld),
                )  # fmt: skip
                product.add_residues(b, accumulators, (t, last), first=h == 0)
        product.round_into(b, device, out.some(0, i, i + 1))
    b.release(accumulators, planes)


def _digits(b: Builder, device: Device, scheme: Digits, left: Slices, right: Slices, out: Array) -> None:
    """Diagonals of digit products, in int32, or int64 where k is cut into slabs; then their sum."""
    batch, m, n = out.shape
    p, ld = scheme.count, round_up(n, 16)
    la, lb = left.layout, right.layout
    slabs = la.k // la.slab
    diagonals = b.array("diagonals", (p, m, ld), "i")
    sums = b.array("sums", (p, m, ld), "q") if slabs > 1 else diagonals
    for i in range(batch):
        product = Unrounded(scheme, sums.with_axis(1), left.exponents(i), right.exponents(i))
        for g in range(slabs):
            at_a, at_b = left.of_batch(i).plus(g * la.slab_stride), right.of_batch(i).plus(g * lb.slab_stride)
            for pairs in range(1, p + 1):  # left slices 1 .. pairs with the reversed right slices pairs .. 1
                at = at_a, at_b.plus((p - pairs) * lb.slice), diagonals.entry(0, pairs - 1).at
                gemms(b, INT8, at, (m, ld, pairs * la.slab), (la.row_bytes, lb.row_bytes, ld))
            if slabs > 1:
                product.add_diagonals(b, diagonals, first=g == 0)
        product.round_into(b, device, out.some(0, i, i + 1))
    b.release(diagonals, sums)
