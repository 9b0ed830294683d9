"""How exact the entries of a product are, relative to themselves, on NumPy (docs/bounds.md, B10)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.numpy._describe import ROW_BYTES, Described
from ozaki.backends.numpy._execute import execute, matrices_of
from ozaki.backends.numpy._proof import numerators
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.bounds.relative import FARTHEST, MANTISSA_BITS, NONE, UNBOUNDED, Quotient, image_errors, relative_bits, times
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.formats import precision_of
from ozaki.records.memory import Memory
from ozaki.records.shapes import tiles_of_rows
from ozaki.records.verification import Verification
from ozaki.schemes import Scheme

_SHARE = 8
"""The share of a tile's elements that are compared at a time, so that this takes less memory than describing rows."""

_ARRAYS = 12
"""Float64 arrays of a tile that are held while it is compared."""


def bits_of(product: results.Computed, left: Described, right: Described, dtype: str, memory: Memory) -> float:
    """What `bounds.relative.relative_bits` says of a product in the format `dtype`."""
    worst = _worst_within(product.scheme, left, right, (left.span, right.span), product.c, memory)
    return relative_bits(times(worst, product.alpha.whole, product.alpha.exponent), precision_of(dtype))


def bits_of_strips(
    scheme: Scheme, left: Described, right: Described, dtype: str, memory: Memory, verification: Verification | None
) -> float:
    """The same of a product that is computed for it strip by strip, under a limit of workspace.

    A strip, some rows, takes no more than half of what the limit leaves, unless one row takes more.
    """
    batch, m, n = max(left.x.shape[0], right.x.shape[0]), int(left.x.shape[1]), int(right.x.shape[1])
    assert memory.rest is not None
    rows = max(1, min(m, m * batch * (memory.rest // 2) // results.nbytes((batch, m, n), dtype)))
    strip = results.nbytes((1, rows, n), dtype) + ROW_BYTES * (rows + n)  # described as parts, too
    worst = NONE
    for b in range(batch):
        at_left, at_right = (matrices_of(x, slice(b, b + 1)) for x in (left, right))
        of_right = right.part(at_right, slice(None))
        for r in range(0, m, rows):
            of_left = left.part(at_left, slice(r, min(r + rows, m)))
            memory.hold(strip)
            c = results.empty((1, of_left.x.shape[1], n), dtype, np)
            execute(scheme, "auto", of_left, of_right, c, memory, verification=verification)
            worst = max(worst, _worst_within(scheme, of_left, of_right, (left.span, right.span), c, memory))
            memory.free(strip)
            del c  # before that of the next strip is made
    return relative_bits(worst, precision_of(dtype))


def _worst_within(
    scheme: Scheme, left: Described, right: Described, spans: tuple[int, int], c: Any, memory: Memory
) -> Quotient:
    """The largest quotient (`worst_quotient`) within the limit of workspace."""
    tile, rest = TILE // _SHARE, memory.rest
    if rest is not None:
        tile = min(tile, (rest - OBJECTS // 4) // (8 * _ARRAYS))
    tile = max(c.shape[2], tile)
    memory.pass_through(8 * _ARRAYS * min(tile, prod(c.shape)) + OBJECTS // 4)
    return worst_quotient(left, right, spans, scheme, c, tile)


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
    terms, exponent = image_errors(left.on_host, right.on_host, scheme, spans)
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
