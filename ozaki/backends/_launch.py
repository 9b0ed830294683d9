"""What every kernel launch needs: an array's strides, names of C types, rounded sizes."""

from __future__ import annotations

from typing import Any

import numpy as np


def strides(x: Any) -> tuple[np.int64, ...]:
    """Strides in elements."""
    return tuple(np.int64(s // x.itemsize) for s in x.strides)


def ctype(dtype: Any) -> str:
    """The C name of a floating-point dtype."""
    return "double" if dtype == np.float64 else "float"


def along_k(x: Any) -> int:
    """Whether elements along k lie closer together than rows do, for x of shape (batch, rows, k)."""
    return int(x.shape[1] == 1 or abs(x.strides[2]) <= abs(x.strides[1]))


def round_up(x: int, multiple: int) -> int:
    """Smallest multiple that is not less than x."""
    return -(-x // multiple) * multiple


def struct(words: list[int]) -> Any:
    """A struct of uint32 that a kernel takes by value: CuPy passes an array of one element so."""
    return np.array(words, np.uint32).view(f"V{4 * len(words)}")
