"""Entries of a product whose error interval may hold a rounding boundary (docs/bounds.md, B14).

The exact entry lies within E_ij of the integer Cbar_ij, both in units of 2**-(mu_i + nu_j). Where both ends of that
interval round to the same number, it is the exact entry, rounded once. The other entries are undecided.
"""

from __future__ import annotations

from math import fsum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.bounds.description import NO_SPAN, Description, Ints
from ozaki.bounds.rounding import UP
from ozaki.bounds.sampled_products import NONE
from ozaki.records.formats import precision_of
from ozaki.schemes import Scheme, scaling_of

Floats = npt.NDArray[np.float64]


class RowErrors(NamedTuple):
    """What rows contribute to the errors E of entries: E_ij <= left[0]_i right[0]_j + left[1]_i right[1]_j.

    Attributes
    ----------
    left : float64, shape (2, batch, rows): rho and S + k rho of B1, in units of the image
    right : of the same shape for columns: S and rho
    """

    left: Floats
    right: Floats

    @property
    def vanish(self) -> bool:
        """Whether no entry has an error: then none is undecided."""
        return not (self.left.any(axis=(1, 2)) & self.right.any(axis=(1, 2))).any()

    def at(self, b: slice, rows: slice, columns: slice) -> RowErrors:
        """Those of some rows and columns of some matrices; an operand may have one matrix for all."""
        left, right = (x if x.shape[1] == 1 else x[:, b] for x in self)
        return RowErrors(left[:, :, rows], right[:, :, columns])

    def of_entries(self) -> Floats:
        """E, shape (batch, m, n)."""
        left, right = self.left[..., :, None], self.right[..., None, :]
        total: Floats = left[0] * right[0]
        total += left[1] * right[1]
        return total


def row_errors(left: Description, right: Description, scheme: Scheme) -> RowErrors:
    """B1 for these operands and residues, in units of the integers Cbar, rounded up; images are below 2**900."""
    scaling = scaling_of(scheme, left.k)
    rho, sums = [], []
    for side in (left, right):
        bits = side.bits(scaling)
        rounded = (bits + side.bottom < side.top) & ~side.empty
        rho.append(np.where(rounded, 0.5, 0.0))
        sums.append(np.ldexp(side.sums, bits.astype(np.int32)))
    return RowErrors(np.stack([rho[0], sums[0] + left.k * rho[0]]) * UP, np.stack([sums[1], rho[1]]) * UP)


class Crossings(NamedTuple):
    """How many of some entries have a boundary within reach: a guess at the share of all entries that are undecided.

    Attributes
    ----------
    counts : (x, bits, number) of entries for which the chance is between 2**-(x + 1) and 2**-x, and which have no error
        once images have so many bits more; x is `-ABOVE` or `BELOW` for all beyond, and for zeros `-ABOVE`
    entries : number of entries that were looked at, those without an error included
    """

    counts: tuple[tuple[int, int, int], ...]
    entries: int

    def share(self, more: float) -> float:
        """The share to expect if images have so many bits more, a number that may be negative."""
        x, bits, numbers = np.array(self.counts, np.int32).reshape(-1, 3).T
        likely = numbers * np.minimum(np.ldexp(2.0 ** (-more), -x), 1.0)
        return fsum(likely[bits > more].tolist()) / max(self.entries, 1)  # exact: the same on all machines


ABOVE, BELOW = 512, 64
"""How far counts reach: chances of 2**ABOVE, which is the quotient of an error and of the distance of boundaries, and
of 2**-BELOW."""


def crossings(entries: Ints, left: Description, right: Description, scheme: Scheme, dtype: str) -> Crossings:
    """Count the chances that the errors of a scheme leave entries undecided.

    Parameters
    ----------
    entries : of the products of some rows and columns the frexp exponents, about, less top_i + top_j; `NONE` for zeros;
        int64, shape (batch, m, n)
    left, right : the descriptions of these rows and columns
    dtype : the format that entries are rounded to
    """
    scaling = scaling_of(scheme, left.k)
    errors = row_errors(left, right, scheme).of_entries()
    exponents = np.frexp(errors)[1].astype(np.int64)
    exponents -= left.bits(scaling)[..., :, None] + right.bits(scaling)[..., None, :]
    sums = (left.top + left.scale)[..., :, None] + (right.top + right.scale)[..., None, :]
    least = {"float32": -149, "float64": -1074}[dtype]
    last = np.maximum(entries - precision_of(dtype), least - sums)  # unit in the last place of an entry
    needed = [side.top - side.bottom - side.bits(scaling) for side in (left, right)]
    more = np.clip(np.maximum(needed[0][..., :, None], needed[1][..., None, :]), 0, NO_SPAN)
    chances = np.clip(np.where(entries == NONE, -ABOVE, last - 1 - exponents), -ABOVE, BELOW)
    some = errors > 0
    found, numbers = np.unique(((chances + ABOVE) * 2 * NO_SPAN + more)[some], return_counts=True)
    counts = zip(
        (found // (2 * NO_SPAN) - ABOVE).tolist(), (found % (2 * NO_SPAN)).tolist(), numbers.tolist(), strict=True
    )
    return Crossings(tuple(counts), entries.size)
