"""Runs of programs: the only place that allocates their memory, starts their steps and waits for them.

A `Run` is of one program. An `Execution` runs those of a call that is planned, one after the other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Self

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends.cupy.program import compiling
from ozaki.backends.cupy.program.arrays import Array, Buffer
from ozaki.backends.cupy.program.calls import calls_of, on_host
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
from ozaki.backends.cupy.program.steps import Arrive, Launch
from ozaki.backends.cupy.program.streams import addresses as addresses_of_streams
from ozaki.process.environment import default_environment
from ozaki.records.memory import Memory
from ozaki.records.progress import SILENT, Progress


class Run:
    """A program with argument blocks, events and pinned memory of its own, for one call at a time.

    `start`, then `fact`, then `end`, which makes it ready for another call.

    Attributes
    ----------
    room : what the program needs
    pinned_bytes : bytes of page-locked memory
    result : the array of the result, while a call uses the run that asked for it
    kept : the memory of each buffer that the program keeps, after `start`, which the caller takes
    """

    @default_environment  # a compiler folds constants in it
    def __init__(self, program: Program) -> None:
        self._program = weakref.ref(program)  # which has its idle runs, and so is freed as soon as nobody needs it
        self._keeps, self._readers = program.keeps, program.readers
        self.room, self._device = program.room, runtime.getDevice()
        compiling.compile_together([step.kernel for step in program.steps if isinstance(step, Launch)])
        offsets, begins, pinned = self.room.offsets, {}, 0
        for buffer in self.room.pinned:
            begins[buffer] = pinned
            pinned += -(-max(buffer.nbytes, 1) // 64) * 64
        self._pinned, self.pinned_bytes = cp.cuda.alloc_pinned_memory(pinned) if pinned else None, pinned
        numbers = {buffer: i for i, buffer in enumerate((*program.given, *program.inputs, *program.keeps))}
        # The addresses of these buffers and, last, of the workspace, as the arguments of calls have them by now; and
        # the places of each, (pieces, i, offset): pieces[i] is `offset` bytes further on.
        self._addresses = [_UNKNOWN] * (len(numbers) + 1)
        self._places: list[list[tuple[Any, int, int]]] = [[] for _ in self._addresses]
        calls, self._events, self._taken = calls_of(program.steps, self._device)
        for *_, pieces, places in calls:
            for i, (buffer, offset) in places:
                if buffer in numbers:
                    self._places[numbers[buffer]].append((pieces, i, offset))
                elif buffer in offsets:
                    self._places[-1].append((pieces, i, offsets[buffer] + offset))
                else:
                    assert self._pinned is not None
                    pieces[i] = self._pinned.ptr + begins[buffer] + offset
        starts = [(call.start, call.stream) for call in calls]
        self._result = len(program.given) - 1
        result = program.given[-1:]
        first = next((i for i, call in enumerate(calls) if call.touches(*result)), len(calls))
        self._before_result, self._rest = starts[:first], starts[first:]
        self._arrays = {
            step: on_host(self._pinned, begins[step.array.buffer], step.array)
            for step in program.steps
            if isinstance(step, Arrive)
        }
        self._waited: set[Arrive] = set()
        self._found: dict[Evidence, Any] = {}
        self._memory: Any = None
        self.kept: dict[Buffer, Any] = {}
        self.result: Any = None

    def start(
        self,
        addresses: Iterable[int],
        result: tuple[Any, int] | Callable[[], tuple[Any, int]] | None = None,
        progress: Progress = SILENT,
    ) -> Self | None:
        """Start all steps, on CuPy's current stream and, for proofs, two more.

        Parameters
        ----------
        addresses : of the given arrays, then of the inputs, in the order of `Program.given` and `Program.inputs`; they
            lie on the current device, with the dtypes, shapes and strides that were given to the builder, and the
            caller keeps them alive until the run ends
        result : the array of the result, the last of `given`, and its address, which is then not among the others; or a
            function that returns both: it is called once all steps before the first that touches it have been started,
            so that the host allocates it while the device works
        progress : is told of each call

        Returns
        -------
        The run itself. None if memory does not suffice.

        Then, and if an error is raised, the device has completed whatever was started, and the run is closed.
        """
        room, known = self.room, self._addresses
        streams = addresses_of_streams(self._device if room.aside else None)
        try:
            if room.nbytes:
                self._memory = memory = cp.cuda.alloc(room.nbytes)
                if known[-1] != memory.ptr:  # most often the pool returns the same memory as for the last call
                    self._bind(-1, memory.ptr)
            for number, address in enumerate(addresses):
                if known[number] != address:
                    self._bind(number, address)
            if self._keeps:
                for number, buffer in enumerate(self._keeps, len(known) - 1 - len(self._keeps)):
                    self.kept[buffer] = kept = cp.cuda.alloc(max(buffer.nbytes, 1))
                    self._bind(number, kept.ptr)
            if not progress.silent:
                self._start_counted(streams, progress)
                return self
            for start, stream in self._before_result:
                start(streams[stream])
            if result is not None:
                self.result, address = result if isinstance(result, tuple) else result()
                if known[self._result] != address:
                    self._bind(self._result, address)
            for start, stream in self._rest:
                start(streams[stream])
        except cp.cuda.memory.OutOfMemoryError:
            self._give_up()
            return None
        except BaseException:  # of `progress`, or an interrupt
            self._give_up()
            raise
        return self

    def _give_up(self) -> None:
        """Wait for whatever was started, and close: other streams may use memory that is given back."""
        cp.cuda.Device().synchronize()
        self._addresses = [_UNKNOWN] * len(self._addresses)  # not all arguments may have the last ones
        self._close()

    def _bind(self, number: int, address: int) -> None:
        """Write the address of a buffer, by its number, into the arguments of calls."""
        for pieces, i, offset in self._places[number]:
            pieces[i] = address + offset
        self._addresses[number] = address

    @property
    def program(self) -> Program | None:
        """As given; None once nobody else needs it."""
        return self._program()

    def _start_counted(self, streams: tuple[int, int, int], progress: Progress) -> None:
        """Start all steps one by one, and tell `progress` of each."""
        calls = [*self._before_result, *self._rest]
        progress.begin(len(calls), "launches")
        for start, stream in calls:
            start(streams[stream])
            progress.step()

    def fact(self, key: Hashable) -> Any:
        """The fact of that name; waits for the arrays that it is computed from.

        Raises
        ------
        KeyError
            If the program has no reader of it.
        """
        reader = self._readers[key]
        return reader.value(*map(self.evidence, reader.evidence))

    def brings(self, evidence: Evidence) -> bool:
        """Whether the array of this evidence arrives by this run."""
        return evidence.arrival in self._arrays

    def evidence(self, evidence: Evidence) -> Any:
        """The value of evidence, computed once; waits for its array to arrive on the host."""
        if evidence not in self._found:
            self._wait(evidence.arrival)
            self._found[evidence] = evidence.of(self._arrays[evidence.arrival])
        return self._found[evidence]

    def _wait(self, arrival: Arrive) -> None:
        if arrival not in self._waited:
            self._events[arrival].synchronize()
            self._waited.add(arrival)

    def finish(self) -> None:
        """Wait for all arrivals on the host, and free the device memory, but for what the program keeps.

        No stream but the main one then uses the memory: whatever another stream does ends in an arrival. Evidence can
        still be read.
        """
        for arrival in self._arrays:
            self._wait(arrival)
        self._memory = None

    def end(self) -> None:
        """Finish, and give the run back to `idle`; no stream but the main one uses its memory then."""
        if self._arrays:
            try:
                self.finish()
            except BaseException:  # an interrupt
                self._give_up()
                raise
        self._close()

    def _close(self) -> None:
        """Give the memory back to the pool, and the run to `idle`; no stream but the main one may still use it."""
        if self._waited:
            self._found.clear()
            self._waited.clear()
        self.kept = {}
        self._memory = self.result = None
        program = self._program()
        if program is not None:  # else it was dropped while this call ran
            program.idle.append(self)

    def dissolve(self) -> None:
        """Give the argument blocks back to the pools of their kernels, in place of `end`: the run is used no more."""
        while self._taken:
            idle, block = self._taken.pop()
            idle.append(block)


_UNKNOWN = -1
"""Stands for an address that no argument has."""


class Execution:
    """Runs the programs of one call; holds the arrays of the caller and what programs keep for later ones.

    Parameters
    ----------
    memory : the account in which workspace is counted; None counts nothing
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory
        self._addresses: dict[Buffer, int] = {}
        self._alive: dict[Buffer, Any] = {}
        self._runs: list[Run] = []
        self._open: list[Run] = []

    def __del__(self) -> None:
        self.finish()
        for run in self._runs:
            run.dissolve()

    def bind(self, buffers: Iterable[Buffer], arrays: Iterable[Any]) -> None:
        """Let given buffers stand for real arrays, which are kept alive."""
        for buffer, real in zip(buffers, arrays, strict=True):
            self._addresses[buffer] = real.data.ptr
            self._alive[buffer] = real

    def unbind(self, buffers: Iterable[Buffer]) -> None:
        """Let go of the real arrays that given buffers stand for; no later program may touch them."""
        for buffer in buffers:
            del self._addresses[buffer], self._alive[buffer]

    def address(self, buffer: Buffer) -> int:
        """The address in memory of a buffer that is bound or kept."""
        return self._addresses[buffer]

    def run(self, program: Program, progress: Progress = SILENT) -> None:
        """Start all steps of a program; waits for the facts of those before, not for its own.

        Raises
        ------
        ValueError
            If the limit leaves too little for its workspace; nothing is allocated then.
        cupy.cuda.memory.OutOfMemoryError
            If the device has too little.
        """
        self.finish()
        room = program.room
        if self._memory is not None and room.workspace:
            self._memory.hold(room.workspace)
        run = program.run()
        addresses = [self._addresses[buffer] for buffer in (*program.given, *program.inputs)]
        if run.start(addresses, progress=progress) is None:
            raise cp.cuda.memory.OutOfMemoryError(room.nbytes, cp.get_default_memory_pool().total_bytes())
        try:
            self._runs.append(run)
            self._open.append(run)
            for buffer, memory in run.kept.items():
                self._alive[buffer], self._addresses[buffer] = memory, memory.ptr
            run.kept = {}
        except BaseException:  # an interrupt
            cp.cuda.Device().synchronize()
            raise
        self.release([buffer for _, buffer in program.releases if buffer in program.inputs])
        if not room.waits:
            self.finish()

    def finish(self) -> None:
        """Wait for all facts to arrive on the host, and free what the programs so far took, but for what they keep."""
        while self._open:
            run = self._open.pop()
            run.finish()
            if self._memory is not None and (passing := run.room.workspace - run.room.kept):
                self._memory.free(passing)

    def release(self, buffers: Iterable[Buffer]) -> None:
        """Free buffers that a program has kept; those that are freed already, or not kept, have no effect."""
        for buffer in buffers:
            if buffer.kind == "workspace" and self._alive.pop(buffer, None) is not None:
                del self._addresses[buffer]
                if buffer.counted and self._memory is not None:
                    self._memory.free(buffer.nbytes)

    def fact(self, reader: Reader) -> Any:
        """The fact that a reader computes; waits for the arrays that it is computed from."""
        return reader.value(*map(self.evidence, reader.evidence))

    def evidence(self, evidence: Evidence) -> Any:
        """The value of evidence, computed once; waits for its array to arrive on the host."""
        return next(run for run in self._runs if run.brings(evidence)).evidence(evidence)

    def array(self, array: Array) -> Any:
        """The real array of a contiguous array that a program keeps; it keeps the memory alive from now on."""
        assert array.contiguous
        return cp.ndarray(array.shape, array.dtype.char, self._alive[array.buffer] + array.offset)
