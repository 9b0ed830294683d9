"""A process group of `torch.distributed` as the engine of a product."""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from ozaki.distributed.communicators.communicator import Array, Message, ProcessError
from ozaki.distributed.communicators.direct import Direct, bytes_of

_TAG = 28538
"""The tag of messages, so that the caller's own (tag 0, if none is named) are others."""


class TorchGroup(Direct):
    """The processes of a process group whose backend moves tensors of the CPU, as gloo does.

    Ranks are those within the group. The time limit of the group itself, of half an hour as a rule, does not count.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup
    timeout : seconds to wait for another process, at most
    """

    def __init__(self, group: Any, timeout: float = 60.0) -> None:
        super().__init__(dist.get_rank(group), dist.get_world_size(group), timeout)
        self._group = group
        self._ranks = dist.get_process_group_ranks(group)

    def start(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> _Works:
        """As `Communicator.start`."""
        works: list[_Work] = []
        for messages, does, begin in ((receives, "sends", dist.irecv), (sends, "receives", dist.isend)):
            for peer, array in messages:
                try:
                    work = begin(tensor_of(array), self._ranks[peer], self._group, _TAG)
                    works.append(_Work(peer, array, does, work))
                except RuntimeError as error:
                    raise self._lost(peer, does, error, step) from error
        return _Works(self, works, step)

    def _reduce(self, x: Array, how: Literal["max", "sum"], step: str) -> None:
        operation = dist.ReduceOp.MAX if how == "max" else dist.ReduceOp.SUM
        tensor = tensor_of(x).view(getattr(torch, x.dtype.name))
        try:
            work = dist.all_reduce(tensor, operation, self._group, async_op=True)
            work.wait(timedelta(seconds=self.timeout - self.grace))
        except RuntimeError as error:
            lost = self._lost(self._closed(), "reduces", error, step)
            self._close()
            raise lost from error

    def _close(self) -> None:
        """Close all connections, as gloo does when a message is late: else it works on, and this process cannot end."""
        with contextlib.suppress(RuntimeError):
            other = self._ranks[(self.rank + 1) % self.size]
            dist.irecv(torch.zeros(1, dtype=torch.uint8), other, self._group, _TAG + 1).wait(timedelta(milliseconds=1))

    def _closed(self) -> int:
        """The first process to which the connection is closed, so that a message to it fails at once; else this one."""
        for peer in range(self.size):
            if peer != self.rank:
                try:
                    dist.isend(torch.zeros(1, dtype=torch.uint8), self._ranks[peer], self._group, _TAG + 1)
                except RuntimeError:
                    return peer
        return self.rank

    def _lost(self, peer: int, does: str, error: RuntimeError, step: str) -> ProcessError:
        """The error that names the process which is missing."""
        late = "imed out" in str(error)
        return self.missing(peer, step, f"{does} nothing within {self.timeout:g} s" if late else _line(error))

    def _waits(self, peer: int) -> dict[int, int]:
        found: dict[int, int] = {}

        def ask() -> None:
            try:
                store = self._group.get_group_store()
                store.set(f"ozaki/waits/{self.rank}", str(peer))
                time.sleep(self.grace)
                for rank in range(self.size):
                    if store.check([key := f"ozaki/waits/{rank}"]):
                        found[rank] = int(store.get(key))
            except (AttributeError, RuntimeError):  # an older PyTorch, or the store has ended with its process
                pass

        # The store has a time limit of its own, of some minutes, where the process that holds it does not answer.
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(2 * self.grace)
        return dict(found)


class _Work(NamedTuple):
    """A message on its way: the other process, the array, which is to live as long, and what that process is to do."""

    peer: int
    array: Array
    does: str
    work: Any


class _Works:
    """The messages that a process group works on."""

    def __init__(self, communicator: TorchGroup, works: list[_Work], step: str) -> None:
        self.communicator, self.works, self.step = communicator, works, step

    def wait(self) -> None:
        """As `Exchange.wait`.

        gloo knows that a message has arrived only while it is waited for: so there is no asking, as of MPI. When its
        time limit has passed, it closes all connections of this process.
        """
        own = self.communicator
        end = time.monotonic() + own.timeout - own.grace
        while self.works:
            peer, _, does, work = self.works[0]
            try:
                work.wait(timedelta(seconds=max(end - time.monotonic(), 0.001)))
            except RuntimeError as error:
                raise own._lost(peer, does, error, self.step) from error
            del self.works[0]


def tensor_of(array: Array) -> Any:
    """The bytes of a contiguous array as a tensor of uint8 that shares its memory.

    The one place where tensors are made from arrays: for a backend that moves those of a GPU alone (NCCL), arrays of
    that GPU are taken here as they are, and those of the host would be copied, and back once received.
    """
    each = bytes_of(array)
    if not each.flags.writeable:  # PyTorch has no such tensors, and warns; what is sent is only read
        each = np.ctypeslib.as_array((ctypes.c_uint8 * each.size).from_address(each.ctypes.data))
    return torch.from_numpy(each)


def _line(error: BaseException) -> str:
    """What PyTorch says, without the line of its source, and advice."""
    return re.sub(r"^\[\S*\] ", "", str(error)).split("\n")[0].split(". ")[0]
