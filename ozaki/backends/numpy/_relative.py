"""How exact the entries of a product are, relative to themselves, on NumPy (docs/bounds.md, B10)."""

from __future__ import annotations

from math import inf, log2, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._formats import precision_of
from ozaki.backends.numpy._describe import OBJECTS, Described
from ozaki.backends.numpy._proof import numerators
from ozaki.backends.numpy._tiles import TILE, row_tiles
from ozaki.bounds.exact import error_terms
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes import Scheme, scaling_of

_MARGIN = 2.0**-16
"""Bits that are taken off for the roundings of logarithms, from an entry in units of its error and from the result."""


_SHARE = 8
"""The share of a tile's elements that are compared at a time, so that this takes less memory than describing rows."""


def relative_workspace(shape: tuple[int, ...]) -> int:
    """Bytes that are held while a product of shape (batch, m, n) is compared: eight float64 arrays of a tile."""
    return 8 * 8 * min(max(TILE // _SHARE, shape[2]), prod(shape)) + OBJECTS


def relative_bits(left: Described, right: Described, scheme: Scheme, c: npt.NDArray[Any] | Numbers) -> float:
    """The least -log2 of E_ij / (abs(c_ij) (1 - u) - E_ij) of all entries with an error; E is the image error (B1).

    Parameters
    ----------
    left, right : the operands
    scheme : of the product
    c : the product by this scheme, rounded to any format, shape (batch, m, n)

    Returns
    -------
    float
        inf if no entry has an error, -inf if one is no larger than its error. Entries that NaN or Inf touch do not
        count.
    """
    exponent = -scaling_of(scheme, left.k).base  # so that no error underflows
    spans = left.span, right.span
    terms = error_terms(left.on_host, right.on_host, scheme, scheme.dropped(left.k, spans), exponent)
    tops = [x.on_host.top + x.on_host.scale for x in (left, right)]
    rounded = log2(1 - 2.0 ** -(c.bits if isinstance(c, Numbers) else precision_of(str(c.dtype)))) - _MARGIN
    least = inf
    batch, m, n = c.shape
    for at in row_tiles(batch, m, n, _SHARE):
        of_left, of_right = (t if t.shape[0] == 1 else t[at[0]] for t in tops)
        units = of_left[:, at[1], None] + of_right[:, None, :]
        error = numerators(terms, *at)
        with np.errstate(divide="ignore", invalid="ignore"):
            above = _log2(c[at], units) - np.log2(error) - exponent + rounded  # of abs(c) (1 - u) in units of E
            bits = above + np.log2(1 - np.exp2(-above))
        bits[above < _MARGIN] = -inf
        counted = (error > 0) & _finite(c[at])
        least = min(least, float(bits.min(initial=inf, where=counted)) - _MARGIN)
    return least


def _log2(c: npt.NDArray[Any] | Numbers, units: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """log2(abs(c) 2**-units), -inf for zeros."""
    if not isinstance(c, Numbers):
        return np.log2(np.abs(c.astype(np.float64))) - units
    fractions = c.limbs[0] * 2.0**-32  # at most 2**-31 too small, which errs to the safe side
    # Exponents may be so large that float64 holds no fraction beside them; their difference from the unit is not.
    logarithms: npt.NDArray[np.float64] = np.log2(fractions) + (c.exponents - units)
    return logarithms


def _finite(c: npt.NDArray[Any] | Numbers) -> Any:
    return True if isinstance(c, Numbers) else np.isfinite(c)
