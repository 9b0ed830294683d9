"""Residue products of large matrices as seven of halves instead of eight: a level of Strassen's algorithm.

In Winograd's form. Sums modulo m are exact, so the products are those of `Fused`, and so are the bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, round_up
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.cutting import cutting_constants, cutting_macros
from ozaki.backends.cupy.steps.engines import fused_residues, tiled
from ozaki.backends.cupy.steps.engines.fused import LABEL
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import round_quadrants
from ozaki.bounds.description import FIELDS
from ozaki.schemes import Residues, Scheme, scaling_of

_FROM = 8192
"""Least m, n and k: an eighth of the products must take longer than the sums (H200: 3 per cent faster at 8192 when
power limits both, the same when it does not)."""

_MOST_MODULI = 20
"""Far more than ordinary data need; recombining many more does not fit registers (tests/test_compile.py)."""

_PRODUCTS = 7

DONE = _PRODUCTS / 8
"""Part of the multiplications."""


def faster(device: Device, scheme: Scheme, batch: int, shape: tuple[int, int, int]) -> bool:
    """Whether it is faster than the same products without it, for (m, k, n)."""
    few = isinstance(scheme, Residues) and scheme.count <= _MOST_MODULI
    return device.tiles is not None and few and batch == 1 and min(shape) >= _FROM


def _half(size: int) -> int:
    """Rows or k of the first half: what is aligned without it still is, and there are no more tiles."""
    return round_up(-(-size // 2), 128)


@dataclass(frozen=True)
class Winograd:
    """Seven products of blocks by the fused kernel of residues, for one matrix."""

    device: Device
    label: str = f"{LABEL}, Strassen-Winograd"

    def layout(self, scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
        """For each modulus an operand of each product, a block in tiles, of half the rows and half of k."""
        return tiled.layout(tiled.tiles_of(self.device), scheme, side, _PRODUCTS, _half(rows), _half(k))

    def workspace(self, scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices."""
        return fused_residues.workspace(self.device, scheme, _PRODUCTS, _half(rows), _half(cols), k)

    def split(self, b: Builder, operand: Described, side: str, scheme: Residues) -> Slices:
        """The slices of the blocks that are multiplied: quadrants, and sums of quadrants."""
        slices = Slices.room(b, operand, self.layout(scheme, side, *operand.x.shape))
        kernel = _splitting(self.device, operand.x.view, side, scheme, slices.layout)
        b.launch(kernel, operand.x, operand.fields, Out(slices.mu.at), Out(slices.planes.at))
        return slices

    def splits_in_one_read(self, scheme: Residues, side: str, operand: Array, sums: bool) -> bool:
        """Never: quadrants far apart are read together."""
        return False

    def multiply(self, b: Builder, scheme: Residues, left: Slices, right: Slices, out: Array) -> None:
        """out = left right^T, shape (1, m, n), its columns neighbours in memory."""
        _, m, n = out.shape
        at_a, at_b = ((None, x.layout.slice, x.layout.batch) for x in (left, right))
        shape = _PRODUCTS, _half(m), _half(n)
        planes = fused_residues.products(b, self.device, scheme, left, right, (at_a, at_b), shape)
        round_quadrants(b, self.device, scheme, planes, _half(n), left.mu, right.mu, out)
        b.release(planes)

    def occupied(self, scheme: Residues, batch: int, m: int, k: int, n: int) -> float:
        """As without it: the times of both are compared by `DONE`."""
        return fused_residues.occupied(self.device, scheme, batch, m, k, n)


@lru_cache(maxsize=1024)
def _splitting(device: Device, view: View, side: str, scheme: Residues, lay: Layout) -> Kernel:
    _, rows, k = view.shape
    scaling = scaling_of(scheme, k)
    upper_rows, first_k = (min(_half(size), size) for size in (rows, k))
    grid = (lay.rows * view.itemsize // 128 * (lay.k // 128),)
    return Kernel.of(
        "conversion/split_quadrants.cu", "split_quadrants", cutting_macros(view, side, scheme, lay), grid, (128,), None,
        *view.steps[1:], rows, k, upper_rows, first_k, lay.rows, lay.k, None, FIELDS.index(scaling.statistic),
        scaling.step, scaling.base, scaling.threshold, None, None, *cutting_constants(scheme, side, lay),
        shared_mem=0 if view.along_k else 64 * 1024,
    )  # fmt: skip
