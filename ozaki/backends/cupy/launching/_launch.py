"""Kernel launches whose numbers are worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, c_uint64, c_void_p
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from cupy.cuda import runtime

from ozaki.backends.cupy.launching._driver import launcher, most_clusters
from ozaki.backends.cupy.launching._jit import kernel
from ozaki.backends.cupy.launching._tape import Step, cleared

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


class Launch(Step):
    """A kernel with its grid and all arguments but the addresses of its arrays.

    What a kernel is given depends on views alone, so launches are kept by the views that they are for. CuPy's own way
    to launch takes 6 to 13 microseconds, most of them to convert arguments; this takes 3 to 5.

    Parameters
    ----------
    file, function, macros
        As for `kernel`; compiled for the current device.
    grid, block : tuples of int
        Without blocks, as for arrays without elements, nothing is done, where CUDA reports an error.
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
        call = _with_shared(file, function, macros, shared_mem)
        cp.cuda.Device().use()  # a new thread has no context before
        words: list[int | None] = []
        starts = []
        for x in arguments:
            starts.append(8 * len(words))
            words += _words(x)
        self.places = [i for i, word in enumerate(words) if word is None]
        self.words = (c_uint64 * len(words))(*(word or 0 for word in words))
        addresses = (c_void_p * len(starts))(*(addressof(self.words) + start for start in starts))
        sizes = (*grid, 1, 1)[:3], (*block, 1, 1)[:3], shared_mem
        self.start = launcher(call.kernel.ptr, *sizes, addresses) if all(grid) else _nothing


def _nothing(_stream: int) -> None:
    pass


def clusters_at_once(
    file: str, function: str, macros: Macros, cluster: int, block: tuple[int, ...], shared_mem: int
) -> int:
    """How many clusters of that many blocks of a kernel the current device runs at once."""
    cp.cuda.Device().use()
    call = _with_shared(file, function, macros, shared_mem)
    return most_clusters(call.kernel.ptr, cluster, (*block, 1, 1)[:3], shared_mem)


def _with_shared(file: str, function: str, macros: Macros, shared_mem: int) -> Any:
    """The kernel, allowed that many bytes of dynamic shared memory, and no fewer than other launches of it need."""
    call = kernel(file, function, **macros)
    if shared_mem:
        with _allowing:
            call.max_dynamic_shared_size_bytes = max(shared_mem, call.max_dynamic_shared_size_bytes)
    return call


_allowing = Lock()


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


def output(c: View, mu_step: int, nu_step: int) -> tuple[Any, ...]:
    """The struct Output of kernels: a result (batch, m, n), and what scales it."""
    _, m, n = c.shape
    return None, *c.steps[:2], None, None, mu_step, nu_step, m | n << 32


@cache
def cluster_blocks(device: int) -> int:
    """A block for each multiprocessor, as many as clusters of two make."""
    return int(runtime.getDeviceProperties(device)["multiProcessorCount"]) // 2 * 2


class Together(NamedTuple):
    """How many tiles all clusters begin together (kernels/products/ring_sm90.cuh)."""

    until: int = 0

    @classmethod
    def of(cls, tiles: int, clusters: int) -> Together:
        """All but those that some clusters have and others have not; none if a cluster has but one."""
        return cls(tiles // clusters * clusters if tiles >= 2 * clusters else 0)

    @property
    def struct(self) -> tuple[int | None, int]:
        """The argument of a kernel."""
        return None if self.until else 0, self.until

    def arrays(self) -> list[cp.cuda.MemoryPointer]:
        """What the struct needs: where clusters are counted."""
        return [cleared(4)] if self.until else []


def round_up(x: int, multiple: int) -> int:
    """Smallest multiple that is not less than x."""
    return -(-x // multiple) * multiple


def struct(words: Sequence[int]) -> Any:
    """A struct of uint32 that a kernel takes by value: CuPy passes an array of one element so."""
    return np.array(words, np.uint32).view(f"V{4 * len(words)}")
