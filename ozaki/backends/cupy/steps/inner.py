"""The factors of inner indices by which operands are scaled along k (docs/definitions.md, section 10)."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Clear, Out
from ozaki.caches import cached
from ozaki.schemes.inner import REACH


class Factors(NamedTuple):
    """Factors of inner indices.

    Attributes
    ----------
    left, right : of both operands, float64, shape (batch, k)
    range : how far their exponents lie apart, one int64
    """

    left: Array
    right: Array
    range: Array


def inner_factors(b: Builder, x: Array, y: Array) -> Factors:
    """Find the factors of both operands, stacks of as many matrices, shapes (batch, rows, k)."""
    batch, _, k = x.shape
    found = []
    for of in (x, y):
        exponents = b.array(f"{of.buffer.name}.inner exponents", (4, batch, k), "q")
        b.add(Clear(b.stream, exponents.at, exponents.nbytes))
        b.launch(_exponents_kernel(of.view), of, Out(exponents))
        found.append(exponents)
    left, right = (b.array(f"{of.buffer.name}.inner factors", (batch, k), "d") for of in (x, y))
    reaches = tuple(REACH["float32" if of.view.dtype.ctype_of_part == "float" else "float64"] for of in (x, y))
    apart = b.array("inner range", (1,), "q", counted=False)
    b.add(Clear(b.stream, apart.at, apart.nbytes))
    b.launch(_factors_kernel(batch, k, reaches), found[0], Out(left), found[1], Out(right), Out(apart))
    b.release(*found)
    return Factors(left, right, apart)


def inner_range(b: Builder, factors: Factors) -> Evidence:
    """Begin to copy `InnerRange` to the host: an int."""
    arrival = b.to_host("inner range on host", factors.range.at, (1,), "q")
    return b.evidence(arrival, lambda found: int(found[0]))


@cached(1024)
def _exponents_kernel(view: View) -> Kernel:
    batch, rows, k = view.shape
    macros: Macros = {"INPUT": view.dtype.ctype_of_part, "REALS": view.dtype.parts, "ALONG_K": view.along_k}
    blocks = ceil(k / 32) * ceil(rows / _ROWS) if view.along_k else ceil(k / 8)
    sizes = *view.steps_of_parts, batch, rows, k
    return Kernel.of("conversion/inner.cu", "exponents", macros, (batch * blocks,), (256,), None, *sizes, None)


_ROWS = 512
"""Rows of a block of `exponents`: ROWS of kernels/conversion/inner.cu."""


@cached(1024)
def _factors_kernel(batch: int, k: int, reaches: tuple[int, ...]) -> Kernel:
    sides = [(None, None, reach) for reach in reaches]
    return Kernel.of("conversion/inner.cu", "factors", {}, (batch,), (1024,), *sides, None, batch, k)
