"""How threads share out the work of the compiled library."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Event, Thread
from typing import Any

from ozaki.process.threads import threads

LEAST = 2e6
"""Least work of a thread, in sixteenths of products of bytes, and in residues: some 100 microseconds."""


def workers_for(cost: float) -> int:
    """Most threads that share out some work."""
    workers = int(cost / LEAST)
    return 1 if workers <= 1 else min(workers, threads())


def share_out(items: int, cost: float, call: Callable[[int, int], None], *used: Any) -> None:
    """Let threads call `call(begin, end)` for ranges that together are all items.

    An error in one of them ends the others, and is raised here. `used` has what the library is given the addresses of:
    each thread holds it, so that nothing frees it while a thread is in `call`.
    """
    workers = min(items, workers_for(cost))
    if workers <= 1:
        call(0, items)
        return
    step = -(-items // (4 * workers))
    turns, errors, running = count(), list[BaseException](), list[Event]()

    def work() -> None:
        try:
            while not errors and (begin := next(turns) * step) < items:
                call(begin, min(begin + step, items))
        except BaseException as error:
            errors.append(error)

    def work_beside(*_: Any) -> None:
        ended = Event()
        running.append(ended)  # before it takes a turn
        try:
            work()
        finally:
            ended.set()

    try:
        for _ in range(workers - 1):
            Thread(target=work_beside, args=used).start()
    except RuntimeError:  # the system gives no more threads
        pass
    except BaseException as error:  # an interrupt
        errors.append(error)
    work()
    while True:
        try:
            for ended in [*running]:  # they write to the result; those that only begin find no turns left, or an error
                ended.wait()
            break
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
