"""The power and energy of a GPU while it works, sampled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Protocol

INTERVAL = 0.02
"""Seconds between samples, as in Ootomo and Yokota, section 4.3."""

MIN_SECONDS = 2.0
"""Least seconds of repeated work that is sampled, as in the same section."""

WARM_UP = 1.0
"""Seconds of the same work before sampling, until clocks and power have settled."""


class Meter(Protocol):
    """Measures the power and energy of a device."""

    def watts(self) -> float:
        """Power at this moment, in watts."""

    def joules(self) -> float:
        """Energy since some moment in the past, in joules."""


@dataclass(frozen=True)
class Spent:
    """The time and energy that repeated work took.

    Attributes
    ----------
    calls : number of calls of the work
    seconds : time of all calls together
    watts : mean power, from samples
    counted : joules of all calls together, by the meter's own counter
    """

    calls: int
    seconds: float
    watts: float
    counted: float

    @property
    def joules(self) -> float:
        """The energy of one call in joules, from samples."""
        return self.watts * self.seconds / self.calls


def spent(
    meter: Meter, work: Callable[[], object], min_seconds: float = MIN_SECONDS, warm_up: float = WARM_UP
) -> Spent:
    """Sample the power while `work`, which waits for the device, is repeated.

    Parameters
    ----------
    meter : Meter
    work : function
    min_seconds : float
        Seconds to sample for.
    warm_up : float
        Seconds of the same work before sampling.
    """
    _repeat(work, warm_up)
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        before, start = meter.joules(), time.perf_counter()
        samples = pool.submit(_sampled, meter, stop)
        try:
            calls = _repeat(work, min_seconds)
        finally:
            stop.set()
        seconds, counted = time.perf_counter() - start, meter.joules() - before
        return Spent(calls, seconds, statistics.mean(samples.result()), counted)


def _repeat(work: Callable[[], object], min_seconds: float) -> int:
    """Call `work` for `min_seconds`, at least once; return the number of calls."""
    calls, end = 0, time.perf_counter() + min_seconds
    while calls == 0 or time.perf_counter() < end:
        work()
        calls += 1
    return calls


def _sampled(meter: Meter, stop: Event) -> list[float]:
    watts = [meter.watts()]
    while not stop.wait(INTERVAL):
        watts.append(meter.watts())
    return watts
