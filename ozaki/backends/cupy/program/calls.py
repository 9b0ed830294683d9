"""Steps as calls of the CUDA runtime, of cuBLAS and of kernels, which the host makes quickly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from ctypes import addressof, c_uint64, c_void_p, memset
from functools import partial
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from cupy.cuda import cublas, get_current_stream, runtime

from ozaki.backends.cupy.program import compiling, driver
from ozaki.backends.cupy.program.arrays import Array, Buffer, Place
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.steps import (
    STREAMS,
    Arrive,
    Clear,
    ClearHost,
    CopyToHost,
    Fork,
    Gemm,
    Launch,
    Step,
    Upload,
)
from ozaki.backends.cupy.program.streams import using
from ozaki.caches import cached
from ozaki.locks import Lock


class Block(NamedTuple):
    """An argument block: the arguments of a kernel in memory, for one launch at a time.

    Attributes
    ----------
    pieces : the arguments, as in `Kernel.pieces`; the addresses among them are written before a launch
    start : launches the kernel on the stream whose address it is given
    """

    pieces: Any
    start: Callable[[int], object]


Idle = deque[Block]
"""Argument blocks of a kernel on a device that no launch uses."""

_MOST_IDLE = 8
"""The most blocks that a kernel has there: as many threads as launch it at a time find one."""


@cached(4096)
def idle_blocks(kernel: Kernel, device: int) -> Idle:
    """Those of a kernel on a device."""
    return deque(maxlen=_MOST_IDLE)


def idle_block(kernel: Kernel, device: int) -> tuple[Idle, Block]:
    """An argument block from the kernel's pool of free ones, which is returned, too: it is to get the block back.

    Makes one if there is none.
    """
    idle = idle_blocks(kernel, device)
    try:
        return idle, idle.pop()
    except IndexError:
        return idle, block_of(kernel)


def block_of(kernel: Kernel) -> Block:
    """A new argument block; compiles the kernel for the current device if that was not done before."""
    call = loaded(kernel)
    pieces = (c_uint64 * len(kernel.pieces))(*kernel.pieces)
    begin = addressof(pieces)
    addresses = (c_void_p * len(kernel.starts))(*[begin + 8 * start for start in kernel.starts])
    start = driver.launcher(call.kernel, kernel.grid, kernel.block, kernel.shared_mem, addresses)
    return Block(pieces, start)


def loaded(kernel: Kernel) -> Any:
    """The kernel on the current device; its limit of dynamic shared memory is raised to what this launch needs."""
    call = compiling.kernel(kernel.file, kernel.function, **kernel.macros)
    if kernel.shared_mem:
        with _allowing.held:
            if call.max_dynamic_shared_size_bytes < kernel.shared_mem:
                call.max_dynamic_shared_size_bytes = kernel.shared_mem
    return call


_allowing = Lock()
"""Held while the limit of shared memory is raised, so that no thread lowers what another one has set."""


class Call(NamedTuple):
    """A call that the host makes for a step, with all arguments but addresses.

    Attributes
    ----------
    start : makes the call, on the stream whose address it is given
    stream : index of the call's stream in `STREAMS`
    pieces : mutable sequence of arguments, which `start` reads; the caller writes the addresses into it first
    places : (i, place) for each address: `pieces[i]` is to be the address of `place`
    """

    start: Callable[[int], object]
    stream: int
    pieces: Any
    places: tuple[tuple[int, Place], ...]

    def touches(self, *buffers: Buffer) -> bool:
        """Whether one of these buffers is among the addresses."""
        return any(place.buffer in buffers for _, place in self.places)


def calls_of(steps: Iterable[Step], device: int) -> tuple[list[Call], dict[Step, Any], list[tuple[Idle, Block]]]:
    """The calls that start all steps, in order.

    Returns
    -------
    The calls; the event that each `Fork` and `Arrive` records; and the argument blocks that are taken, each with the
    pool that is to get it back.
    """
    calls: list[Call] = []
    events: dict[Step, Any] = {}
    taken: list[tuple[Idle, Block]] = []
    for step in steps:
        stream = STREAMS.index(step.stream)
        if isinstance(step, Launch):
            taken.append(idle_block(step.kernel, device))
            pieces, start = taken[-1][1]
            calls.append(Call(start, stream, pieces, tuple(zip(step.kernel.addresses, step.places, strict=True))))
        elif isinstance(step, Fork):
            event = events[step] = cp.cuda.Event(disable_timing=True)
            calls.append(Call(partial(_record, event.ptr), STREAMS.index(step.after), None, ()))
            calls.append(Call(partial(_wait_for, event.ptr), stream, None, ()))
        elif isinstance(step, Arrive):
            event = events[step] = cp.cuda.Event(disable_timing=True)
            calls.append(Call(partial(_record, event.ptr), stream, None, ()))
        else:
            calls.append(_call_of(step, stream))
    return calls, events, taken


def _record(event: int, stream: int) -> None:
    runtime.eventRecord(event, stream)


def _wait_for(event: int, stream: int) -> None:
    runtime.streamWaitEvent(stream, event)


def _call_of(step: Step, stream: int) -> Call:
    """The call of a step that neither launches a kernel nor orders streams."""
    pieces = [0, 0, 0]
    places: tuple[Place, ...]
    start: Callable[[int], object]
    if isinstance(step, Gemm):
        places, start = (step.a, step.b, step.c), _gemm(step, pieces)
    elif isinstance(step, Clear):
        size = step.nbytes
        places, start = (step.place,), lambda of: runtime.memsetAsync(pieces[0], 0, size, of)
    elif isinstance(step, ClearHost):
        size = step.nbytes
        places, start = (step.place,), lambda _: memset(pieces[0], 0, size)
    elif isinstance(step, CopyToHost):
        size, kind = step.nbytes, runtime.memcpyDeviceToHost
        places = step.target, step.source
        start = partial(_copy, pieces, size, kind)
    elif isinstance(step, Upload):
        data, kind = np.frombuffer(step.data, np.uint8), runtime.memcpyHostToDevice
        places, start = (step.target,), lambda of: runtime.memcpyAsync(pieces[0], data.ctypes.data, len(data), kind, of)
    else:
        raise TypeError(step)
    return Call(start, stream, pieces, tuple(enumerate(places)))


def _copy(pieces: list[int], nbytes: int, kind: int, stream: int) -> None:
    """Copy `nbytes` bytes from the address pieces[1] to the address pieces[0]."""
    runtime.memcpyAsync(pieces[0], pieces[1], nbytes, kind, stream)


@cached(8)
def _factor(char: str, value: int) -> Any:
    """An array of one entry, 1 or 0: cuBLAS takes its factors alpha and beta by address."""
    return np.full(1, value, char)


def _gemm(step: Gemm, pieces: list[int]) -> Callable[[int], None]:
    """A function that calls cuBLAS for the product, with the addresses of A, B and C in `pieces`.

    cuBLAS is column-major, so it is asked for C^T = B^T A^T.
    """
    types, count = step.types, step.count
    one, zero = (_factor(types.product_char, value).ctypes.data for value in (1, 0))
    ops = tuple(cublas.CUBLAS_OP_T if turned else cublas.CUBLAS_OP_N for turned in reversed(step.transposed))
    sizes = step.n, step.m, step.k
    lda, ldb, ldc, (step_a, step_b, step_c) = step.lda, step.ldb, step.ldc, step.steps

    def call(handle: int) -> None:
        a, b, c = pieces
        if count == 1:
            cublas.gemmEx(
                handle, *ops, *sizes, one, b, types.operands, ldb, a, types.operands, lda, zero, c, types.products,
                ldc, types.compute, _DEFAULT,
            )  # fmt: skip
        else:
            cublas.gemmStridedBatchedEx(
                handle, *ops, *sizes, one, b, types.operands, ldb, step_b, a, types.operands, lda, step_a, zero, c,
                types.products, ldc, step_c, count, types.compute, _DEFAULT,
            )  # fmt: skip

    def start(stream: int) -> None:
        # CuPy runs cuBLAS on its current stream, whatever stream the handle has.
        other_stream = stream != get_current_stream().ptr
        with using(stream) if other_stream else nullcontext():
            call(cp.cuda.device.get_cublas_handle())

    return start


_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT


def on_host(pinned: Any, begin: int, array: Array) -> Any:
    """The real array of `array`, whose buffer begins `begin` bytes into the pinned host memory `pinned`."""
    return np.frombuffer(pinned, array.dtype.char, array.size, begin + array.offset).reshape(array.shape)
