"""Low-precision words of operands, stored in the layout that an engine reads."""

from __future__ import annotations

from math import ceil

from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Arrive, Out
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.caches import cached
from ozaki.schemes import Words


def width(words: Words) -> int:
    """Bytes of a word."""
    return 4 if words.word == "tf32" else 2


def split_words(b: Builder, operand: Described, words: Words, layout: Layout) -> Slices:
    """Cut a described operand into words, stored in `layout`: in tiles or fragments (kernels/words/fragments.cuh)."""
    slices = Slices.room(b, operand, layout)
    kernel = _split_words_kernel(operand.x.view, words, layout, operand.only_largest)
    b.launch(kernel, operand.x, operand.fields, Out(slices.mu), Out(slices.planes))
    return slices


@cached(1024)
def _split_words_kernel(view: View, words: Words, layout: Layout, largest: bool) -> Kernel:
    macros = tile_macros(view, words, layout) | {"LARGEST": int(largest)}
    return Kernel.of(
        "words/split_words.cu", "split_words", macros, _grid(view, layout.rows, layout.k), (256,), None, *view.steps,
        *view.shape[1:], layout.rows, layout.k, None, words.ceiling, None, None, layout.matrix_bytes,
        layout.slice_bytes,
    )  # fmt: skip


def count_underflows(b: Builder, operand: Described, words: Words) -> Arrive:
    """Begin to count the elements of which words leave out more than the residual of B8; the array has one int64."""
    count = b.zeroed("underflows", 8)
    b.launch(_underflows_kernel(operand.x.view, words), operand.x, operand.fields, Out(count))
    return b.to_host("underflows on host", count, (1,), "q")


@cached(1024)
def _underflows_kernel(view: View, words: Words) -> Kernel:
    _, rows, k = view.shape
    macros = _macros(view, words) | {"TILE": 0, "TOGETHER": 1, "NEIGHBOURS": 0, "LARGEST": 0}
    padded = round_up(rows, 32), round_up(k, 128)
    return Kernel.of(
        "words/split_words.cu", "count_underflows", macros, _grid(view, *padded), (256,), None, *view.steps, rows, k,
        *padded,
        None, words.ceiling, words.residual, None,
    )  # fmt: skip


def tile_macros(view: View, words: Words, layout: Layout) -> Macros:
    """The macros of kernels/words/cut_words.cuh, and ALONG_K."""
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
