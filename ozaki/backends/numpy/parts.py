"""Parts of a product on NumPy: some rows of A, some columns of B, at some of the inner indices.

The exponents of rows come from descriptions of the whole rows, and all parts have the same scheme. So products of parts
are integers in the same units, and their sum is the integer that one product over all of k has.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import _proof
from ozaki.backends.numpy._describe import Described, scale
from ozaki.backends.numpy._nonfinite import Touched as Touched
from ozaki.backends.numpy._relative import worst_quotient as _worst_quotient
from ozaki.backends.numpy._scaled import ScaledRows, plain
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy._unrounded import Unrounded
from ozaki.backends.numpy.compiled import Compiled, compiled
from ozaki.backends.numpy.engines import Engine, engine_of
from ozaki.bounds.description import FIELDS, Description, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import Level, wide_bits
from ozaki.bounds.merging import Floats, no_extremes, tops
from ozaki.bounds.relative import NONE, Quotient
from ozaki.records.combination import Combination
from ozaki.schemes import ComplexResidues, Scaling, Scheme, magnitude_bits, scaling_of
from ozaki.schemes.image import EMPTY_TOP

Rows = npt.NDArray[Any] | ScaledRows
"""Rows of A, or columns of B, at some inner indices: shape (1, rows, indices), real or complex, with any strides."""


# Descriptions ---------------------------------------------------------------------------------------------------------


def extremes(x: Rows) -> Floats:
    """The first round of `bounds.merging` for a part of rows, shape (2, rows)."""
    found = no_extremes(x.shape[1])
    for rows, values, _ in _pieces(x):
        if values.shape[1]:
            smallest = np.where(values == 0, inf, values).min(axis=1)
            np.maximum(found[0, rows], values.max(axis=1), out=found[0, rows])
            np.maximum(found[1, rows], -smallest, out=found[1, rows])
    return found


def sums(x: Rows, merged: Floats, k: int) -> Ints:
    """The second round of `bounds.merging` for a part of rows, shape (4, rows).

    `merged` are the extremes of the whole rows, of k real numbers each.
    """
    found = np.zeros((4, x.shape[1]), np.int64)
    powers = magnitude_bits(k) - tops(merged)
    for rows, values, nonfinite in _pieces(x):
        scaled = scale(values, powers[rows, None])
        units = np.ceil(scaled)
        np.maximum(units, values > 0, out=units)  # scaling may have flushed an element to zero; its magnitude is 1
        found[0, rows] += units.sum(axis=1).astype(np.int64)
        found[1, rows] += np.vecdot(units, units).astype(np.int64)
        found[2, rows] += np.count_nonzero(scaled != units, axis=1)
        found[3, rows] += nonfinite
    return found


_INDICES = 2**13
"""Inner indices of a piece, at most: float64 adds the squares of so many magnitudes, below 2**40 each, exactly."""


def _pieces(x: Rows) -> Iterator[tuple[slice, Floats, Ints | int]]:
    """Pieces of rows that lie along memory: which rows, magnitudes with zero for NaN and Inf, and how many were such.

    Parts of complex elements come one after the other.
    """
    _, rows, indices = x.shape
    turned = x.strides[1] < x.strides[2]
    of_rows = max(rows, 1) if turned else max(1, TILE // max(min(indices, _INDICES), 1))
    of_indices = min(_INDICES, max(1, TILE // max(rows, 1))) if turned else _INDICES
    for r in range(0, rows, of_rows):
        at = slice(r, min(r + of_rows, rows))
        for h in range(0, indices, of_indices):
            piece = plain(x[:, at, h : h + of_indices])[0]
            for part in (piece.real, piece.imag) if piece.dtype.kind == "c" else (piece,):
                values, nonfinite = np.abs(part.astype(np.float64, copy=False)), 0
                if not np.isfinite(values.max(initial=0.0)):
                    infinite = ~np.isfinite(values)
                    values[infinite] = 0
                    nonfinite = infinite.sum(axis=1)
                yield at, values, nonfinite


def part_of(x: Rows, description: Description) -> Described:
    """A part of rows with the description of the whole rows, shape (1, rows)."""
    fields = np.stack([getattr(description, name) for name in FIELDS])
    return Described(x, fields, not description.nonfinite.any(), k=description.k)


# Proofs ---------------------------------------------------------------------------------------------------------------


class LowerBounds:
    """Lower bounds of (abs(A) abs(B))_ij of a tile at a level, of which parts of k are added (docs/bounds.md, B7).

    They are integers, so any parts give the same sums. At the wide level, entries that are zero after all parts need a
    second pass over these (`add_exponents`).

    Parameters
    ----------
    level : which the parts are read for
    left, right : descriptions of the whole rows of A and columns of B that the tile has, shapes (1, m) and (1, n)
    sums, exponents : what an earlier object has found, and this one overwrites; by default nothing

    Attributes
    ----------
    sums : of the parts that were added so far, shape (1, m, n)
    exponents : the largest ones of the parts that the second pass has seen, shape (m, n); None before it
    """

    def __init__(
        self,
        level: Level,
        left: Description,
        right: Description,
        sums: npt.NDArray[Any] | None = None,
        exponents: Ints | None = None,
    ) -> None:
        self._level, self._left, self._right = level, left, right
        shape = left.top.shape[1], right.top.shape[1]
        dtype = np.float64 if level == "wide" else np.int32
        self.sums: npt.NDArray[Any] = np.zeros((1, *shape), dtype) if sums is None else sums
        self.exponents = exponents

    def add(self, x: Rows, y: Rows) -> None:
        """Add the products of a part: of those inner indices alone that the level reads."""
        if x.shape[2] == 0 or 0 in self.sums.shape:
            return
        left, right = part_of(x, self._left), part_of(y, self._right)
        if self._level == "wide":
            bits = wide_bits(self._left.k)
            self.sums += _proof._product(left, right, bits, np.float64, _proof._slabs(x.shape[2]))
        else:
            self.sums += _proof.lower_bound(left, right, "narrow").astype(np.int32, copy=False)

    @property
    def unknown(self) -> bool:
        """Whether entries are zero at the wide level, so that a second pass is needed."""
        return self._level == "wide" and not self.sums.all()

    def add_exponents(self, x: Rows, y: Rows) -> None:
        """Find the largest products of leading powers of two of a part, for entries that are zero."""
        if self.exponents is None:
            self.exponents = np.full(self.sums.shape[1:], 4 * EMPTY_TOP, np.int64)
        powers = [_proof._leading_exponents(part_of(each, of))[0] for each, of in ((x, self._left), (y, self._right))]
        a, b = ((e > EMPTY_TOP).astype(np.float32) for e in powers)
        met = (self.sums[0] == 0) & (np.matmul(a, b.T) > 0)
        for i in np.flatnonzero(met.any(axis=1)):
            j = np.flatnonzero(met[i])
            for some in np.array_split(j, 1 + len(j) * x.shape[2] // TILE):
                largest = (powers[0][i] + powers[1][some]).max(axis=1)
                self.exponents[i, some] = np.maximum(self.exponents[i, some], largest)

    def finish(self) -> None:
        """Replace entries that are zero at the wide level by what the second pass has found; inf where nothing was."""
        if self.exponents is None:
            return
        zeros, found = self.sums[0] == 0, self.exponents > 2 * EMPTY_TOP
        units = self.exponents + 2 * wide_bits(self._left.k)
        self.sums[0][zeros & ~found] = inf
        at = zeros & found
        self.sums[0][at] = np.ldexp(1.0, units[at])

    def worst_ratio(self, terms: ErrorTerms, rows: int) -> float:
        """The largest ratio of the error terms to the lower bounds in the first rows of the tile, as `Ratio.worst`."""
        if rows <= 0 or 0 in self.sums.shape:
            return 0.0
        found = compiled()
        library = found.library if isinstance(found, Compiled) else None
        return _proof.worst_of_terms(library, terms, np.ascontiguousarray(self.sums), rows)


# Products -------------------------------------------------------------------------------------------------------------

Form = tuple[int, str, int]
"""Of un-rounded sums: planes, dtype, and how many terms they have."""


class PartialProduct:
    """The un-rounded product of some rows of A and columns of B over the inner indices that were added so far.

    Attributes
    ----------
    engine : that of the plan's scheme, for all of k
    mu, nu : exponents of the images of rows and columns, shapes (1, m) and (1, n)
    sums : exact integers, as the engine holds them, shape (planes, 1, m, n): those of other parts may be added to them.
        None before anything was added. Residues are meant modulo each modulus: sums of parts may be any integers that
        are congruent.
    """

    def __init__(self, engine: Engine, mu: Ints, nu: Ints) -> None:
        self.engine, self.mu, self.nu = engine, mu, nu
        self.sums: npt.NDArray[Any] | None = None
        self._terms = 0

    @classmethod
    def of(cls, engine: Engine, left: Description, right: Description, scaling: Scaling) -> PartialProduct:
        """That of rows and columns with these descriptions, before anything was added."""
        return cls(engine, left.exponents(scaling), right.exponents(scaling))

    def of_rows(self, rows: slice) -> PartialProduct:
        """That of some of the rows, before anything was added."""
        return PartialProduct(self.engine, self.mu[:, rows], self.nu)

    def room(self, form: Form, rows: int) -> npt.NDArray[Any]:
        """A new array for the sums that another part has of so many rows; undefined."""
        return np.empty((form[0], 1, rows, self.nu.shape[1]), form[1])

    def add_product(self, x: Rows, y: Rows, finite: tuple[bool, bool]) -> None:
        """Split a part of k of both operands, multiply the slices, and add.

        `finite`: whether each operand has no NaN and Inf, which count as zero.
        """
        slab = self.engine.slab
        for h in range(0, x.shape[2], slab):
            hs = slice(h, min(h + slab, x.shape[2]))
            for rows, cols, left, right in self._split(x[:, :, hs], y[:, :, hs], finite):
                self._add_block(self.engine.multiply(left, right), rows, cols)
            self._widen(1)

    def round_product(self, x: Rows, y: Rows, finite: tuple[bool, bool], out: npt.NDArray[Any]) -> bool:
        """Multiply all of k, and round into out, shape (m, n), in one pass; False where the engine does not.

        Then out may hold anything, and nothing was added.
        """
        if self.sums is not None or x.shape[2] > self.engine.slab:
            return False
        for rows, cols, left, right in self._split(x, y, finite):
            of_block = self.mu[:, rows], self.nu[:, cols], out[None, rows, cols]
            if not self.engine.multiply_into(left, right, *of_block, triangle=False):
                return False
        return True

    def _split(self, x: Rows, y: Rows, finite: tuple[bool, bool]) -> Iterator[tuple[slice, slice, Any, Any]]:
        """The slices of blocks of rows and columns, each made once: rows, columns, and the slices of both."""
        engine, m, n = self.engine, x.shape[1], y.shape[1]
        columns = [slice(c, min(c + _BLOCK, n)) for c in range(0, n, _BLOCK)]
        right = [engine.split_rows(y[:, cols], self.nu[:, cols], "right", finite[1]) for cols in columns]
        for r in range(0, m if n else 0, _BLOCK):
            rows = slice(r, min(r + _BLOCK, m))
            left = engine.split_rows(x[:, rows], self.mu[:, rows], "left", finite[0])
            for cols, of_cols in zip(columns, right, strict=True):
                yield rows, cols, left, of_cols

    def _add_block(self, products: npt.NDArray[Any], rows: slice, cols: slice) -> None:
        if self.sums is None:
            sums = np.int16 if products.dtype == np.int8 else products.dtype
            self.sums = np.zeros((len(products), 1, self.mu.shape[1], self.nu.shape[1]), sums)
        self.sums[:, :, rows, cols] += products

    def _widen(self, terms: int) -> None:
        """Count terms that were added, and take wider integers before their sums may leave int16."""
        self._terms += terms
        if self.sums is not None and self.sums.dtype == np.int16 and self._terms >= _MOST_TERMS:
            self.sums = self.sums.astype(np.int32)

    def wide_sums(self) -> npt.NDArray[Any]:
        """The sums in a format in which those of thousands of parts may be added; zeros before anything was added."""
        if self.sums is None:
            zeros = np.float64 if self.engine.by == "BLAS" else np.int32
            planes = self.engine.sums or self.engine.planes
            self.sums = np.zeros((planes, 1, self.mu.shape[1], self.nu.shape[1]), zeros)
        if self.sums.dtype == np.int16:
            self.sums = self.sums.astype(np.int32)
        return self.sums

    def copy(self) -> PartialProduct:
        """One with sums of its own."""
        found = PartialProduct(self.engine, self.mu, self.nu)
        if self.sums is not None:
            found.add(self.sums, self._terms)
        return found

    @property
    def form(self) -> Form | None:
        """The form of the sums; None before anything was added."""
        return None if self.sums is None else (len(self.sums), str(self.sums.dtype), self._terms)

    def part(self, rows: slice) -> npt.NDArray[Any] | None:
        """The sums of some rows, contiguous; None before anything was added."""
        return None if self.sums is None else np.ascontiguousarray(self.sums[:, :, rows])

    def add(self, sums: npt.NDArray[Any], terms: int) -> None:
        """Add the sums of another part, of the same engine and shape, which has so many terms."""
        self._widen(terms)
        if self.sums is None:
            self.sums = sums.copy()
            self._widen(0)
        else:
            self.sums += sums.astype(self.sums.dtype, copy=False)

    @property
    def terms(self) -> int:
        """How many products of slabs were added; of other parts those that they were made of."""
        return self._terms

    def round_into(self, out: npt.NDArray[Any], combination: Combination | None = None) -> None:
        """Round A B, or an expression with it, once into out, shape (m, n); the sums are freed."""
        if 0 in out.shape:
            return
        if self.sums is None:  # no inner index
            self.sums = np.zeros((self.engine.sums or self.engine.planes, 1, *out.shape))
        whole, self.sums = Unrounded(self.engine, self.sums, self.mu, self.nu), None
        whole.round_into(out[None], combination)


_BLOCK = 2048
"""Rows and columns that are multiplied at a time, so that their products take little memory beside the sums."""

_MOST_TERMS = 120
"""So many terms, each in [-128, 127], at most, are added in int16, which holds twice as many and more."""


def begin(
    scheme: Scheme, engine: str, rows: Description, cols: Description, is_complex: bool
) -> tuple[PartialProduct, Touched]:
    """A product to which nothing was added, and what NaN and Inf make of it.

    Parameters
    ----------
    scheme, engine : of the plan, which all parts have in common
    rows, cols : descriptions of whole rows of A and columns of B, fields of shapes (1, m) and (1, n)
    is_complex : whether both operands are
    """
    scaling = scaling_of(scheme, rows.k)
    product = PartialProduct(engine_for(scheme, rows.k, engine), rows.exponents(scaling), cols.exponents(scaling))
    return product, Touched((rows.nonfinite[0] > 0, cols.nonfinite[0] > 0), is_complex)


def engine_for(scheme: Scheme, k: int, name: str) -> Engine:
    """The engine of a scheme for k real numbers of a row: all parts of a product have the same one."""
    return engine_of(sliced(scheme), max(k, 1), name)


def sliced(scheme: Scheme) -> Any:
    """The scheme of the slices that are multiplied: of complex residues that of both parts, of others itself."""
    return scheme.slices if isinstance(scheme, ComplexResidues) else scheme


def worst_quotient(
    of: tuple[Description, Description], spans: tuple[int, int], scheme: Scheme, c: npt.NDArray[Any]
) -> Quotient:
    """The largest quotient of the error of an entry and the entry (docs/bounds.md, B10), of entries c, shape (m, n).

    `of` are the descriptions of their rows and columns, `spans` the largest ones of the whole operands.
    """
    if 0 in c.shape:
        return NONE
    empty = np.zeros((1, 0, 0))
    left, right = (part_of(empty, each) for each in of)
    return _worst_quotient(left, right, spans, sliced(scheme), c[None], max(TILE // 8, c.shape[1]))
