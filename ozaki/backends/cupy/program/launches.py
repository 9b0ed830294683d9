"""Kernels loaded on a device, and the argument blocks that launch them.

What CuPy's own way to launch does takes 6 to 13 microseconds, most of them to convert arguments; this takes 3 to 5.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_uint64, c_void_p
from threading import Lock
from typing import Any, NamedTuple

import cupy as cp

from ozaki.backends.cupy.program import compiling, driver
from ozaki.backends.cupy.program.kernels import Kernel


class Block(NamedTuple):
    """The arguments of a kernel in memory, and what launches it on a stream; for one launch at a time."""

    pieces: Any
    start: Callable[[int], object]


def block_of(kernel: Kernel) -> Block:
    """A new argument block; the kernel is compiled for the current device first, if it was not."""
    call = _loaded(kernel)
    pieces = (c_uint64 * len(kernel.pieces))(*kernel.pieces)
    addresses = (c_void_p * len(kernel.starts))(*(addressof(pieces) + 8 * start for start in kernel.starts))
    return Block(pieces, driver.launcher(call.kernel.ptr, kernel.grid, kernel.block, kernel.shared_mem, addresses))


def clusters_at_once(kernel: Kernel, cluster: int) -> int:
    """How many clusters of that many blocks of a kernel the current device runs at once."""
    cp.cuda.Device().use()
    return driver.most_clusters(_loaded(kernel).kernel.ptr, cluster, kernel.block, kernel.shared_mem)


def _loaded(kernel: Kernel) -> Any:
    """The kernel, allowed the dynamic shared memory that it needs, and no less than other launches of it need."""
    call = compiling.kernel(kernel.file, kernel.function, **kernel.macros)
    if kernel.shared_mem:
        with _allowing:
            if call.max_dynamic_shared_size_bytes < kernel.shared_mem:
                call.max_dynamic_shared_size_bytes = kernel.shared_mem
    return call


_allowing = Lock()
