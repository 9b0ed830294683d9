"""Quotients of whole numbers, and by square roots, as numbers that round to every float format as the exact ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt
from typing import Any

import numpy as np

from ozaki.linalg.nearest.wholes import Objects, Wholes
from ozaki.multiprecision.arithmetic import paired
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.wholes import of_wholes

_BITS = 130
"""Of a quotient, from its first bit on; the one after says whether anything is missing. More than twice those of a
float64 number, and its neighbours' midpoints have one bit more: what is missing cannot make one of it."""


def quotients(over: Wholes, under: Any, exponents: Any) -> MPArray:
    """The numbers over / under, times powers of two; `under` positive or negative integers, broadcast."""
    return _each(_quotient, over, under, exponents)


def by_roots(over: Wholes, under: Any, exponents: Any) -> MPArray:
    """The numbers over / sqrt(under), times powers of two; `under` are positive integers."""
    return _each(_by_root, over, under, exponents)


def _each(function: Callable[[int, int], tuple[int, int]], over: Wholes, under: Any, exponents: Any) -> MPArray:
    parts = [_numbers(function, part, under, exponents) for part in over]
    return MPArray._of(paired(*parts) if len(parts) == 2 else parts[0])


def _numbers(function: Callable[[int, int], tuple[int, int]], over: Objects, under: Any, exponents: Any) -> Any:
    """Real multiprecision numbers: what a function makes of two integers each, times powers of two."""
    given: Iterable[Any] = zip(
        over.flat,
        np.broadcast_to(np.asarray(under, dtype=object), over.shape).flat,
        np.broadcast_to(exponents, over.shape).flat,
        strict=True,
    )
    found = [(*function(x, y), int(exponent)) for x, y, exponent in given]
    return of_wholes([x for x, _, _ in found], [e + exponent for _, e, exponent in found], over.shape, None)


def _quotient(x: int, y: int) -> tuple[int, int]:
    """A whole number and an exponent, whose lowest bit is set if anything is missing."""
    if not x:
        return 0, 0
    shift = max(_BITS + y.bit_length() - x.bit_length(), 0)
    found, rest = divmod(abs(x) << shift, abs(y))
    found = found << 1 | (rest != 0)
    return found if (x < 0) == (y < 0) else -found, -shift - 1


def _by_root(x: int, y: int) -> tuple[int, int]:
    """As `_quotient`, of x / sqrt(y)."""
    if not x:
        return 0, 0
    shift = max(_BITS + y.bit_length() // 2 + 1 - x.bit_length(), 0)
    square = x * x << 2 * shift
    found = isqrt(square // y)
    exact = found * found * y == square
    found = found << 1 | (not exact)
    return found if x > 0 else -found, -shift - 1
