"""The description of rows on the device (docs/design.md, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil, prod
from typing import Any

import cupy as cp
import numpy as np

from ozaki._description import FIELDS, LOOKED_AT, Described, Description, Least, Sides
from ozaki.backends.cupy._tops import Tops
from ozaki.backends.cupy.launching._host import arriving, pinned, to_host
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, round_up
from ozaki.schemes import magnitude_bits


def describe(x: Any) -> Described:
    """The description of the rows of x, shape (batch, rows, k)."""
    fields = cp.empty((len(FIELDS), *x.shape[:2]), np.int64)
    size, launches = _describing(cp.cuda.runtime.getDevice(), View.of(x))
    between = cp.cuda.alloc(size) if size else fields.data
    for launch in launches:
        launch(x.data, fields.data, between)
    return Described(x, fields)


def describing_workspace(shape: tuple[int, ...]) -> int:
    """Of the order of what describes the rows, which is not counted."""
    return 0


def read(described: Described) -> Callable[[], Description]:
    """Begin to copy a description to the host; calling the result waits for it, in a call done again for its own."""
    k, arrived = described.k, to_host(described.fields.data, np.int64, described.fields.shape)
    return lambda: Description(k, *arrived())


def look(x: Any, y: Any, whole: Sides | None = None) -> Callable[[], tuple[Least, Least]]:
    """Begin to find what the first elements of the rows of both operands, float32, tell of all rows.

    `whole`: these, as they were found while words were cut, right before.
    """
    sizes = [side.shape[0] * side.shape[1] for side in (x, y)]
    blocks = min(ceil(max(sizes) / _ROWS_AT_ONCE), _BLOCKS)
    shape = 2, blocks, len(Least._fields)
    target = pinned(8 * prod(shape))
    assert whole is None or all(isinstance(side, Tops) for side in whole)
    launch, width = _looking(cp.cuda.runtime.getDevice(), blocks, View.of(x), View.of(y), whole is not None)
    left, right = (x, y) if whole is None else (side.fields for side in whole)
    launch(x.data, left.data, y.data, right.data, target)
    arrived = arriving(target, np.float64, shape)

    def read() -> tuple[Least, Least]:
        of_left, of_right = (
            Least(elements * 4.0**width, sums, int(steps), bool(told))
            for elements, sums, steps, told in arrived().min(axis=1).tolist()
        )
        return of_left, of_right

    return read


_ROWS_AT_ONCE, _BLOCKS = 32, 128
"""Rows of a block of kernels/proof/look.cu; blocks for each operand, at most."""


@lru_cache(maxsize=1024)
def _looking(device: int, blocks: int, x: View, y: View, whole: bool) -> tuple[Launch, int]:
    """The launch, and the bits of the magnitudes in its sums."""
    some = min(x.shape[2], LOOKED_AT)
    macros: Macros = {"INPUT": x.ctype, "LEFT_ALONG_K": x.along_k, "RIGHT_ALONG_K": y.along_k}
    macros |= {"WHOLE": int(whole), "MOST": LOOKED_AT}
    sides = ((None, *view.steps, *view.shape[:2], None) for view in (x, y))
    more = some, (width := magnitude_bits(some)), 2.0**-width, int(whole)
    return Launch("proof/look.cu", "look", macros, (2 * blocks,), (256,), *sides, None, *more), width


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
    first = Launch("conversion/describe.cu", "describe", macros, grid, (256,), *arguments)
    if segments == 1:
        return 0, (first,)
    grid = (batch * -(-rows // finish_group),)
    threads = 256 if view.along_k else 768
    second = Launch("conversion/describe.cu", "describe_finish", macros, grid, (threads,), *arguments)
    return _PIECE * segments * batch * rows, (first, second)


_PIECE = 72
"""Bytes of the struct Piece in kernels/conversion/describe.cu."""
