"""Engines of rows that have as many digits each as they need (`RowDigits`): cuBLAS int8, and the library's kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import Tiles, round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.engines.engine import units_of, workspace_of
from ozaki.backends.cupy.steps.engines.few_rows import MOST_ROWS, FewRowDigits, layout_of_columns
from ozaki.backends.cupy.steps.engines.shares import few_digit_shares
from ozaki.backends.cupy.steps.engines.tiled import LABEL, Operand, Together, group, layout, together
from ozaki.backends.cupy.steps.epilogue import (
    Combine,
    Expression,
    Round,
    arguments_of,
    expression_of,
    macros_of,
    places_of,
)
from ozaki.backends.cupy.steps.gemm import INT8, check_row, gemms
from ozaki.backends.cupy.steps.operands import Layout, Scales, Slices
from ozaki.backends.cupy.steps.rows_of_digits import FORMATS, SplitRows, combine_rows
from ozaki.backends.cupy.steps.unrounded import Planes
from ozaki.caches import cached
from ozaki.records.plan import Plan
from ozaki.schemes import Digits
from ozaki.schemes.row_digits import RowDigits


@dataclass(frozen=True)
class CublasRowDigits:
    """All rows stay where they are, each with room for the most digits; a kernel joins as many diagonals as it has."""

    keeps: ClassVar[bool] = False
    compacts: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    zeros: ClassVar[int] = 0
    device: Device
    label: str = "cuBLAS int8"

    def layout(self, scheme: RowDigits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the digits of an operand lie: side by side along k, so that a diagonal is one product."""
        return _layout(scheme.columns if side == "right" else scheme.kinds[-1], _most(scheme), batch, rows, k)

    def workspace(self, scheme: RowDigits, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices, for a batch of any length: its matrices are multiplied one after the other."""
        return rows * round_up(cols, 16) * _most(scheme) * (4 if k <= _deepest(_most(scheme)) else 12)

    def multiply(
        self, b: Builder, scheme: RowDigits, left: SplitRows, right: Slices, epilogue: Round | Combine
    ) -> None:  # fmt: skip
        """Multiply all rows that are not exact into the epilogue's array, shape (batch, m, n), uint16."""
        batch, m, n = epilogue.shape
        most, ld = _most(scheme), round_up(n, 16)
        la, lb = left.slices.layout, right.layout
        slabs = la.k // la.slab
        products = b.array("diagonals", (most, m, ld), "i")
        sums = products if slabs == 1 else b.array("sums", (most, m, ld), "q")
        places = [_pairs(d, scheme) for d in range(2, most + 2)]
        for i in range(batch):
            for g in range(slabs):
                at_a = left.slices.planes.at.plus(i * la.matrix_bytes + g * la.slab_stride)
                at_b = right.place_of_matrix(i).plus(g * lb.slab_stride)
                for d, (first, reversed_first, pairs) in enumerate(places):
                    at = (
                        at_a.plus(first * la.slice_bytes),
                        at_b.plus(reversed_first * lb.slice_bytes),
                        products.at_index(0, d).at,
                    )
                    gemms(b, INT8, at, (m, ld, pairs * la.slab), (la.row_bytes, lb.row_bytes, ld))
                if slabs > 1:
                    scales = Scales(left.slices.mu.part(0, i, i + 1)), Scales(right.mu)
                    Planes(Digits(most), sums, *scales).add_diagonals(b, products, first=g == 0)
            of_matrix, j = epilogue.part(0, i, i + 1), i if right.mu.shape[0] > 1 else 0
            mu, nu = left.slices.mu.part(0, i, i + 1), right.mu.part(0, j, j + 1)
            combine_rows(b, scheme, of_matrix, (sums, left.row_of.part(0, i, i + 1), mu, nu))
        b.release(products, sums)


def _most(scheme: RowDigits) -> int:
    """Diagonals of rows with the most digits."""
    return max(scheme.kinds[-1], scheme.columns)


def _pairs(d: int, scheme: RowDigits) -> tuple[int, int, int]:
    """Of diagonal s + t = d the first s - 1, how many of the reversed digits of B come before its t, and the pairs."""
    first, last = max(1, d - scheme.columns), min(scheme.kinds[-1], d - 1)
    return first - 1, scheme.columns - (d - first), last - first + 1


def _deepest(most: int) -> int:
    """Elements of k, a multiple of 128, whose products an int32 accumulator takes."""
    return Digits(most).depth() // 128 * 128


@cached(1024)
def _layout(count: int, most: int, batch: int, rows: int, k: int) -> Layout:
    rows = round_up(rows, 16)
    slabs = max(-(-k // _deepest(most)), 1)
    slab = round_up(-(-k // slabs), 128)
    row = count * slab * slabs
    check_row(row)
    return Layout(rows, slab * slabs, rows * row, row, slab, slab, count * slab, batch * rows * row)


@dataclass(frozen=True)
class FusedRowDigits:
    """The library's kernel for few digits, once for each number of digits; it rounds in registers.

    The rows of each number stand in tiles one after the other, those of the fewest digits from the beginning, those of
    more from the end, and what there are of each the kernel reads from device memory.
    """

    keeps: ClassVar[bool] = False
    compacts: ClassVar[bool] = True
    whole: ClassVar[bool] = False
    zeros: ClassVar[int] = 4 * 2 * 1024 + 8  # flags and counters
    device: Device
    label: str = LABEL

    def layout(self, scheme: RowDigits, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the digits of an operand lie: in tiles."""
        tiles = self.device.tiles
        if side == "right":
            return layout_of_columns(tiles, scheme, batch, rows, k)
        return layout(tiles, scheme.kinds[-1], side, batch, rows, k, tiles.few_digits_side, neighbours=0, in_pairs=True)

    def workspace(self, scheme: RowDigits, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices at most, for products of any size."""
        return self._handed_over(scheme.fewest)

    def _handed_over(self, digits: int) -> int:
        """Bytes that blocks of the largest grid hand over."""
        tiles = self.device.tiles
        return 2 * self.device.clusters * tiles.few_digits_side * tiles.columns * (digits + 3)

    def multiply(
        self, b: Builder, scheme: RowDigits, left: SplitRows, right: Slices, epilogue: Round | Combine
    ) -> None:  # fmt: skip
        """Multiply all rows that are not exact into the epilogue's array, shape (batch, m, n), uint16."""
        out, expression = epilogue.out, expression_of(epilogue)
        assert isinstance(out, Array)
        blocks = left.slices.layout.k // self.device.tiles.depth
        places = left.row_of.shape[1]
        mu_step = places if out.shape[0] > 1 else 0
        for i, digits in enumerate(scheme.kinds):
            operands = left.slices.operand, right.operand, blocks, out.view, mu_step, right.mu_step
            splits, beginning, kernel = _gemm(self.device, scheme, digits, places, *operands, expression)
            aside = b.buffer("digits aside", self._handed_over(digits)) if splits else None
            counters = [left.zeros.plus(_FLAGS + 4 * i)] if beginning.until else []
            given = Out(left.zeros if aside is None else aside), Out(left.zeros)  # of no use where no tile is split
            b.launch(
                kernel, left.slices.planes, right.planes, Out(out), left.slices.mu, right.mu, *given,
                *map(Out, counters), left.numbers.plus(4 * i), left.row_of, *places_of(epilogue),
            )  # fmt: skip
            if aside is not None:
                b.release(aside)


_FLAGS = 4 * 2 * 1024
"""Bytes of flags, two for each block of the largest grid."""


@cached(1024)
def _gemm(
    device: Device, scheme: RowDigits, digits: int, places: int, a: Operand, b: Operand, blocks: int, out: View,
    mu_step: int, nu_step: int, expression: Expression | None,
) -> tuple[bool, Together, Kernel]:  # fmt: skip
    """Whether tiles are split along k; how clusters begin tiles together; the launch for rows of so many digits.

    Most rows have the fewest digits. Tiles of the others, which are few as a rule, are not split.
    """
    tiles, fewest = device.tiles, digits == scheme.fewest
    batch, m, n = out.shape
    side = tiles.few_digits_side
    width = _columns_of_tile(tiles, digits, n)
    rows, columns = -(-m // (2 * side)), -(-n // width)
    work = batch * rows * columns
    clusters, whole, sharers = min(device.clusters, work), work, 0
    if fewest:
        clusters, whole, sharers = few_digit_shares(work, blocks, device.clusters)
    # Clusters that have no rows to multiply do not begin together with others.
    beginning = together(whole, clusters, blocks) if batch == 1 else Together()
    macros: Macros = {
        "FORMAT": FORMATS[scheme.format], "SLICES": digits, "DIGIT_BITS": 8, "OF_COLUMNS": scheme.columns,
        "TILE_COLUMNS": width, **macros_of(expression),
    }  # fmt: skip
    walk = struct([rows, columns, group(tiles, 2 * side, blocks), batch])
    result = None, *out.steps[:2], None, None, mu_step, nu_step, places | n << 32
    kernel = Kernel.of(
        "products/digit_gemm_sm90.cu", "digit_gemm", macros, (2 * clusters,), (384,), a, b, result, None, None, blocks,
        struct([whole, work - whole, sharers]), walk, beginning.struct, (None, None, places | int(not fewest) << 32),
        *arguments_of(expression), shared_mem=_STAGES[width] * (side + width) * tiles.depth + 1024,
    )  # fmt: skip
    return sharers > 0, beginning, kernel


_STAGES = {64: 6, 128: 6, 192: 5}
"""Stages of the ring, by the columns of a tile: as many as leave room for what else a block holds."""


def _columns_of_tile(tiles: Tiles, digits: int, n: int) -> int:
    """Columns of a tile: of two digits there are accumulators for more, unless the last tile is mostly padding then.

    Of four there are accumulators for one strip.
    """
    if digits > 3:
        return tiles.strip
    wide, narrow = (-(-n // width) * width for width in (tiles.columns, tiles.few_digits_side))
    return tiles.columns if digits == 2 and wide <= _PADDED * narrow else tiles.few_digits_side


_PADDED = 1.04
"""Columns that wide tiles may have, of those that narrow ones have."""


RowEngine = CublasRowDigits | FusedRowDigits | FewRowDigits


def engine_of_columns(engine: RowEngine) -> RowEngine:
    """The engine for which columns of B are prepared, that this one also serves: of few rows that of many."""
    return FusedRowDigits(engine.device) if isinstance(engine, FewRowDigits) else engine


def row_engine(device: Device, plan: Plan, rows: int, combined: bool = False) -> RowEngine:
    """The fastest engine of a device for such a product, within the plan's limit of workspace.

    `rows`: those beside the columns of a matrix of B, more than the plan's m where matrices of A share one. `combined`:
    it rounds alpha A B + beta C once, with other factors than 1.

    Raises
    ------
    ValueError
        If the device has none of the kind that is asked for.
    """
    scheme, k, limit = plan.scheme, plan.shape[1], plan.workspace_limit
    assert isinstance(scheme, RowDigits)
    cublas = CublasRowDigits(device)
    few = rows <= MOST_ROWS
    fused = (few or not combined) and "digits" in device.family.fused and _fits_accumulators(device, scheme, k)
    if plan.engine == "fused" and not fused:
        raise ValueError(
            "engine: 'fused' multiplies 16-bit floats with moderate k on devices of compute capability 9.0, and rounds "
            "alpha A B + beta C if m <= 64 or both factors are 1; use engine='auto'"
        )
    if plan.engine == "cublas" or not fused:
        return cublas
    engine = FewRowDigits(device) if few else FusedRowDigits(device)
    if limit is None:
        return engine
    as_engine: Any = engine  # panels of whole tiles: those of cuBLAS may be smaller
    least = workspace_of(as_engine, scheme, k, prod(plan.batch), *units_of(as_engine, scheme, k))
    return engine if limit >= 2 * least or plan.engine == "fused" else cublas


def _fits_accumulators(device: Device, scheme: RowDigits, k: int) -> bool:
    """Whether neither a diagonal nor the carry into it overflows int32 (as in `fused_digits.multiplies`)."""
    deepest = Digits(_most(scheme)).depth(2**31 - 2**23 - 4)
    return device.tiles.depth * device.tiles.blocks(k) <= deepest
