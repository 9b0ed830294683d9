"""The description of rows on the device (docs/design.md, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from ozaki._description import FIELDS, Described, Description, Least, Sides
from ozaki.backends.cupy._tops import TopsOfWords
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, round_up
from ozaki.backends.cupy.launching._tape import Copy, Record
from ozaki.schemes import Words, magnitude_bits


def describe(x: Any) -> Described:
    """The description of the rows of x, shape (batch, rows, k)."""
    fields = cp.empty((len(FIELDS), *x.shape[:2]), np.int64)
    size, launches = _describing(cp.cuda.runtime.getDevice(), View.of(x))
    between = cp.cuda.alloc(size) if size else fields.data
    for launch in launches:
        launch(x.data, fields.data, between)
    return Described(x, fields)


def read(described: Described) -> Callable[[], Description]:
    """Begin to copy a description to the host; calling the result waits for it, in a call done again for its own."""
    k, arrived = described.k, _to_host(described.fields)
    return lambda: Description(k, *arrived())


def read_least(some: Sides, whole: Sides, words: Words | None = None) -> Callable[[], tuple[Least, Least]]:
    """Likewise what some elements of the rows of both operands tell; the device looks for the least numbers."""
    (left, right), k = some, some[0].k
    sizes = left.fields[0].size, right.fields[0].size
    blocks = min(ceil(max(sizes) / _ROWS_AT_ONCE), _BLOCKS)
    least = cp.empty((2, blocks, len(Least._fields)), np.float64)
    assert words is None or all(isinstance(side, TopsOfWords) for side in whole)
    launch = _looking(cp.cuda.runtime.getDevice(), blocks, sizes, k, words is not None)
    launch(left.fields.data, whole[0].fields.data, right.fields.data, whole[1].fields.data, least.data)
    arrived = _to_host(least)

    def read() -> tuple[Least, Least]:
        of_left, of_right = (
            Least(elements * 4.0 ** magnitude_bits(k), sums, int(steps), bool(told), bool(kept))
            for elements, sums, steps, told, kept in arrived().min(axis=1).tolist()
        )
        return of_left, of_right

    return read


_ROWS_AT_ONCE, _BLOCKS = 512, 32
"""Rows of a block of kernels/least.cu, one of each thread; blocks for each operand, at most."""


@lru_cache(maxsize=1024)
def _looking(device: int, blocks: int, sizes: tuple[int, int], k: int, of_words: bool) -> Launch:
    macros: Macros = {"WORDS": int(of_words)}
    rows, unit = ((None, None, size) for size in sizes), 2.0 ** -magnitude_bits(k)
    return Launch("least.cu", "least_of_rows", macros, (2 * blocks,), (_ROWS_AT_ONCE,), *rows, None, k, unit)


def _to_host(x: Any) -> Callable[[], Any]:
    """Begin to copy an array; calling the result waits for it, in a call done again for its own. It does not hold x."""
    target, copied = cp.cuda.alloc_pinned_memory(x.nbytes), cp.cuda.Event(disable_timing=True)
    Copy(target, x.nbytes)(x.data)
    Record(copied)()
    dtype, size, shape = x.dtype, x.size, x.shape

    def arrived() -> npt.NDArray[Any]:
        copied.synchronize()
        return np.frombuffer(target, dtype, size).reshape(shape)

    return arrived


@lru_cache(maxsize=1024)
def _describing(device: int, view: View) -> tuple[int, tuple[Launch, ...]]:
    """Bytes between the launches, and these."""
    batch, rows, k = view.shape
    if batch * rows == 0:
        return 0, ()
    held = 256 // view.itemsize if view.along_k or view.itemsize == 8 else 48
    if view.along_k:
        warps = next((w for w in (1, 2, 4) if 32 * held * w >= k), 8)
        segment = max(min(32 * held, round_up(-(-k // warps), 256)), 256) * warps
        group, finish_group = 8 // warps, 8
    else:
        warps, segment, group, finish_group = 8, 8 * held, 32, 32
    segments = max(-(-k // segment), 1)
    macros: Macros = {"INPUT": view.ctype, "ALONG_K": view.along_k}
    arguments = (None, None, None, *view.steps, *view.shape, segment, segments, warps, magnitude_bits(k))
    grid = (batch * -(-rows // group) * segments,)
    first = Launch("describe.cu", "describe", macros, grid, (256,), *arguments)
    if segments == 1:
        return 0, (first,)
    grid = (batch * -(-rows // finish_group),)
    threads = 256 if view.along_k else 768
    second = Launch("describe.cu", "describe_finish", macros, grid, (threads,), *arguments)
    return _PIECE * segments * batch * rows, (first, second)


_PIECE = 72
"""Bytes of the struct Piece in kernels/describe.cu."""
