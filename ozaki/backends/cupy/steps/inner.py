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
    found = [_exponents(b, of) for of in (x, y)]
    left, right = (b.array(f"{of.buffer.name}.inner factors", (batch, k), "d") for of in (x, y))
    apart = b.array("inner range", (1,), "q", counted=False)
    b.add(Clear(b.stream, apart.at, apart.nbytes))
    b.launch(_factors_kernel(batch, k, (_reach(x), _reach(y))), found[0], Out(left), found[1], Out(right), Out(apart))
    b.release(*found)
    return Factors(left, right, apart)


def own_factors(b: Builder, x: Array) -> Array:
    """Find the factors of an operand that is prepared alone, shape (batch, rows, k): float64, (batch, k)."""
    (batch, _, k), exponents = x.shape, _exponents(b, x)
    factors = b.array(f"{x.buffer.name}.inner factors", (batch, k), "d")
    kernel = Kernel.of("conversion/inner.cu", "own", {}, (batch,), (1024,), (None, None, _reach(x)), batch, k)
    b.launch(kernel, exponents, Out(factors))
    b.release(exponents)
    return factors


def factors_beside(b: Builder, x: Array, prepared: Array) -> tuple[Array, Evidence]:
    """Find the factors of an operand beside a prepared one; and, on the host, whether elements leave their format."""
    (batch, _, k), exponents = x.shape, _exponents(b, x)
    factors, leaves = b.array(f"{x.buffer.name}.inner factors", (batch, k), "d"), b.array("leaves", (1,), "q")
    b.add(Clear(b.stream, leaves.at, leaves.nbytes))
    numbers = prepared.shape[0], batch, k
    grid = (ceil(batch * k / 256),)
    side = (None, None, _reach(x))
    kernel = Kernel.of("conversion/inner.cu", "beside", {}, grid, (256,), side, None, None, *numbers)
    b.launch(kernel, exponents, Out(factors), prepared, Out(leaves))
    arrival = b.to_host("leaves on host", leaves.at, (1,), "q")
    b.release(exponents, leaves)
    return factors, b.evidence(arrival, lambda found: bool(found[0]))


def _exponents(b: Builder, x: Array) -> Array:
    """The exponents of the elements at each inner index, as kernels/conversion/inner.cu has them."""
    exponents = b.array(f"{x.buffer.name}.inner exponents", (4, x.shape[0], x.shape[2]), "q")
    b.add(Clear(b.stream, exponents.at, exponents.nbytes))
    b.launch(_exponents_kernel(x.view), x, Out(exponents))
    return exponents


def _reach(x: Array) -> int:
    return REACH["float32" if x.view.dtype.ctype_of_part == "float" else "float64"]


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
