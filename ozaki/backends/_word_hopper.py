"""Products of one or two words by the library's own kernel for Hopper: promoted block by block in its registers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import cupy as cp

from ozaki.backends._jit import architecture
from ozaki.backends._launch import Launch, Macros, View, cluster_blocks, output, round_up, struct
from ozaki.backends._split import Layout, Slices
from ozaki.backends._tuned import tiles
from ozaki.backends._word_split import width
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_ROWS, _DEPTH = 128, 128
"""Of a tile, as in kernels/word_gemm_sm90.cu."""

_COLUMNS = {1: {256: 1.0, 192: 1.08, 128: 1.25}, 2: {208: 1.0, 192: 1.0, 128: 1.1}}
"""Of a tile of so many words, with the time of a column: narrow tiles are held back by shared memory
(docs/performance.md)."""

_STAGES = {256: 4, 208: 5, 192: 5, 128: 5}
"""Of the ring, by columns of a tile: as many as fit into shared memory, up to five."""

_GROUP = 16
"""Row-tile pairs walked together (benchmarks.tuning: 2 to 5 per cent more at 8192 than 8, as much at 4096)."""


def fits(words: Words) -> bool:
    """Whether there is a kernel for these words."""
    (share, *others) = groups(words)
    turns = {"fp16": (((1, 1),),), "fp32": (((2, 1), (1, 2)), ((1, 1),))}[words.accumulator]
    return (
        not others
        and share.turns == turns
        and words.word in ("fp16", "tf32")
        and words.promotion == "fp32"
        and (words.block or 0) * width(words) == _DEPTH
    )


@dataclass(frozen=True)
class Engine:
    """The kernel with that many columns in a tile, stages in its ring, and row-tile pairs walked together.

    Equal where the words of a prepared operand fit both.
    """

    columns: int
    stages: int = field(compare=False)
    group: int = field(default=_GROUP, compare=False)
    label: str = "wgmma kernel"

    @classmethod
    def of(cls, words: Words, batch: int, m: int, k: int, n: int) -> Engine:
        """What tuning found, or leaves the fewest entries of tiles to the multiprocessors that finish last."""
        device, costs = cp.cuda.runtime.getDevice(), _COLUMNS[words.count]
        tuned = tiles(architecture(device), words, m, k, n) if batch == 1 else None
        if tuned is not None and tuned.columns in costs:
            return cls(tuned.columns, tuned.stages, tuned.group)
        clusters = cluster_blocks(device) // 2
        pairs = batch * -(-m // (2 * _ROWS))

        def time(columns: int) -> float:
            return -(-pairs * -(-n // columns) // clusters) * columns * costs[columns]

        columns = min(costs, key=time)
        return cls(columns, _STAGES[columns])

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """Words in tiles (kernels/word_tiles.cuh)."""
        return _layout(words, self.columns, side, batch, rows, k)

    def workspace(self, words: Words, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the words."""
        return 0

    def multiply(self, words: Words, a: Slices, b: Slices, out: Any) -> int:
        """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
        operands = a.operand, b.operand, a.described.k, View.of(out), a.mu_step, b.mu_step
        launch = _multiplying(cp.cuda.runtime.getDevice(), words, self.columns, self.stages, self.group, *operands)
        launch(a.parts.data, b.parts.data, out.data, a.mu.data, b.mu.data)
        return 0


@cache
def _layout(words: Words, columns: int, side: str, batch: int, rows: int, k: int) -> Layout:
    tile, unit = (_ROWS, 2 * _ROWS) if side == "left" else (columns, columns)
    rows, k = round_up(rows, unit), round_up(k, 128)
    row_bytes = words.count * k * width(words)
    each = rows * row_bytes
    return Layout(rows, k, each, row_bytes, 0, k, 0, batch * each, unit, tile, side == "right")


@lru_cache(maxsize=1024)
def _multiplying(
    device: int,
    words: Words,
    cols: int,
    stages: int,
    group: int,
    a: tuple[None, int, int],
    b: tuple[None, int, int],
    k: int,
    out: View,
    mu_step: int,
    nu_step: int,
) -> Launch:
    assert words.block is not None
    batch, m, n = out.shape
    pairs, columns = -(-m // (2 * _ROWS)), -(-n // cols)
    macros: Macros = {
        "HALF_SUMS": int(words.accumulator == "fp16"), "TF32_WORDS": int(words.word == "tf32"),
        "SCALE_BITS": words.scale_bits, "TILE_COLS": cols, "TILE_STAGES": stages,
    }  # fmt: skip
    work = batch * pairs * columns
    k_stages = words.count * round_up(k, 128) * width(words) // _DEPTH
    return Launch(
        "word_gemm_sm90.cu", "word_gemm", macros, (min(cluster_blocks(device), 2 * work),), (384,), a, b,
        output(out, mu_step, nu_step), -(-k // words.block), k_stages, work,
        struct([pairs, columns, group, batch]),
        shared_mem=stages * (_ROWS + cols) * _DEPTH + 1024,
    )  # fmt: skip
