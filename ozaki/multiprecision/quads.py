"""`Numbers` as arrays of the package numpy_quaddtype, in IEEE 754's binary128."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.multiprecision.arithmetic import with_bits
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.wholes import to_wholes
from ozaki.records.formats import QUAD_BITS, is_quad_dtype

_BIAS, _MOST = 16383, 0x7FFF
"""What is added to exponents, and the field of infinities."""

_LEAST = -16494
"""Exponent of the smallest positive number."""


def is_quad(x: Any) -> bool:
    """Whether x is an array or a number of numpy_quaddtype."""
    return is_quad_dtype(getattr(x, "dtype", None))


def to_quads(x: Numbers) -> Any:
    """Real numbers in NumPy's memory rounded to nearest quads, ties to even: once, also where one is subnormal.

    Numbers that are too large become Inf.
    """
    import numpy_quaddtype  # which made the dtype that the caller asks for

    signs, exponents, limbs = with_bits(x, QUAD_BITS).flat
    high, low = (limbs[i].astype(np.uint64) << np.uint64(32) | limbs[i + 1] for i in (0, 2))
    fields = exponents - 1 + _BIAS
    present, infinite = signs != 0, fields >= _MOST
    codes = np.zeros((x.size, 2), "<u8")
    finite = present & ~infinite
    codes[:, 0] = np.where(finite, high << np.uint64(49) | low >> np.uint64(15), np.uint64(0))
    fraction = np.where(finite, high >> np.uint64(15) & np.uint64(2**48 - 1), np.uint64(0))
    field = np.where(present, np.clip(fields, 0, _MOST), 0).astype(np.uint64)
    codes[:, 1] = field << np.uint64(48) | fraction
    for i in np.flatnonzero(present & (fields <= 0)).tolist():  # subnormal, or the least normal number
        units = _units(x.reshape(-1)[i])
        codes[i] = units & 2**64 - 1, units >> 64
    codes[:, 1] |= (signs < 0).astype(np.uint64) << np.uint64(63)
    return codes.view(numpy_quaddtype.QuadPrecDType()).reshape(x.shape)


def _units(x: Numbers) -> int:
    """The magnitude of a number in units of the smallest positive quad, rounded to nearest, ties to even."""
    (whole,), (exponent,) = to_wholes(x)
    shift = _LEAST - int(exponent)
    if shift <= 0:
        return whole << -shift
    if shift > whole.bit_length() + 1:
        return 0
    units, rest = whole >> shift, whole & (1 << shift) - 1
    half = 1 << shift - 1
    return units + (rest > half or (rest == half and units & 1 == 1))
