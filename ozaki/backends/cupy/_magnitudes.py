"""Magnitudes of both operands, whose product bounds that of their absolute values from below (docs/design.md, 9)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from ozaki._description import Described
from ozaki._proof import EVERY, NARROW_BITS, NARROW_DEPTH, SAMPLE, SAMPLED_FROM, wide_bits
from ozaki.backends.cupy._tops import Tops
from ozaki.backends.cupy.engines._hopper_tiles import FROM, tiled
from ozaki.backends.cupy.launching._jit import architecture
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, round_up
from ozaki.backends.cupy.launching._tape import cleared


class MagnitudeLayout(NamedTuple):
    """Of the magnitudes of both operands: rows and k, rounded up; rows of tiles, 0 for none; bits, int8 or wider."""

    rows: tuple[int, int]
    k: int
    sampled: bool = False
    tiles: tuple[int, int] = (0, 0)
    bits: int = NARROW_BITS

    @classmethod
    def narrow(cls, m: int, n: int, k: int, sampled: bool) -> MagnitudeLayout:
        """Of 7 bits: in tiles where a kernel keeps their products in registers."""
        looked_at = _looked_at(k, sampled)
        if architecture(cp.cuda.runtime.getDevice()) == "sm_90a" and min(m, n, looked_at) >= FROM:
            return cls.in_tiles(m, n, k, sampled)
        return cls((round_up(m, 16), round_up(n, 16)), round_up(looked_at, 128), sampled)

    @classmethod
    def in_tiles(cls, m: int, n: int, k: int, sampled: bool) -> MagnitudeLayout:
        """Of 7 bits, as that kernel reads them."""
        sizes = (("left", m), ("right", n))
        (tile_a, _, rows_a, k), (tile_b, _, rows_b, _) = (tiled(*x, _looked_at(k, sampled)) for x in sizes)
        return cls((rows_a, rows_b), k, sampled, (tile_a, tile_b))

    @classmethod
    def wide(cls, m: int, n: int, k: int) -> MagnitudeLayout:
        """As many bits as float64 sums exactly."""
        return cls((m, round_up(n, 4)), round_up(k, 128), bits=wide_bits(k))

    @property
    def dtype(self) -> type:
        """Of the magnitudes."""
        return np.float64 if self.bits > NARROW_BITS else np.int8

    @property
    def of_block(self) -> int:
        """Of every 128 elements, those that are looked at."""
        return SAMPLE if self.sampled else EVERY


def _looked_at(k: int, sampled: bool) -> int:
    """Of so many inner indices."""
    k = (k // EVERY) * SAMPLE + min(k % EVERY, SAMPLE) if sampled else k
    return min(k, NARROW_DEPTH)  # saturate: a sum over part of k bounds from below as well


class Magnitudes(NamedTuple):
    """Those of both operands, [batch][rows][k] or in tiles, and results that are zero, for looks at their product."""

    left: Any
    right: Any
    layout: MagnitudeLayout
    results: list[cp.cuda.MemoryPointer]


RESULT = np.dtype([("worst", np.float64), ("spans", np.uint64, 2), ("spare", np.uint64)])
"""What a look finds, as kernels/arithmetic/worst.cuh and proof.cu tell it; zero before."""


_Allocate = Callable[[int], cp.cuda.MemoryPointer]


def results(count: int, allocate: _Allocate = cleared) -> list[cp.cuda.MemoryPointer]:
    """So many results, which are zero if not allocated otherwise."""
    memory = allocate(count * RESULT.itemsize)
    return [memory + i * RESULT.itemsize for i in range(count)]


def room(left: Any, right: Any, layout: MagnitudeLayout, allocate: _Allocate = cleared) -> Magnitudes:
    """Memory for the magnitudes of operands (batch, rows, k), and for results as above."""
    a, b = (
        cp.empty((x.shape[0], rows, layout.k), layout.dtype) for x, rows in zip((left, right), layout.rows, strict=True)
    )
    return Magnitudes(a, b, layout, results(_RESULTS, allocate))


_RESULTS = 2
"""As many as a proof most often asks for."""

RESULT_WORDS = _RESULTS * RESULT.itemsize // 8


def ahead(left: Any, right: Any) -> Magnitudes | None:
    """Room for those that a proof begins with, if they are in tiles; who takes them clears the results."""
    layout = MagnitudeLayout.narrow(left.shape[1], right.shape[1], left.shape[2], left.shape[2] > SAMPLED_FROM)
    return None if layout.tiles == (0, 0) else room(left, right, layout, cp.cuda.alloc)


def magnitudes(left: Described, right: Described, layout: MagnitudeLayout) -> Magnitudes:
    """Those that were taken when both operands were split, or take them now."""
    if left.ahead is not None and left.ahead is right.ahead and left.ahead.layout == layout:
        return left.ahead  # type: ignore[no-any-return]
    taken = room(left.x, right.x, layout)
    largest = isinstance(left, Tops), isinstance(right, Tops)
    launch = _taking(cp.cuda.runtime.getDevice(), View.of(left.x), View.of(right.x), largest, layout)
    launch(left.x.data, left.fields.data, taken.left.data, right.x.data, right.fields.data, taken.right.data)
    return taken


@lru_cache(maxsize=1024)
def _taking(device: int, left: View, right: View, largest: tuple[bool, bool], layout: MagnitudeLayout) -> Launch:
    macros: Macros = {"MAGNITUDE": "int8_t" if layout.dtype is np.int8 else "double"}
    for side, view, tile, tops in zip("AB", (left, right), layout.tiles, largest, strict=True):
        macros |= {f"INPUT_{side}": view.ctype, f"ALONG_K_{side}": view.along_k, f"TILE_{side}": tile}
        macros |= {f"LARGEST_{side}": int(tops)}
    views = list(zip((left, right), layout.rows, strict=True))
    blocks = [view.shape[0] * ceil(rows / 32) * (layout.k // 128) for view, rows in views]
    operands = [(None, None, None, view.shape[1], rows, *view.steps) for view, rows in views]
    sizes = blocks[0], left.shape[2], layout.k, layout.bits, int(layout.sampled)
    return Launch("proof/proof.cu", "magnitudes", macros, (sum(blocks),), (256,), *operands, *sizes)
