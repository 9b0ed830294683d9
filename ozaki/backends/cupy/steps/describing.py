"""The description of rows (docs/definitions.md, section 1), or the largest element of each alone."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, round_up
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Clear, Out
from ozaki.backends.cupy.steps.operands import Described
from ozaki.bounds.description import FIELDS, Description
from ozaki.schemes import magnitude_bits


def fields_of(b: Builder, x: Array) -> Array:
    """Where the description of the rows of x will be."""
    return b.array(f"{x}.fields", (len(FIELDS), *x.shape[:2]), "q", counted=False)


def describe(b: Builder, device: Device, x: Array) -> Described:
    """The description of the rows of x, shape (batch, rows, k)."""
    fields = fields_of(b, x)
    size, kernels = _describing(device, x.view)
    between = b.buffer(f"{x}.pieces", size, counted=False) if size else fields.at
    for kernel in kernels:
        b.launch(kernel, x, Out(fields.at), Out(between))
    if size:
        b.release(between)
    return Described(x, fields)


@lru_cache(maxsize=1024)
def _describing(device: Device, view: View) -> tuple[int, tuple[Kernel, ...]]:
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
    first = Kernel.of("conversion/describe.cu", "describe", macros, grid, (256,), *arguments)
    if segments == 1:
        return 0, (first,)
    grid = (batch * -(-rows // finish_group),)
    threads = 256 if view.along_k else 768
    second = Kernel.of("conversion/describe.cu", "describe_finish", macros, grid, (threads,), *arguments)
    return _PIECE * segments * batch * rows, (first, second)


_PIECE = 72
"""Bytes of the struct Piece in kernels/conversion/describe.cu."""


def find_largest(b: Builder, device: Device, x: Array) -> Described:
    """The largest elements of the rows of x, shape (batch, rows, k): faster than a whole description."""
    fields = fields_of(b, x)
    b.add(Clear(b.stream, fields.at, fields.nbytes))
    b.launch(_finding(device, x.view), x, Out(fields.at))
    return Described(x, fields, largest=True)


@lru_cache(maxsize=1024)
def _finding(device: Device, view: View) -> Kernel:
    batch, rows, k = view.shape
    pack = 16 // view.itemsize
    block = (8, 32 * pack * _LOADS) if view.along_k else (32 * pack, 8 * _LOADS)
    grid = (batch * ceil(rows / block[0]) * ceil(k / block[1]),)
    macros: Macros = {"INPUT": view.ctype, "ALONG_K": view.along_k}
    return Kernel.of("conversion/tops.cu", "tops", macros, grid, (256,), None, *view.steps, *view.shape, None)


_LOADS = 8
"""Of a thread, as in kernels/conversion/tops.cu."""


def description_on_host(b: Builder, described: Described) -> Evidence:
    """Begin to copy a description to the host: a `Description`, on the stream of the builder."""
    assert not described.largest
    k, fields = described.k, described.fields
    arrival = b.to_host(f"{fields} on host", fields.at, fields.shape, "q")

    def made(found: npt.NDArray[np.int64]) -> Description:
        return Description(k, *found.copy())

    return b.evidence(arrival, made)
