"""What a product of many processes asks of the engine that runs them: the one protocol for all such engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import numpy.typing as npt

NDArray = npt.NDArray[Any]
"""An array of NumPy; `Array` is a matrix that is shared out."""


class Message(NamedTuple):
    """An array on its way between two processes.

    Attributes
    ----------
    peer : rank of the process that it goes to, or that it comes from; not one's own
    array : contiguous, of any dtype of numbers; what is sent must not change, and what is received not be read, before
        `Exchange.wait` has returned. Sender and receiver know shape and dtype beforehand. An array without elements is
        not a message: both sides leave it out.
    """

    peer: int
    array: NDArray


class Exchange(Protocol):
    """Messages that are on their way."""

    def wait(self) -> None:
        """Wait until all arrays have arrived, and those that are sent may change.

        Raises
        ------
        ProcessError
            If a process that takes part has ended, or sends nothing for the communicator's `timeout`.
        """
        ...


class Communicator(Protocol):
    """The processes that compute a product together.

    Each process calls the same methods in the same order. Nothing here rounds: sums are those of integers.

    Attributes
    ----------
    rank : number of this process, from 0
    size : number of processes
    timeout : seconds to wait for another process, at most
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def timeout(self) -> float: ...

    def all_gather(self, x: object, step: str) -> list[Any]:
        """What all processes give, in the order of their ranks: plain data, a few kilobytes.

        `step` says what the product is doing, for errors, as in all methods.
        """
        ...

    def all_reduce(self, x: NDArray, how: Literal["max", "sum"], step: str) -> None:
        """Replace x, float64 or int64 and contiguous, by the largest elements of all processes, or by their sums.

        Sums are of int64 alone, and do not overflow. No element is NaN.
        """
        ...

    def start(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> Exchange:
        """Start to send and to receive. Messages of two processes arrive in the order in which they are sent."""
        ...

    def fail(self, error: BaseException) -> None:
        """Let all know that this process has failed, so that none waits for it. No call follows this one."""
        ...


class ProcessError(RuntimeError):
    """A process that takes part in a product has ended, failed, or does not answer; the message says which, and when.

    Attributes
    ----------
    rank : of that process, or of the one that waited where it is not known which one is missing
    step : what the product was doing
    """

    def __init__(self, rank: int, step: str, what: str) -> None:
        super().__init__(f"process {rank}, while {step}: {what}")
        self.rank, self.step, self.what = rank, step, what

    def __reduce__(self) -> tuple[type[ProcessError], tuple[int, str, str]]:
        return type(self), (self.rank, self.step, self.what)


@contextmanager
def known_to_all(communicator: Communicator, *alike: type[BaseException]) -> Iterator[None]:
    """Let all processes know at once if this one fails within it.

    `alike` are errors that all processes raise alike. After these they may go on; after others they cannot, as they
    have stopped in different places.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, (ProcessError, *alike)):
            communicator.fail(error)
        raise


def agree(communicator: Communicator, step: str, error: BaseException | None = None) -> None:
    """Let all processes know whether one has failed in a step, so that none waits for it.

    Raises
    ------
    ProcessError
        On all processes, naming the first one that has failed; on that one the error itself.
    """
    found = communicator.all_gather(None if error is None else f"{type(error).__name__}: {error}", step)
    if error is not None:
        raise error
    for rank, what in enumerate(found):
        if what is not None:
            raise ProcessError(rank, step, what)


def same_on_all(communicator: Communicator, step: str, **facts: object) -> None:
    """Refuse what differs among processes: each fact must be equal on all of them.

    Raises
    ------
    ValueError
        On all processes alike, naming the fact and two processes with their values.
    """
    found = communicator.all_gather(facts, step)
    for name in facts:
        for rank, each in enumerate(found):
            if each.get(name) != found[0].get(name):
                raise ValueError(
                    f"{name}: {found[0].get(name)!r} on process 0, but {each.get(name)!r} on process {rank}; expected "
                    "the same on all processes"
                )
