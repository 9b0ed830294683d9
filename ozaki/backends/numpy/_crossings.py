"""How many entries of a product will be undecided when they are rounded, foretold on NumPy (docs/bounds.md, B14)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.bounds.description import Description, Ints
from ozaki.bounds.sampled_products import (
    NONE,
    PARTS,
    exponents_of,
    least_exponent,
    looked_at,
    part_bits,
    spread,
)
from ozaki.bounds.undecided import Crossings, Floats, crossings
from ozaki.schemes import Scheme


class SomeRows(NamedTuple):
    """The rows of an operand that are looked at.

    Attributes
    ----------
    x : the operand, whose elements are copied where they are needed, shape (batch, rows, k)
    at : the numbers of the matrices, shape (matrices, 1), and of their rows that are looked at
    on_host : the descriptions of these
    """

    x: npt.NDArray[Any] | ScaledRows
    at: tuple[Ints, Ints]
    on_host: Description

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many matrices, how many of their rows, k."""
        return len(self.at[0]), len(self.at[1]), self.x.shape[2]

    def elements(self, hs: slice) -> npt.NDArray[Any]:
        """A copy of their elements at some inner indices."""
        some = self.x[:, :, hs]
        if isinstance(some, ScaledRows):
            return ScaledRows(some.x[self.at], some.factors[self.at[0][:, 0]]).values()
        return some[self.at]


def some_rows(x: Described) -> SomeRows:
    """The rows of an operand that are looked at, and their descriptions."""
    batch, rows, k = x.x.shape
    matrices, of_matrix = map(spread, (batch, rows), looked_at(x.x.shape))
    at = matrices[:, None], of_matrix
    return SomeRows(x.x, at, Description(k, *x.fields[(slice(None), *at)]))


def foretell(left: SomeRows, right: SomeRows, scheme: Scheme, dtype: str, at_once: int | None = None) -> Crossings:
    """What some rows of A and columns of B say of entries in the format `dtype`.

    `at_once`: inner indices that are multiplied at a time, on which what is found does not depend.
    """
    (x, m, k), (y, n, _) = left.shape, right.shape
    sums = np.zeros((PARTS, max(x, y), m, n))
    slab, width = at_once or _slab(left.shape, right.shape), part_bits(k)
    for h in range(0, k, slab):
        first, second = (_parts(of, slice(h, h + slab), width) for of in (left, right))
        length = first.shape[-1]
        turned = second[:, :, ::-1].reshape(y, n, -1).swapaxes(1, 2)  # the last part comes first
        flat = first.reshape(x, m, -1)
        for p in range(1, PARTS + 1):
            sums[p - 1] += np.matmul(flat[:, :, : p * length], turned[:, (PARTS - p) * length :])
    c = sums[0]
    for each in sums[1:]:
        c = c * 2.0**width + each
    c *= 2.0 ** (-(PARTS + 1) * width)
    largest = np.full(c.shape, NONE)
    small = np.nonzero(np.abs(c) < 2.0 ** least_exponent(k))
    if small[0].size:
        largest[small] = _largest(left, right, small, min(slab, _EXPONENTS))
    return crossings(exponents_of(c, largest, k), left.on_host, right.on_host, scheme, dtype)


def _largest(left: SomeRows, right: SomeRows, entries: tuple[Ints, ...], slab: int) -> Ints:
    """The largest exponents of products, as of `exponents_of`, of entries (matrices, rows, columns)."""
    matrices, rows, columns = entries
    found = np.full(len(rows), 2 * NONE)
    k = left.shape[2]
    for h in range(0, k, slab):
        of_left, of_right = (_exponents(of, slice(h, h + slab)) for of in (left, right))
        for i in range(0, len(rows), _ENTRIES):
            some = slice(i, i + _ENTRIES)
            of_rows = of_left[matrices[some] % len(of_left), rows[some]]
            sums = of_rows + of_right[matrices[some] % len(of_right), columns[some]]
            found[some] = np.maximum(found[some], sums.max(1))
    return found


_EXPONENTS, _ENTRIES = 256, 64
"""Inner indices and entries whose exponents are added at a time, at most."""


def _exponents(x: SomeRows, hs: slice) -> Ints:
    """The frexp exponents of elements less their row's top; `NONE` of those that do not count."""
    some = x.elements(hs)
    exponents = np.frexp(some)[1] - x.on_host.top[..., None]
    return np.where(np.isfinite(some) & (some != 0), exponents, NONE)


def slab_within(left: tuple[int, ...], right: tuple[int, ...], limit: int | None) -> int:
    """How many inner indices `foretell` multiplies at a time, for operands of these shapes, to hold no more than that.

    The fewest that are worth it, where the limit leaves too little for these, too.
    """
    slab = _slab(*((*looked_at(x), x[2]) for x in (left, right)))
    while limit is not None and slab > _LEAST_SLAB and foretelling_bytes(left, right, slab) > limit:
        slab //= 2
    return slab


_LEAST_SLAB = 16


def foretelling_bytes(left: tuple[int, ...], right: tuple[int, ...], slab: int) -> int:
    """Bytes that `foretell` holds for operands of these shapes: copies of elements, and arrays of all entries."""
    (b, m), (d, n) = (looked_at(x) for x in (left, right))
    rows, exponents = 8 * (b * m + d * n), min(slab, _EXPONENTS)
    some = 6 * rows * exponents + 24 * exponents * min(m * n, _ENTRIES)
    return (2 * (PARTS + 2) + 1) * rows * slab + (128 + 8 * PARTS) * max(b, d) * m * n + some + OBJECTS


def _slab(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Inner indices that are multiplied at a time, of rows of these shapes."""
    return min(max(TILE // PARTS // max(left[0] * left[1], right[0] * right[1]), 1), max(left[2], 1))


def _parts(x: SomeRows, hs: slice, width: int) -> Floats:
    """The parts of rows at some inner indices, shape (batch, rows, PARTS, indices); NaN and Inf count as zeros."""
    rest = x.elements(hs).astype(np.float64)
    rest[~np.isfinite(rest)] = 0
    rest = np.ldexp(rest, width - x.on_host.top.astype(np.int32)[..., None])
    parts = np.empty((*rest.shape[:2], PARTS, rest.shape[2]))
    for p in range(PARTS):
        np.trunc(rest, out=parts[:, :, p])
        rest -= parts[:, :, p]
        rest *= 2.0**width
    return parts
