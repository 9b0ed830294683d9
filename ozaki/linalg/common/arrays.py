"""Matrices of NumPy, CuPy and multiprecision numbers alike, and sums of two arrays of floats."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.call.operands import holds_complex
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.numbers import Numbers, moved
from ozaki.multiprecision.objects import mparray

Floats = npt.NDArray[np.float64]
"""Numbers in NumPy's memory, of which nothing else is said here."""


class Sum(NamedTuple):
    """The numbers high + low, two arrays of float64 or complex128; `high` is the sum, rounded.

    Results in float64 need no more bits than these have, and no multiprecision arithmetic.
    """

    high: Any
    low: Any


def added(x: Any, y: Any) -> Sum:
    """The exact sum of two arrays of floats: D. E. Knuth's two-sum, of complex numbers part by part."""
    high = x + y
    of_y = high - x
    return Sum(high, (x - (high - of_y)) + (y - of_y))


def times_powers(x: Any, exponents: Any) -> Any:
    """Floats times powers of two, which may overflow; rounded once where they underflow, parts by 2**-1074 at most."""
    xp = array_library(x)
    if x.dtype.kind != "c":
        return xp.ldexp(x, exponents)
    found = xp.empty(np.broadcast_shapes(x.shape, exponents.shape), x.dtype)
    found.real, found.imag = xp.ldexp(x.real, exponents), xp.ldexp(x.imag, exponents)
    return found


def taken(x: Any, index: Any) -> Any:
    """The elements of an array, a sum of two, or multiprecision numbers at an index."""
    return Sum(x.high[index], x.low[index]) if isinstance(x, Sum) else x[index]


def exactly(x: Any) -> Any:
    """An array of floats, a sum of two, or multiprecision numbers, as an `MPArray`."""
    return mparray(tuple(x) if isinstance(x, Sum) else x)


def exactly_on_host(x: Any) -> MPArray:
    """As `exactly`, in NumPy's memory."""
    found: MPArray = moved(exactly(x), np)
    return found


def rounded(x: Any) -> Any:
    """An array of float64 or complex128 as it is, a sum or multiprecision numbers rounded to that."""
    if isinstance(x, Sum):
        return x.high
    return x.astype("complex128" if x.is_complex else "float64") if isinstance(x, Numbers) else x  # type: ignore[attr-defined]


def on_host(x: Any) -> npt.NDArray[Any]:
    """An array in NumPy."""
    return np.asarray(x.get() if hasattr(x, "get") else x)


def adjoint(x: Any) -> Any:
    """The conjugate transpose; a view of a real matrix."""
    return (x.conj() if holds_complex(x) else x).swapaxes(-1, -2)


def array_library(x: Any) -> Any:
    """The module, numpy or cupy, in which the elements of x lie."""
    return library(x.limbs if isinstance(x, Numbers) else x.high if isinstance(x, Sum) else x)


def masked(a: Any, mask: Any) -> Any:
    """The elements of a where the mask is 1, and zeros elsewhere, also in place of NaN."""
    if isinstance(a, Numbers):
        return times_signs(a, (mask[..., None] if a.is_complex else mask) != 0)
    return array_library(a).where(mask != 0, a, a.dtype.type(0))


def times_signs(x: Any, signs: Any) -> Any:
    """Multiprecision numbers times -1, 0 or 1, int8 or bools, which broadcast to `x.signs`: parts have one each."""
    kept = signs != 0
    return type(x)(x.signs * signs, x.exponents * kept, x.limbs * kept, x.bits, x.is_complex)
