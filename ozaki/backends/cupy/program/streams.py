"""The streams that programs run on: CuPy's current one, and two more for each thread and device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import local
from typing import Any, NamedTuple
from weakref import WeakSet

import cupy as cp
from cupy.cuda import get_current_stream

from ozaki.caches import CacheInfo, register


class _Address(NamedTuple):
    """A stream known by its address, as an object of the protocol `__cuda_stream__`."""

    ptr: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def using(address: int) -> AbstractContextManager[Any]:
    """A context in which the stream of that address is CuPy's current one."""
    stream: AbstractContextManager[Any] = cp.cuda.Stream.from_external(_Address(address))
    return stream


class _Pair:
    """The streams "proof" and "to_host" of a thread on a device.

    Attributes
    ----------
    addresses : of the two
    cleared : how often caches had been cleared when they were made
    """

    def __init__(self, cleared: int) -> None:
        self.cleared = cleared
        self._streams = [cp.cuda.Stream(non_blocking=True, priority=-1) for _ in range(2)]
        self.addresses: tuple[int, int] = (self._streams[0].ptr, self._streams[1].ptr)


class _SideStreams:
    """The pairs of all threads, as a cache: they end with their threads or, after `clear`, at the next product there.

    Not at once, because a product may be using them, in another thread or, if it calls `clear`, in this one.
    """

    def __init__(self) -> None:
        self._pairs: WeakSet[_Pair] = WeakSet()
        self.cleared = 0

    def new(self) -> _Pair:
        """New streams on the current device."""
        pair = _Pair(self.cleared)
        self._pairs.add(pair)
        return pair

    def info(self, name: str) -> CacheInfo:
        """How many streams there are."""
        return CacheInfo(name, 2 * len(self._pairs), None, 0, 0)

    def clear(self) -> None:
        """Let each thread replace its streams."""
        self.cleared += 1


class _Thread(local):
    """What each thread has for itself.

    Attributes
    ----------
    has_context : whether the thread has been given a CUDA context
    streams : the side streams of each device
    """

    has_context = False

    def __init__(self) -> None:
        self.streams: dict[int, _Pair] = {}


_side_streams = register("side streams", _SideStreams())
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
    pair = _thread.streams.get(device)
    if pair is None or pair.cleared != _side_streams.cleared:
        pair = _thread.streams[device] = _side_streams.new()
    return main, *pair.addresses
