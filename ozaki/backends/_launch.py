"""Kernel launches whose numbers are worked out once."""

from __future__ import annotations

from ctypes import addressof, c_uint64, c_void_p
from functools import partial
from threading import local
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from cupy.cuda import driver, get_current_stream

from ozaki.backends._jit import kernel

Macros = dict[str, str | int]


class View(NamedTuple):
    """All of an array that a launch depends on: everything but its address."""

    char: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, x: Any) -> View:
        return cls(x.dtype.char, x.shape, x.strides)

    @property
    def ctype(self) -> str:
        """The C name of the floating-point dtype."""
        return "double" if self.char == "d" else "float"

    @property
    def itemsize(self) -> int:
        return np.dtype(self.char).itemsize

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides in elements."""
        return tuple(s // self.itemsize for s in self.strides)

    @property
    def along_k(self) -> int:
        """Whether elements along k lie closer together than rows do, for the shape (batch, rows, k)."""
        return int(self.shape[1] == 1 or abs(self.strides[2]) <= abs(self.strides[1]))


class Launch(local):
    """A kernel with its grid and all arguments but the addresses of its arrays.

    What a kernel is given depends on views alone, so launches are kept by the views that they are for. CuPy's own way
    to launch takes 6 to 13 microseconds, most of them to convert arguments; this takes 4. Each thread has its own
    copy, since a call writes into it.

    Parameters
    ----------
    file, function, macros
        As for `kernel`; compiled for the current device.
    grid, block : tuples of int
    arguments : None, int, float, `struct` or tuple
        None stands for an array, an int for an integer of any size (a kernel reads as many of its low bytes as it
        declares), a float for a double, a tuple for a struct of such, each of eight bytes.
    shared_mem : int
        Bytes of dynamic shared memory.
    """

    def __init__(
        self,
        file: str,
        function: str,
        macros: Macros,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: Any,
        shared_mem: int = 0,
    ) -> None:
        self.file, self.macros = file, macros
        call = kernel(file, function, **macros)
        if shared_mem > _SHARED_WITHOUT_ASKING:
            call.max_dynamic_shared_size_bytes = shared_mem
        cp.cuda.Device().use()  # a new thread has no context before
        self._function = call.kernel
        words: list[int | None] = []
        starts = []
        for x in arguments:
            starts.append(8 * len(words))
            words += _words(x)
        self._arrays = [i for i, word in enumerate(words) if word is None]
        self._words = (c_uint64 * len(words))(*(word or 0 for word in words))
        self._arguments = (c_void_p * len(starts))(*(addressof(self._words) + start for start in starts))
        sizes = (*grid, 1, 1)[:3] + (*block, 1, 1)[:3]
        self._launch = partial(driver.launchKernel, self._function.ptr, *sizes, shared_mem)

    def __call__(self, *arrays: cp.cuda.MemoryPointer) -> None:
        for i, array in zip(self._arrays, arrays, strict=True):
            self._words[i] = array.ptr
        self._launch(get_current_stream().ptr, addressof(self._arguments), 0)


_SHARED_WITHOUT_ASKING = 48 * 1024


def _words(x: Any) -> list[int | None]:
    """An argument in pieces of eight bytes."""
    if x is None:
        return [None]
    if isinstance(x, tuple):
        return [word for part in x for word in _words(part)]
    if isinstance(x, np.ndarray):
        memory = x.tobytes()
    else:
        memory = np.float64(x).tobytes() if isinstance(x, float) else np.int64(x).tobytes()
    memory += bytes(-len(memory) % 8)
    return [int(word) for word in np.frombuffer(memory, np.uint64)]


def round_up(x: int, multiple: int) -> int:
    """Smallest multiple that is not less than x."""
    return -(-x // multiple) * multiple


def struct(words: list[int]) -> Any:
    """A struct of uint32 that a kernel takes by value: CuPy passes an array of one element so."""
    return np.array(words, np.uint32).view(f"V{4 * len(words)}")
