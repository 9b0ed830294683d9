"""Copies on the device: stacks of matrices as neighbours in memory."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, prod

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out


def copy(b: Builder, x: Array, out: Array) -> None:
    """The elements of x, shape (batch, rows, columns), into `out`, contiguous and of the same shape.

    float32 to float32, or any to float64.
    """
    b.launch(_copying(x.view, out.view), x, Out(out.at))


@lru_cache(maxsize=1024)
def _copying(x: View, out: View) -> Kernel:
    macros: Macros = {"INPUT": x.ctype, "OUTPUT": out.ctype}
    entries = prod(x.shape)
    grid = (ceil(entries / 1024),)
    return Kernel.of("conversion/copy.cu", "copy", macros, grid, (256,), None, *x.steps, *x.shape[1:], None, entries)


def contiguous_rows(b: Builder, x: Array) -> Array:
    """A contiguous copy of integers, shape (..., batch, rows), of which rows are neighbours in memory.

    The kernel takes them for floating-point numbers of as many bytes, and moves their bits.
    """
    char = {4: "f", 8: "d"}[x.itemsize]
    out = b.array(x.buffer.name, x.shape, x.char, counted=False)
    stack = (x, out) if len(x.shape) == 3 else (x.with_axis(0), out.with_axis(0))
    source, target = (Array(of.buffer, of.offset, char, of.shape, of.strides) for of in stack)
    copy(b, source, target)
    return out
