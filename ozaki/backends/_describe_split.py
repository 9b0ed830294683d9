"""Operands described and split in one read, on Hopper: blocks that hold whole rows in shared memory."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from ozaki._description import FIELDS, Described
from ozaki.backends._launch import Launch, Macros, View, round_up
from ozaki.backends._split import Layout, Slices, cutting_constants, cutting_macros, image_words, scaling_of
from ozaki.backends._tops import Tops
from ozaki.backends._word_split import tile_macros
from ozaki.schemes import Scheme, Words, magnitude_bits

_BLOCK = 128
"""Elements of a row that are cut together."""

_SHARES = (512, 768)
"""Elements of a row that a block of the cluster holds, while fewer than eight blocks do and at most, of as many rows as
are 128 bytes wide; twice that of half as many."""

_MOST_WORDS = 4
"""Longer images do not fit registers beside the rest (tests/test_compile.py)."""

_EXCHANGED = 1280
"""Bytes before the elements, as in kernels/held_rows_sm90.cuh."""

_LONGEST_OF_WORDS = 2 * 8 * _SHARES[1]
_LONGEST_OF_SLICES = {4: 8192, 8: 8 * _SHARES[1]}
"""Longest rows, those of slices by the size of an element: beyond, two kernels are faster (H200: words gain 0.09 of
5.2 ms at 8192 and 0.1 of 18 at 12288, three digits 0.03 of 4.9 at 8192, and lose 0.1 at 12288)."""


def fits(scheme: Scheme | Words, layout: Layout, itemsize: int) -> bool:
    """Whether a cluster can hold whole rows, and is faster than two kernels."""
    if isinstance(scheme, Words):
        return layout.tile > 0 and layout.k <= _LONGEST_OF_WORDS
    return layout.tile > 0 and layout.k <= _LONGEST_OF_SLICES[itemsize] and image_words(scheme) <= _MOST_WORDS


def describe_and_split(x: Any, side: str, scheme: Scheme, layout: Layout, sums: bool) -> Slices:
    """The slices of x, shape (batch, rows, k), with its description or, without `sums`, its largest elements."""
    launch = _launch(cp.cuda.runtime.getDevice(), View.of(x), side, scheme, layout, sums)
    return _launched(launch, Described if sums else Tops, x, layout)


def find_and_split(x: Any, words: Words, layout: Layout) -> Slices:
    """The words of x, shape (batch, rows, k), with its largest elements."""
    launch = _launch_of_words(cp.cuda.runtime.getDevice(), View.of(x), words, layout)
    return _launched(launch, Tops, x, layout)


def _launched(launch: Launch, described: type[Described], x: Any, layout: Layout) -> Slices:
    batch, rows, _ = x.shape
    fields = cp.empty((len(FIELDS), batch, rows), np.int64)
    parts, mu = cp.empty(layout.size, np.int8), cp.empty((batch, rows), np.int32)
    launch(x.data, fields.data, mu.data, parts.data)
    return Slices(described(x, fields), parts, layout, mu)


class _Held(NamedTuple):
    """What a block of a cluster holds: `share` elements of each of `rows` rows; and its threads."""

    cluster: int
    share: int
    rows: int
    threads: int

    @property
    def macros(self) -> Macros:
        """Those of kernels/held_rows_sm90.cuh."""
        return {"CLUSTER": self.cluster, "HELD": self.rows, "THREADS": self.threads}


def _held(k: int, view: View) -> _Held:
    """For rows of length k, padded."""
    shares = {cluster: round_up(-(-k // cluster), _BLOCK) for cluster in (1, 2, 4, 8)}
    few = ((cluster, share) for cluster, share in shares.items() if share <= _SHARES[0])
    cluster, share = next(few, (8, shares[8]))
    if view.along_k and share <= _SHARES[0]:  # blocks half as large wait for their clusters at more different times
        return _Held(cluster, share, 64 // view.itemsize, 128)
    return _Held(cluster, share, (128 if share <= _SHARES[1] else 64) // view.itemsize, 256)


@lru_cache(maxsize=1024)
def _launch(device: int, view: View, side: str, scheme: Scheme, layout: Layout, sums: bool) -> Launch:
    batch, rows, k = view.shape
    scaling = scaling_of(scheme, k)
    assert sums or scaling.statistic == "peak"
    held = _held(layout.k, view)
    macros = cutting_macros(view, side, scheme, layout) | {"SUMS": int(sums)} | held.macros
    grid, threads = (held.cluster * batch * (layout.rows // held.rows),), (held.threads,)
    return Launch(
        "describe_split_sm90.cu", "describe_split", macros, grid, threads, None, *view.steps, rows, k, layout.rows,
        layout.k, None, batch * rows, magnitude_bits(k), FIELDS.index(scaling.statistic), scaling.step, scaling.base,
        scaling.threshold, None, None, layout.batch, layout.slice, held.share, *cutting_constants(scheme, side, layout),
        shared_mem=_EXCHANGED + held.rows * held.share * view.itemsize,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _launch_of_words(device: int, view: View, words: Words, layout: Layout) -> Launch:
    batch, rows, k = view.shape
    held = _held(layout.k, view)
    macros = tile_macros(view, words, layout) | {"INPUT": view.ctype} | held.macros
    grid, threads = (held.cluster * batch * ceil(layout.rows / held.rows),), (held.threads,)
    return Launch(
        "tops_split_words_sm90.cu", "tops_split_words", macros, grid, threads, None, *view.steps, rows, k, layout.rows,
        layout.k, None, batch * rows, words.ceiling, None, None, layout.batch, layout.slice, held.share,
        shared_mem=_EXCHANGED + held.rows * held.share * view.itemsize,
    )  # fmt: skip
