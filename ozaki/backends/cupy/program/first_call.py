"""A program run part by part while it is built."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends.cupy.program import launches
from ozaki.backends.cupy.program.arrays import Array, Buffer, Place
from ozaki.backends.cupy.program.bound import bound, on_host
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
from ozaki.backends.cupy.program.steps import STREAMS, Arrive, Launch, Step
from ozaki.backends.cupy.program.streams import addresses, using


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
        streams = addresses(device if part.aside else None)
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
            for start, stream, pieces, places in bound(step, self._events, block):
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
            with nullcontext() if stream == main else using(stream):
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
            self._found[evidence] = evidence.of(on_host(self._held[array.buffer], 0, array))
        return self._found[evidence]

    def settle(self) -> None:
        """Wait for all that is to arrive on the host: streams beside the main one are through with the memory then."""
        for arrival in [*self._awaited]:
            self._wait(arrival)

    def _wait(self, arrival: Step) -> None:
        if arrival in self._awaited:
            self._events[arrival].synchronize()
            del self._awaited[arrival]
