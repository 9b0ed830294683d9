"""A second stream, for what need not wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Any

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends.cupy.launching._tape import Step


class _Order(Step):
    """One stream waits for what another one has been given so far."""

    def __init__(self, start: Callable[[int], object]) -> None:
        self.places, self.words, self.start = [], [], start


class Beside(local):
    """A second stream, for steps that the current one does not wait for, but the host may.

    `fork` before all of them: they need what the current stream has been given so far. Steps under `with` run on the
    second stream; their blocks start before those that wait on other streams.
    """

    def __init__(self) -> None:
        self._stream = cp.cuda.Stream(non_blocking=True, priority=-1)
        self._forked = cp.cuda.Event(disable_timing=True)
        own, forked = self._stream, self._forked  # which a tape holds through this function

        def fork(stream: int) -> None:
            runtime.eventRecord(forked.ptr, stream)
            runtime.streamWaitEvent(own.ptr, forked.ptr)

        self.fork = _Order(fork)

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)


_known: dict[tuple[int, str], Beside] = {}


def beside(device: int, steps: str) -> Beside:
    """The second stream of a device for those steps; each thread has its own."""
    found = _known.get((device, steps))  # two threads at once get the same object, as a cache would not see to
    return _known.setdefault((device, steps), Beside()) if found is None else found
