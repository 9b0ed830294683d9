"""Exact sums rounded to 16 bits, and expressions with an addend, on NumPy (docs/definitions.md, 5 and 11)."""

from __future__ import annotations

import numpy as np

from ozaki.backends.combining import combined, special_addend
from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import exact_numbers
from ozaki.backends.numpy._sixteen import Bits, numbers_to_sixteen, to_sixteen
from ozaki.backends.numpy._tiles import COMBINED_SHARE, TILE
from ozaki.bounds.row_digits import Ints
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes.row_digits import Sixteen


def write_rounded(limbs: Floats, exponents: Ints, out: Bits, of: Sixteen, combination: Combination | None) -> None:
    """Round exact integers times powers of two, or an expression of these, once into out.

    `limbs` of all entries, shape (count, entries), are overwritten; the exponents have the shape of out.
    """
    if combination is None:
        out[...] = to_sixteen(_scaled_to_odd(limbs, exponents), of)
    else:
        combine(exact_numbers(limbs, exponents), combination, out, of)


def _scaled_to_odd(limbs: Floats, exponents: Ints) -> Floats:
    """Exact integers times powers of two, rounded to odd in float64, which has far smaller numbers than 16 bits have.

    Shapes are (count, entries) of the limbs, which are overwritten, and that of the result of the exponents.
    """
    _limbs.carry(limbs)
    values = _limbs.add_to_odd(*_limbs.collapse(limbs)).reshape(exponents.shape)
    return np.ldexp(values, exponents.astype(np.int32), out=values)


def combine(product: Numbers, combination: Combination, out: Bits, of: Sixteen) -> None:
    """Round alpha `product` + beta c once into out, all of one shape."""
    total, special = combined(product, combination, of.precision)
    out[...] = numbers_to_sixteen(total, of)
    if special is not None:
        out[special] = to_sixteen(np.asarray(special_addend(combination, special), np.float64), of)


def write_special(combination: Combination | None, out: Bits, of: Sixteen) -> None:
    """Write what the expression is where its addend, an array of floats, is NaN or Inf."""
    if combination is None or combination.c is None:
        return
    special = ~np.isfinite(combination.c)
    if special.any():
        out[special] = to_sixteen(np.asarray(special_addend(combination, special), np.float64), of)


_COMBINED_BYTES = 1000
"""Bytes of an entry while an addend is added to it, as a multiprecision number, at most."""


def write_zeros(out: Bits, combination: Combination | None, of: Sixteen, memory: Memory) -> None:
    """Write what an expression of products that are all zero is."""
    out[...] = 0
    if combination is None or combination.c is None or out.size == 0:
        return
    batch, m, n = out.shape
    tile = TILE // COMBINED_SHARE
    memory.pass_through(_COMBINED_BYTES * max(min(tile, out.size), n))
    for at in tiles_of_rows(batch, m, n, tile):
        to = out[at]
        combine(exact_numbers(np.zeros((1, to.size)), np.zeros(to.shape, np.int64)), combination.at(at), to, of)
