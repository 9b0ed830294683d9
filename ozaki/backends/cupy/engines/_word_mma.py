"""Products of words of any number, format and order, on every device with the tensor cores of Ampere or later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import ceil
from typing import Any

import cupy as cp

from ozaki.backends.cupy._split import Layout, Slices
from ozaki.backends.cupy.engines._word_program import initializer
from ozaki.backends.cupy.engines._word_split import width
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, cluster_blocks, output, round_up
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_ROWS, _COLUMNS = 128, 128
"""Of a tile, as in kernels/words/word_mma.cu, the columns at most."""

_GROUP = 8
"""Row tiles whose columns are walked together, so that both operands are read again from the second-level cache."""


@dataclass(frozen=True)
class Engine:
    """The kernel with so many warps in a block, each of which owns so many entries.

    All are equal: words lie in the same order for each.

    Attributes
    ----------
    warps : 4, for two blocks on a multiprocessor, or 8
    rows, columns : of a warp
    units : of k, 32 bytes of each word, that are held at a time at most
    """

    warps: int = field(compare=False)
    rows: int = field(compare=False)
    columns: int = field(compare=False)
    units: int = field(default=4, compare=False)
    label: str = "mma.sync kernel"

    @classmethod
    def of(cls, words: Words, batch: int, m: int, k: int, n: int) -> Engine:
        """With as many entries as there is room for; fewer where there are few tiles."""
        device = cp.cuda.runtime.getDevice()
        large = _large(words, device)
        at_once = cluster_blocks(device) * (8 // large.warps)
        few = 2 * batch * ceil(m / _ROWS) * ceil(n / large.width) <= at_once
        return next(_fitting((_SMALL,), words, device), large) if few else large

    def held(self, words: Words, device: int) -> int:
        """Units of k that a block can hold while as many are brought."""
        memory = _shared_memory(device) // (8 // self.warps) - _RESERVED
        return min(memory // self.unit_bytes(words), self.units)

    def unit_bytes(self, words: Words) -> int:
        """Of shared memory, for a unit that is held and one that is brought."""
        return 2 * words.count * (_ROWS + self.width) * 32

    @property
    def width(self) -> int:
        """Columns of a block's tile."""
        return self.warps // (_ROWS // self.rows) * self.columns

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """Words in fragments."""
        return _layout(words, side, batch, rows, k)

    def workspace(self, words: Words, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the words."""
        return 0

    def multiply(self, words: Words, a: Slices, b: Slices, out: Any) -> int:
        """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
        choices = self.warps, self.rows, self.columns, self.units
        operands = a.operand, b.operand, View.of(out), a.mu_step, b.mu_step
        launch = _multiplying(cp.cuda.runtime.getDevice(), words, choices, a.described.k, a.layout.k, operands)
        launch(a.planes.data, b.planes.data, out.data, a.mu.data, b.mu.data)
        return 0


_SMALL, _SMALLEST = Engine(8, 64, 16), Engine(8, 32, 32)
"""For few tiles; of those with room for two sums in FP64, and where a block has little shared memory."""


@lru_cache(maxsize=1024)
def _large(words: Words, device: int) -> Engine:
    """For many tiles: two blocks of 4 warps on a multiprocessor for one accumulator, else one of 8.

    H200 at 4096: two instead of one take halfhalf from 92 to 98 and single-fp16 from 234 to 260 TFLOP/s, but
    triple-bf16, which has several accumulators, from 32 to 24.
    """
    if words.promotion == "fp64":
        return _SMALLEST
    engines = [Engine(8, 64, 32)]
    if len(groups(words)) == 1:  # nothing is added to what other groups give
        engines.insert(0, Engine(4, 64, 32) if words.block else Engine(4, 64, 64, units=max(4 // words.count, 1)))
    return next(_fitting(engines, words, device), _SMALLEST)


def _fitting(engines: Iterable[Engine], words: Words, device: int) -> Iterator[Engine]:
    """Those that hold a unit, or a short block, of which else each turn would bring what it needs."""
    block = (words.block or 0) * width(words) // 32
    needed = block if len(groups(words)) == 1 and words.count > 1 and 1 <= block <= 4 else 1
    return (engine for engine in engines if engine.held(words, device) >= needed)


@lru_cache(maxsize=1024)
def _layout(words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
    unit = _ROWS if side == "left" else _COLUMNS
    rows, k = round_up(rows, unit), round_up(k, 128)
    row_bytes = k * width(words)
    each = rows * row_bytes
    size = words.count * batch * each
    return Layout(rows, k, each, row_bytes, batch * each, k, 0, size, unit, neighbours=0 if side == "left" else 2)


@lru_cache(maxsize=1024)
def _multiplying(
    device: int,
    words: Words,
    choices: tuple[int, int, int, int],
    k: int,
    k_padded: int,
    operands: tuple[Any, Any, View, int, int],
) -> Launch:
    engine = Engine(*choices)
    a, b, out, mu_step, nu_step = operands
    batch, m, n = out.shape
    held = engine.held(words, device)
    macros: Macros = {
        "WORD": words.word.upper(), "WORD_COUNT": words.count, "HALF_SUMS": int(words.accumulator == "fp16"),
        "PROMOTION": "double" if words.promotion == "fp64" else "float", "PROGRAM": initializer(words),
        "WARPS": engine.warps, "WARP_ROWS": engine.rows, "WARP_COLS": engine.columns, "HELD": held,
    }  # fmt: skip
    grid = (batch * ceil(m / _ROWS) * ceil(n / engine.width),)
    units = (-(-size * width(words) // 32) for size in (k, k_padded))
    return Launch(
        "words/word_mma.cu", "word_mma", macros, grid, (32 * engine.warps,), a, b, output(out, mu_step, nu_step),
        *units,
        _GROUP, shared_mem=held * engine.unit_bytes(words),
    )  # fmt: skip


@cache
def _shared_memory(device: int) -> int:
    """Bytes of a multiprocessor."""
    return int(cp.cuda.Device(device).attributes["MaxSharedMemoryPerMultiprocessor"])


_RESERVED = 1024
"""Bytes of shared memory of each block that the system keeps."""
