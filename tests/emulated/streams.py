"""Streams of the emulated device: work that they are given waits until its result is needed, or runs earlier by chance.

So where nothing orders two steps of different streams, either may come first. Freed memory is overwritten by the stream
that it was allocated on, when that stream reaches this point: a step that still needs it was not ordered as it must be,
and returns wrong results.

Threads may use streams at the same time: one of them runs work, the others wait.

A stream belongs to the device that was the current one when it was made; the address 0 stands for the default stream of
the device that is the current one. Work is keyed by the number of a stream, `number`.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable
from functools import wraps
from threading import RLock, local
from types import SimpleNamespace
from typing import Any, TypeVar

import gpus

Work = Callable[[], object]
Function = TypeVar("Function", bound=Callable[..., Any])

_lock = RLock()


def by_one_thread(function: Function) -> Function:
    """Decorate a function that only one thread may run at a time."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        with _lock:
            return function(*arguments, **options)

    return call  # type: ignore[return-value]


waiting: dict[int, deque[Work]] = defaultdict(deque)
"""Work that was given and not yet run, in order, by the number of the stream."""

chance = random.Random(0)

freed: list[object] = []
"""Freed memory, kept until no work waits: a step that uses it wrongly then finds it overwritten, and does not crash."""


def number(address: int) -> int:
    """The number of the stream of an address: the address, or, of the default stream of a device, one below 1."""
    return address or -gpus.current()


@by_one_thread
def give(stream: int, work: Work) -> None:
    """Append work to all that the stream has to do."""
    waiting[stream].append(work)


def _go_on(stream: int) -> None:
    """Run the first work that waits on the stream."""
    waiting[stream].popleft()()


@by_one_thread
def drain(stream: int) -> None:
    """Run all work that waits on the stream, and before it, by chance, some of other streams."""
    _others_first(stream)
    while waiting[stream]:
        _go_on(stream)
    if not any(waiting.values()):
        freed.clear()


@by_one_thread
def drain_all() -> None:
    """Run all work that waits on any stream."""
    for stream in [*waiting]:
        drain(stream)


def _others_first(stream: int) -> None:
    """Run none, some or all of the work that waits on each other stream, by chance."""
    for other in [*waiting]:
        if other != stream:
            for _ in range(chance.choice((0, chance.randint(0, 9), len(waiting[other])))):
                if waiting[other]:
                    _go_on(other)


class _Point:
    """A point in the work of a stream, at which an event was recorded."""

    def __init__(self, stream: int) -> None:
        self.stream, self.passed = stream, False
        give(stream, self.be_passed)

    def be_passed(self) -> None:
        self.passed = True

    def reach(self) -> None:
        """Run the work of the stream up to this point."""
        while not self.passed:
            _go_on(self.stream)


_recorded: dict[int, _Point] = {}
"""Where each event was recorded last, by the number of the event."""

_devices: dict[int, int] = {}
"""The device of each stream, by its address."""

_devices_of_events: dict[int, int] = {}


@by_one_thread
def record(event: int, stream: int) -> None:
    """cudaEventRecord."""
    gpus.check("an event", _devices_of_events.get(event))
    gpus.check("a stream", _devices.get(stream))
    _recorded[event] = _Point(number(stream))


@by_one_thread
def wait_for(stream: int, event: int) -> None:
    """cudaStreamWaitEvent: the stream waits for the last recording of the event before this call."""
    gpus.check("a stream", _devices.get(stream))
    if event in _recorded:
        give(number(stream), _recorded[event].reach)


class Stream:
    """cupy.cuda.Stream."""

    numbers = itertools.count(1)

    def __init__(self, non_blocking: bool = False, priority: int = 0) -> None:
        self.ptr = next(self.numbers)
        _devices[self.ptr] = gpus.current()

    @classmethod
    def from_external(cls, other: Any) -> Stream:
        self = cls.__new__(cls)
        _, self.ptr = other.__cuda_stream__()
        return self

    def __enter__(self) -> None:
        gpus.check("a stream", _devices.get(self.ptr))
        _thread.entered.append((gpus.current(), self))

    def __exit__(self, *error: object) -> None:
        _thread.entered.pop()

    def synchronize(self) -> None:
        drain(number(self.ptr))


_first = Stream.from_external(SimpleNamespace(__cuda_stream__=lambda: (0, 0)))


class _Thread(local):
    """The streams that a thread has entered, with their devices; the last one of a device is its current stream."""

    def __init__(self) -> None:
        self.entered: list[tuple[int, Stream]] = []


_thread = _Thread()


def current() -> Stream:
    """cupy.cuda.get_current_stream."""
    device = gpus.current()
    return next((stream for of, stream in reversed(_thread.entered) if of == device), _first)


def own() -> int:
    """The number of the current stream."""
    return number(current().ptr)


def give_to(address: int, work: Work) -> None:
    """Append work, which the current device does, to what the stream of an address has to do."""
    gpus.check("a stream", _devices.get(address))
    give(number(address), work)


class Event:
    """cupy.cuda.Event."""

    numbers = itertools.count(1)

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.ptr = next(self.numbers)
        _devices_of_events[self.ptr] = gpus.current()

    def record(self) -> None:
        record(self.ptr, current().ptr)

    @by_one_thread
    def synchronize(self) -> None:
        if self.ptr in _recorded:
            _others_first(_recorded[self.ptr].stream)
            _recorded[self.ptr].reach()
