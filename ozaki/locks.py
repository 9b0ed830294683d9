"""Locks that a process which is forked finds free: no thread is left there that would release them."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
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

    def renew(self) -> None:
        """Free the lock in a forked process, if it is held by a thread that is not there."""
        if self.held.acquire(blocking=False):  # free, or of this thread
            self.held.release()
        else:
            self.held = RLock()


_locks: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in [*_locks]:
        lock.renew()


def after_fork(function: Callable[[], None]) -> None:
    """Let a function be called in each process that is forked, where all locks are free by then."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


after_fork(_renew_all)
