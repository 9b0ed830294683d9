"""Moduli of complex numbers: squares, which are exact, and roots, which are rounded down."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from ozaki.multiprecision.objects import mparray
from ozaki.reference._exact import Array, Matrix, integers_of, is_complex

# Bits of a square whose root is taken, at least: the root has half as many, so that what is cut off is less than
# 2**-127 of it.
_SQUARE_BITS = 256


def squared_moduli(parts: list[Array]) -> Array:
    """Return the squared moduli of numbers given as their parts, arrays of Python integers: [real] or [real, imag]."""
    return cast(Array, sum(x * x for x in parts))


def moduli_from_below(x: Matrix) -> Any:
    """Return abs(x): of the type of x if it is real, else an MPArray of moduli rounded down by less than 2**-127.

    Moduli that have no more than 128 bits are exact, as that of a real number or of 3 + 4 i.
    """
    if not is_complex(x):
        return abs(x)
    parts, exponent = integers_of(x)
    roots = np.array([_root_down(square) for square in squared_moduli(parts).flat], dtype=object).reshape(*x.shape, 2)
    return mparray(roots[..., 0]).ldexp(exponent + roots[..., 1].astype(np.int64))


def _root_down(square: int) -> tuple[int, int]:
    """Return (root, exponent): root 2**exponent is the square root of an integer, rounded down to about 128 bits."""
    places = (_SQUARE_BITS + 1 - square.bit_length()) // 2
    return math.isqrt(square << 2 * places if places >= 0 else square >> -2 * places), -places
