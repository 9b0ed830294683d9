"""The streams that programs run on: CuPy's current one, two more for each thread and device, and idle ones."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import local
from typing import Any, NamedTuple
from weakref import WeakSet

import cupy as cp
from cupy.cuda import get_current_stream

from ozaki.caches import CacheInfo, register
from ozaki.locks import Lock


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


class _IdleStreams:
    """Streams that no product uses, by device, as a cache: for the next product with `devices=`.

    CuPy's pool keeps freed memory for the stream that it was of. Were streams new in every product, so would be all of
    its memory, until the device has none left and stands still while the pool frees it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: dict[int, list[Any]] = {}

    def take(self, device: int, count: int) -> list[Any]:
        """So many streams of a device, the current one, in the order in which they were given back."""
        with self._lock.held:
            idle = self._idle.setdefault(device, [])
            found, idle[:count] = idle[:count], []
        return found + [cp.cuda.Stream(non_blocking=True) for _ in range(count - len(found))]

    def give_back(self, device: int, streams: list[Any]) -> None:
        """Keep streams that have nothing left to do."""
        with self._lock.held:
            self._idle.setdefault(device, [])[:0] = streams

    def info(self, name: str) -> CacheInfo:
        """How many streams there are."""
        with self._lock.held:
            return CacheInfo(name, sum(map(len, self._idle.values())), None, 0, 0)

    def clear(self) -> None:
        """Forget all streams."""
        with self._lock.held:
            self._idle.clear()


IDLE = register("idle streams", _IdleStreams())


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
