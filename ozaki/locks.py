"""Locks that a process which is forked finds free: no thread is left there that would release them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from threading import RLock
from typing import Any
from weakref import WeakSet


class Lock:
    """A lock that the thread which holds it may take once more, as a signal's handler or a finalizer does there.

    In a forked process it is free, unless the thread that forked holds it. What another thread was about to change
    stays there as it was at that moment.

    Attributes
    ----------
    held : the lock itself, for `with`: so an interrupt never comes between taking it and what releases it
    """

    __slots__ = ("__weakref__", "held")

    def __init__(self) -> None:
        self.held = RLock()
        _locks.add(self)


_locks: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in [*_locks]:
        lock.held = _freed(lock.held)
    if sys.version_info < (3, 12):
        for each in _cached_properties():
            each.lock = _freed(each.lock)


def _freed(lock: Any) -> Any:
    """A lock in a forked process, or a new one if a thread holds it that is not there."""
    if not lock.acquire(blocking=False):
        return RLock()
    lock.release()  # it was free, or of this thread
    return lock


def _cached_properties() -> Iterator[Any]:
    """Those of the classes of this package, which have locks before Python 3.12."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("ozaki."):
            for kind in [each for each in vars(module).values() if isinstance(each, type)]:
                yield from (each for each in vars(kind).values() if isinstance(each, cached_property))


def after_fork(function: Callable[[], None]) -> None:
    """Let a function be called in each process that is forked, where all locks are free by then."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


after_fork(_renew_all)
