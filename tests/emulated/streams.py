"""Streams of the emulated device: what they are given waits until someone needs it, or chance lets it go first.

So where nothing orders two steps of different streams, either may come first. Memory that is freed is overwritten by
the stream that it was allocated on, when that gets there: what still needs it then is not ordered as it must be.

Threads may use streams at the same time: one of them lets work be done, the others wait.
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

Work = Callable[[], object]
Function = TypeVar("Function", bound=Callable[..., Any])

_lock = RLock()


def by_one_thread(function: Function) -> Function:
    """Decorate what only one thread may do at a time."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        with _lock:
            return function(*arguments, **options)

    return call  # type: ignore[return-value]


waiting: dict[int, deque[Work]] = defaultdict(deque)
"""By the number of a stream."""

chance = random.Random(0)

freed: list[object] = []
"""Memory that streams may still be about to use, rightly or not."""


@by_one_thread
def give(stream: int, work: Work) -> None:
    """As the last that the stream does."""
    waiting[stream].append(work)


def _go_on(stream: int) -> None:
    """With the next that the stream was given."""
    waiting[stream].popleft()()


@by_one_thread
def drain(stream: int) -> None:
    """Let the stream do all that it was given."""
    _others_first(stream)
    while waiting[stream]:
        _go_on(stream)
    if not any(waiting.values()):
        freed.clear()


@by_one_thread
def drain_all() -> None:
    """Let all streams."""
    for stream in [*waiting]:
        drain(stream)


def _others_first(stream: int) -> None:
    for other in [*waiting]:
        if other != stream:
            for _ in range(chance.choice((0, chance.randint(0, 9), len(waiting[other])))):
                if waiting[other]:
                    _go_on(other)


class _Point:
    """A place in what a stream does."""

    def __init__(self, stream: int) -> None:
        self.stream, self.passed = stream, False
        give(stream, self.be_passed)

    def be_passed(self) -> None:
        self.passed = True

    def reach(self) -> None:
        while not self.passed:
            _go_on(self.stream)


_recorded: dict[int, _Point] = {}
"""By the number of an event."""


@by_one_thread
def record(event: int, stream: int) -> None:
    """As cudaEventRecord."""
    _recorded[event] = _Point(stream)


@by_one_thread
def wait_for(stream: int, event: int) -> None:
    """As cudaStreamWaitEvent: for what was recorded until now."""
    if event in _recorded:
        give(stream, _recorded[event].reach)


class Stream:
    """cupy.cuda.Stream."""

    numbers = itertools.count(1)

    def __init__(self, non_blocking: bool = False, priority: int = 0) -> None:
        self.ptr = next(self.numbers)

    @classmethod
    def from_external(cls, other: Any) -> Stream:
        self = cls.__new__(cls)
        _, self.ptr = other.__cuda_stream__()
        return self

    def __enter__(self) -> None:
        _thread.entered.append(self)

    def __exit__(self, *error: object) -> None:
        _thread.entered.pop()


_first = Stream.from_external(SimpleNamespace(__cuda_stream__=lambda: (0, 0)))


class _Thread(local):
    """The streams that a thread has entered, of which the last is the current one."""

    def __init__(self) -> None:
        self.entered = [_first]


_thread = _Thread()


def current() -> Stream:
    """cupy.cuda.get_current_stream."""
    return _thread.entered[-1]


class Event:
    """cupy.cuda.Event."""

    numbers = itertools.count(1)

    def __init__(self, disable_timing: bool = False) -> None:
        self.ptr = next(self.numbers)

    def record(self) -> None:
        record(self.ptr, current().ptr)

    @by_one_thread
    def synchronize(self) -> None:
        if self.ptr in _recorded:
            _others_first(_recorded[self.ptr].stream)
            _recorded[self.ptr].reach()
