"""Roundings: of the result to its format (B6), and of the arithmetic in which bounds are computed."""

from __future__ import annotations

from math import inf, ldexp

UP = 1 + 2.0**-30
"""Factor on a computed bound that covers thousands of float64 roundings in its computation (docs/bounds.md)."""

SIGNIFICAND_BITS = {"float32": 24, "float64": 53}

UNIT_ROUNDOFF = {dtype: 2.0**-bits for dtype, bits in SIGNIFICAND_BITS.items()}

MULTIPRECISION = "mp"
"""The name of a format of multiprecision numbers is this and the bits of their significands: "mp106"."""


def is_multiprecision(dtype: str) -> bool:
    """Whether a format is one of multiprecision numbers."""
    return dtype.startswith(MULTIPRECISION)


def precision_of(dtype: str) -> int:
    """Bits of the significand of a format: "float32", "float64", or, say, "mp106"."""
    return int(dtype.removeprefix(MULTIPRECISION)) if is_multiprecision(dtype) else SIGNIFICAND_BITS[dtype]


def scaled(x: float, exponent: int) -> float:
    """X 2**exponent, inf where that is too large for a float."""
    try:
        return ldexp(x, exponent)
    except OverflowError:
        return inf


def with_rounding(bound: float, dtype: str, exponent: int = 0) -> float:
    """B6: a bound with the one rounding to the output format included, both in units of 2**exponent."""
    u = scaled(1.0, -precision_of(dtype) - exponent)
    return (bound + u * (1 + scaled(bound, exponent))) * UP if bound else u


def before_rounding(tolerance: float, dtype: str, exponent: int = 0) -> float:
    """The bound that, with the one rounding to the output format, meets a tolerance, in units of 2**exponent; or 0."""
    u = scaled(1.0, -precision_of(dtype) - exponent)
    return max((tolerance - u) / (1 + scaled(u, exponent)) / UP / UP, 0.0)


def suffices(bound: float, tolerance: float, dtype: str) -> bool:
    """Whether a bound that includes the rounding to the output meets a tolerance that does not."""
    return bound <= with_rounding(tolerance, dtype)
