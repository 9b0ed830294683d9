"""Operands cut into low-precision words on the device, in the order that an engine reads."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import cupy as cp
import numpy as np

from ozaki._description import Described
from ozaki.backends.cupy._split import Layout, Slices
from ozaki.backends.cupy._tops import Tops
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, round_up
from ozaki.schemes import Words


def width(words: Words) -> int:
    """Bytes of a word."""
    return 4 if words.word == "tf32" else 2


def split(operand: Described, words: Words, layout: Layout) -> Slices:
    """The words of a whole operand; a layout without tiles is one in fragments (kernels/words/fragments.cuh)."""
    batch, rows, _ = operand.x.shape
    planes, mu = cp.empty(layout.size, np.int8), cp.empty((batch, rows), np.int32)
    largest = isinstance(operand, Tops)
    launch = _splitting(cp.cuda.runtime.getDevice(), View.of(operand.x), words, layout, largest)
    launch(operand.x.data, operand.fields.data, mu.data, planes.data)
    return Slices(operand, planes, layout, mu)


@lru_cache(maxsize=1024)
def _splitting(device: int, view: View, words: Words, layout: Layout, largest: bool) -> Launch:
    macros = tile_macros(view, words, layout) | {"LARGEST": int(largest)}
    return Launch(
        "words/split_words.cu", "split_words", macros, _grid(view, layout.rows, layout.k), (256,), None, *view.steps,
        *view.shape[1:], layout.rows, layout.k, None, words.ceiling, None, None, layout.batch, layout.slice,
    )  # fmt: skip


def underflows(operand: Described, words: Words) -> int:
    """Elements whose words leave more than underflow-free words would; waits for the device."""
    count = cp.zeros(1, np.uint64)
    launch = _counting(cp.cuda.runtime.getDevice(), View.of(operand.x), words)
    launch(operand.x.data, operand.fields.data, count.data)
    return int(count[0])


@lru_cache(maxsize=1024)
def _counting(device: int, view: View, words: Words) -> Launch:
    _, rows, k = view.shape
    macros = _macros(view, words) | {"TILE": 0, "TOGETHER": 1, "NEIGHBOURS": 0, "LARGEST": 0}
    padded = round_up(rows, 32), round_up(k, 128)
    return Launch(
        "words/split_words.cu", "count_underflows", macros, _grid(view, *padded), (256,), None, *view.steps, rows, k,
        *padded,
        None, words.ceiling, words.residual, None,
    )  # fmt: skip


def tile_macros(view: View, words: Words, layout: Layout) -> Macros:
    """Macros of kernels/words/cut_words.cuh, and along what is read."""
    together = layout.row_bytes // (layout.k * width(words))
    return _macros(view, words) | {"TILE": layout.tile, "TOGETHER": together, "NEIGHBOURS": layout.neighbours}


def _macros(view: View, words: Words) -> Macros:
    return {
        "WORD": words.word.upper(),
        "CONVERSION": words.rounding,
        "WORD_COUNT": words.count,
        "SCALE_BITS": words.scale_bits,
        "ALONG_K": view.along_k,
    }


def _grid(view: View, rows: int, k: int) -> tuple[int]:
    return (view.shape[0] * ceil(rows / 32) * (k // 128),)
