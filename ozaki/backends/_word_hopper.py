"""Products of two words by the library's own kernel for Hopper: promoted block by block, never left the registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import cupy as cp

from ozaki.backends._launch import Launch, Macros, View, cluster_blocks, output, round_up, struct
from ozaki.backends._split import Layout, Slices
from ozaki.backends._word_split import width
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_ROWS, _DEPTH, _STAGES = 128, 128, 5
"""A tile, as in kernels/word_gemm_sm90.cu."""

_COLUMNS = {208: 1.0, 192: 1.0, 128: 1.1}
"""Of a tile, with the time of a column: narrow tiles are held back by shared memory (docs/performance.md)."""

_GROUP = 8
"""Row-tile pairs walked together."""


def fits(words: Words) -> bool:
    """Whether there is a kernel for these words."""
    (share, *others) = groups(words)
    return (
        not others
        and share.turns == (((2, 1), (1, 2)), ((1, 1),))
        and words.word in ("fp16", "tf32")
        and words.promotion == "fp32"
        and (words.block or 0) * width(words) == _DEPTH
    )


@dataclass(frozen=True)
class Engine:
    """The kernel with that many columns in a tile."""

    columns: int
    label: str = "wgmma kernel"

    @classmethod
    def of(cls, batch: int, m: int, n: int) -> Engine:
        """The one that leaves the fewest entries of tiles to the multiprocessors that finish last."""
        clusters = cluster_blocks(cp.cuda.runtime.getDevice()) // 2
        pairs = batch * -(-m // (2 * _ROWS))

        def time(columns: int) -> float:
            return -(-pairs * -(-n // columns) // clusters) * columns * _COLUMNS[columns]

        return cls(min(_COLUMNS, key=time))

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """Words in tiles (kernels/word_tiles.cuh)."""
        return _layout(words, self.columns, side, batch, rows, k)

    def workspace(self, words: Words, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the words."""
        return 0

    def multiply(self, words: Words, a: Slices, b: Slices, out: Any) -> int:
        """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
        operands = a.operand, b.operand, self.columns, a.described.k, View.of(out), a.mu_step, b.mu_step
        launch = _multiplying(cp.cuda.runtime.getDevice(), words, *operands)
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
    a: tuple[None, int, int],
    b: tuple[None, int, int],
    cols: int,
    k: int,
    out: View,
    mu_step: int,
    nu_step: int,
) -> Launch:
    assert words.block is not None
    batch, m, n = out.shape
    pairs, columns = -(-m // (2 * _ROWS)), -(-n // cols)
    macros: Macros = {
        "TF32_WORDS": int(words.word == "tf32"), "SCALE_BITS": words.scale_bits, "TILE_COLS": cols,
    }  # fmt: skip
    work = batch * pairs * columns
    return Launch(
        "word_gemm_sm90.cu", "word_gemm", macros, (min(cluster_blocks(device), 2 * work),), (384,), a, b,
        output(out, mu_step, nu_step), -(-k // words.block), round_up(k, 128) * width(words) // 64, work,
        struct([pairs, columns, _GROUP, batch]),
        shared_mem=_STAGES * (_ROWS + cols) * _DEPTH + 1024,
    )  # fmt: skip
