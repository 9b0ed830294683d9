"""The description of rows on the device (docs/design.md, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cupy as cp
import numpy as np

from ozaki._description import FIELDS, Described, Description, Ints
from ozaki.backends._launch import Launch, Macros, View, round_up
from ozaki.backends._tape import Copy, Record
from ozaki.backends._tops import Tops
from ozaki.schemes import magnitude_bits
from ozaki.schemes.image import EMPTY_TOP


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
    arrived = _to_host(described.fields)
    return lambda: Description(described.k, *arrived())


def read_tops(described: Described) -> Callable[[], Ints]:
    """Likewise the exponents of the rows' largest elements."""
    arrived, dtype = _to_host(described.fields[0]), described.x.dtype
    if not isinstance(described, Tops):
        return arrived

    mantissa, least_normal = np.finfo(dtype).nmant, np.finfo(dtype).minexp

    def tops() -> Ints:
        bits = arrived()
        exponents: Ints = (bits >> mantissa) + least_normal
        if (few := bits < 1 << mantissa).any():  # subnormal numbers, and zeros
            mantissas, lowest = np.frexp(bits[few].astype(np.float64))
            exponents[few] = np.where(mantissas > 0, lowest + (least_normal - mantissa), EMPTY_TOP)
        return exponents

    return tops


def _to_host(x: Any) -> Callable[[], Ints]:
    """Begin to copy integers; calling the result waits for them, in a call done again for its own."""
    target, copied = cp.cuda.alloc_pinned_memory(x.nbytes), cp.cuda.Event(disable_timing=True)
    Copy(target, x.nbytes)(x.data)
    Record(copied)()

    def arrived() -> Ints:
        copied.synchronize()
        return np.frombuffer(target, np.int64, x.size).reshape(x.shape)

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
    second = Launch("describe.cu", "describe_finish", macros, grid, (256,), *arguments)
    return _PIECE * segments * batch * rows, (first, second)


_PIECE = 72
"""Bytes of the struct Piece in kernels/describe.cu."""
