"""What a device tells the host: memory that it writes, and when it has."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.launching._tape import Copy, Record, Reset, Tape


def pinned(size: int) -> Any:
    """Memory of the host for a device to write, in a call done again the same."""
    target = cp.cuda.alloc_pinned_memory(size)
    Tape.keeps(target, size)
    return target


def arriving(target: Any, dtype: Any, shape: tuple[int, ...]) -> Callable[[], npt.NDArray[Any]]:
    """What the device has been told to write there; calling the result waits for it, in a call done again for its own.

    It holds nothing but the target.
    """
    written, size = cp.cuda.Event(disable_timing=True), prod(shape)
    Record(written)()

    def arrived() -> npt.NDArray[Any]:
        written.synchronize()
        return np.frombuffer(target, dtype, size).reshape(shape)

    return arrived


def to_host(memory: cp.cuda.MemoryPointer, dtype: Any, shape: tuple[int, ...]) -> Callable[[], npt.NDArray[Any]]:
    """Begin to copy what lies there; calling the result waits for it, as above."""
    size = np.dtype(dtype).itemsize * prod(shape)
    target = pinned(size)
    Copy(target, size)(memory)
    return arriving(target, dtype, shape)


class Flag:
    """A number that is 0 until kernels, told its address, write 1.

    Attributes
    ----------
    target : memory
    """

    def __init__(self) -> None:
        self.target = pinned(4)
        Reset(np.frombuffer(self.target, np.uint32, 1))()

    def arriving(self) -> Callable[[], bool]:
        """Whether one of those launched so far has written; calling the result waits for them."""
        arrived = arriving(self.target, np.uint32, ())
        return lambda: bool(arrived())
