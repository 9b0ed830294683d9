"""Operands of integers: as float64 numbers, which must hold them, or as multiprecision numbers, which always do."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from operator import index as integer_of
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.interchange.plain import variable_named
from ozaki.multiprecision.convert import exactly
from ozaki.multiprecision.floats import of_integers
from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.numbers import Integers, Numbers

_HELD = 2**53
"""Float64 holds all integers up to this one, and of larger ones those with zeros below the first 53 bits."""


def as_numbers(x: Any) -> Numbers:
    """Integers as `as_array` returns them, exactly, as multiprecision numbers."""
    if isinstance(x, Integers):
        return x
    return Integers.of(exactly(x) if x.dtype.kind == "O" else of_integers(x))


def as_floats(name: str, x: Any, remedy: str = "with dtype='int64' or dtype='mp' the product is exact") -> Any:
    """An array of integers, as `as_array` returns it, as a float64 array.

    Raises
    ------
    ValueError
        If float64 does not hold one of them; the message names it, and what to do: `remedy`.
    """
    if (index := first_rounded(x)) is not None:
        raise ValueError(f"{name}: element {[*index]} is {x[index]}, an integer that float64 does not hold; {remedy}")
    return x.astype(np.float64)


def first_rounded(x: Any) -> tuple[int, ...] | None:
    """The index of the first element of an array of integers that float64 does not hold; None if it holds all."""
    xp = library(x)
    if x.dtype.kind == "O":
        rounded = np.array([not _is_held(value) for value in x.reshape(-1).tolist()], bool)
    elif x.dtype.itemsize < 8 or x.size == 0 or (int(x.min()) >= -_HELD and int(x.max()) <= _HELD):
        return None
    else:
        magnitudes = (xp.abs(x) if x.dtype.kind == "i" else x).astype(np.uint64).reshape(-1)
        lowest = magnitudes & (~magnitudes + np.uint64(1))
        rounded = magnitudes // xp.maximum(lowest, np.uint64(1)) >= _HELD
    if not bool(rounded.any()):
        return None
    return tuple(int(i) for i in np.unravel_index(int(rounded.argmax()), x.shape))


def _is_held(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


def of_objects(x: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """An array of objects that are all integers, as int64, or uint64, or, beyond these, Python's ints; else None."""
    values = x.reshape(-1).tolist()
    if not all(map(_is_integer_class, set(map(type, values)))):
        return None
    whole = [integer_of(value) for value in values]
    low, high = min(whole, default=0), max(whole, default=0)
    fits = [kind for kind in (np.int64, np.uint64) if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    return np.array(whole, fits[0] if fits else object).reshape(x.shape)


def of_sequences(name: str, x: Sequence[Any], found: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Nested sequences, of which NumPy made the array `found`, with all bits of the integers among their elements.

    NumPy rounds integers to float64 beside floats, and also where they are too many for int64 and uint64 together.

    Raises
    ------
    ValueError
        If it rounded one that stands beside floats; the message names it.
    """
    if found.dtype.kind not in "fc" or _largest(found) < _HELD:
        return found
    objects = np.array(x, object)
    if (integers := of_objects(objects)) is not None:
        return integers
    for index, value in np.ndenumerate(objects):
        if _is_integer_class(type(value)) and integer_of(value) != found[index].item():
            raise ValueError(
                f"{name}: element {[*index]} is {value}, an integer that float64 does not hold, beside floats; "
                f"ozaki.mparray({variable_named(name)}) keeps all of them"
            )
    return found


def _largest(x: npt.NDArray[Any]) -> float:
    """The largest magnitude of floats, of complex ones of their parts, but for NaN; nothing as large as x is held."""
    parts = (x.real, x.imag) if x.dtype.kind == "c" else (x,)
    with np.errstate(all="ignore"):
        return max(
            abs(float(extreme.reduce(part, axis=None, initial=0))) for part in parts for extreme in (np.fmax, np.fmin)
        )


def _is_integer_class(kind: type) -> bool:
    of_flint = kind.__module__.partition(".")[0] == "flint" and kind.__name__ == "fmpz"
    return of_flint or issubclass(kind, Integral)
