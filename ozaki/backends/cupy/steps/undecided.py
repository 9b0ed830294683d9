"""Entries of a product that are undecided when they are rounded, and these entries apart (docs/bounds.md, B14)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.bounds import RowTerms
from ozaki.caches import cached


@dataclass(frozen=True)
class Undecided:
    """Where the kernels that round integers flag undecided entries, and what says so.

    Attributes
    ----------
    flags : uint8, 0 or 1, shape (batch, m, n), along rows neighbours; every one is written
    terms : of the rows of both operands, in units of 2**unit (`steps.bounds.terms_of`): real rows, nothing dropped. Of
        a part of the product the places are those of its first rows, and `batch` and `rows` those of the whole one
    unit : as above
    """

    flags: Array
    terms: tuple[RowTerms, RowTerms]
    unit: int

    def part(self, axis: int, first: int, last: int) -> Undecided:
        """That of elements first, ..., last - 1 along an axis of the product."""
        left, right = self.terms
        if axis != 2:
            left = _from(left, axis, first)
        if axis != 1:
            right = _from(right, 0 if axis == 0 else 1, first)
        return replace(self, flags=self.flags.part(axis, first, last), terms=(left, right))

    @property
    def argument(self) -> tuple[int | tuple[int | None, ...] | None, ...]:
        """The struct Flagging of kernels/conversion/flagging.cuh, without addresses."""
        assert self.flags.shape[2] <= 1 or self.flags.steps[2] == 1
        left, right = (
            (None, None, of.batch * of.rows, of.rows if of.batch > 1 else 0) for of in self.terms
        )  # fmt: skip
        return None, *self.flags.steps[:2], left, right, self.unit

    @property
    def written(self) -> tuple[Out | Place, ...]:
        """The places whose addresses that argument has."""
        return Out(self.flags), *(place for of in self.terms for place in of.places[:2])


def _from(terms: RowTerms, axis: int, first: int) -> RowTerms:
    """The terms from a matrix (axis 0) or a row (axis 1) on; an operand may have one matrix for all."""
    skipped = first if axis == 1 else first * terms.rows if terms.batch > 1 else 0
    of_terms, units, multiples = (place.plus(8 * skipped) for place in terms.places)
    return terms._replace(places=(of_terms, units, multiples))


def inner_products(
    b: Builder, device: Device, flags: Array, left: Array, right: Array, out: Array, count: Place | Array
) -> None:
    """Replace flagged entries of a product by their exact values, rounded once; NaN and Inf count as zeros.

    Parameters
    ----------
    flags : uint8, 0 or 1, shape (batch, m, n), contiguous
    left, right : the rows of both operands as given, shapes (batch or 1, rows, k), float32 or float64
    out : the product, of the shape of `flags`, float32 or float64
    count : one unsigned 64-bit number, to which the number of these entries is added
    """
    assert flags.contiguous and left.shape[2] < 2**31
    kernel = _kernel(device.multiprocessors, left.view, right.view, out.view)
    b.launch(kernel, flags, left, right, Out(out), Out(count))


@cached(1024)
def _kernel(multiprocessors: int, left: View, right: View, out: View) -> Kernel:
    macros: Macros = {"INPUT_A": left.dtype.ctype, "INPUT_B": right.dtype.ctype, "OUTPUT": out.dtype.ctype}
    rows = [(0 if x.shape[0] == 1 else x.steps[0], *x.steps[1:]) for x in (left, right)]
    entries = prod(out.shape)
    grid = (min(ceil(entries / (_WARPS * _FLAGS)), _BLOCKS * multiprocessors),)
    return Kernel.of(
        "conversion/inner_products.cu", "inner_products", macros, grid, (32 * _WARPS,), None, None, *rows[0],
        None, *rows[1], left.shape[2], None, *out.steps, *out.shape[1:], entries, None,
    )  # fmt: skip


_WARPS, _FLAGS = 8, 128
"""Warps of a block of kernels/conversion/inner_products.cu, and flags that each takes at a time."""

_BLOCKS = 3
"""Blocks of that kernel that a multiprocessor holds at once."""
