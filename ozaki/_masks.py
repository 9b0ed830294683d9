"""Refusing masked elements, whose masks NumPy drops when it converts sequences and objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def unmasked(x: Any, name: str | None = None) -> npt.NDArray[Any]:
    """Convert x to a plain array.

    Raises
    ------
    TypeError
        If x holds masked elements; the message names the argument, if `name` is given.
    """
    array = np.asanyarray(x)
    if np.ma.is_masked(array) or (isinstance(x, Sequence) and _hold_masks(x, _levels(array))):
        named = "" if name is None else f"{name}: "
        raise TypeError(f"{named}masked elements have no value; fill them, as filled(0) does")
    return np.asarray(array)


def _levels(array: npt.NDArray[Any]) -> int:
    """How many levels of nested sequences to search for masks, where NumPy made `array` of these sequences.

    The innermost sequences hold single numbers, and NumPy turns a masked one into NaN, among complex numbers into 0. So
    the innermost level, which has by far the most elements, is not searched in an array of real numbers without NaN.
    """
    possible = array.dtype.kind == "c" or (array.dtype.kind == "f" and np.isnan(array).any())
    return array.ndim - 1 + int(possible)


def _hold_masks(x: Sequence[Any], levels: int) -> bool:
    """Whether nested sequences hold masked elements in their first `levels` levels."""
    if levels == 0:
        return False
    kinds = set(map(type, x))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds) and any(map(np.ma.is_masked, x)):
        return True
    inner = levels > 1 and any(issubclass(kind, Sequence) for kind in kinds)
    return inner and any(_hold_masks(y, levels - 1) for y in x if isinstance(y, Sequence))
