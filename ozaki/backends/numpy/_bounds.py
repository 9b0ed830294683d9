"""Bounds of the entries of a product, one by one, on NumPy (docs/bounds.md, B13)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._proof import numerators
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.bounds.entries import LEAST_EXPONENT, ROOT_LESS_ONE, SMALLEST, RowTerms, factor_up
from ozaki.bounds.exact import ErrorTerms
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import Factor
from ozaki.records.formats import precision_of
from ozaki.records.memory import Memory
from ozaki.records.shapes import tiles_of_rows

Floats = npt.NDArray[np.float64]

_SHARE = 8
"""The share of a tile's elements whose bounds are computed at a time."""

_ARRAYS = 14
"""Arrays of 8 bytes an element of a tile that are held at a time."""


def entry_bounds(
    c: npt.NDArray[Any] | Numbers, bounds: Floats, left: RowTerms, right: RowTerms, exponent: int, alpha: Factor,
    sums: bool, memory: Memory,
) -> None:  # fmt: skip
    """Compute the bounds of the entries of a product of slices, or of an expression rounded once.

    Parameters
    ----------
    c : the result, shape (batch, m, n), real or complex
    bounds : where they go, of that shape
    left, right, exponent : what `bounds.entries.row_terms` finds; twice as many rows as c has of a product of parts
    alpha : the factor of the product, not zero
    sums : whether something is added to the product
    memory : the account of what the product holds
    """
    tile, rest = TILE // _SHARE, memory.rest
    if rest is not None:
        tile = min(tile, (rest - OBJECTS // 4) // (8 * _ARRAYS))
    tile = max(c.shape[2], tile)
    memory.pass_through(8 * _ARRAYS * min(tile, prod(c.shape)) + OBJECTS // 4)
    is_complex = c.is_complex if isinstance(c, Numbers) else c.dtype.kind == "c"
    parts = (c.real, c.imag) if is_complex else (c,)
    mantissa, power = factor_up(alpha)
    of_parts = [(part, left.of_part(p, c.shape[1]), right.of_part(p, c.shape[2])) for p, part in enumerate(parts)]
    units, multiple = exponent + power, None if sums else alpha.exponent
    batch, m, n = c.shape
    for at in tiles_of_rows(batch, m, n, tile):
        first, *second = (
            _of_real(part[at], *(_within(at, *sides)), mantissa, units, multiple) for part, *sides in of_parts
        )
        bounds[at] = _moduli(first, second[0]) if second else first


def _within(at: tuple[slice, slice], left: RowTerms, right: RowTerms) -> tuple[Floats, Any, Any]:
    """Of some rows of some matrices the sums of terms, and the sums of units and of multiples."""
    error = numerators(ErrorTerms(left.terms, right.terms), *at)
    sums = []
    for x, y in ((left.units, right.units), (left.multiples, right.multiples)):
        of_left, of_right = (each if each.shape[0] == 1 else each[at[0]] for each in (x, y))
        sums.append(of_left[:, at[1], None] + of_right[:, None, :])
    return error, sums[0], sums[1]


def _of_real(
    c: npt.NDArray[Any] | Numbers, error: Floats, units: Any, multiples: Any, mantissa: float, unit: int,
    multiple: int | None,
) -> Floats:  # fmt: skip
    """Bounds of real entries: the image error and the rounding, rounded up. `error` is overwritten."""
    error *= mantissa
    fractions, exponents = np.frexp(error)
    exponents = np.clip(exponents + (units + unit), -1100, 1025)
    images = np.ldexp(fractions, exponents)
    images[(error > 0) & (exponents < -1021)] += SMALLEST
    rounding, finite = _roundings(c, multiples, multiple)
    bounds: Floats = images + rounding
    both = (images > 0) & (rounding > 0)
    bounds[both] = np.nextafter(bounds[both], np.inf)
    bounds[~finite] = np.inf
    return bounds


def _roundings(c: npt.NDArray[Any] | Numbers, multiples: Any, multiple: int | None) -> tuple[Floats, Any]:
    """Half a unit in the last place of entries, 0 where nothing was rounded; and which entries are finite.

    Without `multiple` nothing is known of what was rounded.
    """
    if isinstance(c, Numbers):
        last, finite = c.exponents - c.bits, np.ones(c.shape, bool)
        exact = c.signs == 0
    else:
        finite, least = np.isfinite(c), LEAST_EXPONENT[str(c.dtype)]
        exponents = np.frexp(np.where(finite, c, 0))[1].astype(np.int64)
        exponents[c == 0] = least
        last = np.maximum(exponents, least) - precision_of(str(c.dtype))
        exact = np.zeros(c.shape, bool)
    if multiple is not None:
        exact |= multiples + multiple >= last
    rounding = np.ldexp(1.0, np.clip(last - 1, -1074, 1024).astype(np.int32))
    rounding[exact] = 0
    return rounding, finite


def _moduli(x: Floats, y: Floats) -> Floats:
    """Upper bounds of sqrt(x**2 + y**2)."""
    smaller = np.minimum(x, y)
    bounds: Floats = np.maximum(x, y)
    both = smaller > 0
    bounds[both] = np.nextafter(bounds[both] + ROOT_LESS_ONE * smaller[both], np.inf)
    return bounds
