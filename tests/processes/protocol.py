"""What the protocol promises, checked by three processes."""

import sys

import launching
import numpy as np
import pytest

from ozaki.distributed.communicators import communicator_of
from ozaki.distributed.communicators.communicator import Message, ProcessError, agree, same_on_all


def work(communicator):
    checks = [gathers, reduces, refuses_other_calls, exchanges, orders, exchanges_much, agrees, compares, part]
    for check in checks:
        check(communicator)
    return [check.__name__ for check in checks]


def gathers(communicator):
    for x in (None, ("a", {"b": 2.5}), "x" * 5000 * (communicator.rank + 1), b"y" * 1007):
        found = communicator.all_gather((communicator.rank, x), "gathering")
        assert [rank for rank, _ in found] == [*range(communicator.size)]
        assert found[communicator.rank] == (communicator.rank, x)
    assert [len(x) for x in communicator.all_gather("x" * 3000 * communicator.rank, "gathering")] == [0, 3000, 6000]


def reduces(communicator):
    rank, size = communicator.rank, communicator.size
    for length in (1, 2, 3, 7, 1001, 300_000):
        # One value at many places: sums of some engines depend on the place from three processes on.
        x = np.full(length, -0.1 * rank)
        communicator.all_reduce(x, "max", "taking largest elements")
        assert (x == 0.0).all()
        x = np.full(length, 2**61 // size + rank)
        communicator.all_reduce(x, "sum", "adding")
        assert (x == sum(2**61 // size + each for each in range(size))).all()
        x = np.arange(length) * (rank - 1)
        communicator.all_reduce(x, "max", "taking largest elements")
        assert (x == np.arange(length)).all()
    x = np.array([[-np.inf, np.inf], [5e307 * rank, 5e-324]])
    communicator.all_reduce(x, "max", "taking largest elements")
    assert x.tolist() == [[-np.inf, np.inf], [5e307 * (size - 1), 5e-324]]
    communicator.all_reduce(np.zeros(0, np.int64), "sum", "adding")


def refuses_other_calls(communicator):
    with pytest.raises(ProcessError, match=r"shape \(4,\), but|, but .* shape \(4,\)") as caught:
        communicator.all_reduce(np.zeros(3 + communicator.rank // 2), "max", "measuring")
    assert caught.value.rank == (0 if communicator.rank == 2 else 2)
    for x in (np.zeros(2, np.int32), np.zeros((4, 4))[:, 0]):
        with pytest.raises(ValueError, match="measuring: max of"):
            communicator.all_reduce(x, "max", "measuring")


def exchanges(communicator):
    """Several messages each way between all pairs, of all kinds of numbers; sent arrays may be read-only."""
    rank = communicator.rank
    kinds = [np.int8, np.int16, np.float64, np.complex128, np.uint8, np.int64, np.float32]
    shapes = [(5,), (3, 4), (), (1, 2, 3), (70_000,), (9,), (2, 2)]

    def array(sender, receiver, place):
        values = np.arange(np.prod(shapes[place], dtype=int)).reshape(shapes[place]) % 100
        made = np.array(values + 10 * sender + receiver, kinds[place])
        return np.asfortranarray(made) if place % 2 else made

    others = [peer for peer in range(communicator.size) if peer != rank]
    sends = [Message(peer, array(rank, peer, place)) for peer in others for place in range(len(kinds))]
    for message in sends:
        message.array.flags.writeable = False
    receives = [
        Message(peer, np.zeros_like(array(peer, rank, place))) for peer in others for place in range(len(kinds))
    ]
    communicator.start(sends, receives, "exchanging").wait()
    for place, (peer, x) in enumerate(receives):
        assert x.tobytes("A") == array(peer, rank, place % len(kinds)).tobytes("A")
    communicator.start([], [], "exchanging").wait()


def orders(communicator):
    """Exchanges on their way together: messages arrive in the order in which they are sent."""
    rank, size = communicator.rank, communicator.size
    to, by = (rank + 1) % size, (rank - 1) % size
    started, received = [], []
    for place in range(6):
        received.append(np.full(100 * (place % 3) + 1, -1.0))
        sent = np.full(received[-1].shape, 10.0 * rank + place)
        started.append(communicator.start([Message(to, sent)], [Message(by, received[-1])], f"exchange {place}"))
    assert communicator.all_gather(rank, "in between") == [*range(size)]
    for each in reversed(started):
        each.wait()
        each.wait()  # once more changes nothing
    assert [x[-1] for x in received] == [10.0 * by + place for place in range(6)]


def exchanges_much(communicator):
    """Each sends first some MB to all others, then receives; in pieces where MPI counts no more bytes."""
    rank = communicator.rank
    if (mpi := sys.modules.get("ozaki.distributed.communicators.mpi")) is not None:
        mpi.PIECE = 1_000_001
    others = [peer for peer in range(communicator.size) if peer != rank]
    sent = np.random.default_rng(rank).random((1000, 700))
    first = communicator.start([Message(peer, sent) for peer in others], [], "sending")
    received = [Message(peer, np.empty((1000, 700))) for peer in others]
    communicator.start([], received, "receiving").wait()
    first.wait()
    for peer, x in received:
        assert (x == np.random.default_rng(peer).random((1000, 700))).all()


def agrees(communicator):
    agree(communicator, "reading")
    own = ValueError("no such row") if communicator.rank == 1 else None
    with pytest.raises((ProcessError, ValueError), match="no such row") as caught:
        agree(communicator, "reading", own)
    if own is None:
        assert (caught.value.rank, caught.value.step) == (1, "reading")
    else:
        assert caught.value is own


def compares(communicator):
    same_on_all(communicator, "planning", count=14, shape=(3, 4))
    with pytest.raises(ValueError, match="count: 14 on process 0, but 15 on process 2"):
        same_on_all(communicator, "planning", count=14 + communicator.rank // 2)


def part(communicator):
    """Ranks are those within a part of all processes."""
    name, rank = type(communicator).__name__, communicator.rank
    if name == "TorchGroup":
        import torch.distributed as dist

        group = dist.new_group([1, 2])
    elif name == "MPIProcesses":
        from mpi4py import MPI

        group = MPI.COMM_WORLD.Split(int(rank == 0))
    else:
        return
    if rank == 0:
        return
    smaller = communicator_of(group, 20.0)
    assert (smaller.rank, smaller.size, smaller.timeout) == (rank - 1, 2, 20.0)
    assert smaller.all_gather(rank, "gathering") == [1, 2]
    x = np.zeros(3)
    other = 1 - smaller.rank
    smaller.start([Message(other, np.full(3, rank))], [Message(other, y := np.zeros(3, int))], "exchanging").wait()
    smaller.all_reduce(y, "max", "reducing")
    assert y.tolist() == [2, 2, 2] and not x.any()


if __name__ == "__main__":
    launching.main(work)
