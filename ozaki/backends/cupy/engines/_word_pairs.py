"""Products of words by the library's own kernel for Hopper: every pair of words in an accumulator of its own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy as cp

from ozaki.backends.cupy._split import Layout, Slices
from ozaki.backends.cupy.engines import _word_tiles
from ozaki.backends.cupy.engines._word_program import program
from ozaki.backends.cupy.engines._word_split import width
from ozaki.backends.cupy.engines._word_tiles import DEPTH, chosen, layout, multiplying
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, round_up
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_COLUMNS: dict[str, dict[int, float]] = {
    "none": {256: 1.0, 192: 1.08, 128: 1.25}, "float": {208: 1.0, 192: 1.03, 128: 1.18}, "double": {128: 1.0},
}  # fmt: skip
"""Of a tile, by the totals that a thread holds beside its accumulators, with the time of a column: in proportion to the
bytes a clock that tiles of 256, 208, 192 and 128 columns ask of shared memory, counted 128, 135, 139 and 160 of 128."""


def fits(words: Words) -> bool:
    """Whether there is a kernel for these words."""
    alone = all(len(group.pairs) == 1 for group in groups(words))
    return alone and words.accumulator == "fp32" and (words.block or 0) * width(words) % DEPTH == 0


class Engine(_word_tiles.Engine):
    """The kernel of an accumulator for each pair."""

    @classmethod
    def of(cls, words: Words, batch: int, m: int, k: int, n: int) -> Engine:
        """What leaves the fewest entries of tiles to the multiprocessors that finish last."""
        return cls(chosen(_COLUMNS[_totals(words)], batch, m, n))

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """Each word in tiles of its own."""
        return layout(words, self.columns, 1, side, batch, rows, k)

    def multiply(self, words: Words, a: Slices, b: Slices, out: Any) -> int:
        """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
        operands = a.operand, b.operand, View.of(out), a.mu_step, b.mu_step
        launch = _multiplying(cp.cuda.runtime.getDevice(), words, self.columns, a.described.k, operands)
        launch(a.planes.data, b.planes.data, out.data, a.mu.data, b.mu.data)
        return 0


def _totals(words: Words) -> str:
    """The format of sums outside the tensor core; one pair that is not promoted needs none."""
    if words.block is None and len(groups(words)) == 1:
        return "none"
    return "double" if words.promotion == "fp64" else "float"


@lru_cache(maxsize=1024)
def _multiplying(device: int, words: Words, columns: int, k: int, operands: tuple[Any, Any, View, int, int]) -> Launch:
    totals = _totals(words)
    macros: Macros = {"WORD": words.word.upper(), "TOTALS": int(totals != "none")}
    macros["PROMOTION"] = "double" if totals == "double" else "float"
    blocks, k_blocks = (-(-elements * width(words) // DEPTH) for elements in (k, round_up(k, 128)))
    kernel = "words/word_pairs_sm90.cu", "word_pairs"
    return multiplying(kernel, macros, columns, operands, blocks, k_blocks, program(words))
