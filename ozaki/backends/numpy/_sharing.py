"""Tests whether NumPy arrays share memory: by their addresses, or because the same file is mapped twice."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.numbers import Numbers


def overlap(x: npt.NDArray[Any] | Numbers, y: npt.NDArray[Any] | Numbers) -> bool:
    """Whether what is written into x may change y, arrays or multiprecision numbers.

    Two memory maps of one file lie at different addresses. A map whose file is unknown may be of any file.
    """
    x, y = (z.limbs if isinstance(z, Numbers) else z for z in (x, y))
    if np.may_share_memory(x, y):
        return True
    of_x, of_y = _map_of(x), _map_of(y)
    if of_x is None or of_y is None or of_x is of_y:
        return False
    file_x, file_y = (getattr(of, "filename", None) for of in (of_x, of_y))
    try:
        return file_x is None or file_y is None or os.path.samefile(file_x, file_y)
    except OSError:  # a file that was renamed or deleted
        return True


def same_view(x: Any, y: Any) -> bool:
    """Whether two arrays, or multiprecision numbers, are the same elements of the same memory in the same order."""
    if isinstance(x, Numbers) or isinstance(y, Numbers):
        planes = "signs", "exponents", "limbs"
        numbers = isinstance(x, Numbers) and isinstance(y, Numbers)
        return numbers and all(same_view(getattr(x, plane), getattr(y, plane)) for plane in planes)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    # Along an axis of one element the step does not matter.
    if x.strides != y.strides and any(n > 1 and s != t for n, s, t in zip(x.shape, x.strides, y.strides, strict=True)):
        return False
    first, second = (z.__array_interface__["data"][0] for z in (x, y))
    return bool(first == second)


def _map_of(x: Any) -> Any:
    """The memory map that an array is a view of, an np.memmap or an mmap.mmap; None if there is none."""
    while x is not None:
        if isinstance(x, np.memmap) and not isinstance(x.base, np.memmap):
            return x
        if isinstance(x, mmap.mmap):
            return x
        x = x.obj if isinstance(x, memoryview) else getattr(x, "base", None)
    return None
