"""The format of a product's result."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log2

from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import (
    MULTIPRECISION,
    QUAD,
    QUAD_BITS,
    SIGNIFICAND_BITS,
    complex_of,
    is_complex,
    is_multiprecision,
    part_of,
    precision_of,
)

_LEAST_BITS = 53
"""Least bits of a multiprecision result where no accuracy is named: a list of small integers has few bits."""


def result_format(asked: str | None, operands: tuple[str, ...], target: Accuracy | None) -> str:
    """The format in which a product is computed.

    Parameters
    ----------
    asked : the format that the caller asks for, as `format_named` returns it; None for that of the operands
    operands : the formats of the operands
    target : the accuracy asked for; None if none is named
    """
    if (found := _of_hardware(asked, operands)) is not None:
        return found
    if asked == QUAD and (target is None or not target.exact):
        return f"{MULTIPRECISION}{QUAD_BITS}"
    if asked is not None and is_multiprecision(asked) and asked != MULTIPRECISION:
        return asked
    if target is None:
        return f"{MULTIPRECISION}{max(_LEAST_BITS, *map(precision_of, operands))}"
    if target.exact:
        return MULTIPRECISION
    # The rounding to the format takes at most half of the tolerance, and leaves the other half to the images.
    half = ceil(-log2(target.tolerance) - target.exponent) + 1
    return f"{MULTIPRECISION}{max(half, target.bits or 0, 2)}"


@lru_cache(maxsize=256)
def _of_hardware(asked: str | None, operands: tuple[str, ...]) -> str | None:
    """The format, if it is one of the hardware's; None of a multiprecision result."""
    if asked is not None and (asked in SIGNIFICAND_BITS or is_complex(asked)):
        return asked
    if asked is not None or any(map(is_multiprecision, operands)):
        return None
    widest = part_of(max(operands, key=precision_of))
    return complex_of(widest) if any(map(is_complex, operands)) else widest
