"""Blocks of matrices on their way to a device and from it: from the host, or from another device, by copy engines.

Copies run on streams of their own, beside the products. Between devices nothing passes through the host where they have
peer access.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import cupy as cp

from ozaki.backends.cupy.program.streams import IDLE, using
from ozaki.backends.cupy.staging import Staging

At = tuple[slice, slice]

LEAVING = 2
"""Blocks on their way to memory of the host, at most, when another one is to follow."""

_Reads = list[tuple[Any, ...]]
"""Events, each with the arrays that are read until then."""

Events = Sequence[Any]
"""After all of which memory may be read: events of CUDA, or futures of such, of what a thread has yet to begin."""


class Arriving(NamedTuple):
    """A block that arrives on a device.

    Attributes
    ----------
    array : the block, of CuPy, on the device
    events : after which it is there
    """

    array: Any
    events: Events

    def ready(self) -> Any:
        """The block, for work on the current stream, which waits for it."""
        _wait(cp.cuda.get_current_stream().ptr, self.events)
        return self.array


class Mover:
    """Moves blocks to and from one device, for one thread, whose current device that is.

    Attributes
    ----------
    device : its number
    products : the stream on which products run
    moved : bytes that came from elsewhere or went there, so far
    """

    def __init__(self, device: int) -> None:
        self.device, self.moved = device, 0
        self._streams = IDLE.take(device, 3)
        self.products, self._copies, self._sends = self._streams
        self._elsewhere: dict[int, Any] = {}  # a stream on each other device
        self._staging = Staging(device)
        self._leaving: list[list[Future[None]]] = []
        """Of blocks on their way to memory of the host."""
        self._brought: _Reads = []
        self._sent: _Reads = []

    # To the device ----------------------------------------------------------------------------------------------------

    def bring(self, x: Any, at: At, given: Events) -> Arriving:
        """Begin to bring a block of a matrix to the device.

        Parameters
        ----------
        x : array of NumPy, or of CuPy on any device
        at : rows and columns
        given : events on the device of x after which its elements may be read; none of NumPy
        """
        block = x[at]
        if _on_host(x):
            return self._from_host(block)
        if _device_of(x) == self.device:
            return Arriving(block, given)
        return self._from_peer(block, given)

    def _from_host(self, block: Any) -> Arriving:
        turned = block.strides[0] < block.strides[1]
        straight = block.T if turned else block
        with using(self._copies.ptr):
            array = cp.empty(straight.shape, straight.dtype)
        events = self._staging.bring(straight, array, _recorded(self._copies.ptr))
        self.moved += straight.nbytes
        return Arriving(array.T if turned else array, events)

    def _from_peer(self, block: Any, given: Events) -> Arriving:
        turned = block.strides[0] < block.strides[1]
        straight = block.T if turned else block
        packed = None if self._by_copy_engine(straight) else self._packed(straight, given)
        source, events = (straight, given) if packed is None else packed
        _wait(self._copies.ptr, events)
        with using(self._copies.ptr):
            array = cp.empty(straight.shape, straight.dtype)
        _copy_rows(array, source, self._copies.ptr)
        self.moved += straight.nbytes
        event = _recorded(self._copies.ptr)
        self._keep(self._brought, event, source)  # the device that lent it may need memory, and forget it
        return Arriving(array.T if turned else array, [event])

    def _packed(self, block: Any, given: Events) -> tuple[Any, Events]:
        """A block of another device as a contiguous one there, which that device makes after the products it has."""
        source = _device_of(block)
        stream = self._stream_of(source)
        with cp.cuda.Device(source), using(stream.ptr):
            _wait(stream.ptr, given)
            return cp.ascontiguousarray(block), [_recorded(stream.ptr)]

    def free_after_products(self) -> None:
        """Let later copies wait for all that the products stream was given: they may use memory that this reads."""
        _wait(self._copies.ptr, [_recorded(self.products.ptr)])

    # From the device --------------------------------------------------------------------------------------------------

    def write_after(self, events: Events) -> None:
        """Let the products stream, and so all that is sent later, wait for events: `out` may be in use until then."""
        _wait(self.products.ptr, events)

    def send(self, block: Any, out: Any, at: At) -> None:
        """Write a block, C-contiguous, which the products stream computes, into a matrix; `finish` waits for it.

        `out` is of NumPy, or of CuPy on any device.
        """
        target = out[at]
        if _on_host(out):
            self._write(LEAVING)
            self._leaving.append(self._staging.send(block, _recorded(self.products.ptr), target))
            self.moved += block.nbytes
        elif _device_of(out) == self.device:
            with using(self.products.ptr):
                target[...] = block
        else:
            self._to_peer(block, target)

    def _to_peer(self, block: Any, target: Any) -> None:
        done, kept = _recorded(self.products.ptr), [block]
        if self._by_copy_engine(target):
            _wait(self._sends.ptr, [done])
            _copy_rows(target, block, self._sends.ptr)
            event = _recorded(self._sends.ptr)
        else:
            there = _device_of(target)
            stream = self._stream_of(there)
            with cp.cuda.Device(there), using(stream.ptr):
                _wait(stream.ptr, [done])
                into = cp.empty(target.shape, target.dtype)
                _copy_rows(into, block, stream.ptr)
                target[...] = into
                event = _recorded(stream.ptr)
            kept.append(into)
        self.moved += block.nbytes
        self._keep(self._sent, event, *kept)

    def _write(self, left: int) -> None:
        """Wait for the first blocks that are on their way to memory of the host, until so many are left."""
        while len(self._leaving) > left:
            for piece in self._leaving.pop(0):
                piece.result()

    def finish(self) -> None:
        """Wait until all blocks have come, been computed, and been sent. No block is brought or sent after it."""
        try:
            self._wait_for_all()
        except BaseException:  # interrupted: nothing may write to `out` once the caller knows
            self._wait_for_all()
            raise
        IDLE.give_back(self.device, self._streams)

    def _wait_for_all(self) -> None:
        self._staging.close()
        for stream in self._streams:
            stream.synchronize()
        self._release(self._brought, 0)
        self._release(self._sent, 0)
        self._write(0)

    # Memory and streams -----------------------------------------------------------------------------------------------

    def _by_copy_engine(self, x: Any) -> bool:
        """Whether copy engines move this matrix of another device: they leave its multiprocessors to products."""
        self._stream_of(_device_of(x))
        if x.flags.c_contiguous:
            return True
        whole_rows = x.strides[1] == x.itemsize and x.strides[0] >= x.shape[1] * x.itemsize
        return whole_rows and bool(cp.cuda.runtime.deviceCanAccessPeer(self.device, _device_of(x)))

    def _stream_of(self, other: int) -> Any:
        """The stream of this mover on another device, which each of the two may read."""
        if other not in self._elsewhere:
            reach(self.device, other)
            with cp.cuda.Device(other):
                reach(other, self.device)
                self._elsewhere[other] = cp.cuda.Stream(non_blocking=True)
        return self._elsewhere[other]

    def _keep(self, reads: _Reads, event: Any, *arrays: Any) -> None:
        """Keep arrays that copies read until an event, and wait for the copies before the last few."""
        reads.append((event, *arrays))
        self._release(reads, 2)

    def _release(self, reads: _Reads, left: int) -> None:
        """Wait for the first copies until so many are left, and only then free what they read."""
        while len(reads) > left:
            reads[0][0].synchronize()
            del reads[0]


def reach(device: int, other: int) -> None:
    """Let a device, the current one, read another's memory by itself, if it is able to."""
    runtime = cp.cuda.runtime
    if runtime.deviceCanAccessPeer(device, other):
        try:
            runtime.deviceEnablePeerAccess(other)
        except runtime.CUDARuntimeError as error:  # already
            if "PeerAccessAlreadyEnabled" not in str(error):
                raise


def copy_between(source: Any, target: Any) -> None:
    """Copy a contiguous array into another one of its shape, on any device, and wait for it; both are idle."""
    here, there = _device_of(source), _device_of(target)
    with cp.cuda.Device(there):
        stream = cp.cuda.Stream(non_blocking=True)
        _copy_peer(target.data.ptr, there, source.data.ptr, here, target.nbytes, stream.ptr)
        stream.synchronize()


def given_events(x: Any) -> Events:
    """Events after which a CuPy array has what its device's current stream was given so far; none of NumPy."""
    if _on_host(x):
        return []
    with cp.cuda.Device(_device_of(x)):
        return [_recorded(cp.cuda.get_current_stream().ptr)]


def free_bytes() -> int:
    """Bytes that the current device has left, with those that CuPy's pool keeps for later arrays."""
    free: int = cp.cuda.runtime.memGetInfo()[0]
    return free + int(cp.get_default_memory_pool().free_bytes())


def empty(shape: tuple[int, int], dtype: str, device: int) -> Any:
    """A new array on a device, its elements undefined."""
    with cp.cuda.Device(device):
        return cp.empty(shape, dtype)


OutOfMemoryError = cp.cuda.memory.OutOfMemoryError


def release_unused() -> None:
    """Give memory that CuPy keeps for later arrays back to the current device."""
    cp.get_default_memory_pool().free_all_blocks()


def _on_host(x: Any) -> bool:
    return not isinstance(x, cp.ndarray)


def _device_of(x: Any) -> int:
    return int(x.data.device_id)


def _recorded(stream: int) -> Any:
    event = cp.cuda.Event(disable_timing=True)
    cp.cuda.runtime.eventRecord(event.ptr, stream)
    return event


def _wait(stream: int, events: Events) -> None:
    """Let a stream wait for events; this thread waits for those that are not recorded yet."""
    for each in events:
        event = each.result() if isinstance(each, Future) else each
        cp.cuda.runtime.streamWaitEvent(stream, event.ptr)


def _copy_rows(to: Any, source: Any, stream: int) -> None:
    """Copy a matrix into another one of its shape on another device; elements of a row follow one another in both."""
    if to.flags.c_contiguous and source.flags.c_contiguous:
        _copy_peer(to.data.ptr, _device_of(to), source.data.ptr, _device_of(source), to.nbytes, stream)
    elif to.nbytes:
        runtime, (rows, width) = cp.cuda.runtime, (to.shape[0], to.shape[1] * to.itemsize)
        places = to.data.ptr, to.strides[0], source.data.ptr, source.strides[0]
        runtime.memcpy2DAsync(*places, width, rows, runtime.memcpyDefault, stream)


def _copy_peer(to: int, there: int, source: int, here: int, nbytes: int, stream: int) -> None:
    if nbytes:
        cp.cuda.runtime.memcpyPeerAsync(to, there, source, here, nbytes, stream)
