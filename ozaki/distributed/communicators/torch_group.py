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

from ozaki.distributed.communicators.communicator import Exchange, Message, NDArray, ProcessError
from ozaki.distributed.communicators.direct import Direct, bytes_of

_TAG = 28538
"""The tag of messages, so that the caller's own (tag 0, if none is named) are others."""


class TorchGroup(Direct):
    """The processes of a process group whose backend moves tensors of the CPU, as gloo does, and of GPUs, as NCCL does.

    Without NCCL arrays on GPUs go through memory of the host. Ranks are those within the group. The time limit of the
    group itself, of half an hour as a rule, does not count.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup
    timeout : seconds to wait for another process, at most

    Raises
    ------
    ValueError
        If the group moves no tensors of the CPU.
    """

    def __init__(self, group: Any, timeout: float = 60.0) -> None:
        super().__init__(dist.get_rank(group), dist.get_world_size(group), timeout)
        _check_moves_host_memory(group)
        self._group = group
        self._ranks: list[int] = dist.get_process_group_ranks(group)
        self._reducing = [group]
        """Groups of this process: a sum over one after the other is that of all processes."""

    def _start(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> _Works:
        """As `Direct._start`."""
        works: list[_Work] = []
        for messages, does, begin in ((receives, "sends", dist.irecv), (sends, "receives", dist.isend)):
            for peer, array in messages:
                try:
                    work = begin(tensor_of(array), self._ranks[peer], self._group, _TAG)
                    works.append(_Work(peer, array, does, work))
                except RuntimeError as error:
                    raise self._lost(peer, does, error, step) from error
        return _Works(self, works, step)

    def _start_on_gpu(self, sends: Sequence[Message], receives: Sequence[Message], step: str) -> Exchange:
        """As `Direct._start_on_gpu`; by NCCL all together, since one by one they would wait in its one queue."""
        if "cuda:nccl" not in dist.get_backend_config(self._group):
            return super()._start_on_gpu(sends, receives, step)
        first: Any = (*sends, *receives)[0].array
        torch.cuda.set_device(int(first.data.device_id))
        operations, about = [], []
        for messages, does, begin in ((receives, "sends", dist.irecv), (sends, "receives", dist.isend)):
            for peer, array in messages:
                tensor = torch.from_dlpack(array.view("uint8").reshape(-1))
                operations.append(dist.P2POp(begin, tensor, self._ranks[peer], self._group))
                about.append((peer, array, does))
        try:
            found = dist.batch_isend_irecv(operations)
        except RuntimeError as error:
            raise self._lost(about[0][0], about[0][2], error, step) from error
        # NCCL returns one work for all of them, whose arrays have to live as long.
        works = [_Work(*each, work) for each, work in zip(about, found, strict=False)]
        return _WorksOnGpu(self, works, step, [array for _, array, _ in about])

    def _reduce(self, x: NDArray, how: Literal["max", "sum"], step: str) -> None:
        operation = dist.ReduceOp.MAX if how == "max" else dist.ReduceOp.SUM
        tensor = tensor_of(x).view(getattr(torch, x.dtype.name))
        for group in self._reducing:
            if dist.get_world_size(group) == 1:
                continue
            try:
                work = dist.all_reduce(tensor, operation, group, async_op=True)
                work.wait(timedelta(seconds=self.timeout - self.grace))
            except RuntimeError as error:
                lost = self._lost(self._closed(group), "reduces", error, step)
                self._close(group)
                raise lost from error

    def fail(self, error: BaseException) -> None:
        """As `Communicator.fail`: those that wait for this process do so in gloo, and only there find out."""
        super().fail(error)
        for group in {self._group, *self._reducing}:
            self._close(group)

    def _close(self, group: Any) -> None:
        """Close all connections, as gloo does when a message is late: else it works on, and this process cannot end."""
        others = [rank for rank in dist.get_process_group_ranks(group) if rank != self._ranks[self.rank]]
        for other in others[:1]:
            with contextlib.suppress(RuntimeError):
                dist.irecv(torch.zeros(1, dtype=torch.uint8), other, group, _TAG + 1).wait(timedelta(milliseconds=1))

    def _closed(self, group: Any) -> int:
        """The first process to which the connection is closed, so that a message to it fails at once; else this one."""
        for peer in dist.get_process_group_ranks(group):
            if peer != self._ranks[self.rank]:
                try:
                    dist.isend(torch.zeros(1, dtype=torch.uint8), peer, group, _TAG + 1)
                except RuntimeError:
                    return self._ranks.index(peer)
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
                store.set(f"ozaki/waits/{self._ranks[self.rank]}", str(self._ranks[peer]))
                time.sleep(self.grace)
                for rank, name in enumerate(self._ranks):
                    if store.check([key := f"ozaki/waits/{name}"]) and (waits := int(store.get(key))) in self._ranks:
                        found[rank] = self._ranks.index(waits)
            except (AttributeError, RuntimeError):  # an older PyTorch, or the store has ended with its process
                pass

        # The store has a time limit of its own, of some minutes, where the process that holds it does not answer.
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(2 * self.grace)
        return dict(found)


class MeshProcesses(TorchGroup):
    """The processes of a `DeviceMesh`, of any number of dimensions, in the order of its elements.

    A mesh has a group for each line of processes along a dimension, and none of all its processes. So sums go over one
    dimension after the other, and messages between two processes through the default group, in which all of them are:
    nothing is made that would have to be kept, or that processes outside of the mesh would have to take part in.

    Parameters
    ----------
    mesh : torch.distributed.device_mesh.DeviceMesh, in which this process is
    timeout : seconds to wait for another process, at most
    """

    def __init__(self, mesh: Any, timeout: float = 60.0) -> None:
        ranks = mesh.mesh.flatten().tolist()
        Direct.__init__(self, ranks.index(dist.get_rank()), len(ranks), timeout)
        _check_moves_host_memory(dist.group.WORLD)
        self._group, self._ranks = dist.group.WORLD, ranks
        self._reducing = mesh.get_all_groups()


def _check_moves_host_memory(group: Any) -> None:
    backends = dist.get_backend_config(group)
    if "cpu:" not in backends:
        raise ValueError(
            f"communicator: a process group of {backends} moves nothing of the host; make it by "
            'init_process_group("cpu:gloo,cuda:nccl")'
        )


class _Work(NamedTuple):
    """A message on its way: the other process, the array, which is to live as long, and what that process is to do."""

    peer: int
    array: NDArray
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


_ON_THEIR_WAY: set[_WorksOnGpu] = set()
"""Messages that nobody has waited for yet, after an error for ever: NCCL reads and writes their arrays all the same."""


class _WorksOnGpu(_Works):
    """The messages that NCCL works on, with all their arrays, which PyTorch does not keep."""

    def __init__(self, communicator: TorchGroup, works: list[_Work], step: str, arrays: list[NDArray]) -> None:
        super().__init__(communicator, works, step)
        self._arrays = arrays
        _ON_THEIR_WAY.add(self)

    def wait(self) -> None:
        """As `Exchange.wait`."""
        super().wait()
        torch.cuda.current_stream().synchronize()  # so far PyTorch's stream alone waits
        _ON_THEIR_WAY.discard(self)


def tensor_of(array: NDArray) -> Any:
    """The bytes of a contiguous array as a tensor of uint8 that shares its memory."""
    each = bytes_of(array)
    if not each.flags.writeable:  # PyTorch has no such tensors, and warns; what is sent is only read
        each = np.ctypeslib.as_array((ctypes.c_uint8 * each.size).from_address(each.ctypes.data))
    return torch.from_numpy(each)


def _line(error: BaseException) -> str:
    """What PyTorch says, without the line of its source, and advice."""
    return re.sub(r"^\[\S*\] ", "", str(error)).split("\n")[0].split(". ")[0]
