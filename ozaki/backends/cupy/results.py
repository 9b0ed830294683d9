"""Memory of results on a device: arrays of the hardware's formats, or multiprecision numbers."""

from __future__ import annotations

from typing import Any

import cupy as cp

from ozaki._formats import is_multiprecision, precision_of
from ozaki.backends.combining import copy_numbers
from ozaki.multiprecision.floats import empty as empty_numbers
from ozaki.multiprecision.numbers import Numbers


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    """A new array for a result, C-contiguous, its elements undefined; of multiprecision numbers zeros."""
    return empty_numbers(shape, precision_of(dtype), cp) if is_multiprecision(dtype) else cp.empty(shape, dtype)


def copy(x: Any, out: Any) -> None:
    """Copy a result into another array of its format; multiprecision numbers into one of no fewer bits."""
    if isinstance(x, Numbers):
        copy_numbers(x, out)
    else:
        out[...] = x
