"""The engine of few rows of digits beside many columns, as in decoding: bound by the memory with the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, output
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.engines.tiled import LABEL, Operand, layout
from ozaki.backends.cupy.steps.epilogue import (
    Combine,
    Expression,
    Round,
    arguments_of,
    expression_of,
    macros_of,
    places_of,
)
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.rows_of_digits import FORMATS, SplitRows, nonfinite_of
from ozaki.caches import cached
from ozaki.schemes.row_digits import RowDigits

MOST_ROWS = 64
"""The most rows that the kernel takes.

The digits of 4096 x 4096 bfloat16 numbers B are 34 MB, 7 microseconds of an H200's memory. `FusedRowDigits` multiplies
256 rows however few there are: 1.3e10 products of digits, 17 microseconds of all tensor cores, by 22 pairs of tiles for
66 clusters (with 1, 16 and 64 rows it had 0.23 to 0.29 of the speed of cuBLAS in bfloat16). Here 128 blocks, four to a
cluster, copy the digits once, and multiply 8, 16, 32 or 64 rows: of 64 3.2e9 products, 4 microseconds.
"""

_PADDED = (8, 16, 32, 64)
"""Rows, with padding, of which there are kernels."""

_COLUMNS, _RING = 128, 184 * 1024
"""Columns of a cluster; bytes of a ring, beside which a multiprocessor has room for a block that splits rows of A,
42 KB of which hold a row of 16384. With five stages of 16 rows, of 190 KB, there would be room for rows of 12288."""

_MOST_BLOCKS, _LEAST_BLOCKS = 8, 4
"""Blocks of a cluster at most; and blocks of k of each at least, about as many as its ring takes at once."""


@dataclass(frozen=True)
class FewRowDigits:
    """The library's kernel for few rows of any kinds; it rounds in registers.

    Rows of all kinds stand where they are, in one tile; the kernel computes exact ones and NaN and Inf as well.
    """

    keeps: ClassVar[bool] = False
    compacts: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    zeros: ClassVar[int] = 0
    device: Device
    label: str = LABEL

    def layout(self, scheme: RowDigits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the digits of an operand lie: of columns as for any number of rows."""
        if side == "right":
            return layout_of_columns(self.device.tiles, scheme, batch, rows, k)
        return _layout_of_rows(self.device.tiles, scheme.kinds[-1], batch, rows, k)

    def workspace(self, scheme: RowDigits, batch: int, rows: int, cols: int, k: int) -> int:
        """No bytes are held beside the slices."""
        return 0

    def multiply(
        self, b: Builder, scheme: RowDigits, left: SplitRows, right: Slices, epilogue: Round | Combine
    ) -> None:  # fmt: skip
        """Multiply all rows into the epilogue's array, shape (batch, m, n), uint16."""
        out, x, y = epilogue.out, left.slices.described, right.described
        assert isinstance(out, Array)
        operands = left.slices.operand, right.operand, left.slices.mu_step, right.mu_step
        of = left.slices.layout
        kernel = _kernel(
            self.device, scheme, of.tile, of.k, *operands, x.x.view, y.x.view, out.view, expression_of(epilogue)
        )
        b.launch(
            kernel, left.slices.planes, right.planes, Out(out), left.slices.mu, right.mu, left.row_of,
            x.x, nonfinite_of(x), y.x, nonfinite_of(y), *places_of(epilogue),
        )  # fmt: skip


def layout_of_columns(tiles: Tiles, scheme: RowDigits, batch: int, columns: int, k: int) -> Layout:
    """Where the digits of columns lie for all kernels that read tiles, whatever the number of rows."""
    return layout(tiles, scheme.columns, "right", batch, columns, k, tiles.columns, neighbours=8, in_pairs=True)


@cached(1024)
def _layout_of_rows(tiles: Tiles, count: int, batch: int, rows: int, k: int) -> Layout:
    padded, k = next(each for each in _PADDED if each >= rows), tiles.depth * tiles.blocks(k)
    each = padded * k
    return Layout(padded, k, each, k, batch * each, k, 0, count * batch * each, unit=_PADDED[0], tile=padded)


@cached(1024)
def _kernel(
    device: Device, scheme: RowDigits, rows: int, k: int, a: Operand, b: Operand, mu_step: int, nu_step: int,
    x: View, y: View, out: View, expression: Expression | None,
) -> Kernel:  # fmt: skip
    """The launch with the largest clusters of which as many as there are run at once."""
    depth, most = device.tiles.depth, scheme.kinds[-1]
    blocks = k // depth
    tiles = -(-out.shape[2] // _COLUMNS)
    clusters = out.shape[0] * tiles
    stage = (scheme.columns * _COLUMNS + most * rows) * depth
    stages = _RING // stage
    macros: Macros = {
        "FORMAT": FORMATS[scheme.format], "FEWEST_DIGITS": scheme.fewest, "MOST_DIGITS": most,
        "OF_COLUMNS": scheme.columns, "PADDED_ROWS": rows, "RING_STAGES": stages, **macros_of(expression),
    }  # fmt: skip
    given = [
        (None, 0 if of.shape[0] == 1 else of.steps[0], of.steps[1], None, 0 if of.shape[0] == 1 else of.shape[1])
        for of in (x, y)
    ]

    def launching(cluster: int) -> Kernel:
        return Kernel.of(
            "products/few_rows_sm90.cu", "few_rows", macros | {"CLUSTER": cluster}, (cluster * clusters,), (256,), a, b,
            output(out, mu_step, nu_step), None, *given, blocks, tiles, x.shape[2], *arguments_of(expression),
            shared_mem=stages * stage + 1024,
        )  # fmt: skip

    largest = min(_MOST_BLOCKS, blocks // _LEAST_BLOCKS, device.multiprocessors // max(clusters, 1))
    kernels = ((launching(cluster), cluster) for cluster in range(largest, 1, -1))
    return next((kernel for kernel, of in kernels if clusters <= _at_once(device, kernel, of)), launching(1))


def _at_once(device: Device, kernel: Kernel, cluster: int) -> int:
    """How many clusters of so many blocks run at once; of a device that is not present, at most."""
    if device.number is None:
        return device.multiprocessors // cluster
    from ozaki.backends.cupy.program.launches import clusters_at_once

    return clusters_at_once(kernel, cluster)
