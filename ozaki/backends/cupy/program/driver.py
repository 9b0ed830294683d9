"""Launches through the CUDA driver, by which a kernel may begin while the one before it ends.

Programmatic dependent launch, https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXEC.html (cuLaunchKernelEx);
kernels/hardware/launch.cuh has what kernels do for that.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import cupy as cp
from cupy.cuda import driver

from ozaki.caches import cached

Sizes = tuple[int, ...]


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, its value as ints."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_mem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


def launcher(
    function: Any, grid: Sizes, block: Sizes, shared_mem: int, arguments: ctypes.Array[ctypes.c_void_p]
) -> Callable[[int], object]:
    """A function that launches the kernel on the stream whose address it is given.

    It holds `function`, CuPy's object of the loaded kernel, which stays loaded as long; and `arguments`, the addresses
    of the kernel's arguments, whose present values each launch reads.
    """
    of_arguments = ctypes.addressof(arguments)
    launch = _function("cuLaunchKernelEx") if int(cp.cuda.Device().compute_capability) >= 90 else None
    if launch is None:
        plain = partial(driver.launchKernel, function.ptr, *grid, *block, shared_mem)

        def start_plainly(stream: int, _held: Any = (function, arguments)) -> None:
            plain(stream, of_arguments, 0)

        return start_plainly
    attribute = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (1,))
    config = _Config(grid, block, shared_mem, None, ctypes.pointer(attribute), 1)
    at, address = ctypes.addressof(config), function.ptr

    def start(stream: int, _held: Any = (function, arguments)) -> None:
        config.stream = stream
        status = launch(at, address, of_arguments, None)
        if status:
            raise driver.CUDADriverError(status)

    return start


def most_clusters(function: int, cluster: int, block: Sizes, shared_mem: int) -> int:
    """How many clusters of `cluster` blocks the current device runs at once.

    Where the driver has no such query, as many as half of the multiprocessors hold with a block each, but one at least.
    """
    query = _function("cuOccupancyMaxActiveClusters", 3)
    if query is None:
        return max(1, int(cp.cuda.Device().attributes["MultiProcessorCount"]) // (2 * cluster))
    attribute = _Attribute(_CLUSTER_DIMENSION, 0, (cluster, 1, 1))
    config = _Config((cluster, 1, 1), block, shared_mem, None, ctypes.pointer(attribute), 1)
    count = ctypes.c_int()
    status = query(ctypes.addressof(count), function, ctypes.addressof(config))
    if status:
        raise driver.CUDADriverError(status)
    return count.value


@cached(8)
def _function(name: str, arguments: int = 4) -> Any:
    """A function of the driver's library that takes `arguments` addresses; None where there is no such function."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        function = getattr(library, name)
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p] * arguments
    function.restype = ctypes.c_int
    return function
