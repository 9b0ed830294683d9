"""Roundings: of the result to its format (B6), and of the arithmetic in which bounds are computed."""

from __future__ import annotations

from math import inf, ldexp

from ozaki.records.formats import SIGNIFICAND_BITS, precision_of

UP = 1 + 2.0**-30
"""Factor on a computed bound that covers thousands of float64 roundings in its computation (docs/bounds.md)."""

UNIT_ROUNDOFF = {dtype: 2.0**-bits for dtype, bits in SIGNIFICAND_BITS.items()}


def scaled(x: float, exponent: int) -> float:
    """X 2**exponent, inf where that is too large for a float."""
    try:
        return ldexp(x, exponent)
    except OverflowError:
        return inf


def with_rounding(bound: float, dtype: str, exponent: int = 0) -> float:
    """B6: a bound with the one rounding to the output format included, both in units of 2**exponent."""
    u = scaled(1.0, -precision_of(dtype) - exponent) or 2.0**-1074
    return (bound + u * (1 + scaled(bound, exponent))) * UP if bound else u


def before_rounding(tolerance: float, dtype: str, exponent: int = 0) -> float:
    """The bound that, with the one rounding to the output format, meets a tolerance, in units of 2**exponent; or 0."""
    u = scaled(1.0, -precision_of(dtype) - exponent)
    return max((tolerance - u) / (1 + scaled(u, exponent)) / UP / UP, 0.0)


def suffices(bound: float, tolerance: float, dtype: str) -> bool:
    """Whether a bound that includes the rounding to the output meets a tolerance that does not."""
    return bound <= with_rounding(tolerance, dtype)
