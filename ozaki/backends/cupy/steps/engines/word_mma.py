"""Products of words of any number, format and order, on every device with the tensor cores of Ampere or later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, output
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.engines.engine import rounded_by
from ozaki.backends.cupy.steps.engines.word_program import initializer
from ozaki.backends.cupy.steps.epilogue import Epilogue
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.words import split_words, width
from ozaki.caches import cached
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_ROWS, _COLUMNS = 128, 128
"""Rows, and columns at most, of the tile of a block, as in kernels/words/word_mma.cu."""

_GROUP = 8
"""Row tiles whose columns are walked together, so that both operands are read again from the second-level cache."""


@dataclass(frozen=True)
class Shape:
    """How the warps of a block share its tile.

    Attributes
    ----------
    warps : 4, for two blocks on a multiprocessor, or 8
    rows, columns : of the tile of a warp
    units : most units of k, 32 bytes of each word, that are held in shared memory at a time
    """

    warps: int
    rows: int
    columns: int
    units: int = 4

    def held(self, words: Words, device: Device) -> int:
        """Units of k that a block can hold while as many are copied."""
        memory = device.shared_memory // (8 // self.warps) - _RESERVED
        return min(memory // self.unit_bytes(words), self.units)

    def unit_bytes(self, words: Words) -> int:
        """Bytes of shared memory for two units of k: one that is multiplied, and one that is copied meanwhile."""
        return 2 * words.count * (_ROWS + self.width) * 32

    @property
    def width(self) -> int:
        """Columns of a block's tile."""
        return self.warps // (_ROWS // self.rows) * self.columns


@dataclass(frozen=True)
class MmaWords:
    """The kernel with tiles of some shape. All compare equal: words lie in the same order for each shape."""

    keeps: ClassVar[bool] = False
    device: Device
    shape: Shape = field(compare=False)
    label: str = "mma.sync kernel"

    @classmethod
    def of(cls, device: Device, words: Words, batch: int, m: int, k: int, n: int) -> MmaWords:
        """The kernel with the largest tiles that fit; with smaller ones where large ones leave multiprocessors idle."""
        large = _large(words, device)
        at_once = device.cluster_blocks * (8 // large.warps)
        few = 2 * batch * ceil(m / _ROWS) * ceil(n / large.width) <= at_once
        return cls(device, next(_fitting((_SMALL,), words, device), large) if few else large)

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """Words in fragments."""
        return _layout(words, side, batch, rows, k)

    def workspace(self, words: Words, batch: int, rows: int, cols: int, k: int) -> int:
        """Nothing is held beside the words."""
        return 0

    def split(self, b: Builder, operand: Described, side: str, words: Words) -> Slices:
        """The words of a whole operand."""
        return split_words(b, operand, words, _layout(words, side, *operand.x.shape))

    def splits_in_one_read(self, words: Words, side: str, operand: Array, whole: bool) -> bool:
        """Never: there is no such kernel for fragments."""
        return False

    def multiply(self, b: Builder, words: Words, left: Slices, right: Slices, epilogue: Epilogue) -> None:
        """Left right^T, shape (batch, m, n), whose sums are rounded on the way: there is no other epilogue."""
        out = rounded_by(epilogue)
        operands = left.operand, right.operand, out.view, left.mu_step, right.mu_step
        kernel = _multiplying(self.device, words, self.shape, left.described.k, left.layout.k, operands)
        b.launch(kernel, left.planes, right.planes, Out(out), left.mu, right.mu)

    def seconds(self, words: Words, batch: int, m: int, k: int, n: int, dtype: str) -> None:
        """Not measured."""


_SMALL, _SMALLEST = Shape(8, 64, 16), Shape(8, 32, 32)
"""Shapes for products of few tiles; and for those with sums in FP64, or where a block has little shared memory."""


@cached(1024)
def _large(words: Words, device: Device) -> Shape:
    """The shape for many tiles: two blocks of 4 warps on a multiprocessor for one accumulator, else one of 8 warps.

    H200 at 4096: two instead of one take halfhalf from 92 to 98 and single-fp16 from 234 to 260 TFLOP/s, but
    triple-bf16, which has several accumulators, from 32 to 24.
    """
    if words.promotion == "fp64":
        return _SMALLEST
    shapes = [Shape(8, 64, 32)]
    if len(groups(words)) == 1:  # nothing is added to what other groups give
        shapes.insert(0, Shape(4, 64, 32) if words.block else Shape(4, 64, 64, units=max(4 // words.count, 1)))
    return next(_fitting(shapes, words, device), _SMALLEST)


def _fitting(shapes: Iterable[Shape], words: Words, device: Device) -> Iterator[Shape]:
    """The shapes that hold a unit of k; of several words in one accumulator a whole block of up to four units.

    Each turn goes through the block, and would copy it once more if it were not held.
    """
    block = (words.block or 0) * width(words) // 32
    needed = block if len(groups(words)) == 1 and words.count > 1 and 1 <= block <= 4 else 1
    return (shape for shape in shapes if shape.held(words, device) >= needed)


@cached(1024)
def _layout(words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
    unit = _ROWS if side == "left" else _COLUMNS
    rows, k = round_up(rows, unit), round_up(k, 128)
    row_bytes = k * width(words)
    each = rows * row_bytes
    size = words.count * batch * each
    return Layout(rows, k, each, row_bytes, batch * each, k, 0, size, unit, neighbours=0 if side == "left" else 2)


@cached(1024)
def _multiplying(
    device: Device, words: Words, shape: Shape, k: int, k_padded: int, operands: tuple[Any, Any, View, int, int]
) -> Kernel:
    a, b, out, mu_step, nu_step = operands
    batch, m, n = out.shape
    held = shape.held(words, device)
    macros: Macros = {
        "WORD": words.word.upper(), "WORD_COUNT": words.count, "HALF_SUMS": int(words.accumulator == "fp16"),
        "PROMOTION": "double" if words.promotion == "fp64" else "float", "PROGRAM": initializer(words),
        "WARPS": shape.warps, "WARP_ROWS": shape.rows, "WARP_COLS": shape.columns, "HELD": held,
    }  # fmt: skip
    grid = (batch * ceil(m / _ROWS) * ceil(n / shape.width),)
    units = (-(-size * width(words) // 32) for size in (k, k_padded))
    return Kernel.of(
        "words/word_mma.cu", "word_mma", macros, grid, (32 * shape.warps,), a, b, output(out, mu_step, nu_step),
        *units,
        _GROUP, shared_mem=held * shape.unit_bytes(words),
    )  # fmt: skip


_RESERVED = 1024
"""Bytes of shared memory of each block that the system keeps."""
