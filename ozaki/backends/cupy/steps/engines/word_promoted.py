"""Products of one or two words by the library's own `wgmma` kernel: promoted block by block in its registers."""

from __future__ import annotations

from typing import Any

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.engines.engine import rounded_by
from ozaki.backends.cupy.steps.engines.tiled import Together
from ozaki.backends.cupy.steps.engines.word_tiles import DEPTH, ROWS, TiledWords, chosen, layout, multiplying, tiles_of
from ozaki.backends.cupy.steps.epilogue import Epilogue
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.words import width
from ozaki.caches import cached
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_COLUMNS = {1: {256: 1.0, 208: 0.92, 192: 0.95, 128: 1.2}, 2: {208: 1.02, 192: 1.0, 128: 1.1}}
"""Columns that a tile may have, by the number of words, and the time of a column. Tiles of 128 ask shared memory for
more than its 128 bytes a clock: 160 with one word, 139 with two. One word in 208 or 192 has room to multiply a block of
k while the one before is promoted (H200: 251 microseconds at 4096 with 208, 262 with 256). Two in 208 have 213, in 192
218 TFLOP/s at 16384."""


def multiplies(words: Words) -> bool:
    """Whether there is a kernel for these words."""
    (share, *others) = groups(words)
    turns = {"fp16": (((1, 1),),), "fp32": (((2, 1), (1, 2)), ((1, 1),))}[words.accumulator]
    return (
        not others
        and share.turns == turns
        and words.word in ("fp16", "tf32")
        and words.promotion == "fp32"
        and (words.block or 0) * width(words) == DEPTH
    )


class PromotedWords(TiledWords):
    """The kernel of one promoted accumulator."""

    @classmethod
    def of(cls, device: Device, words: Words, batch: int, m: int, k: int, n: int) -> PromotedWords:
        """The kernel with the columns of a tile with which the last cluster finishes first."""
        return cls(device, chosen(device, _COLUMNS[words.count], batch, m, n))

    def layout(self, words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
        """All words of an element in one tile."""
        return layout(words, self.columns, words.count, side, batch, rows, k)

    def multiply(self, b: Builder, words: Words, left: Slices, right: Slices, epilogue: Epilogue) -> None:
        """Left right^T, shape (batch, m, n), whose sums are rounded on the way: there is no other epilogue."""
        out = rounded_by(epilogue)
        operands = left.operand, right.operand, out.view, left.mu_step, right.mu_step
        together, kernel = _multiplying(self.device, words, self.columns, left.described.k, operands)
        counters = together.counter(b)
        b.launch(kernel, left.planes, right.planes, Out(out), left.mu, right.mu, *map(Out, counters))
        b.release(*counters)

    def seconds(self, words: Words, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes."""
        clusters = self.device.clusters
        pairs = batch * -(-m // (2 * ROWS)) * -(-n // self.columns)
        busy_entries = -(-pairs // clusters) * clusters * 2 * ROWS * self.columns
        return self.device.rates.words(batch, m, k, n, words, busy_entries)


@cached(1024)
def _multiplying(
    device: Device, words: Words, columns: int, k: int, operands: tuple[Any, Any, View, int, int]
) -> tuple[Together, Kernel]:
    assert words.block is not None
    macros: Macros = {
        "HALF_SUMS": int(words.accumulator == "fp16"), "WORD": words.word.upper(), "SCALE_BITS": words.scale_bits,
    }  # fmt: skip
    k_stages = words.count * round_up(k, 128) * width(words) // DEPTH
    work, *_ = tiles_of(operands[2], columns)
    together = Together.of(work, device.clusters) if k_stages >= _LONG else Together()
    kernel, blocks = ("words/word_gemm_sm90.cu", "word_gemm"), -(-k // words.block)
    return together, multiplying(device, kernel, macros, columns, operands, blocks, k_stages, together.struct)


_LONG = 256
"""Stages of a tile from which on clusters begin tiles together, so that what one has copied is in the cache for all
(H200: the kernel of halfhalf at 8192, 256 stages, takes 4.83 to 4.85 ms instead of 4.86 to 4.88)."""
