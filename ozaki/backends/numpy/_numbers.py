"""Multiprecision operands and results on NumPy (`ozaki.multiprecision.Numbers`)."""

from __future__ import annotations

from functools import reduce

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._tiles import FEW, TILE
from ozaki.backends.numpy.compiled import Compiled, compiled, wide
from ozaki.bounds.description import LEAST_LEADING
from ozaki.multiprecision.limbs import (
    limbs_of,
    narrowed,
    normalised,
    settled,
    shortened,
    trailing_zeros,
    widened,
    window,
)
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes.blas import LIMB_BITS, PIECE_BITS

Ints = npt.NDArray[np.int64]


def leading(x: Numbers) -> tuple[Floats, Ints, Ints]:
    """The leading bits of rows, scaled row by row, and what they leave out.

    Parameters
    ----------
    x : shape (batch, rows, k)

    Returns
    -------
    values : float64, shape (batch, rows, k)
        x 2**-tops, cut to 53 bits; the last of them is set if bits were cut off that are not zero (rounding to odd).
        So the values are exact where x has at most 53 bits, and have the same magnitudes, of which W <= 21 bits count,
        in any case. Nonzero elements below 2**(tops - 1000) get magnitude 2**-1000.
    tops : int64, shape (batch, rows)
        The smallest e with abs(x) < 2**e for all x of a row; 0 for a row of zeros, or without elements.
    bottoms : int64, shape (batch, rows)
        The largest e for which all x of a row are multiples of 2**(tops + e); 0 for a row of zeros, as for tops.
    """
    batch, rows, k = x.shape
    if k == 0:
        return np.empty(x.shape), np.zeros((batch, rows), np.int64), np.zeros((batch, rows), np.int64)
    if x.size > FEW and isinstance(found := compiled(), Compiled):
        return wide.leading(found.library, x, LEAST_LEADING)
    values, tops, bottoms = np.empty(x.shape), np.empty((batch, rows), np.int64), np.empty((batch, rows), np.int64)
    for at in tiles_of_rows(batch, rows, k, TILE):
        parts = [slice(h, h + TILE) for h in range(0, k, TILE)]
        top = reduce(np.maximum, (_tops(x[*at, part]) for part in parts))
        filled = top > -_FAR
        tops[at] = np.where(filled, top, 0)
        for part in parts:
            values[*at, part] = _leading_bits(x[*at, part], tops[at])
        lowest = reduce(np.minimum, (_bottoms(x[*at, part]) for part in parts))
        bottoms[at] = np.where(filled, lowest - tops[at], 0)
    return values, tops, bottoms


_FAR = np.int64(2**62)
"""Beyond every exponent of an element."""


def _tops(x: Numbers) -> Ints:
    """For each row the largest exponent of an element that is not zero; -_FAR without such."""
    found: Ints = np.where(x.signs != 0, x.exponents, -_FAR).max(axis=-1)
    return found


def _bottoms(x: Numbers) -> Ints:
    """For each row the exponent of the lowest bit that is set; _FAR without such."""
    lowest = x.exponents - 32 * len(x.limbs) + trailing_zeros(x.limbs)
    found: Ints = np.where(x.signs != 0, lowest, _FAR).min(axis=-1)
    return found


def _leading_bits(x: Numbers, tops: Ints) -> Floats:
    """The `values` that `leading` returns of elements of rows with these tops."""
    limbs = x.limbs
    head = limbs[0].astype(np.uint64) << np.uint64(32)
    if len(limbs) > 1:
        head |= limbs[1]
    cut = (head & np.uint64(2**11 - 1)) != 0
    if len(limbs) > 2:
        cut |= (limbs[2:] != 0).any(axis=0)
    head >>= np.uint64(11)
    head |= cut
    below = np.maximum(x.exponents - tops[..., None], LEAST_LEADING)
    found: Floats = np.ldexp(head.astype(np.float64) * x.signs, (below - 53).astype(np.int32))
    return found


def image_pieces(x: Numbers, mu: Ints, count: int) -> Floats:
    """The fixed-point image RN(2**mu x), ties to even, in pieces.

    Parameters
    ----------
    x : shape (n,)
    mu : shape (n,), for each element
    count : number of pieces; the image is below 2**(PIECE_BITS count) in magnitude

    Returns
    -------
    float64, shape (count, n): the image is the sum of pieces[j] 2**(PIECE_BITS j), each at most 2**PIECE_BITS.
    """
    start = x.exponents + mu - PIECE_BITS * count
    found = narrowed(window(x.limbs, start, limbs_of(PIECE_BITS * (count + 1))), PIECE_BITS, count + 1)
    whole, fraction = found[:count], found[count]
    half = np.uint64(2 ** (PIECE_BITS - 1))
    up = fraction > half
    if (ties := np.flatnonzero(fraction == half)).size:
        limbs = x.limbs[:, ties]
        last_bit = 32 * len(limbs) - trailing_zeros(limbs)
        up[ties] = (last_bit > start[ties] + PIECE_BITS * (count + 1)) | ((whole[-1, ties] & np.uint64(1)) != 0)
    whole[-1] += up
    pieces: Floats = whole[::-1].astype(np.float64)
    pieces *= x.signs
    return pieces


def round_into(limbs: Floats, exponents: Ints, out: Numbers) -> None:
    """Round values 2**exponents to nearest at the `bits` of `out`, ties to even.

    Parameters
    ----------
    limbs : shape (count, out.size), as `_limbs` describes them: integers below 2**52
    exponents : the shape of `out`
    out : a view that is written
    """
    signs, wide = _settled(limbs)
    kept, zeros, carry = shortened(wide, out.bits)
    top = 32 * len(wide) - zeros + carry
    out.signs[...] = signs.reshape(out.shape)
    out.exponents[...] = np.where(out.signs != 0, exponents + top.reshape(out.shape), 0)
    out.limbs[...] = kept.reshape(out.limbs.shape)


def exact_numbers(limbs: Floats, exponents: Ints) -> Numbers:
    """Values 2**exponents, arguments as of `round_into`, as they are, in the shape of `exponents`."""
    signs, wide = _settled(limbs)
    kept, zeros = normalised(wide, len(wide))
    shape, top = exponents.shape, 32 * len(wide) - zeros
    of_entries = np.where(signs != 0, exponents.reshape(-1) + top, 0)
    return Numbers(signs, of_entries, kept, 32 * len(wide)).reshape(shape)


def _settled(limbs: Floats) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.uint32]]:
    """Signs and magnitudes, in limbs of 32 bits, the highest first, of what `round_into` takes."""
    signs, magnitudes = settled(limbs[::-1].astype(np.int64), LIMB_BITS)
    return signs, widened(magnitudes, LIMB_BITS)
