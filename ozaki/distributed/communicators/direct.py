"""Calls of all processes made of messages between two: so each process knows which one it waits for."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ozaki.backends.parts import on_host
from ozaki.distributed.communicators.communicator import Exchange, Message, NDArray, ProcessError
from ozaki.process.placement import on_gpu

_HEAD = 1024
"""Bytes of the first message to each process: the length of what is to follow, and as much of it as there is room."""

_LONGEST = 1e6
"""Seconds that are waited, at most, also where the time limit is infinite: clocks count to an end."""


class Direct(ABC):
    """A communicator whose engine has messages between two processes, and sums and largest elements of all.

    After an error in one process the others need not be told by it: each finds out with whom it waits. As those that
    wait may end with errors themselves, and others wait for these, each tells whom it has waited for in vain (`_waits`)
    before it raises; the chain of these leads to the process that is missing.
    """

    def __init__(self, rank: int, size: int, timeout: float) -> None:
        if not hasattr(timeout, "__float__"):
            raise TypeError(f"timeout: {timeout!r}; expected a number of seconds")
        if not timeout > 0:
            raise ValueError(f"timeout: {timeout}; expected a positive number of seconds")
        self.rank, self.size, self.timeout = rank, size, min(float(timeout), _LONGEST)

    @property
    def grace(self) -> float:
        """Seconds of `timeout` that are left, once others were waited for in vain, to find out which one is missing."""
        return min(0.5, self.timeout / 10)

    def start(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> Exchange:
        """As `Communicator.start`."""
        if any(on_gpu(message.array) for message in (*sends, *receives)):
            return self._start_on_gpu(sends, receives, step)
        return self._start(sends, receives, step)

    @abstractmethod
    def _start(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> Exchange:
        """Start messages of arrays in memory of the host."""

    def _start_on_gpu(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> Exchange:
        """Start messages of arrays on GPUs: through memory of the host, unless the engine moves them itself."""
        of_gpu: list[Any] = [array for _, array in receives]
        of_host = [np.empty(array.shape, array.dtype) for array in of_gpu]
        copies = [Message(peer, on_host(array)) for peer, array in sends]
        into = [Message(peer, array) for (peer, _), array in zip(receives, of_host, strict=True)]
        return _ThroughHost(self._start(copies, into, step), list(zip(of_gpu, of_host, strict=True)))

    @abstractmethod
    def _reduce(self, x: NDArray, how: Literal["max", "sum"], step: str) -> None:
        """As `Communicator.all_reduce`, once all processes are known to have called it."""

    @abstractmethod
    def _waits(self, peer: int) -> dict[int, int]:
        """Tell the others that this process has waited for `peer` in vain; those that the others have, by their ranks.

        Takes about `grace` seconds, since others find out somewhat later than this process does. A process that has
        failed by itself tells that it waits for itself.
        """

    def fail(self, error: BaseException) -> None:
        """As `Communicator.fail`."""
        self._waits(self.rank)

    def all_gather(self, x: object, step: str) -> list[Any]:
        """As `Communicator.all_gather`."""
        return self._gather("all_gather", x, step)

    def all_reduce(self, x: NDArray, how: Literal["max", "sum"], step: str) -> None:
        """As `Communicator.all_reduce`."""
        allowed = ("float64", "int64") if how == "max" else ("int64",)
        if x.dtype.name not in allowed or not x.flags.c_contiguous:
            raise ValueError(f"{step}: {how} of {x.dtype} elements; expected {' or '.join(allowed)}, contiguous")
        self._gather(f"all_reduce, {how} of {x.dtype} elements of shape {x.shape}", None, step)
        if x.size and self.size > 1:
            self._reduce(x, how, step)

    def _gather(self, call: str, x: object, step: str) -> list[Any]:
        """What all processes give; `call` is compared, so that different calls end with errors on all of them."""
        packed = pickle.dumps((call, x))
        lengths, heads = [], np.zeros((self.size, _HEAD), np.uint8)
        heads[self.rank, :8] = np.frombuffer(np.int64(len(packed)).tobytes(), np.uint8)
        heads[self.rank, 8 : 8 + len(packed)] = np.frombuffer(packed, np.uint8)[: _HEAD - 8]
        others = [peer for peer in range(self.size) if peer != self.rank]
        self.start(
            [Message(peer, heads[self.rank]) for peer in others], [Message(peer, heads[peer]) for peer in others], step
        ).wait()
        lengths = [int(head[:8].view(np.int64)[0]) for head in heads]
        tails = [np.empty(max(length - (_HEAD - 8), 0), np.uint8) for length in lengths]
        tails[self.rank][:] = np.frombuffer(packed, np.uint8)[_HEAD - 8 :]
        self.start(
            [Message(peer, tails[self.rank]) for peer in others if tails[self.rank].size],
            [Message(peer, tails[peer]) for peer in others if tails[peer].size],
            step,
        ).wait()
        found = []
        for rank, (length, head, tail) in enumerate(zip(lengths, heads, tails, strict=True)):
            theirs, each = pickle.loads(head[8:].tobytes()[:length] + tail.tobytes())
            if theirs != call:
                raise ProcessError(rank, step, f"calls {theirs}, but process {self.rank} calls {call}")
            found.append(each)
        return found

    def missing(self, peer: int, step: str, what: str) -> ProcessError:
        """The error of a process that has waited for `peer` in vain: it names the one that all others wait for."""
        waits, seen, found = self._waits(peer), {self.rank}, peer
        while found in waits and found not in seen:
            seen.add(found)
            found = waits[found]
        if found != self.rank and waits.get(found) == found:
            return ProcessError(found, step, "has ended with an error")
        if found == peer or found in seen:  # all wait for each other
            return ProcessError(peer, step, what)
        return ProcessError(found, step, f"process {peer} has waited for it in vain, and process {self.rank} for that")


class _ThroughHost:
    """Messages that arrive in memory of the host, for arrays on a GPU."""

    def __init__(self, exchange: Exchange, arrays: Sequence[tuple[Any, NDArray]]) -> None:
        self._exchange, self._arrays = exchange, arrays

    def wait(self) -> None:
        """As `Exchange.wait`."""
        self._exchange.wait()
        for on_device, of_host in self._arrays:
            on_device.set(of_host)


def bytes_of(x: NDArray) -> NDArray:
    """The bytes of a contiguous array in the order of memory: a view of shape (x.nbytes,), uint8."""
    if not x.flags.forc:
        raise ValueError(f"array of shape {x.shape} and strides {x.strides}: expected a contiguous one")
    return x.reshape(-1, order="A").view(np.uint8)
