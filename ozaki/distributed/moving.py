"""Parts of matrices on their way between processes: who sends which elements to whom follows from shares alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ozaki.backends.parts import empty_at, on_host
from ozaki.bounds.description import Ints
from ozaki.distributed.communicators.communicator import Communicator, Exchange, Message, NDArray
from ozaki.distributed.layouts import Positions, Share, common
from ozaki.distributed.sharing import Sharing
from ozaki.process.placement import on_gpu


@dataclass
class Account:
    """What one process has done so far in a product.

    Attributes
    ----------
    computed, waited : seconds in which it split, multiplied and rounded, and in which it waited for messages
    received, sent : bytes of messages
    """

    computed: float = 0.0
    waited: float = 0.0
    received: int = 0
    sent: int = 0


@dataclass(frozen=True)
class Held:
    """A matrix of which each process holds a share.

    Attributes
    ----------
    local : what this process holds, shape of its share
    shares : of all processes, by rank
    replicas : for each process, the number of the copy of the matrix that its share belongs to
    """

    local: NDArray
    shares: Sequence[Share]
    replicas: Sequence[int]


class Move(NamedTuple):
    """Elements that each process wants of a matrix.

    Attributes
    ----------
    held : the matrix
    wants : by rank, the rows and columns that a process wants
    out : where those of this process are written, of that shape
    """

    held: Held
    wants: Sequence[Share]
    out: NDArray


@dataclass
class Arriving:
    """Moves that have begun; `wait` ends them."""

    exchange: Exchange
    account: Account
    pieces: list[tuple[NDArray, tuple[Any, Any], NDArray]] = field(default_factory=list)
    """For each message that arrives: where its elements go, at which places, and the message."""

    def wait(self) -> None:
        """Wait for all elements, and write them to their places."""
        began = perf_counter()
        self.exchange.wait()
        self.account.waited += perf_counter() - began
        for out, at, piece in self.pieces:
            out[at] = piece


def begin(communicator: Communicator, moves: Sequence[Move], account: Account, step: str) -> Arriving:
    """Begin moves: send what others want of this process, and write what it has itself."""
    me = communicator.rank
    sends: list[Message] = []
    receives: list[Message] = []
    pieces = []
    for held, wants, out in moves:
        if not out.size and not held.local.size:
            continue
        for peer in range(communicator.size):
            if held.replicas[peer] != held.replicas[me]:
                continue
            found = _meeting(held.shares[me], wants[peer])
            if found is not None:
                of_have, of_want, _ = found
                if peer == me:
                    out[of_want] = held.local[of_have]
                else:
                    piece = contiguous(held.local[of_have])
                    sends.append(Message(peer, piece))
                    account.sent += piece.nbytes
            if peer != me and (found := _meeting(held.shares[peer], wants[me])) is not None:
                _, of_want, shape = found
                piece = empty_like(held.local, shape)
                receives.append(Message(peer, piece))
                pieces.append((out, of_want, piece))
                account.received += piece.nbytes
    if any(on_gpu(message.array) for message in (*sends, *receives)):
        finish_work()  # engines know no streams: elements have to be there, and memory free
    return Arriving(communicator.start(sends, receives, step), account, pieces)


def few_rows(
    communicator: Communicator, a: Held, b: Held, k: int, at: tuple[Ints, Ints], account: Account, step: str
) -> tuple[NDArray, NDArray]:
    """Some rows of A and columns of B by their numbers, on every process, in host memory: (rows, k) and (columns, k).

    Parameters
    ----------
    communicator, a, b, account, step : as of a product
    k : inner dimension
    at : the numbers, in any order, none twice: the same on all processes
    """
    every, size = range(k), communicator.size
    x, y = empty_like(a.local, (len(at[0]), k)), empty_like(b.local, (k, len(at[1])))
    rows, cols = (np.sort(each) for each in at)  # as shares are
    moves = [Move(a, [Share(rows, every)] * size, x), Move(b, [Share(every, cols)] * size, y)]
    begin(communicator, moves, account, step).wait()
    return on_host(x)[np.searchsorted(rows, at[0])], on_host(y).T[np.searchsorted(cols, at[1])]


def contiguous(x: Any) -> Any:
    """The array itself if it is C-contiguous, else a copy, where it lies."""
    if on_gpu(x):
        import cupy as cp

        return cp.ascontiguousarray(x)
    return np.ascontiguousarray(x)


def empty_like(x: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """A new array of another shape, its elements undefined, of the dtype of x or another one, and where x lies."""
    return empty_at(x, shape, x.dtype if dtype is None else dtype)


def finish_work() -> None:
    """Wait for the current stream of the current GPU."""
    import cupy as cp

    cp.cuda.get_current_stream().synchronize()


def _meeting(have: Share, want: Share) -> tuple[Any, Any, tuple[int, int]] | None:
    """The places of what is had and wanted, in either, and its shape; None if that is nothing."""
    rows, have_rows, want_rows = common(have.rows, want.rows)
    if not rows:
        return None
    cols, have_cols, want_cols = common(have.cols, want.cols)
    if not cols:
        return None
    return _at(have_rows, have_cols), _at(want_rows, want_cols), (rows, cols)


def _at(rows: Positions, cols: Positions) -> Any:
    """The index of a matrix at these rows and columns."""
    if isinstance(rows, np.ndarray) and isinstance(cols, np.ndarray):
        return np.ix_(rows, cols)
    return rows, cols


Indices = Callable[[int, int], Any]
"""Which inner indices a process wants of a panel: a function of its rank and the panel's number."""


def panels(
    communicator: Communicator,
    a: Held,
    b: Held,
    sharing: Sharing,
    block: tuple[int, int],
    indices: Indices,
    count: int,
    account: Account,
    step: str,
) -> Iterator[tuple[NDArray, NDArray, Any]]:
    """The rows of A and the columns of B of a block of this process's tile, panel after panel of inner indices.

    Each is (x, y, indices), shapes (rows, indices) and (columns, indices). While one is used, the next one arrives.
    """
    ranks, me = range(communicator.size), communicator.rank
    blocks = [sharing.block(rank, block) for rank in ranks]

    def load(number: int) -> tuple[Arriving, NDArray, NDArray, Any]:
        inner = [indices(rank, number) for rank in ranks]
        of_a = [Share(rows, at) for (rows, _), at in zip(blocks, inner, strict=True)]
        of_b = [Share(at, cols) for (_, cols), at in zip(blocks, inner, strict=True)]
        x, y = empty_like(a.local, of_a[me].shape), empty_like(b.local, of_b[me].shape)
        moves = [Move(a, of_a, x), Move(b, of_b, y)]
        return begin(communicator, moves, account, step), x, y, inner[me]

    following = load(0) if count else None
    for number in range(count):
        assert following is not None
        arriving, x, y, inner = following
        arriving.wait()
        following = load(number + 1) if number + 1 < count else None
        yield x, y.T, inner
