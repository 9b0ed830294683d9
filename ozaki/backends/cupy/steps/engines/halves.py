"""Which multiprocessors are at which half of the second-level cache, and what clusters make of it.

A half is near to some of the memory and far from the rest: what both need is copied across and held twice. So clusters
of one half are to have neighbouring tiles (kernels/products/places_sm90.cuh).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import struct
from ozaki.caches import Cache, register

_LIMIT = 256
"""Multiprocessors that are told apart."""


class Places(NamedTuple):
    """How clusters take their places in the order of tiles; `second`: multiprocessors at the second half, if known."""

    second: frozenset[int] | None = None

    @property
    def struct(self) -> tuple[int | None, Any]:
        """The argument of a kernel."""
        bits = [sum(1 << i for i in range(32) if first + i in (self.second or ())) for first in range(0, _LIMIT, 32)]
        return 0 if self.second is None else None, struct(bits)

    def counter(self, b: Builder) -> list[Place]:
        """Where places are counted, zeroed, if they are; to be released after the launch."""
        return [] if self.second is None else [b.zeroed("place count", 4)]


_measured: Cache[int, Places] = register("places on devices", Cache(64))
"""By the numbers of devices."""


def places(device: Device) -> Places:
    """The places on a device, the current one: by halves if its family has such, and they can be told apart.

    Measured once, in about 10 ms; not while the current stream is captured into a graph.
    """
    if not device.family.two_halves or device.number is None:
        return Places()
    if (measured := _measured.get(device.number)) is not None:
        return measured
    from cupy.cuda import get_current_stream, runtime

    if runtime.streamIsCapturing(get_current_stream().ptr):
        return Places()
    try:
        return _measured.put(device.number, _measure())
    except runtime.CUDARuntimeError:  # no memory is left beside the pools
        return Places()


def _measure() -> Places:
    """The places on the current device, if its halves can be told apart."""
    return Places(second_half(_latencies()))


_WORDS, _APART = 24, 1056
"""How many words are tried, and how far apart, so that about as many are near to each half."""


def _latencies() -> npt.NDArray[np.int64]:
    """Clocks of atomic operations, shape (multiprocessors, words); 0 where one did not come."""
    import cupy as cp
    from cupy.cuda import runtime

    from ozaki.backends.cupy.program.compiling import kernel

    turn, words, latency = 2, _WORDS * _APART, _LIMIT * _WORDS
    call, device = kernel("hardware/halves.cu", "halves"), cp.cuda.Device().attributes
    alone = device["MaxSharedMemoryPerBlockOptin"] // 2 + 1024
    call.max_dynamic_shared_size_bytes = alone
    stream = cp.cuda.Stream(non_blocking=True)
    memory = cp.cuda.Memory(4 * (turn + words + latency))  # of no pool: it is gone at once
    runtime.memsetAsync(memory.ptr, 0, memory.size, stream.ptr)
    at = [np.uintp(memory.ptr + 4 * offset) for offset in (0, turn, turn + words)]
    arguments = at[0], at[1], np.int64(_APART), np.int32(_WORDS), at[2]
    call((device["MultiProcessorCount"],), (32,), arguments, shared_mem=alone, stream=stream)
    found = np.empty((_LIMIT, _WORDS), np.uint32)
    runtime.memcpyAsync(found.ctypes.data, int(at[2]), found.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    stream.synchronize()
    return found[: device["MultiProcessorCount"]].astype(np.int64)


def second_half(latencies: npt.NDArray[np.int64]) -> frozenset[int] | None:
    """The rows that are unlike the first one; None if rows are not clearly of two kinds."""
    x = latencies - latencies.mean(0)
    x -= x.mean(1, keepdims=True)
    lengths = np.sqrt((x * x).sum(1))
    if not latencies.all() or not lengths.all():
        return None
    likeness = x @ x[0] / (lengths * lengths[0])
    if np.abs(likeness).min() < _CLEAR or (likeness > 0).all():
        return None
    return frozenset(np.flatnonzero(likeness < 0).tolist())


_CLEAR = 0.5
"""Least cosine, or its negative, between the first row and another, about the mean of all, that tells their kinds."""
