"""The streams that programs run on: CuPy's current one, and two more of each thread and device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import local
from typing import Any, NamedTuple

import cupy as cp
from cupy.cuda import get_current_stream


class _Address(NamedTuple):
    """The stream of an address, by the protocol of CUDA's streams."""

    ptr: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def using(address: int) -> AbstractContextManager[Any]:
    """CuPy's current stream is that one, meanwhile."""
    stream: AbstractContextManager[Any] = cp.cuda.Stream.from_external(_Address(address))
    return stream


class _Thread(local):
    """What a thread has of its own: whether it has a context, and by device the streams of proofs and answers."""

    has_context = False

    def __init__(self) -> None:
        self.streams: dict[int, tuple[Any, Any]] = {}


_thread = _Thread()


def addresses(device: int | None) -> tuple[int, int, int]:
    """The addresses of `STREAMS`; of the second and third only with a device, made when first needed."""
    if not _thread.has_context:  # as a new thread, even with the number of one that has ended
        cp.cuda.Device().use()
        _thread.has_context = True
    main = get_current_stream().ptr
    if device is None:
        return main, 0, 0
    if device not in _thread.streams:
        proof, answers = (cp.cuda.Stream(non_blocking=True, priority=-1) for _ in range(2))
        _thread.streams[device] = proof, answers
    proof, answers = _thread.streams[device]
    return main, proof.ptr, answers.ptr
