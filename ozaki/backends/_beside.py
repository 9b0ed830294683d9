"""A second stream, for what need not wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import local
from typing import Any

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends._tape import Step


class _Order(Step):
    """One stream waits for what another one has been given so far."""

    def __init__(self, start: Callable[[int], object]) -> None:
        self.places, self.words, self.start = [], [], start


class Beside(local):
    """A second stream, for steps that need not wait for those of the current one, nor these for them.

    `fork` before all of them; steps under `with` run on the second stream; the current one goes on after them from
    `join` on. Their blocks start before those that wait on other streams.
    """

    def __init__(self) -> None:
        self._stream = cp.cuda.Stream(non_blocking=True, priority=-1)
        self._events = [cp.cuda.Event(disable_timing=True) for _ in range(2)]
        own, (forked, joined) = self._stream, self._events  # which a tape holds through these functions

        def fork(stream: int) -> None:
            runtime.eventRecord(forked.ptr, stream)
            runtime.streamWaitEvent(own.ptr, forked.ptr)

        def join(stream: int) -> None:
            runtime.eventRecord(joined.ptr, own.ptr)
            runtime.streamWaitEvent(stream, joined.ptr)

        self.fork, self.join = _Order(fork), _Order(join)

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)


@cache
def beside(device: int, steps: str) -> Beside:
    """The second stream of a device for those steps; each thread has its own."""
    return Beside()
