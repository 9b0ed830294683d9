"""An `mpi4py` communicator as the engine of a product."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from ozaki.distributed.communicators.communicator import Message, NDArray
from ozaki.distributed.communicators.direct import Direct, bytes_of

PIECE = 1 << 30
"""Bytes of a message, at most: MPI counts them in 32 bits before its version 4."""

_MESSAGE, _WAITS = 28538, 28539
"""The tags of messages, and of those that tell for which process another has waited in vain. All of MPI have them."""

_OPEN: set[_Requests] = set()
"""Requests that are not done, with their arrays: after an error nobody waits for them, but MPI may write to these."""

_TOLD: list[Any] = []
"""Requests that tell others of an error, with their arrays: nobody waits for them."""


class MPIProcesses(Direct):
    """The processes of an `mpi4py` communicator.

    It is not duplicated: that would be one more call of all processes, which has no time limit, and each product would
    take one of the few contexts that MPI has. Two tags are used instead, and no calls that take any tag. So a caller
    whose own receives for any tag are waiting during a product gives a duplicate.

    As a rule mpiexec ends all processes as soon as one dies. Where it does not, or one is alive but does not answer,
    the others get errors; but MPI waits for all processes where one ends as usual, after an error as well. Started as
    `mpiexec python -m mpi4py program.py`, an error that nobody catches ends all.

    Parameters
    ----------
    communicator : mpi4py.MPI.Intracomm
    timeout : seconds to wait for another process, at most
    """

    def __init__(self, communicator: Any, timeout: float = 60.0) -> None:
        super().__init__(communicator.Get_rank(), communicator.Get_size(), timeout)
        # To import mpi4py.MPI starts MPI: so it is taken as the caller has imported it, and not with this module.
        self.mpi: Any = sys.modules["mpi4py.MPI"]
        self._communicator = communicator
        self._told: dict[int, int] = {}

    def _start(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> _Requests:
        """As `Direct._start`."""
        started = _Requests(self, step)
        for peer, array in receives:
            for piece in _pieces(array):
                started.add(peer, piece, "sends", self._communicator.Irecv)
        for peer, array in sends:
            for piece in _pieces(array):
                started.add(peer, piece, "receives", self._communicator.Isend)
        return started

    def _reduce(self, x: NDArray, how: Literal["max", "sum"], step: str) -> None:
        started = _Requests(self, step)
        operation = self.mpi.MAX if how == "max" else self.mpi.SUM
        try:
            request = self._communicator.Iallreduce(self.mpi.IN_PLACE, x, operation)
        except self.mpi.Exception as error:
            raise self.missing(self.rank, step, _line(error)) from error
        started.open.append((self.rank, x, "ends", request))
        started.wait()

    def hear(self) -> dict[int, int]:
        """For which processes others have waited in vain, by their ranks."""
        status, found = self.mpi.Status(), np.empty(1, np.int64)
        while self._communicator.Iprobe(self.mpi.ANY_SOURCE, _WAITS, status):
            self._communicator.Recv([found, self.mpi.BYTE], status.Get_source(), _WAITS)
            self._told[status.Get_source()] = int(found[0])
        return self._told

    def _waits(self, peer: int) -> dict[int, int]:
        told = np.array([peer], np.int64)
        try:
            for other in range(self.size):
                if other != self.rank:
                    _TOLD.append((self._communicator.Isend([told, self.mpi.BYTE], other, _WAITS), told))
            end = time.monotonic() + self.grace
            while time.monotonic() < end:
                self.hear()
                time.sleep(0.01)
        except self.mpi.Exception:  # a connection is closed: what the others have told is all there is
            pass
        return self._told


class _Requests:
    """Requests that MPI works on while it is asked for their state.

    Attributes
    ----------
    open : those that have not been done: the other process, the bytes, what it is to do, the request
    """

    def __init__(self, communicator: MPIProcesses, step: str) -> None:
        self.communicator, self.step = communicator, step
        self.open: list[tuple[int, NDArray, str, Any]] = []
        _OPEN.add(self)

    def add(self, peer: int, piece: NDArray, does: str, start: Any) -> None:
        """Start one more."""
        try:
            self.open.append((peer, piece, does, start([piece, self.communicator.mpi.BYTE], peer, _MESSAGE)))
        except self.communicator.mpi.Exception as error:
            raise self._abandon(peer, _line(error)) from error

    def wait(self) -> None:
        """As `Exchange.wait`."""
        own = self.communicator
        begun = time.monotonic()
        pause, heard = 0.0, begun
        while True:
            self._test()
            if not self.open:
                _OPEN.discard(self)
                return
            now = time.monotonic()
            peer, _, does, _ = self.open[0]
            if now - begun > own.timeout - own.grace:
                raise self._abandon(peer, f"{does} nothing within {own.timeout:g} s")
            if now - heard > 0.05:  # seldom, since each time takes as long as a test
                heard = now
                for other in own.hear():
                    raise self._abandon(other, f"has ended with an error, while process {own.rank} waits")
            # At first without sleep: most messages take microseconds.
            time.sleep(pause)
            if now - begun > 0.001:
                pause = min(max(2 * pause, 0.00005), 0.001)

    def _test(self) -> None:
        """Ask MPI which requests have been done."""
        mpi = self.communicator.mpi
        still: list[tuple[int, NDArray, str, Any]] = []
        status = mpi.Status()
        for place, (peer, piece, does, request) in enumerate(self.open):
            try:
                done = request.Test(status)
            except mpi.Exception as error:
                self.open = still + self.open[place + 1 :]
                raise self._abandon(peer, _line(error)) from error
            if not done:
                still.append((peer, piece, does, request))
            elif does == "sends" and status.Get_count(mpi.BYTE) != piece.nbytes:
                self.open = still + self.open[place + 1 :]
                what = f"sends {status.Get_count(mpi.BYTE)} bytes where {piece.nbytes} are expected"
                raise self._abandon(peer, what)
        self.open = still

    def _abandon(self, peer: int, what: str) -> Exception:
        """The error that names the process which is missing; the requests stay, with their arrays."""
        for _, _, does, request in self.open:
            if does == "sends":
                request.Cancel()
        return self.communicator.missing(peer, self.step, what)


def _line(error: BaseException) -> str:
    """The first line of what MPI says."""
    return str(error).split("\n")[0].removesuffix(", error stack:")


def _pieces(array: NDArray) -> Iterator[NDArray]:
    """The bytes of an array as MPI takes them."""
    every = bytes_of(array)
    for begin in range(0, every.size, PIECE):
        yield every[begin : begin + PIECE]
