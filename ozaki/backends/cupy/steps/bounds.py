"""A bound of the error of each entry of a product (docs/bounds.md, B13)."""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import numpy as np

from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Clear, Out, Upload
from ozaki.backends.cupy.steps.numbers import NumbersArray, NumbersView
from ozaki.backends.cupy.steps.operands import Described
from ozaki.bounds.description import FIELDS
from ozaki.bounds.entries import RowTerms as OnHost
from ozaki.bounds.entries import factor_up
from ozaki.caches import cached
from ozaki.records.combination import Factor
from ozaki.schemes import Scaling, Scheme, magnitude_bits


class RowTerms(NamedTuple):
    """What the rows of an operand contribute, in one buffer: the fields of `bounds.entries.RowTerms` in their order.

    Attributes
    ----------
    places : of each field
    batch, rows : matrices, and rows of each
    """

    places: tuple[Place, Place, Place]
    batch: int
    rows: int

    @classmethod
    def room(cls, b: Builder, name: str, batch: int, rows: int) -> RowTerms:
        """A new buffer for the terms of so many rows."""
        count = batch * rows
        place = b.buffer(f"terms of {name}", _ROW_BYTES * count, counted=False)
        return cls((place, place.plus(24 * count), place.plus(32 * count)), batch, rows)

    def struct(self, entries: int) -> tuple[int | None, ...]:
        """The struct RowTerms of kernels/proof/bounds.cu for so many entries along this operand's axis."""
        each = self.rows // entries
        step = self.rows if self.batch > 1 else 0
        return None, None, None, self.batch * self.rows, step, each, each - 1


_ROW_BYTES = 40
"""Bytes of the terms of a row."""


def entry_bounds(
    b: Builder, terms: tuple[RowTerms, RowTerms], unit: int, alpha: Factor, sums: bool, c: Array | NumbersArray,
    out: Array,
) -> None:  # fmt: skip
    """Add the steps that compute the bounds of all entries of a result.

    Parameters
    ----------
    terms, unit : of the rows of both operands, in units of 2**unit
    alpha : the factor of the product, not zero
    sums : whether something is added to the product
    c : the result, shape (batch, m, n); complex numbers of many bits as planes with an axis of parts
    out : where the bounds go, float64, shape (batch, m, n), contiguous
    """
    mantissa, power = factor_up(alpha)
    units = mantissa, unit + power, 0 if sums else alpha.exponent, int(not sums)
    entries = (c.signs, c.exponents) if isinstance(c, NumbersArray) else (c,)
    sides = tuple(of.struct(size) for of, size in zip(terms, out.shape[1:], strict=True))
    kernel = _entries_kernel(c.view, out.shape, sides, units)
    b.launch(kernel, *terms[0].places, *terms[1].places, *entries, Out(out))
    b.release(*(of.places[0] for of in terms))


@cached(1024)
def _entries_kernel(
    c: View | NumbersView, shape: tuple[int, ...], sides: tuple[tuple[int | None, ...], ...], units: tuple[Any, ...]
) -> Kernel:
    batch, m, n = shape
    entries: tuple[int | None, ...]
    macros: Macros
    if isinstance(c, NumbersView):
        parts = 2 if len(c.shape) == 4 else 1
        macros = {"ENTRIES": 2, "PARTS": parts}
        entries = None, None, c.bits, *c.steps, *([0] if parts == 1 else [])
    else:
        parts = c.dtype.parts
        macros = {"ENTRIES": 1, "OUTPUT": c.dtype.ctype_of_part, "PARTS": parts}
        entries = None, *c.steps_of_parts, 1
    grid = (batch * ceil(m / _ROWS) * ceil(n / 256),)
    return Kernel.of("proof/bounds.cu", "entry_bounds", macros, grid, (256,), *sides, entries, None, m, n, units)


_ROWS = 16
"""Entries of a thread: ROWS of kernels/proof/bounds.cu."""


def terms_of(
    b: Builder, left: Described, right: Described, scheme: Scheme, dropped: float, exact: bool = False
) -> tuple[tuple[RowTerms, RowTerms], int]:  # fmt: skip
    """Add the step that computes the terms of the rows of both operands; also the exponent of their unit.

    `dropped`: the largest worth of the digit pairs that are left out of an entry, in image units. `exact`: entries are
    those of the exact product, though images may be rounded.
    """
    scaling = left.scaling(scheme)
    terms = tuple(RowTerms.room(b, of.x.buffer.name, *of.x.shape[:2]) for of in (left, right))
    kernel = _rows_kernel(
        scaling, left.k, dropped, tuple((of.batch * of.rows) for of in terms), _have_tops(left, right), exact
    )
    places: list[Array | Place | Out] = []
    for described, of in zip((left, right), terms, strict=True):
        places += [described.fields, *([] if described.tops is None else [described.tops]), *map(Out, of.places)]
    b.launch(kernel, *places)
    return (terms[0], terms[1]), -scaling.base


def _have_tops(left: Described, right: Described) -> tuple[bool, bool]:
    return left.tops is not None, right.tops is not None


@cached(1024)
def _rows_kernel(
    scaling: Scaling, k: int, dropped: float, counts: tuple[int, ...], tops: tuple[bool, ...], exact: bool
) -> Kernel:  # fmt: skip
    sides = [
        (None, None if has else 0, None, None, None, count) for count, has in zip(counts, tops, strict=True)
    ]  # fmt: skip
    rule = FIELDS.index(scaling.statistic), scaling.step, scaling.base, scaling.threshold
    grid = (sum(ceil(count / 256) for count in counts),)
    return Kernel.of(
        "proof/bounds.cu", "row_terms", {}, grid, (256,), *sides, *rule, float(dropped), magnitude_bits(k), float(k),
        -scaling.base, int(exact),
    )  # fmt: skip


def terms_uploaded(b: Builder, left: OnHost, right: OnHost) -> tuple[RowTerms, RowTerms]:
    """The terms of the rows of both operands, which the host has computed."""
    found = []
    for name, terms in (("a", left), ("b", right)):
        of = RowTerms.room(b, name, *terms.units.shape)
        b.add(Upload(b.stream, b"".join(np.ascontiguousarray(field).tobytes() for field in terms), of.places[0]))
        found.append(of)
    return found[0], found[1]


def terms_of_zeros(b: Builder, shape: tuple[int, ...]) -> tuple[RowTerms, RowTerms]:
    """The terms of both operands of a product, shape (batch, m, n), that is zero."""
    found = []
    for name, rows in zip("ab", shape[1:], strict=True):
        of = RowTerms.room(b, name, 1, rows)
        b.add(Clear(b.stream, of.places[0], _ROW_BYTES * rows))
        found.append(of)
    return found[0], found[1]
