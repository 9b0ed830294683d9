"""Rows that are scaled along k on NumPy: views of an operand, whose elements are multiplied as they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes.inner import REACH, Exponents, Ints, in_reach, inner_exponents, out_of_reach, own_exponents


@dataclass(frozen=True)
class ScaledRows:
    """Rows x, each element times the factor of its inner index: what takes rows of floats reads them tile by tile.

    Attributes
    ----------
    x : shape (batch, rows, k), real or complex, with any strides
    factors : powers of two, or 0 for an inner index that does not count; in the format of a part of an element, shape
        (batch, 1, k). No product leaves the normal numbers of the format.
    """

    x: npt.NDArray[Any]
    factors: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the rows, as all attributes of the name that an array has."""
        return self.x.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.x.dtype

    @property
    def size(self) -> int:
        return self.x.size

    @property
    def itemsize(self) -> int:
        return self.x.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return self.x.strides

    @property
    def real(self) -> ScaledRows:
        """The real parts of the elements."""
        return ScaledRows(self.x.real, self.factors)

    @property
    def imag(self) -> ScaledRows:
        """The imaginary parts of the elements."""
        return ScaledRows(self.x.imag, self.factors)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: Any) -> ScaledRows:
        """Part of the rows: `at` is one index for each axis, none of which it removes, or those of the first ones."""
        index = at if isinstance(at, tuple) else (at,)
        if Ellipsis in index:
            before = index.index(Ellipsis)
            index = index[:before] + (slice(None),) * (4 - len(index)) + index[before + 1 :]
        index += (slice(None),) * (3 - len(index))
        of_factors = tuple(
            slice(None) if size == 1 else one for one, size in zip(index, self.factors.shape, strict=True)
        )
        return ScaledRows(self.x[index], self.factors[of_factors])

    def swapaxes(self, one: int, other: int) -> ScaledRows:
        """The rows with two axes exchanged."""
        return ScaledRows(self.x.swapaxes(one, other), self.factors.swapaxes(one, other))

    def copy(self) -> ScaledRows:
        """The rows, of which the elements, not yet scaled, lie in new memory."""
        return ScaledRows(self.x.copy(), self.factors)

    def values(self) -> npt.NDArray[Any]:
        """The scaled elements, as a new array: for a tile of them."""
        with np.errstate(invalid="ignore"):  # Inf times 0, which is NaN, and counts as zero as Inf does
            if self.x.dtype.kind != "c":
                product: npt.NDArray[Any] = self.x * self.factors
                return product
            out = np.empty_like(self.x)
            np.multiply(self.x.real, self.factors, out=out.real)
            np.multiply(self.x.imag, self.factors, out=out.imag)
            return out


def plain(x: npt.NDArray[Any] | ScaledRows) -> npt.NDArray[Any]:
    """The elements of a tile of rows: the tile itself, or scaled elements as a new array."""
    return x.values() if isinstance(x, ScaledRows) else x


def inner_range(rows: ScaledRows) -> int:
    """The fact `InnerRange`, from the factors of either operand."""
    exponents, counts = np.frexp(rows.factors[:, 0])[1], rows.factors[:, 0] > 0
    least, largest = (
        reduce.reduce(exponents, axis=1, initial=first, where=counts)
        for reduce, first in ((np.minimum, _FAR), (np.maximum, -_FAR))
    )
    return max(int((largest - least).max(initial=0)), 0)


_FAR = 2**15
"""More than any exponent."""


def unscaled(x: npt.NDArray[Any] | ScaledRows) -> npt.NDArray[Any]:
    """The rows as the operand has them."""
    return x.x if isinstance(x, ScaledRows) else x


def scaled_along_k(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[ScaledRows, ScaledRows]:
    """Both operands, stacks of as many rows of A and columns of B, scaled along k (docs/definitions.md, 10)."""
    batch, _, k = x.shape
    formats = [str(each.real.dtype) for each in (x, y)]
    left, right = (np.empty((batch, 1, k), form) for form in formats)
    fits, reaches = np.ones(batch, bool), (REACH[formats[0]], REACH[formats[1]])
    for h in range(0, k, _SLAB):
        hs = slice(h, h + _SLAB)
        of_left, of_right = _exponents(x[..., hs]), _exponents(y[..., hs])
        s, counts, within = inner_exponents(of_left, of_right, reaches)
        fits &= within
        left[:, 0, hs], right[:, 0, hs] = (_powers(power, counts, min(reaches)) for power in (s, -s))
    return ScaledRows(x, _scaled_where(fits, left)), ScaledRows(y, _scaled_where(fits, right))


def inner_statistics(x: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.float64]]:
    """What some rows x, shape (1, rows, k), say of their inner indices, in two arrays of shape (2, k).

    The first, number and sum of exponents, is merged with that of other rows by addition; the second, minus the least
    exponent and the largest one, by maximum.
    """
    number, total, least, largest = (each[0] for each in _exponents(x))
    return np.stack((number, total)), np.stack((-least, largest)).astype(np.float64)


def inner_factors(
    left: tuple[Ints, npt.NDArray[np.float64]], right: tuple[Ints, npt.NDArray[np.float64]], formats: list[str]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The factors of both operands, shape (1, 1, k), from the merged statistics of all their rows.

    `formats` are those of a part of their elements.
    """
    reaches = REACH[formats[0]], REACH[formats[1]]
    of_left, of_right = (
        Exponents(
            *sums[:, None], *(sign * each[None].astype(np.int64) for sign, each in zip((-1, 1), extremes, strict=True))
        )
        for sums, extremes in (left, right)
    )
    s, counts, fits = inner_exponents(of_left, of_right, reaches)
    found = (
        _scaled_where(fits, _powers(power, counts, min(reaches))[:, None].astype(form))
        for power, form in zip((s, -s), formats, strict=True)
    )
    first, second = found
    return first, second


def scaled_alone(x: npt.NDArray[Any]) -> ScaledRows:
    """The rows of an operand that is prepared, scaled along k by what it has itself."""
    batch, _, k = x.shape
    form = str(x.real.dtype)
    factors, fits = np.empty((batch, 1, k), form), np.ones(batch, bool)
    for h in range(0, k, _SLAB):
        hs = slice(h, h + _SLAB)
        s, counts, within = own_exponents(_exponents(x[..., hs]), REACH[form])
        fits &= within
        factors[:, 0, hs] = _powers(s, counts, REACH[form])
    return ScaledRows(x, _scaled_where(fits, factors))


def scaled_beside(name: str, x: npt.NDArray[Any], prepared: ScaledRows) -> ScaledRows:
    """The rows of an operand beside one that is prepared: each inner index by the inverse of its factor there.

    Raises
    ------
    ValueError
        Naming the operand, if scaled elements leave the reach of their format.
    """
    form, k = str(x.real.dtype), x.shape[2]
    factors = np.zeros((len(x), 1, k), form)
    for h in range(0, k, _SLAB):
        hs = slice(h, h + _SLAB)
        own = prepared.factors[:, 0, hs]
        of = _exponents(x[..., hs])
        counts = (own > 0) & (of.number > 0)  # elsewhere the format of x may not hold the inverse of the factor
        s = np.where(counts, 1 - np.frexp(own)[1], 0).astype(np.int64)
        if not (in_reach(of, s, REACH[form]) | ~counts).all():
            out_of_reach(name, form)
        factors[:, 0, hs] = _powers(s, counts, REACH[form])
    return ScaledRows(x, factors)


def _powers(s: Ints, counts: npt.NDArray[np.bool_], reach: int) -> npt.NDArray[np.float64]:
    """2**s where an inner index counts, else 0; those beyond the reach, which are not kept, as the last within it."""
    return np.where(counts, np.ldexp(1.0, np.clip(s, -reach, reach)), 0.0)


def _scaled_where(fits: npt.NDArray[np.bool_], factors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The factors of matrices that fit, and 1 in place of those of others; overwrites them."""
    factors[~fits] = factors[~fits] > 0
    return factors


_SLAB = 2**12
"""Inner indices whose factors are found at a time."""


def factor_bytes(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[int, int]:
    """Bytes of the factors of both operands, and of what finding them takes more."""
    batch, _, k = x.shape
    held = sum(batch * k * each.real.itemsize for each in (x, y))
    return held, 40 * min(max(TILE, batch * min(k, _SLAB)), max(x.size, y.size)) + 200 * batch * min(k, _SLAB) + OBJECTS


def _exponents(x: npt.NDArray[Any]) -> Exponents:
    """The exponents of the elements of rows x, shape (batch, rows, k), at each inner index."""
    batch, rows, k = x.shape
    number, total = np.zeros((2, batch, k), np.int64)
    least, largest = np.full((batch, k), 2**15), np.full((batch, k), -(2**15))
    for part in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
        for b, r in tiles_of_rows(batch, rows, k, TILE):
            tile = part[b, r]
            exponents = np.frexp(tile)[1]
            counted = np.isfinite(tile) & (tile != 0)
            number[b] += np.count_nonzero(counted, axis=1)
            total[b] += np.add.reduce(exponents, axis=1, dtype=np.int64, where=counted)
            np.minimum(least[b], exponents.min(axis=1, initial=2**15, where=counted), out=least[b])
            np.maximum(largest[b], exponents.max(axis=1, initial=-(2**15), where=counted), out=largest[b])
    return Exponents(number, total, least, largest)
