"""Products of words of any number, format and order, on every device with the tensor cores of Ampere or later."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import accumulate
from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends._launch import Launch, Macros, View, output, round_up
from ozaki.backends._split import Layout, Slices
from ozaki.backends._word_split import width
from ozaki.schemes import Words
from ozaki.schemes.words import groups

label = "mma.sync kernel"

_TILE = 128
"""Rows of a tile, and at least its columns, as in kernels/word_mma.cu."""


@lru_cache(maxsize=1024)
def layout(words: Words, side: str, batch: int, rows: int, k: int) -> Layout:
    """Words in fragments."""
    rows, k = round_up(rows, _TILE), round_up(k, 128)
    row_bytes = k * width(words)
    each = rows * row_bytes
    return Layout(rows, k, each, row_bytes, batch * each, k, 0, words.count * batch * each, _TILE)


def workspace(words: Words, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the words."""
    return 0


def multiply(words: Words, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
    operands = a.operand, b.operand, a.layout.k, View.of(out), a.mu_step, b.mu_step
    launch = _multiplying(cp.cuda.runtime.getDevice(), words, *operands)
    launch(a.planes.data, b.planes.data, out.data, a.mu.data, b.mu.data)
    return 0


@lru_cache(maxsize=1024)
def _multiplying(
    device: int,
    words: Words,
    a: tuple[None, int, int],
    b: tuple[None, int, int],
    k: int,
    out: View,
    mu_step: int,
    nu_step: int,
) -> Launch:
    batch, m, n = out.shape
    promotion = "double" if words.promotion == "fp64" else "float"
    macros: Macros = {"WORD": words.word.upper(), "HALF_SUMS": int(words.accumulator == "fp16"), "PROMOTION": promotion}
    columns = _TILE // 2 if promotion == "double" else _TILE
    return Launch(
        "word_mma.cu", "word_mma", macros, (batch * ceil(m / _TILE) * ceil(n / columns),), (256,), a, b,
        output(out, mu_step, nu_step), k * width(words) // 32, program(words),
    )  # fmt: skip


@cache
def program(words: Words) -> Any:
    """The struct Program of kernels/word_mma.cu."""
    shares = groups(words)
    turns = [turn for group in shares for turn in group.turns]
    levels = [sum(turn[0]) for turn in turns]
    down = [words.scale_bits * max(before - level, 0) for before, level in zip([0, *levels], levels, strict=False)]
    ends = accumulate(len(turn) for turn in turns), accumulate(len(group.turns) for group in shares)
    pairs = [pair for turn in turns for pair in turn]
    lists = [s - 1 for s, _ in pairs], [t - 1 for _, t in pairs], *ends, down, [group.weight for group in shares]
    block = (words.block or 0) * width(words) // 32
    memory = np.array([len(shares), block], np.int32).tobytes()
    for values in lists:
        memory += bytes(values).ljust(_MOST_PAIRS, b"\0")
    return np.frombuffer(memory, f"V{len(memory)}")


_MOST_PAIRS = 64
