"""Roundings: of the result to its format (B6), and of the arithmetic in which bounds are computed."""

from __future__ import annotations

UP = 1 + 2.0**-30
"""Factor on a computed bound that covers thousands of float64 roundings in its computation (docs/bounds.md)."""

SIGNIFICAND_BITS = {"float32": 24, "float64": 53}

UNIT_ROUNDOFF = {dtype: 2.0**-bits for dtype, bits in SIGNIFICAND_BITS.items()}


def with_rounding(bound: float, dtype: str) -> float:
    """B6: a bound with the one rounding to the output format included."""
    u = UNIT_ROUNDOFF[dtype]
    return (bound + u * (1 + bound)) * UP if bound else u


def suffices(bound: float, tolerance: float, dtype: str) -> bool:
    """Whether a bound that includes the rounding to the output meets a tolerance that does not."""
    return bound <= with_rounding(tolerance, dtype)
