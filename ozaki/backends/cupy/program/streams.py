"""The streams that programs run on: CuPy's current one, and two more for each thread and device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import local
from typing import Any, NamedTuple

import cupy as cp
from cupy.cuda import get_current_stream


class _Address(NamedTuple):
    """A stream known by its address, as an object of the protocol `__cuda_stream__`."""

    ptr: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def using(address: int) -> AbstractContextManager[Any]:
    """A context in which the stream of that address is CuPy's current one."""
    stream: AbstractContextManager[Any] = cp.cuda.Stream.from_external(_Address(address))
    return stream


class _Thread(local):
    """What each thread has for itself.

    Attributes
    ----------
    has_context : whether the thread has been given a CUDA context
    streams : the streams "proof" and "to_host" of each device
    """

    has_context = False

    def __init__(self) -> None:
        self.streams: dict[int, tuple[Any, Any]] = {}


_thread = _Thread()


def addresses(device: int | None) -> tuple[int, int, int]:
    """The addresses of `STREAMS` for this thread.

    Without a device, 0 for the second and third; else these are made when the thread first asks for them.
    """
    if not _thread.has_context:  # so in every new thread, even if it has the number of one that ended
        cp.cuda.Device().use()
        _thread.has_context = True
    main = get_current_stream().ptr
    if device is None:
        return main, 0, 0
    if device not in _thread.streams:
        proof, to_host = (cp.cuda.Stream(non_blocking=True, priority=-1) for _ in range(2))
        _thread.streams[device] = proof, to_host
    proof, to_host = _thread.streams[device]
    return main, proof.ptr, to_host.ptr
