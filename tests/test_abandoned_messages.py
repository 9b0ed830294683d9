"""Messages that nobody waits for after an error keep their arrays: MPI and NCCL still read and write these."""

import gc
import sys
import weakref
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from ozaki.distributed.communicators.communicator import Message


class Array(np.ndarray):
    """An array that weak references may name; also one on a GPU, as far as messages look at it."""

    data = SimpleNamespace(device_id=0)


def arrays(count):
    return [np.zeros(4).view(Array) for _ in range(count)]


def alive(references):
    gc.collect()
    return [reference() is not None for reference in references]


def test_of_mpi():
    from ozaki.distributed.communicators.mpi import MPIProcesses

    mpi, done = ModuleType("mpi4py.MPI"), []
    vars(mpi).update(
        Exception=OSError, BYTE=1, ANY_SOURCE=-1, Status=lambda: SimpleNamespace(Get_count=lambda kind: 32)
    )
    request = SimpleNamespace(Test=lambda status: bool(done), Cancel=lambda: None)
    communicator = SimpleNamespace(
        Get_rank=lambda: 0, Get_size=lambda: 2, Iprobe=lambda *of: False,
        Irecv=lambda *of: request, Isend=lambda *of: request,
    )  # fmt: skip
    with mock.patch.dict(sys.modules, {"mpi4py.MPI": mpi}):
        processes = MPIProcesses(communicator, 5.0)
    kept = []
    for waits in (True, False):
        sent, received = arrays(2)
        references = [weakref.ref(sent), weakref.ref(received)]
        exchange = processes.start([Message(1, sent)], [Message(1, received)], "exchanging")
        del sent, received
        assert alive(references) == [True, True]
        if waits:
            done.append(True)
            exchange.wait()
            done.clear()
        del exchange
        kept.append(alive(references))
    assert kept == [[False, False], [True, True]]


def test_of_nccl():
    dist = pytest.importorskip("torch.distributed")
    import torch

    from ozaki.distributed.communicators.torch_group import TorchGroup

    processes = TorchGroup.__new__(TorchGroup)
    vars(processes).update(rank=0, size=2, timeout=5.0, _group=None, _ranks=[0, 1])
    work = SimpleNamespace(wait=lambda limit: None)
    kept = []
    with (
        mock.patch.multiple(
            dist,
            get_backend_config=lambda group: "cpu:gloo,cuda:nccl",
            P2POp=lambda *of: None,
            batch_isend_irecv=lambda operations: [work],  # one work for all
        ),
        mock.patch.multiple(torch, from_dlpack=lambda x: None),
        mock.patch.multiple(
            torch.cuda,
            set_device=lambda device: None,
            current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
        ),
    ):
        for waits in (True, False):
            sent, received, other = arrays(3)
            references = [weakref.ref(each) for each in (sent, received, other)]
            messages = [Message(1, sent), Message(1, other)], [Message(1, received)]
            exchange = processes._start_on_gpu(*messages, "exchanging")
            del sent, received, other, messages
            assert alive(references) == [True] * 3
            if waits:
                exchange.wait()
            del exchange
            kept.append(alive(references))
    assert kept == [[False] * 3, [True] * 3]
