"""Parts of products where they lie: one small interface, of NumPy and of CuPy (`backends/*/parts.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import parts
from ozaki.process.placement import on_gpu


def parts_at(x: Any) -> Any:
    """The module of parts of products that lie where x does."""
    if on_gpu(x):
        from ozaki.backends.cupy import parts as on_device

        return on_device
    return parts


def on_host(x: Any) -> npt.NDArray[Any]:
    """The array itself, or a copy in host memory of one on a GPU."""
    if on_gpu(x):
        import cupy as cp

        copied: npt.NDArray[Any] = cp.asnumpy(x)
        return copied
    found: npt.NDArray[Any] = x
    return found


def empty_at(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array, its elements undefined, where x lies."""
    if on_gpu(x):
        import cupy as cp

        return cp.empty(shape, dtype)
    return np.empty(shape, dtype)
