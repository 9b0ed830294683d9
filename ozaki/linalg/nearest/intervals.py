"""Numbers with bounds of their errors, and which of them round to the same float whatever they are."""

from __future__ import annotations

from math import frexp, inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import times_signs
from ozaki.linalg.common.scaling import Exponents
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.objects import mparray
from ozaki.records.formats import part_of

Mask = npt.NDArray[np.bool_]

KNOWN = -(2**62)
"""The exponent of an error where a number is known exactly; so it is for sums of this and exponents of numbers."""

UNKNOWN = 2**12
"""What is added to the exponent of a number, so that as an error bound it says nothing about that number."""


class Interval(NamedTuple):
    """Numbers, in NumPy's memory, each part of which differs from the true one by no more than 2**errors.

    `errors` is an int64 array that broadcasts to the shape of x.
    """

    x: MPArray
    errors: Exponents


def exponent_above(size: Any) -> Exponents:
    """The least exponents e with size < 2**e, of non-negative floats; `KNOWN` of zeros."""
    found = np.frexp(np.asarray(size, dtype=np.float64))[1].astype(np.int64)
    return np.where(np.asarray(size) > 0, np.where(np.isfinite(size), found, UNKNOWN), KNOWN)


def exponent_of(size: float) -> int:
    """As `exponent_above`, of one number."""
    return KNOWN if size == 0 else frexp(size)[1] if size < inf else UNKNOWN


class Rounded(NamedTuple):
    """What an interval rounds to, part by part: of complex numbers the last axis has the parts.

    Attributes
    ----------
    low, high : what the ends round to; zeros are positive
    may_vanish : whether a number that is not zero may have become zero
    """

    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    may_vanish: Mask

    @property
    def decided(self) -> Mask:
        found: Mask = self.low == self.high
        return found


def rounded(interval: Interval, dtype: str) -> Rounded:
    """The ends of an interval, rounded to the real format of a dtype.

    Between two numbers that round alike all do, since rounding is monotone.
    """
    x, errors, dtype = interval.x, interval.errors, part_of(dtype)
    errors = np.broadcast_to(errors, x.shape)
    if x.is_complex:
        errors = np.repeat(errors[..., None], 2, axis=-1)
        x = MPArray._of(x.parts)
    known = errors < KNOWN // 2
    # A number below its error counts as 0, with twice the error: or the sum would span all bits between them.
    tiny = ~known & (x.exponents <= errors)
    x = times_signs(x, ~tiny)
    off = mparray((~known).astype(np.float64)).ldexp(np.where(known, 0, errors + tiny))
    low, high = (each.astype(dtype) + np.zeros((), dtype) for each in (x - off, x + off))  # 0 is added to -0
    return Rounded(low, high, (low == 0) & ~known)
