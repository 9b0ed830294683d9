"""Programs run: bound to memory and started, whole ones for repeated calls, parts of one in a first call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import memset
from functools import cache, partial
from threading import local
from typing import Any, NamedTuple, Self

import cupy as cp
import numpy as np
from cupy.cuda import cublas, get_current_stream, runtime

from ozaki.backends.cupy.program import launches
from ozaki.backends.cupy.program.arrays import Array, Buffer, Place
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
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


class _Bound(NamedTuple):
    """A step in a form that the host starts quickly.

    Attributes
    ----------
    start : starts it on the stream with that address
    stream : the number of its stream in `STREAMS`
    pieces : its arguments, which `start` reads
    places : which of the pieces are which addresses
    """

    start: Callable[[int], object]
    stream: int
    pieces: Any
    places: tuple[tuple[int, Place], ...]


def _bound(step: Step, events: dict[Step, Any], block: Callable[[Kernel], launches.Block]) -> list[_Bound]:
    """What the host does for a step."""
    stream = STREAMS.index(step.stream)
    if isinstance(step, Launch):
        pieces, start = block(step.kernel)
        return [_Bound(start, stream, pieces, tuple(zip(step.kernel.addresses, step.places, strict=True)))]
    if isinstance(step, Fork):
        event = events[step] = cp.cuda.Event(disable_timing=True)
        at, after = event.ptr, STREAMS.index(step.after)
        return [
            _Bound(lambda of: runtime.eventRecord(at, of), after, None, ()),
            _Bound(lambda of: runtime.streamWaitEvent(of, at), stream, None, ()),
        ]
    if isinstance(step, Arrive):
        event = events[step] = cp.cuda.Event(disable_timing=True)
        at = event.ptr
        return [_Bound(lambda of: runtime.eventRecord(at, of), stream, None, ())]
    pieces = [0, 0, 0]
    places: tuple[Place, ...]
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
    return [_Bound(start, stream, pieces, tuple(enumerate(places)))]


def _copy(pieces: list[int], nbytes: int, kind: int, stream: int) -> None:
    """From the place that is the second piece to the first."""
    runtime.memcpyAsync(pieces[0], pieces[1], nbytes, kind, stream)


@cache
def _factor(char: str, value: int) -> Any:
    """One or zero in memory, for cuBLAS."""
    return np.full(1, value, char)


def _gemm(step: Gemm, pieces: list[int]) -> Callable[[int], None]:
    """A call of cuBLAS, which is column-major, and so multiplies the transposes: C^T = B^T A^T."""
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
        # CuPy runs cuBLAS on its current stream, whatever the handle has.
        others = stream != get_current_stream().ptr
        with _stream(stream) if others else nullcontext():
            call(cp.cuda.device.get_cublas_handle())

    return start


_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT


class _Address(NamedTuple):
    """The stream of an address, by the protocol of CUDA's streams."""

    ptr: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def _stream(address: int) -> AbstractContextManager[Any]:
    """CuPy's current stream is that one, meanwhile."""
    stream: AbstractContextManager[Any] = cp.cuda.Stream.from_external(_Address(address))
    return stream


class _Thread(local):
    """What a thread has of its own: whether it has a context, and by device the streams of proofs and answers."""

    has_context = False

    def __init__(self) -> None:
        self.streams: dict[int, tuple[Any, Any]] = {}


_thread = _Thread()


def _streams(device: int | None) -> tuple[int, int, int]:
    """The addresses of `STREAMS`; of the second and third only with a device, made when first needed."""
    if not _thread.has_context:  # as a new thread, even with the number of one that has ended
        cp.cuda.Device().use()
        _thread.has_context = True
    main = get_current_stream().ptr
    if device is None:
        return main, 0, 0
    if device not in _thread.streams:
        proof, answers = (cp.cuda.Stream(non_blocking=True, priority=-1) for _ in range(2))
        _thread.streams[device] = proof, answers
    proof, answers = _thread.streams[device]
    return main, proof.ptr, answers.ptr


def _aside(program: Program) -> bool:
    return any(step.stream != "main" for step in program.steps)


# Whole programs -----------------------------------------------------------------------------------------------------


class Run:
    """A whole program bound to memory, for one call at a time.

    Attributes
    ----------
    result : the array of the result
    """

    def __init__(self, program: Program) -> None:
        self._program, self._device = program, runtime.getDevice()
        self._events: dict[Step, Any] = {}
        self._aside = _aside(program)
        offsets, self._nbytes = program.arena
        begins, pinned = {}, 0
        for buffer in program.buffers:
            if buffer.kind == "host":
                begins[buffer] = pinned
                pinned += -(-buffer.nbytes // 64) * 64
        self._pinned = cp.cuda.alloc_pinned_memory(pinned) if pinned else None
        numbers = {buffer: i for i, buffer in enumerate(program.given)}
        self._bases = [0] * len(numbers)
        # Of each step, where addresses of given arrays go; and of all steps, where addresses in the workspace do.
        steps: list[tuple[Callable[[int], object], int, Any, list[tuple[int, int, int]]]] = []
        self._in_workspace: list[tuple[Any, int, int]] = []
        for step in program.steps:
            for start, stream, pieces, places in _bound(step, self._events, launches.block_of):
                given = []
                for i, (buffer, offset) in places:
                    if buffer in numbers:
                        given.append((i, numbers[buffer], offset))
                    elif buffer in offsets:
                        self._in_workspace.append((pieces, i, offsets[buffer] + offset))
                    else:
                        assert self._pinned is not None
                        pieces[i] = self._pinned.ptr + begins[buffer] + offset
                steps.append((start, stream, pieces, given))
        last = len(numbers) - 1
        needing = (i for i, (*_, given) in enumerate(steps) if any(base == last for _, base, _ in given))
        first = next(needing, len(steps))
        self._before_result, self._rest = steps[:first], steps[first:]
        self._arrays = {
            step: _on_host(self._pinned, begins[step.array.buffer], step.array)
            for step in program.steps
            if isinstance(step, Arrive)
        }
        self._waited: set[Arrive] = set()
        self._found: dict[Evidence, Any] = {}
        self._address = 0
        self._memory: Any = None
        self.result: Any = None

    def start(self, arrays: Sequence[Any], result: Callable[[], Any]) -> bool:
        """Give all steps to the device, as `Program.start`; False if there is not enough memory."""
        streams, bases = _streams(self._device if self._aside else None), self._bases
        try:
            if self._nbytes:
                self._memory = memory = cp.cuda.alloc(self._nbytes)
                if memory.ptr != self._address:  # most often the pool gives the same memory as in the call before
                    self._address = address = memory.ptr
                    for pieces, i, offset in self._in_workspace:
                        pieces[i] = address + offset
            for i, array in enumerate(arrays):
                bases[i] = array.data.ptr
            _start(self._before_result, bases, streams)
            self.result = c = result()
            bases[-1] = c.data.ptr
            _start(self._rest, bases, streams)
        except cp.cuda.memory.OutOfMemoryError:
            cp.cuda.Device().synchronize()  # some steps may be under way
            self.close()
            return False
        return True

    def fact(self, key: Hashable) -> Any:
        """The fact of that name; waits for the steps that bring it to the host.

        Raises
        ------
        KeyError
            If the program brings none of that name.
        """
        reader = self._program.readers[key]
        return reader.value(*map(self._evidence, reader.evidence))

    def _evidence(self, evidence: Evidence) -> Any:
        if evidence not in self._found:
            self._wait(evidence.arrival)
            self._found[evidence] = evidence.of(self._arrays[evidence.arrival])
        return self._found[evidence]

    def _wait(self, arrival: Arrive) -> None:
        if arrival not in self._waited:
            self._events[arrival].synchronize()
            self._waited.add(arrival)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """Give the memory back: the streams beside the main one are through with it then, since all arrivals are."""
        for arrival in self._arrays:
            self._wait(arrival)
        self.close()

    def close(self) -> None:
        """Give the memory back when no stream but the main one can need it any more."""
        self._found.clear()
        self._waited.clear()
        self._memory = self.result = None
        self._program.idle.append(self)


def _start(steps: list[Any], bases: list[int], streams: tuple[int, int, int]) -> None:
    for start, stream, pieces, given in steps:
        for i, base, offset in given:
            pieces[i] = bases[base] + offset
        start(streams[stream])


def _on_host(pinned: Any, begin: int, array: Array) -> Any:
    """An array in memory of the host."""
    return np.frombuffer(pinned, array.char, array.size, begin + array.offset).reshape(array.shape)


# Parts of a program, in a first call --------------------------------------------------------------------------------


class FirstCall:
    """The memory of a product while its program is built and run part by part.

    Buffers are allocated for the first step that touches them, on its stream, and dropped when they are released. All
    that is to arrive on the host is waited for before this object, and its memory, goes.
    """

    def __init__(self) -> None:
        self._addresses: dict[Buffer, int] = {}
        self._held: dict[Buffer, Any] = {}
        self._events: dict[Step, Any] = {}
        self._awaited: dict[Step, None] = {}
        self._found: dict[Evidence, Any] = {}

    def __del__(self) -> None:
        self.settle()

    def bind(self, array: Array, real: Any) -> None:
        """A given array lies there."""
        self._addresses[array.buffer] = real.data.ptr
        self._held[array.buffer] = real

    def address(self, place: Place) -> int:
        """Where that is in memory."""
        return self._addresses[place.buffer] + place.offset

    def run(self, part: Program) -> None:
        """Give the steps of a part to the device."""
        device = runtime.getDevice()
        streams = _streams(device if _aside(part) else None)
        taken: list[tuple[list[launches.Block], launches.Block]] = []

        def block(kernel: Kernel) -> launches.Block:
            idle = kernel.loaded.setdefault(device, [])
            try:
                found: launches.Block = idle.pop()
            except IndexError:
                found = launches.block_of(kernel)
            taken.append((idle, found))
            return found

        releases, at = list(part.releases), 0
        for i, (step, touched) in enumerate(zip(part.steps, part.touched, strict=True)):
            at = self._drop(releases, at, i)
            # What overlaps the step before it has its memory from before that, so that it is none that was freed then.
            following = part.steps[i + 1] if i + 1 < len(part.steps) else None
            overlapping = part.touched[i + 1] if isinstance(following, Launch) and following.overlaps else ()
            for buffer in (*touched, *overlapping):
                if buffer not in self._addresses:
                    self._allocate(buffer, streams[STREAMS.index(step.stream)], streams[0])
            for start, stream, pieces, places in _bound(step, self._events, block):
                for number, place in places:
                    pieces[number] = self._addresses[place.buffer] + place.offset
                start(streams[stream])
            if isinstance(step, Arrive):
                self._awaited[step] = None
            while taken:
                idle, used = taken.pop()
                idle.append(used)
        self._drop(releases, at, len(part.steps))

    def _drop(self, releases: list[tuple[int, Buffer]], at: int, before: int) -> int:
        """Give back what is released after so many steps."""
        while at < len(releases) and releases[at][0] <= before:
            self._held.pop(releases[at][1], None)
            self._addresses.pop(releases[at][1], None)
            at += 1
        return at

    def _allocate(self, buffer: Buffer, stream: int, main: int) -> None:
        """Memory of CuPy's pool belongs to the stream that it was allocated on, and is used again in its order."""
        if buffer.kind == "given":
            return
        if buffer.kind == "host":
            memory = cp.cuda.alloc_pinned_memory(max(buffer.nbytes, 1))
        else:
            with nullcontext() if stream == main else _stream(stream):
                memory = cp.cuda.alloc(max(buffer.nbytes, 1))
        self._held[buffer], self._addresses[buffer] = memory, memory.ptr

    def array(self, array: Array) -> Any:
        """A real array of what lies there, which owns the memory from now on."""
        memory = self._held[array.buffer]
        assert array.contiguous
        return cp.ndarray(array.shape, array.char, memory + array.offset)

    def fact(self, reader: Reader) -> Any:
        """What a reader finds; waits for the steps that bring it to the host."""
        return reader.value(*map(self.evidence, reader.evidence))

    def evidence(self, evidence: Evidence) -> Any:
        """What comes of an array of the host; waits for it."""
        if evidence not in self._found:
            array = evidence.arrival.array
            self._wait(evidence.arrival)
            self._found[evidence] = evidence.of(_on_host(self._held[array.buffer], 0, array))
        return self._found[evidence]

    def settle(self) -> None:
        """Wait for all that is to arrive on the host: streams beside the main one are through with the memory then."""
        for arrival in [*self._awaited]:
            self._wait(arrival)

    def _wait(self, arrival: Step) -> None:
        if arrival in self._awaited:
            self._events[arrival].synchronize()
            del self._awaited[arrival]
