"""Threads of one process in the place of processes: for tests, and where one process is to work in parts."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from ozaki.distributed.communicators.communicator import Communicator, Message, NDArray, ProcessError
from ozaki.distributed.communicators.direct import Direct
from ozaki.process.placement import on_gpu

_Result = TypeVar("_Result")


class ThreadGroup:
    """What the threads of a group share: arrays on their way, and which thread has failed or ended.

    Parameters
    ----------
    size : number of threads
    timeout : seconds to wait for another thread, at most
    """

    def __init__(self, size: int, timeout: float = 60.0) -> None:
        if size < 1:
            raise ValueError(f"size: {size}; expected 1 or more")
        self.size, self.timeout = size, timeout
        self.changed = threading.Condition()
        self.ways: defaultdict[tuple[int, int], _Way] = defaultdict(_Way)  # by sender and receiver
        self.failed: ProcessError | None = None
        self.ended: set[int] = set()
        self.waits: dict[int, int] = {}

    def communicator(self, rank: int) -> Threads:
        """The communicator of one thread."""
        return Threads(self, rank)

    def end(self, rank: int, error: ProcessError | None = None) -> None:
        """Let all threads know that one has ended, or failed: who waits for it need not wait on."""
        with self.changed:
            self.ended.add(rank)
            if self.failed is None:
                self.failed = error
            self.changed.notify_all()


class _Part:
    """An array that a thread sends or receives.

    Attributes
    ----------
    done : whether it has been copied
    """

    def __init__(self, message: Message) -> None:
        self.peer, self.array = message
        self.done = False


class _Way:
    """The arrays from one thread to another, in order; on at most one side any wait for those of the other."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: deque[_Part] = deque()
        self.received: deque[_Part] = deque()


class Threads(Direct):
    """A thread of a group as a `Communicator`: the second of both sides to start a message copies it."""

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        super().__init__(rank, group.size, group.timeout)
        if not 0 <= rank < group.size:
            raise ValueError(f"rank: {rank}; expected 0 to {group.size - 1}")
        self.group, self.step = group, "starting"

    def _start_on_gpu(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> _Copies:
        """As `Direct._start_on_gpu`: GPUs copy from one another."""
        return self._start(sends, receives, step)

    def _start(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> _Copies:
        """As `Direct._start`, and for arrays on GPUs."""
        self.step = step
        taken = [_Part(message) for message in receives]
        given = [_Part(message) for message in sends]
        for part in taken:
            way = self._way(part.peer, self.rank)
            with way.lock:
                way.received.append(part)
                self._copy(way)
        for part in given:
            way = self._way(self.rank, part.peer)
            with way.lock:
                way.sent.append(part)
                self._copy(way)
        return _Copies(self, taken + given, step)

    def _way(self, sender: int, receiver: int) -> _Way:
        """The arrays from one thread to another."""
        if sender == receiver or not (0 <= sender < self.size and 0 <= receiver < self.size):
            raise ValueError(f"message from {sender} to {receiver}: expected two of processes 0 to {self.size - 1}")
        with self.group.changed:
            return self.group.ways[sender, receiver]

    def _copy(self, way: _Way) -> None:
        """Copy the arrays for which both sides are there."""
        while way.sent and way.received:
            source, target = way.sent[0].array, way.received[0].array
            if (source.shape, source.dtype) != (target.shape, target.dtype):
                raise ValueError(
                    f"array of shape {source.shape}, {source.dtype}, is sent where one of shape {target.shape}, "
                    f"{target.dtype}, is expected"
                )
            if on_gpu(target):
                from ozaki.backends.cupy.peers import copy_between

                copy_between(source, target)
            else:
                target[...] = source
            with self.group.changed:
                way.sent.popleft().done = way.received.popleft().done = True
                self.group.changed.notify_all()

    def _reduce(self, x: NDArray, how: Literal["max", "sum"], step: str) -> None:
        received = [Message(peer, np.empty_like(x)) for peer in range(self.size) if peer != self.rank]
        self.start([Message(peer, x) for peer, _ in received], received, step).wait()
        combine = np.maximum if how == "max" else np.add
        for _, each in received:
            combine(x, each, out=x)

    def fail(self, error: BaseException) -> None:
        """As `Communicator.fail`."""
        self.group.end(self.rank, ProcessError(self.rank, self.step, f"{type(error).__name__}: {error}"))

    def _waits(self, peer: int) -> dict[int, int]:
        with self.group.changed:
            self.group.waits[self.rank] = peer
        time.sleep(self.grace)
        with self.group.changed:
            return dict(self.group.waits)


class _Copies:
    """Copies that are made by this thread or by others."""

    def __init__(self, communicator: Threads, parts: list[_Part], step: str) -> None:
        self.communicator, self.parts, self.step = communicator, parts, step

    def wait(self) -> None:
        """As `Exchange.wait`."""
        own, group = self.communicator, self.communicator.group
        end = time.monotonic() + own.timeout - own.grace
        own.step, what = self.step, f"does not answer within {own.timeout:g} s"
        with group.changed:
            while self.parts:
                self.parts = [part for part in self.parts if not part.done]
                if not self.parts:
                    return
                if (failed := group.failed) is not None:
                    raise ProcessError(failed.rank, failed.step, failed.what)
                if ended := [part for part in self.parts if part.peer in group.ended]:
                    self.parts, what = ended, f"has ended, but process {own.rank} waits for it"
                    break
                if not group.changed.wait(max(end - time.monotonic(), 0)) and time.monotonic() >= end:
                    break
            else:
                return
        raise own.missing(self.parts[0].peer, self.step, what)


def run(size: int, function: Callable[[Communicator], _Result], timeout: float = 60.0) -> list[_Result]:
    """Call a function in a thread for each rank.

    Parameters
    ----------
    size : number of threads
    function : takes the communicator of its thread
    timeout : seconds that a thread waits for another, at most

    Returns
    -------
    results : in the order of ranks

    Raises
    ------
    Exception
        That of the first rank which has failed by itself; `ProcessError` if all that have failed waited for others.
    """
    group = ThreadGroup(size, timeout)
    communicators = [group.communicator(rank) for rank in range(size)]
    results: list[Any] = [None] * size
    errors: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        communicator = communicators[rank]
        try:
            results[rank] = function(communicator)
        except BaseException as error:
            errors[rank] = error
            known = isinstance(error, ProcessError)
            what = f"{type(error).__name__}: {error}"
            group.end(rank, error if known else ProcessError(rank, communicator.step, what))  # type: ignore[arg-type]
        else:
            group.end(rank)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(work, rank), name=f"rank {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # the caller is interrupted: so that no thread waits on
        group.end(-1, ProcessError(0, "waiting for all", f"{type(error).__name__}: {error}"))
        raise
    for rank in sorted(errors, key=lambda rank: (isinstance(errors[rank], ProcessError), rank)):
        raise errors[rank]
    return results
