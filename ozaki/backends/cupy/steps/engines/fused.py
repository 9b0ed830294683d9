"""Slice products by the library's own int8 kernels: what is left of them in registers, in one launch.

Residues leave bytes, which are recombined; digits the result itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import cutting, one_read
from ozaki.backends.cupy.steps.engines import fused_digits, fused_residues
from ozaki.backends.cupy.steps.engines.tiled import layout, tiles_of
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.schemes import Digits, Residues, Scheme

_MOST_DIGITS = 7
"""As kernels/arithmetic/diagonals.cuh joins them."""

LABEL = "fused int8 kernel"


def multiplies(device: Device, scheme: Scheme, k: int) -> bool:
    """Whether the device has a kernel for these slices: digits need accumulators that never overflow."""
    if device.tiles is None:
        return False
    if isinstance(scheme, Residues):
        return True
    deepest = scheme.depth(2**31 - 2 ** (31 - scheme.bits) - 4)
    return scheme.count <= _MOST_DIGITS and device.tiles.depth * device.tiles.blocks(k) <= deepest


@dataclass(frozen=True)
class Fused:
    """The kernels of residues and of digits, which read slices in tiles."""

    device: Device
    label: str = LABEL

    def layout(self, scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
        """Slices in tiles."""
        return layout(tiles_of(self.device), scheme, side, batch, rows, k)

    def workspace(self, scheme: Scheme, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices; of digits at most, for products of any size."""
        if isinstance(scheme, Digits):
            return fused_digits.workspace(self.device, scheme)
        return fused_residues.workspace(self.device, scheme, batch, rows, cols, k)

    def split(self, b: Builder, operand: Described, side: str, scheme: Scheme) -> Slices:
        """The slices of a whole operand."""
        return cutting.split(b, self.device, operand, side, scheme, self.layout(scheme, side, *operand.x.shape))

    def splits_in_one_read(self, scheme: Scheme, side: str, operand: Array, sums: bool) -> bool:
        """Where blocks can hold whole rows, and are faster than two kernels."""
        return self.device.family.one_read and one_read.fits(
            scheme, self.layout(scheme, side, *operand.shape), operand.view, sums
        )

    def multiply(self, b: Builder, scheme: Scheme, left: Slices, right: Slices, out: Array) -> None:
        """out = left right^T, shape (batch, m, n), its columns neighbours in memory."""
        if isinstance(scheme, Digits):
            fused_digits.multiply(b, self.device, scheme, left, right, out)
        else:
            fused_residues.multiply(b, self.device, scheme, left, right, out)

    def occupied(self, scheme: Scheme, batch: int, m: int, k: int, n: int) -> float:
        """Entries of each slice product that would keep all clusters busy for as long as a product does."""
        if isinstance(scheme, Digits):
            return fused_digits.occupied(self.device, scheme, batch, m, k, n)
        return fused_residues.occupied(self.device, scheme, batch, m, k, n)
