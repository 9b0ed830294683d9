"""How exact the entries of a product are, relative to themselves, on NumPy (docs/bounds.md, B10)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import OBJECTS, Described
from ozaki.backends.numpy._proof import numerators
from ozaki.backends.numpy._tiles import TILE
from ozaki.bounds.exact import error_terms
from ozaki.bounds.relative import FARTHEST, MANTISSA_BITS, NONE, UNBOUNDED, Quotient
from ozaki.call.operands import tiles_of_rows
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes import Scheme, scaling_of

_SHARE = 8
"""The share of a tile's elements that are compared at a time, so that this takes less memory than describing rows."""


def relative_tile(n: int, rest: int | None) -> int:
    """Elements to compare at a time, a row of n at least, so that `rest` bytes suffice, None for no limit."""
    usual = TILE // _SHARE
    return max(n, usual if rest is None else min(usual, (rest - OBJECTS // 4) // (8 * _ARRAYS)))


def relative_workspace(shape: tuple[int, ...], tile: int) -> int:
    """Bytes that are held while a product of shape (batch, m, n) is compared, so many elements at a time."""
    return 8 * _ARRAYS * min(tile, prod(shape)) + OBJECTS // 4


_ARRAYS = 12
"""Float64 arrays of a tile that are held while it is compared."""


def worst_quotient(
    left: Described, right: Described, spans: tuple[int, int], scheme: Scheme, c: npt.NDArray[Any] | Numbers,
    tile: int,
) -> Quotient:  # fmt: skip
    """The largest quotient of the image error (B1) of an entry and the entry.

    Parameters
    ----------
    left, right : the operands, or rows of them
    spans : of the whole operands
    scheme : of the product
    tile : elements to compare at a time
    c : the product by this scheme, rounded to any format, shape (batch, m, n); entries of NaN and Inf do not count. Of
        a complex product the parts of an entry count one by one
    """
    if isinstance(c, np.ndarray) and c.dtype.kind == "c":
        return max(worst_quotient(left, right, spans, scheme, part, tile) for part in (c.real, c.imag))
    exponent = -scaling_of(scheme, left.k).base  # so that no error underflows
    terms = error_terms(left.on_host, right.on_host, scheme, scheme.dropped(left.k, spans), exponent)
    tops = [x.on_host.top + x.on_host.scale for x in (left, right)]
    worst = NONE
    batch, m, n = c.shape
    for at in tiles_of_rows(batch, m, n, tile):
        of_left, of_right = (t if t.shape[0] == 1 else t[at[0]] for t in tops)
        error = numerators(terms, *at)
        fractions, exponents, counted = _parts(c[at])
        counted = counted & (error > 0)
        if not counted.any():
            continue
        if (fractions[counted] == 0).any():
            return UNBOUNDED
        above = exponents - of_left[:, at[1], None] - of_right[:, None, :] - exponent
        mantissas, of_quotients = np.frexp(error[counted] / fractions[counted])
        of_quotients = np.clip(of_quotients - above[counted], -FARTHEST, FARTHEST)
        largest = of_quotients.max()
        mantissa = np.ceil(mantissas[of_quotients == largest].max() * 2.0**MANTISSA_BITS)
        worst = max(worst, Quotient(int(largest), int(mantissa)))
    return worst


def _parts(c: npt.NDArray[Any] | Numbers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], Any]:
    """Magnitudes as fractions in [1/2, 1), 0 for zeros, and exponents; and which entries are finite.

    The fractions of multiprecision numbers are cut to 32 bits.
    """
    if isinstance(c, Numbers):
        return c.limbs[0] * 2.0**-32, c.exponents, True
    finite = np.isfinite(c)
    fractions, exponents = np.frexp(np.abs(np.where(finite, c, 0).astype(np.float64)))
    return fractions, exponents.astype(np.int64), finite
