"""Masked elements, which NumPy forgets where it converts sequences and objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def unmasked(x: Any, name: str | None = None) -> npt.NDArray[Any]:
    """x as a plain array.

    Raises
    ------
    TypeError
        Where it holds masked elements; naming the argument, if that has a name here.
    """
    array = np.asanyarray(x)
    if np.ma.is_masked(array) or (isinstance(x, Sequence) and _hold_masks(x, _levels(array))):
        named = "" if name is None else f"{name}: "
        raise TypeError(f"{named}masked elements have no value; fill them, as filled(0) does")
    return np.asarray(array)


def _levels(array: npt.NDArray[Any]) -> int:
    """Levels of nested sequences, of which NumPy made this array, that masks may be found in.

    The innermost ones hold single numbers. NumPy makes NaN of a masked one, so without any NaN they are passed over:
    most often they are by far the most.
    """
    nan = array.dtype.kind == "f" and np.isnan(array).any()
    return array.ndim - 1 + int(nan)


def _hold_masks(x: Sequence[Any], levels: int) -> bool:
    """Whether masked elements lie so many levels deep, at most."""
    if levels == 0:
        return False
    kinds = set(map(type, x))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds) and any(map(np.ma.is_masked, x)):
        return True
    inner = levels > 1 and any(issubclass(kind, Sequence) for kind in kinds)
    return inner and any(_hold_masks(y, levels - 1) for y in x if isinstance(y, Sequence))
