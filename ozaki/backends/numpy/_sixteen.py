"""Numbers of 16 bits as their bits, in uint16, and their rounding from float64 (docs/definitions.md, 11).

A float64 is rounded to them directly: by way of float32, as some casts go, it would be rounded twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.multiprecision.limbs import to_double
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes.row_digits import Sixteen

Bits = npt.NDArray[np.uint16]
_Ints = npt.NDArray[np.int64]


def to_sixteen(x: Floats, of: Sixteen) -> Bits:
    """The bits of numbers rounded to nearest, ties to even; of exact values that were rounded to odd before, once.

    Both zeros become +0; a number that rounds to zero keeps its sign. Every NaN becomes the same one.
    """
    places, rest, half = _parts(x, of)
    places += (rest > half) | ((rest == half) & (places & 1 == 1))
    found = _signed(x, np.minimum(places, of.infinity))
    nan = np.isnan(x)
    if nan.any():
        found[nan] = of.infinity | 1 << of.precision - 2
    return found


def numbers_to_sixteen(x: Numbers, of: Sixteen) -> Bits:
    """The bits of multiprecision numbers rounded once, as `to_sixteen` rounds float64."""
    signs, exponents, limbs = x.flat
    magnitudes = to_double(np.abs(signs), exponents, limbs, of.precision, of.least)
    found: Bits = to_sixteen(magnitudes, of) | (signs < 0).astype(np.uint16) << 15
    return found.reshape(x.shape)


def on_boundary(x: Floats, of: Sixteen) -> npt.NDArray[np.bool_]:
    """Whether finite numbers lie exactly between two numbers of the format, or where overflow begins."""
    places, rest, half = _parts(x, of)
    found: npt.NDArray[np.bool_] = (rest == half) & (places < of.infinity)
    return found


def beside_boundary(x: Floats, above: npt.NDArray[np.signedinteger[Any]], of: Sixteen) -> Bits:
    """The bits of exact values that lie beside numbers x on a boundary: above, on (0), or below (-1) them."""
    places, _, _ = _parts(x, of)
    away = np.where(x < 0, -above, above)
    return _signed(x, places + ((away > 0) | ((away == 0) & (places & 1 == 1))))


def _parts(x: Floats, of: Sixteen) -> tuple[_Ints, _Ints, _Ints]:
    """The bits of magnitudes rounded toward zero, what that cut off, and half a unit in that measure.

    Bits of positive numbers, read as an integer, count them; so the next number has the next integer.
    """
    bits = np.abs(x).view(np.int64)
    field = np.maximum(bits >> 52, 1)
    whole = (bits & ((1 << 52) - 1)) | ((bits >> 52 > 0).astype(np.int64) << 52)
    exponent = field - 1075  # of the unit of `whole`
    unit = np.maximum(exponent + (53 - of.precision), of.least)
    drop = np.minimum(unit - exponent, 54)  # of 54 bits nothing is half or more
    places = whole >> drop
    rest = whole - (places << drop)
    places += (unit - of.least) << of.precision - 1
    return places, rest, np.int64(1) << drop - 1


def _signed(x: Floats, magnitudes: _Ints) -> Bits:
    found: Bits = (magnitudes | (x < 0).astype(np.int64) << 15).astype(np.uint16)
    return found


def from_sixteen(bits: Bits, of: Sixteen) -> Floats:
    """The numbers of these bits as float64."""
    magnitudes = bits.astype(np.int64) & 0x7FFF
    field = magnitudes >> of.precision - 1
    fraction = magnitudes & ((1 << of.precision - 1) - 1)
    whole = fraction + (np.minimum(field, 1) << of.precision - 1)
    values = np.ldexp(whole.astype(np.float64), (np.maximum(field, 1) - 1 + of.least).astype(np.int32))
    values = np.where(magnitudes > of.infinity, np.nan, np.where(magnitudes == of.infinity, np.inf, values))
    found: Floats = np.where(bits >> 15 == 1, -values, values)
    return found
