"""Conversion of decimal numbers to float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.scalars import integer

# An exponent begins with e or, as Fortran writes it, with d; in a number with a decimal point its letter may be
# missing, which is how Fortran writes exponents of three digits. Quantifiers are possessive (++, *+, ?+): without
# backtracking, a long line is refused as fast as it is read. Those of groups are not: Python before 3.11.5 takes what
# matched of a group in part, so that "1.5e" would be a number.
_EXPONENT = rb"[eEdD][+-]?+\d++"
_DECIMAL = rb"(?:\d++\.\d*+|\.\d++)(?:" + _EXPONENT + rb"|[+-]\d++)?|\d++(?:" + _EXPONENT + rb")?"
REAL = rb"[+-]?+(?:" + _DECIMAL + rb"|(?i:nan|inf(?:inity)?))"
INTEGER = rb"[+-]?+\d++"
UNSIGNED = rb"\+?+\d++"

_FORTRAN_EXPONENT = re.compile(rb"[dD]|(?<=[\d.])(?=[+-])")
_NONZERO = re.compile(rb"[+-]?[0.]*[1-9]")
_DIGITS_HELD = 15  # any integer of so many decimal digits is a float64


def to_floats(numbers: Sequence[bytes]) -> npt.NDArray[np.float64]:
    """Return the float64 nearest to each number that matches `REAL`, `INTEGER` or `UNSIGNED`."""
    try:
        return np.array(list(map(float, numbers)), dtype=np.float64)
    except ValueError:
        return np.array([float(_FORTRAN_EXPONENT.sub(b"e", number)) for number in numbers], dtype=np.float64)


def to_integers(numbers: Sequence[bytes]) -> npt.NDArray[Any]:
    """Return numbers that match `INTEGER` or `UNSIGNED`: as int64, or, if one has another magnitude, as objects."""
    wholes = [_integer(number) for number in numbers]
    fits = all(-(2**63) < whole < 2**63 for whole in wholes)
    return np.array(wholes, np.int64 if fits else object)


def _integer(number: bytes) -> int:
    """The integer of a number of any length: int(number) refuses long ones."""
    magnitude = integer(number.lstrip(b"+-").decode("ascii"))
    return -magnitude if number.startswith(b"-") else magnitude


def first_lost(numbers: Sequence[bytes], floats: npt.NDArray[np.float64], whole: bool) -> tuple[int, str] | None:
    """Find the first number that float64 turns into 0 or Inf or, if numbers are `whole`, rounds.

    Returns
    -------
    tuple of int and str, or None
        The index of the number, and what is wrong with it.
    """
    for i in np.flatnonzero((floats == 0) | np.isinf(floats)).tolist():
        if floats[i] == 0 and _NONZERO.match(numbers[i]):
            return i, "is too small for float64, and would become 0"
        if floats[i] != 0 and not numbers[i][-1:].isalpha():
            return i, "is too large for float64, and would become Inf"
    if whole:
        for i, number in enumerate(numbers):
            # int() takes a limited number of digits: without leading zeros, a number whose float64 is finite has few
            # enough.
            if len(number) > _DIGITS_HELD and abs(int(floats[i])) != int(number.lstrip(b"+-0") or b"0"):
                return i, "is an integer that float64 does not hold (beyond 2**53); --dtype int64 or mp multiplies it"
    return None
