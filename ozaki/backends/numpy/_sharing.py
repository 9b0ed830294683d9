"""Tests whether NumPy arrays share memory: by their addresses, or because the same file is mapped twice."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt


def overlap(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Whether what is written into x may change y.

    Two memory maps of one file lie at different addresses. A map whose file is unknown may be of any file.
    """
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


def _map_of(x: Any) -> Any:
    """The memory map that an array is a view of, an np.memmap or an mmap.mmap; None if there is none."""
    while x is not None:
        if isinstance(x, np.memmap) and not isinstance(x.base, np.memmap):
            return x
        if isinstance(x, mmap.mmap):
            return x
        x = x.obj if isinstance(x, memoryview) else getattr(x, "base", None)
    return None
