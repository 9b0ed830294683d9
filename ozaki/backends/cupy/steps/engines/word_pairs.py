"""Products of words by the library's own `wgmma` kernel: every pair of words in an accumulator of its own."""

from __future__ import annotations

from typing import Any

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.engines.engine import rounded_by
from ozaki.backends.cupy.steps.engines.word_program import program
from ozaki.backends.cupy.steps.engines.word_tiles import DEPTH, TiledWords, chosen, layout, multiplying
from ozaki.backends.cupy.steps.epilogue import Epilogue
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.words import width
from ozaki.caches import cached
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_COLUMNS: dict[str, dict[int, float]] = {
    "none": {256: 1.0, 192: 1.08, 128: 1.25}, "float": {208: 1.0, 192: 1.03, 128: 1.18}, "double": {128: 1.0},
}  # fmt: skip
"""Columns that a tile may have, by the format of the sums that a thread holds as well as its accumulators; and the time
of a column. That is in proportion to the bytes a clock that tiles of 256, 208, 192 and 128 columns read from shared
memory, which gives 128: they ask for 128, 135, 139 and 160."""


def multiplies(words: Words) -> bool:
    """Whether there is a kernel for these words."""
    alone = all(len(group.pairs) == 1 for group in groups(words))
    return alone and words.accumulator == "fp32" and (words.block or 0) * width(words) % DEPTH == 0


class PairedWords(TiledWords):
    """The kernel of an accumulator for each pair."""

    @classmethod
    def of(cls, device: Device, words: Words, batch: int, m: int, k: int, n: int) -> PairedWords:
        """The kernel with the columns of a tile with which the last cluster finishes first."""
        return cls(device, chosen(device, _COLUMNS[_totals(words)], batch, m, n))

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """Each word in tiles of its own."""
        return layout(words, self.columns, 1, side, batch, rows, k)

    def multiply(self, b: Builder, words: Words, left: Slices, right: Slices, epilogue: Epilogue) -> None:
        """Left right^T, shape (batch, m, n), whose sums are rounded on the way: there is no other epilogue."""
        out = rounded_by(epilogue)
        operands = left.operand, right.operand, out.view, left.mu_step, right.mu_step
        kernel = _multiplying(self.device, words, self.columns, left.described.k, operands)
        b.launch(kernel, left.planes, right.planes, Out(out), left.mu, right.mu)


def _totals(words: Words) -> str:
    """The format of sums outside the tensor core; one pair that is not promoted needs none."""
    if words.block is None and len(groups(words)) == 1:
        return "none"
    return "double" if words.promotion == "fp64" else "float"


@cached(1024)
def _multiplying(
    device: Device, words: Words, columns: int, k: int, operands: tuple[Any, Any, View, int, int]
) -> Kernel:
    totals = _totals(words)
    macros: Macros = {"WORD": words.word.upper(), "TOTALS": int(totals != "none")}
    macros["PROMOTION"] = "double" if totals == "double" else "float"
    blocks, k_blocks = (-(-elements * width(words) // DEPTH) for elements in (k, round_up(k, 128)))
    kernel = "words/word_pairs_sm90.cu", "word_pairs"
    return multiplying(device, kernel, macros, columns, operands, blocks, k_blocks, program(words))
