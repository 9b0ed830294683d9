"""Blocks in memory of the host on their way to a device and from it: through pinned memory, by threads of their own.

A copy engine reads pinned memory at the speed of the link, but one thread fills it at a fifth of that. So blocks are
cut into pieces of some megabytes, which several threads copy, each with pinned memory and a stream of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from ozaki.process import cpus

Matrix = npt.NDArray[Any]

THREADS = 8
"""Threads for each direction, at most."""

PIECE = 2**23
"""Bytes of a piece, about: long beside what a copy costs to start, and short beside a block."""


class Staging:
    """Pinned memory, and threads that move blocks through it, for one device.

    Parameters
    ----------
    device : its number
    """

    def __init__(self, device: int) -> None:
        threads = min(THREADS, cpus.usable())
        self._device, self._own = device, threading.local()
        self._every: list[_OfThread] = []
        """Of all threads: a thread may end before the copies that it has begun, which still read its memory."""
        self._there, self._back = (
            ThreadPoolExecutor(threads, f"ozaki-{name}", self._begin_thread) for name in ("to-device", "from-device")
        )

    def _begin_thread(self) -> None:
        cp.cuda.runtime.setDevice(self._device)
        self._own.found = _OfThread()
        self._every.append(self._own.found)

    def bring(self, block: Matrix, array: Any, free: Any) -> list[Future[Any]]:
        """Begin to copy a block into an array of the device, of its shape and C-contiguous.

        Each result is an event after which a piece has arrived. Nothing is written before the event `free`.
        """

        def move(piece: Matrix, there: list[Any]) -> Any:
            own, on_device = self._own.found, there.pop()
            pinned = own.idle(piece.nbytes)
            np.copyto(_as(pinned, piece), piece)
            cp.cuda.runtime.streamWaitEvent(own.stream.ptr, free.ptr)
            _copy(on_device.data.ptr, pinned.ctypes.data, piece.nbytes, _HOST_TO_DEVICE, own.stream.ptr)
            return own.used(pinned)

        return [self._there.submit(move, block[rows], [array[rows]]) for rows in _pieces(block)]

    def send(self, block: Any, done: Any, target: Matrix) -> list[Future[None]]:
        """Begin to copy an array of the device, C-contiguous, into memory of the host, after the event `done`.

        Nothing here holds a piece of the array once its result is there.
        """

        def move(piece: Matrix, here: list[Any]) -> None:
            own, on_device = self._own.found, here.pop()  # the pool forgets arguments after it has told the result
            pinned = own.idle(piece.nbytes)
            cp.cuda.runtime.streamWaitEvent(own.stream.ptr, done.ptr)
            _copy(pinned.ctypes.data, on_device.data.ptr, piece.nbytes, _DEVICE_TO_HOST, own.stream.ptr)
            own.used(pinned).synchronize()
            np.copyto(piece, _as(pinned, piece))

        return [self._back.submit(move, target[rows], [block[rows]]) for rows in _pieces(target)]

    def close(self) -> None:
        """Wait for all pieces, and end the threads."""
        self._there.shutdown()
        self._back.shutdown()
        for each in self._every:
            each.stream.synchronize()


class _OfThread:
    """What one thread moves pieces with: a stream, and two pieces of pinned memory, of which it fills one meanwhile."""

    def __init__(self) -> None:
        self.stream = cp.cuda.Stream(non_blocking=True)
        self._pinned: list[tuple[npt.NDArray[np.uint8], Any]] = []

    def idle(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Pinned memory that no copy reads or writes any more, or new."""
        if len(self._pinned) > 1:
            pinned, event = self._pinned.pop(0)
            event.synchronize()
            if pinned.nbytes >= nbytes:
                return pinned
        return np.frombuffer(cp.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8)

    def used(self, pinned: npt.NDArray[np.uint8]) -> Any:
        """The event after which the copy has ended that was begun last; then the memory is idle."""
        event = cp.cuda.Event(block=True, disable_timing=True)
        cp.cuda.runtime.eventRecord(event.ptr, self.stream.ptr)
        self._pinned.append((pinned, event))
        return event


_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2
"""cudaMemcpyHostToDevice and cudaMemcpyDeviceToHost."""


def _copy(to: int, source: int, nbytes: int, kind: int, stream: int) -> None:
    cp.cuda.runtime.memcpyAsync(to, source, nbytes, kind, stream)


def _pieces(block: Matrix) -> Iterator[slice]:
    """The rows of a block, in pieces; none if it has no elements."""
    rows, cols = block.shape
    each = max(1, PIECE // max(cols * block.itemsize, 1))
    return (slice(i, min(i + each, rows)) for i in range(0, rows if cols else 0, each))


def _as(pinned: npt.NDArray[np.uint8], like: Matrix) -> Matrix:
    """The beginning of pinned memory as an array like another one, C-contiguous."""
    found: Matrix = pinned[: like.nbytes].view(like.dtype).reshape(like.shape)
    return found
