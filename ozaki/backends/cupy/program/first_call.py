"""The first run of a program, part by part while it is built."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends.cupy.program import compiling, launches
from ozaki.backends.cupy.program.arrays import Array, Buffer, Place
from ozaki.backends.cupy.program.calls import calls_of, on_host
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
from ozaki.backends.cupy.program.steps import STREAMS, Arrive, Launch, Step
from ozaki.backends.cupy.program.streams import addresses, using
from ozaki.driver.memory import Memory
from ozaki.driver.progress import SILENT, Progress


class FirstCall:
    """The memory and the events of a program that is run part by part.

    A buffer is allocated before the first step that touches it, on the stream of that step, and goes back to CuPy's
    pool at its release. When this object is deleted, it first waits for all arrays that are to arrive on the host:
    until then streams other than the main one may use the memory that it holds.

    Attributes
    ----------
    counted_bytes : bytes of the buffers that are counted as workspace and held now
    """

    def __init__(self, memory: Memory | None = None) -> None:
        """`memory`: the account in which buffers are counted, but for those that do not count as workspace."""
        self._memory, self.counted_bytes = memory, 0
        self._addresses: dict[Buffer, int] = {}
        self._held: dict[Buffer, Any] = {}
        self._events: dict[Step, Any] = {}
        self._awaited: dict[Step, None] = {}
        self._found: dict[Evidence, Any] = {}

    def __del__(self) -> None:
        self.wait_for_arrivals()

    def bind(self, array: Array, real: Any) -> None:
        """Let a given array stand for the real one, which is kept alive."""
        self._addresses[array.buffer] = real.data.ptr
        self._held[array.buffer] = real

    def address(self, place: Place) -> int:
        """The address in memory of a place in a buffer that is bound or allocated."""
        return self._addresses[place.buffer] + place.offset

    def run(self, part: Program, progress: Progress = SILENT) -> None:
        """Start all steps of a part; does not wait for them.

        `progress` is told of each. If it raises, the device has completed what was started.
        """
        compiling.compile_together(step.kernel for step in part.steps if isinstance(step, Launch))
        device = runtime.getDevice()
        streams = addresses(device if part.uses_side_streams else None)
        taken: list[tuple[list[launches.Block], launches.Block]] = []

        def block(kernel: Kernel) -> launches.Block:
            taken.append(launches.idle_block(kernel, device))
            return taken[-1][1]

        progress.begin(len(part.steps), "launches")
        releases, at = list(part.releases), 0
        for i, (step, touched) in enumerate(zip(part.steps, part.touched, strict=True)):
            at = self._drop(releases, at, i)
            # A launch that overlaps this step gets its memory now: later it might be memory that is released after this
            # step, which still uses it then.
            following = part.steps[i + 1] if i + 1 < len(part.steps) else None
            overlapping = part.touched[i + 1] if isinstance(following, Launch) and following.overlaps else ()
            for buffer in (*touched, *overlapping):
                if buffer not in self._addresses:
                    self._allocate(buffer, streams[STREAMS.index(step.stream)], streams[0])
            for start, stream, pieces, places in calls_of(step, self._events, block):
                for number, place in places:
                    pieces[number] = self._addresses[place.buffer] + place.offset
                start(streams[stream])
            if isinstance(step, Arrive):
                self._awaited[step] = None
            while taken:
                idle, used = taken.pop()
                idle.append(used)
            try:
                progress.step()
            except BaseException:
                cp.cuda.Device().synchronize()  # other streams may use memory that is now given back
                raise
        self._drop(releases, at, len(part.steps))

    def _drop(self, releases: list[tuple[int, Buffer]], at: int, before: int) -> int:
        """Free the buffers of releases[at:] that no step from `before` on needs; returns the index of the next one."""
        while at < len(releases) and releases[at][0] <= before:
            buffer = releases[at][1]
            if self._held.pop(buffer, None) is not None and buffer.counted:
                self._count(-buffer.nbytes)
            self._addresses.pop(buffer, None)
            at += 1
        return at

    def _count(self, nbytes: int) -> None:
        """Count bytes of workspace that are allocated, or freed if there are fewer than none."""
        if self._memory is not None:
            if nbytes < 0:
                self._memory.free(-nbytes)
            else:
                self._memory.hold(nbytes)
        self.counted_bytes += nbytes

    def unbind(self, array: Array) -> None:
        """Let go of the real array that a given one stands for; no later step may touch it."""
        del self._addresses[array.buffer], self._held[array.buffer]

    def _allocate(self, buffer: Buffer, stream: int, main: int) -> None:
        """Allocate a buffer, unless it is a given one; addresses of the stream that first uses it and of the main one.

        CuPy's pool keeps memory for the stream that it was allocated on, and hands it out again in the order of that
        stream: so memory is allocated on the stream that first uses it.
        """
        if buffer.kind == "given":
            return
        if buffer.kind == "host":
            memory = cp.cuda.alloc_pinned_memory(max(buffer.nbytes, 1))
        else:
            if buffer.counted:
                self._count(buffer.nbytes)
            with nullcontext() if stream == main else using(stream):
                memory = cp.cuda.alloc(max(buffer.nbytes, 1))
        self._held[buffer], self._addresses[buffer] = memory, memory.ptr

    def array(self, array: Array) -> Any:
        """The real array of a contiguous array that was allocated; it keeps the memory alive from now on."""
        memory = self._held[array.buffer]
        assert array.contiguous
        return cp.ndarray(array.shape, array.char, memory + array.offset)

    def fact(self, reader: Reader) -> Any:
        """The fact that a reader computes; waits for the arrays that it is computed from."""
        return reader.value(*map(self.evidence, reader.evidence))

    def evidence(self, evidence: Evidence) -> Any:
        """The value of evidence, computed once; waits for its array to arrive on the host."""
        if evidence not in self._found:
            array = evidence.arrival.array
            self._wait(evidence.arrival)
            self._found[evidence] = evidence.of(on_host(self._held[array.buffer], 0, array))
        return self._found[evidence]

    def wait_for_arrivals(self) -> None:
        """Wait for all arrays that are to arrive on the host.

        No stream but the main one then uses the memory of this object: whatever another stream does ends in an arrival.
        """
        for arrival in [*self._awaited]:
            self._wait(arrival)

    def _wait(self, arrival: Step) -> None:
        if arrival in self._awaited:
            self._events[arrival].synchronize()
            del self._awaited[arrival]
