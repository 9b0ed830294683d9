"""How far a product is, for a function of the caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

ProgressFunction = Callable[[int, int, str], object]
"""Called with how many units of work are done, how many there are, and what they are."""

_INTERVAL = 0.1
"""Least seconds between two calls, but for the last one: more often nobody looks."""


class Progress:
    """Tells a function of the caller how far one product is, from the thread that computes it.

    Parameters
    ----------
    function : the caller's function, or None: then nothing is counted

    Attributes
    ----------
    silent : whether there is no function of the caller
    """

    def __init__(self, function: ProgressFunction | None) -> None:
        self._function, self.silent = function, function is None
        self._done, self._total, self._unit = 0, 1, "products"
        self._last_call = 0.0 if function is None else time.monotonic()

    def begin(self, total: int, unit: str) -> None:
        """Begin to count `total` units of work."""
        if self._function is not None:
            self._done, self._total, self._unit = 0, total, unit

    def step(self, count: int = 1) -> None:
        """Count units of work that are done; the last one is left to `end`."""
        if self._function is None or not count:
            return
        self._done += count
        now = time.monotonic()
        if self._done < self._total and now - self._last_call >= _INTERVAL:
            self._last_call = now
            self._function(self._done, self._total, self._unit)

    def end(self) -> None:
        """Say that the result is complete."""
        if self._function is not None:
            self._function(self._total, self._total, self._unit)


class Share(NamedTuple):
    """A loop that counts as some units of work, however many turns it takes."""

    progress: Progress
    units: int

    def turn(self, turn: int, turns: int) -> None:
        """Say that this one of all turns is done, counted from 0."""
        self.progress.step(self.units * (turn + 1) // turns - self.units * turn // turns)


SILENT = Progress(None)
"""Of products without a function of the caller."""

NOTHING = Share(SILENT, 0)
"""Of loops that nobody counts."""


def progress_of(function: ProgressFunction | None) -> Progress:
    """The progress of a product whose caller gave this function, or none.

    Raises
    ------
    TypeError
        If it is no function.
    """
    if function is None:
        return SILENT
    if not callable(function):
        raise TypeError(f"progress: {type(function).__name__}; expected a function of (done, total, unit)")
    return Progress(function)
