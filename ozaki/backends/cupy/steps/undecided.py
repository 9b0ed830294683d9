"""Entries of a product that are undecided when they are rounded, and these entries apart (docs/bounds.md, B14)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, Place, View, contiguous_steps
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.bounds import RowTerms
from ozaki.caches import cached


@dataclass(frozen=True)
class Undecided:
    """Where the kernels that round integers list undecided entries, and what says so.

    Attributes
    ----------
    listed : int64, shape (capacity,): numbers (b m + i) n + j of entries, in any order
    counts : two unsigned 64-bit numbers, 0 before: how many entries were found, of which as many are listed as there is
        room for; and how many of them stand for their mirror images, too
    terms : of the rows of both operands, in units of 2**unit (`steps.bounds.terms_of`): real rows, nothing dropped. Of
        a part of the product the places are those of its first rows, and `batch` and `rows` those of the whole one
    unit : as above
    shape : (batch, m, n), of the whole product
    first : the number of the first entry of a part of it
    """

    listed: Array
    counts: Place
    terms: tuple[RowTerms, RowTerms]
    unit: int
    shape: tuple[int, ...]
    first: int = 0

    @classmethod
    def room(cls, b: Builder, shape: tuple[int, ...], terms: tuple[RowTerms, RowTerms], unit: int) -> Undecided:
        """A new list for a product of shape (batch, m, n), and its counts, which are zeroed."""
        listed = b.array("list of undecided entries", (_capacity(prod(shape)),), "q")
        return cls(listed, b.zeroed("numbers of undecided entries", 16), terms, unit, shape)

    def part(self, axis: int, first: int, last: int) -> Undecided:
        """That of elements first, ..., last - 1 along an axis of the product."""
        left, right = self.terms
        if axis != 2:
            left = _from(left, axis, first)
        if axis != 1:
            right = _from(right, 0 if axis == 0 else 1, first)
        return replace(self, terms=(left, right), first=self.first + first * contiguous_steps(self.shape)[axis])

    @property
    def argument(self) -> tuple[int | tuple[int | None, ...] | None, ...]:
        """The struct Listing of kernels/conversion/listing.cuh, without addresses."""
        left, right = (
            (None, None, of.batch * of.rows, of.rows if of.batch > 1 else 0) for of in self.terms
        )  # fmt: skip
        return None, None, self.listed.size, self.first, *contiguous_steps(self.shape)[:2], left, right, self.unit

    @property
    def written(self) -> tuple[Out | Place, ...]:
        """The places whose addresses that argument has."""
        return Out(self.listed), Out(self.counts), *(place for of in self.terms for place in of.places[:2])


def list_bytes(shape: tuple[int, ...]) -> int:
    """Bytes of the list of the undecided entries of a product of shape (batch, m, n)."""
    return 8 * _capacity(prod(shape))


def _capacity(entries: int) -> int:
    """Entries that are listed: of more, for which residues were too few, all entries are computed, not these alone."""
    return max(entries // 8, 8)


def _from(terms: RowTerms, axis: int, first: int) -> RowTerms:
    """The terms from a matrix (axis 0) or a row (axis 1) on; an operand may have one matrix for all."""
    skipped = first if axis == 1 else first * terms.rows if terms.batch > 1 else 0
    of_terms, units, multiples = (place.plus(8 * skipped) for place in terms.places)
    return terms._replace(places=(of_terms, units, multiples))


def inner_products(
    b: Builder, device: Device, undecided: Undecided, left: Array, right: Array, out: Array, mirrored: bool = False
) -> None:
    """Replace listed entries of a product by their exact values, rounded once; NaN and Inf count as zeros.

    Where not all are listed, all entries are replaced.

    Parameters
    ----------
    left, right : the rows of both operands as given, shapes (batch or 1, rows, k), float32 or float64
    out : the product, of the whole shape, float32 or float64
    mirrored : whether the product equals its transpose, and each value also replaces the mirror image of its entry
    """
    assert left.shape[2] < 2**31 and out.shape == undecided.shape
    kernel = _kernel(device.multiprocessors, undecided.listed.size, left.view, right.view, out.view, mirrored)
    b.launch(kernel, undecided.listed, undecided.counts, left, right, Out(out))


@cached(1024)
def _kernel(multiprocessors: int, capacity: int, left: View, right: View, out: View, mirrored: bool) -> Kernel:
    macros: Macros = {"INPUT_A": left.dtype.ctype, "INPUT_B": right.dtype.ctype, "OUTPUT": out.dtype.ctype}
    rows = [(0 if x.shape[0] == 1 else x.steps[0], *x.steps[1:]) for x in (left, right)]
    entries = prod(out.shape)
    grid = (min(ceil(entries / _WARPS), _BLOCKS * multiprocessors),)
    return Kernel.of(
        "conversion/inner_products.cu", "inner_products", macros, grid, (32 * _WARPS,), None, None, capacity,
        None, *rows[0], None, *rows[1], left.shape[2], None, *out.steps, *out.shape[1:], entries, int(mirrored),
    )  # fmt: skip


_WARPS = 8
"""Warps of a block of kernels/conversion/inner_products.cu, each of which computes an entry at a time."""

_BLOCKS = 3
"""Blocks of that kernel that a multiprocessor holds at once."""
