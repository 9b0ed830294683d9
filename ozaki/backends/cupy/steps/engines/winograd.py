"""Residue products of large matrices as seven of halves instead of eight: a level of Strassen's algorithm.

In Winograd's form. Sums modulo m are exact, so the products are those of `FusedResidues`, and so are the bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import RESIDUES, reads_of_rows
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.cutting import cutting_constants, cutting_macros
from ozaki.backends.cupy.steps.engines.engine import finished
from ozaki.backends.cupy.steps.engines.fused_residues import FusedResidues, products
from ozaki.backends.cupy.steps.engines.tiled import LABEL
from ozaki.backends.cupy.steps.epilogue import Epilogue
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Quadrants, Unrounded
from ozaki.bounds.description import FIELDS
from ozaki.caches import cached
from ozaki.schemes import Residues, Scaling

_FROM = 8192
"""Least m, n and k: an eighth of the products must take longer than the sums (H200: 3 per cent faster at 8192 when
power limits both, the same when it does not)."""

_MOST_MODULI = 25
"""More than exact products of ordinary data take; many more do not fit registers when they are recombined."""

_PRODUCTS = 7


def faster(scheme: Residues, batch: int, shape: tuple[int, int, int]) -> bool:
    """Whether the seven products are faster than the eight of FusedResidues, for (m, k, n)."""
    return scheme.count <= _MOST_MODULI and batch == 1 and min(shape) >= _FROM


def _half(size: int) -> int:
    """Rows or k of the first half: what is aligned without it still is, and there are no more tiles."""
    return round_up(-(-size // 2), 128)


@dataclass(frozen=True)
class Winograd:
    """Seven products of blocks by the fused kernel of residues, for one matrix."""

    keeps: ClassVar[bool] = True
    device: Device
    label: str = f"{LABEL}, Strassen-Winograd"

    def layout(self, scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
        """For each modulus an operand of each product, a block in tiles, of half the rows and half of k."""
        return self._of_halves.layout(scheme, side, _PRODUCTS, _half(rows), _half(k))

    def workspace(self, scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices."""
        return self._of_halves.workspace(scheme, _PRODUCTS, _half(rows), _half(cols), k)

    def split(self, b: Builder, operand: Described, side: str, scheme: Residues) -> Slices:
        """The slices of the blocks that are multiplied: quadrants, and sums of quadrants."""
        slices = Slices.room(b, operand, self.layout(scheme, side, *operand.x.shape))
        kernel = _splitting(operand.x.view, operand.scaling(scheme), side, scheme, slices.layout)
        b.launch(kernel, operand.x, operand.fields, Out(slices.mu), Out(slices.planes))
        return slices

    def splits_in_one_read(self, scheme: Residues, side: str, operand: Array, whole: bool) -> bool:
        """Never: quadrants far apart are read together."""
        return False

    def multiply(
        self, b: Builder, scheme: Residues, left: Slices, right: Slices, epilogue: Epilogue
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (1, m, n), which is returned to be kept, or finished by the epilogue."""
        _, m, n = epilogue.shape
        at_a, at_b = ((None, x.layout.slice_bytes, x.layout.matrix_bytes) for x in (left, right))
        shape = _PRODUCTS, _half(m), _half(n)
        planes = products(b, self.device, scheme, left, right, (at_a, at_b), shape)
        return finished(b, self.device, Quadrants(scheme, planes, _half(n), left.mu, right.mu), epilogue)

    def seconds(self, scheme: Residues, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data: that of FusedResidues with 7/8 of the operations."""
        rates = self.device.rates
        each = rates.fused(batch * m * n, self._of_halves.busy_entries(scheme, batch, m, k, n)) * _PRODUCTS / 8
        return rates.slices(
            batch, m, k, n, dtype, scheme, operation_ps=each, product_bytes=2 * scheme.count, reads=reads_of_rows(k),
            planned=RESIDUES,
        )  # fmt: skip

    @property
    def _of_halves(self) -> FusedResidues:
        """The engine of the seven products."""
        return FusedResidues(self.device)


@cached(1024)
def _splitting(view: View, scaling: Scaling, side: str, scheme: Residues, lay: Layout) -> Kernel:
    _, rows, k = view.shape
    upper_rows, first_k = (min(_half(size), size) for size in (rows, k))
    grid = (lay.rows * view.dtype.itemsize // 128 * (lay.k // 128),)
    return Kernel.of(
        "conversion/split_quadrants.cu", "split_quadrants", cutting_macros(view, side, scheme, lay), grid, (128,), None,
        *view.steps[1:], rows, k, upper_rows, first_k, lay.rows, lay.k, None, FIELDS.index(scaling.statistic),
        scaling.step, scaling.base, scaling.threshold, None, None, *cutting_constants(scheme, side, lay),
        shared_mem=0 if view.along_k else 64 * 1024,
    )  # fmt: skip
