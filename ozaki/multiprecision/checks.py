"""What must hold of arguments: messages name them."""

from __future__ import annotations

from operator import index as integer_of
from typing import Any

LEAST_BITS, LARGEST_BITS = 2, 1_000_000
"""What a caller may round to."""


def check_bits(bits: Any) -> int:
    """`bits` as a Python int.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is below 2 or above 1,000,000.
    """
    try:
        if isinstance(bits, bool):
            raise TypeError
        found = integer_of(bits)
    except TypeError:
        raise TypeError(f"bits: {type(bits).__name__}; expected an integer from 2 to 1,000,000") from None
    if not LEAST_BITS <= found <= LARGEST_BITS:
        raise ValueError(f"bits: {found}; expected an integer from 2 to 1,000,000")
    return found
