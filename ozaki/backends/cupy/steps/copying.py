"""Copies on the device, of stacks of matrices, which are contiguous afterwards."""

from __future__ import annotations

from math import ceil, prod

from ozaki.backends.cupy.program.arrays import DTYPES, Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.caches import cached


def copy(b: Builder, x: Array, out: Array) -> None:
    """Copy x, shape (batch, rows, columns), into the contiguous `out` of the same shape.

    From any dtype to the same one, or from float32 to float64.
    """
    b.launch(_copy_kernel(x.view, out.view), x, Out(out))


@cached(1024)
def _copy_kernel(x: View, out: View) -> Kernel:
    macros: Macros = {"INPUT": x.dtype.ctype, "OUTPUT": out.dtype.ctype}
    entries = prod(x.shape)
    grid = (ceil(entries / 1024),)
    return Kernel.of("conversion/copy.cu", "copy", macros, grid, (256,), None, *x.steps, *x.shape[1:], None, entries)


def mirror(b: Builder, c: Array, conjugate: bool) -> None:
    """Copy the entries below the diagonal of square matrices, or their conjugates, above it.

    Shape (batch, n, n), the rows contiguous.
    """
    b.launch(_mirror_kernel(c.view, conjugate), Out(c))


@cached(1024)
def _mirror_kernel(c: View, conjugate: bool) -> Kernel:
    batch, n, _ = c.shape
    macros: Macros = {"ENTRY": c.dtype.ctype, "CONJUGATE": int(conjugate)}
    grid = ceil(n / 32), ceil(n / 32), batch
    return Kernel.of("conversion/mirror.cu", "mirror", macros, grid, (32, 8), None, *c.steps[:2], n)


def contiguous_rows(b: Builder, x: Array) -> Array:
    """A contiguous copy of integers, shape (batch, rows) or (fields, batch, rows).

    The kernel takes them for floating-point numbers of as many bytes, whose bits it copies unchanged.
    """
    dtype = DTYPES[{4: "f", 8: "d"}[x.dtype.itemsize]]
    out = b.array(x.buffer.name, x.shape, x.dtype.char, counted=False)
    stack = (x, out) if len(x.shape) == 3 else (x.with_axis(0), out.with_axis(0))
    source, target = (Array(of.buffer, of.offset, dtype, of.shape, of.steps) for of in stack)
    copy(b, source, target)
    return out
