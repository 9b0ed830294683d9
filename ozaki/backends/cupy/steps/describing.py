"""Descriptions of rows (docs/definitions.md, section 1), or their largest elements alone."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Clear, Out
from ozaki.backends.cupy.steps.operands import Described
from ozaki.bounds.description import FIELDS, Description
from ozaki.caches import cached
from ozaki.schemes import magnitude_bits


def fields_of(b: Builder, x: Array) -> Array:
    """A new array for the description of the rows of x, int64, shape (6, batch, rows)."""
    return b.array(f"{x.buffer.name}.fields", (len(FIELDS), *x.shape[:2]), "q", counted=False)


def describe(b: Builder, x: Array, inner: Array | None = None) -> Described:
    """Describe the rows of x, shape (batch, rows, k), or those that factors `inner` of inner indices make of them."""
    fields = fields_of(b, x)
    describe_into(b, x, fields, inner)
    return Described(x, fields, inner=inner)


def describe_into(b: Builder, x: Array, fields: Array, inner: Array | None = None) -> None:
    """Do as `describe` does, into `fields`, int64, shape (6, batch, rows)."""
    size, kernels = _describe_kernels(x.view, inner is not None)
    pieces = b.buffer(f"{x.buffer.name}.pieces", size, counted=False) if size else fields.at
    for kernel in kernels:
        b.launch(kernel, x, Out(fields), Out(pieces), *([] if inner is None else [inner]))
    if size:
        b.release(pieces)


@cached(1024)
def _describe_kernels(view: View, scaled: bool) -> tuple[int, tuple[Kernel, ...]]:
    """Bytes that the first kernel hands to the second, 0 if there is only one; and these kernels."""
    (batch, rows, k), steps, parts = view.shape, view.steps_of_parts, view.dtype.parts
    inner: Macros = {"INNER": parts} if scaled else {}
    if batch * rows == 0:
        return 0, ()
    k *= parts
    if steps[2] == parts:  # all parts of a row are neighbours, as if elements were real
        steps, parts = (*steps[:2], 1), 1
    # Real numbers of a row that a thread keeps in registers: HELD of kernels/conversion/describe.cu.
    itemsize = view.dtype.itemsize // view.dtype.parts
    held = 256 // itemsize if view.along_k or itemsize == 8 else 48
    if view.along_k:
        warps = next((w for w in (1, 2, 4) if 32 * held * w >= k), 8)
        segment = max(min(32 * held, round_up(-(-k // warps), 256)), 256) * warps
        group, finish_group = 8 // warps, 8
    else:
        warps, segment, group, finish_group = 8, 8 * held, 32, 32
    segments = max(-(-k // segment), 1)
    macros: Macros = {"INPUT": view.dtype.ctype_of_part, "REALS": parts, "ALONG_K": view.along_k, **inner}
    factors = (None,) if scaled else ()
    arguments = (None, None, None, *steps, batch, rows, k, segment, segments, warps, magnitude_bits(k), *factors)
    grid = (batch * -(-rows // group) * segments,)
    first = Kernel.of("conversion/describe.cu", "describe", macros, grid, (256,), *arguments)
    if segments == 1:
        return 0, (first,)
    grid = (batch * -(-rows // finish_group),)
    threads = 256 if view.along_k else 768
    second = Kernel.of("conversion/describe.cu", "describe_finish", macros, grid, (threads,), *arguments)
    return _PIECE_BYTES * segments * batch * rows, (first, second)


_PIECE_BYTES = 72
"""Bytes of the struct Piece of kernels/conversion/describe.cu."""


def find_largest(b: Builder, x: Array) -> Described:
    """Find the largest elements of the rows of x, shape (batch, rows, k): faster than to describe them."""
    fields = fields_of(b, x)
    b.add(Clear(b.stream, fields.at, fields.nbytes))
    b.launch(_tops_kernel(x.view), x, Out(fields))
    return Described(x, fields, only_largest=True)


@cached(1024)
def _tops_kernel(view: View) -> Kernel:
    batch, rows, k = view.shape
    pack = 16 // view.dtype.itemsize
    block = (8, 32 * pack * _LOADS) if view.along_k else (32 * pack, 8 * _LOADS)
    grid = (batch * ceil(rows / block[0]) * ceil(k / block[1]),)
    macros: Macros = {"INPUT": view.dtype.ctype, "ALONG_K": view.along_k}
    return Kernel.of("conversion/tops.cu", "tops", macros, grid, (256,), None, *view.steps, *view.shape, None)


_LOADS = 8
"""Loads of 16 bytes by a thread: LOADS of kernels/conversion/tops.cu."""


def description_on_host(b: Builder, described: Described) -> Evidence:
    """Begin to copy a description to the host, on the builder's stream; the evidence is a `Description`."""
    assert not described.only_largest
    k, fields, count = described.k, described.fields, len(FIELDS)
    more = described.tops is not None  # which follow the fields in memory
    arrival = b.to_host(f"{fields.buffer.name} on host", fields.at, (count + more, *fields.shape[1:]), "q")

    def made(found: npt.NDArray[np.int64]) -> Description:
        description = Description(k, *found[:count].copy())
        return replace(description, scale=found[count].copy()) if more else description

    return b.evidence(arrival, made)
