"""What alpha A B + beta C makes of A B, from every bit or rounded (docs/definitions.md, section 5); NumPy and CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import Any

from ozaki.multiprecision.arithmetic import add, broadcast_to, near_sum, rounded_to, scaled
from ozaki.multiprecision.floats import PRECISION, empty, of_floats, to_floats
from ozaki.multiprecision.limbs import HOST_TILE, library, limbs_of, tile_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.shapes import tiles_of_rows


def combine_into(product: Numbers, combination: Combination, out: Any) -> None:
    """Round alpha `product` + beta c into out, an array of floats or Numbers, all of one shape and array library.

    The factors are numbers.
    """
    bits = out.bits if isinstance(out, Numbers) else PRECISION[str(out.dtype)]
    total, special = combined(product, combination, bits)
    if isinstance(out, Numbers):
        copy_numbers(rounded_to(total, bits), out)
        return
    out[...] = to_floats(total, str(out.dtype))
    if special is not None:
        out[special] = special_addend(combination, special)


def combined(product: Numbers, combination: Combination, bits: int) -> tuple[Numbers, Any]:
    """Alpha `product` + beta c, or a number that rounds as that does at up to `bits` bits, and which c are NaN or Inf.

    These count as zero, and are a mask, or None if there are none. Arguments are as of `combine_into`.
    """
    xp = product.library
    alpha, beta, c = combination.alpha, combination.beta, combination.c
    total, special = scaled(product, alpha.whole, alpha.exponent), None
    if c is None:
        return total, special
    if not isinstance(c, Numbers):
        finite = xp.isfinite(c)
        if not bool(finite.all()):
            special = ~finite
            c = xp.where(finite, c, c.dtype.type(0))
        c = of_floats(c)
    return near_sum(total, scaled(c, beta.whole, beta.exponent), bits), special


def copy_numbers(x: Numbers, out: Numbers) -> None:
    """Copy numbers into an array with room for no fewer bits."""
    out.signs[...], out.exponents[...] = x.signs, x.exponents
    out.limbs[: len(x.limbs)], out.limbs[len(x.limbs) :] = x.limbs, 0


def combine_in_pieces(product: Numbers, combination: Combination, out: Any, memory: Memory) -> None:
    """As `combine_into`, of shape (batch, m, n), in pieces for which `memory` has room."""
    for at in _pieces(out, memory, _bytes_of_sum(product, combination, out)):
        combine_into(product[at], combination.at(at), out[at])


def _bytes_of_sum(product: Numbers, combination: Combination, out: Any) -> int:
    """Bytes of an element while `combine_into` makes it: limbs of both terms, multiplied, and of their sum."""
    terms = bits_of_terms(combination, product.bits)
    return 500 + 100 * limbs_of(max(terms) + (out.bits if isinstance(out, Numbers) else 53) + 40)


def addend_into(combination: Combination, out: Any, memory: Memory) -> None:
    """Round beta c into out, shape (batch, m, n), where the product counts as zero: an exact zero is +0."""
    special = combination.beta.special
    if special is None:
        zero = empty((1, 1, 1), 1, out.library if isinstance(out, Numbers) else library(out))
        combine_in_pieces(broadcast_to(zero, out.shape), combination, out, memory)
        return
    for at in _pieces(out, memory, 2 * out.itemsize):
        out[at] = combination.c[at] * special


def exactly(product: Numbers, combination: Combination, memory: Memory) -> Numbers:
    """Every bit of alpha `product` + beta c, which is complex if one of them is.

    Raises
    ------
    ValueError
        If an entry has more than `numbers.MOST_BITS` bits, or the sum takes more than `memory` allows.
    """
    found = scaled(product, combination.alpha.whole, combination.alpha.exponent)
    if combination.c is None:
        return found
    c = combination.c if isinstance(combination.c, Numbers) else of_floats(combination.c)
    try:
        # Within a limit in small tiles on a device, too, though these take it longer.
        tile = tile_of(found.limbs) if memory.limit is None else HOST_TILE
        total = add(found, scaled(c, combination.beta.whole, combination.beta.exponent), tile=tile)
    except ValueError as error:
        raise ValueError(f"c: {error}") from None
    entries = total.parts.size
    memory.pass_through(min(entries, tile) * 32 * max(0, len(total.limbs) - len(product.limbs) - 2))
    return total


def exact_bytes(combination: Combination, entries: int, bits: int) -> int:
    """Bytes that `exactly` holds beside its product and its result, of as many real entries and bits.

    These are multiples of both terms, and of a tile the limbs of the sum, several times.
    """
    terms = bits_of_terms(combination, bits)
    limbs = [limbs_of(each) for each in (*terms, max(terms) + 64)]
    return entries * (100 + 4 * limbs[0] + 8 * limbs[1]) + min(entries, HOST_TILE) * 32 * limbs[2]


def bits_of_terms(combination: Combination, bits: int) -> tuple[int, int]:
    """The most bits that an entry of alpha A B and of beta c has, where one of A B has so many."""
    c = combination.c
    of_c = 0 if c is None else c.bits if isinstance(c, Numbers) else 53
    return bits + combination.alpha.whole.bit_length(), of_c + combination.beta.whole.bit_length()


def axpby(x: Any, alpha: complex, beta: complex, y: Any, memory: Memory) -> None:
    """Compute x = alpha x + beta y in place, shape (batch, m, n), without y alpha x; each operation rounds."""
    x *= alpha
    if y is not None:
        for at in _pieces(x, memory, 3 * x.itemsize):
            x[at] += y[at].astype(x.dtype, copy=False) * beta


_OBJECTS = 2**14
"""Bytes of the objects of Python and of the array library while a piece is computed."""


def _pieces(x: Any, memory: Memory, itemsize: int) -> Iterator[tuple[slice, slice, slice]]:
    """Cut x, shape (batch, m, n), into pieces; `memory` has room for `itemsize` bytes for each element of a piece."""
    batch, m, n = x.shape
    rest = memory.rest
    tile = tile_of(x.limbs if isinstance(x, Numbers) else x)
    tile = max(1, min(tile, x.size if rest is None else (rest - _OBJECTS) // itemsize))
    memory.pass_through(itemsize * min(tile, x.size) + _OBJECTS)
    for b, rows in tiles_of_rows(batch, m, n, tile):
        for c in range(0, n, tile):
            yield b, rows, slice(c, c + tile)


def special_addend(combination: Combination, at: Any) -> Any:
    """What the entries `at` of c add to Inf and NaN: beta c where c is Inf or NaN itself, else zero."""
    if isinstance(combination.c, Numbers):
        return 0.0
    c, beta = combination.c[at], combination.beta.whole
    xp = library(c)
    signed = xp.where(c != c, nan, c * ((beta > 0) - (beta < 0)))  # always the same NaN
    return xp.where(xp.isfinite(c), 0.0, signed)
