"""Runs of a whole program, for repeated calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Self

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends.cupy.program import launches
from ozaki.backends.cupy.program.calls import calls_of, on_host
from ozaki.backends.cupy.program.program import Evidence, Program
from ozaki.backends.cupy.program.steps import Arrive, Step
from ozaki.backends.cupy.program.streams import addresses


class Run:
    """A whole program with argument blocks, events and pinned memory of its own, for one call at a time.

    `start`, then `fact`, then `close`, which makes it ready for another call. As a context manager it closes itself,
    once no stream but the main one uses its memory.

    Attributes
    ----------
    result : the array of the result, while a call uses the run
    """

    def __init__(self, program: Program) -> None:
        self._program, self._device = program, runtime.getDevice()
        self._events: dict[Step, Any] = {}
        self._aside = program.uses_side_streams
        offsets, self._nbytes = program.arena
        begins, pinned = {}, 0
        for buffer in program.buffers:
            if buffer.kind == "host":
                begins[buffer] = pinned
                pinned += -(-buffer.nbytes // 64) * 64
        self._pinned = cp.cuda.alloc_pinned_memory(pinned) if pinned else None
        numbers = {buffer: i for i, buffer in enumerate(program.given)}
        self._bases = [0] * len(numbers)
        # Calls as (start, stream, pieces, given), `given` (i, number of a given buffer, offset) for each address in
        # pieces[i] that every run writes anew.
        calls: list[tuple[Callable[[int], object], int, Any, list[tuple[int, int, int]]]] = []
        # (pieces, i, offset) for each address in the workspace, written anew where that lies elsewhere than before.
        self._in_workspace: list[tuple[Any, int, int]] = []
        for step in program.steps:
            for start, stream, pieces, places in calls_of(step, self._events, launches.block_of):
                given = []
                for i, (buffer, offset) in places:
                    if buffer in numbers:
                        given.append((i, numbers[buffer], offset))
                    elif buffer in offsets:
                        self._in_workspace.append((pieces, i, offsets[buffer] + offset))
                    else:
                        assert self._pinned is not None
                        pieces[i] = self._pinned.ptr + begins[buffer] + offset
                calls.append((start, stream, pieces, given))
        last = len(numbers) - 1
        needing = (i for i, (*_, given) in enumerate(calls) if any(base == last for _, base, _ in given))
        first = next(needing, len(calls))
        self._before_result, self._rest = calls[:first], calls[first:]
        self._arrays = {
            step: on_host(self._pinned, begins[step.array.buffer], step.array)
            for step in program.steps
            if isinstance(step, Arrive)
        }
        self._waited: set[Arrive] = set()
        self._found: dict[Evidence, Any] = {}
        self._address = 0
        self._memory: Any = None
        self.result: Any = None

    def start(self, arrays: Sequence[Any], result: Callable[[], Any]) -> bool:
        """Start all steps, as `Program.start` says; False, and the run is closed, if there is not enough memory."""
        streams, bases = addresses(self._device if self._aside else None), self._bases
        try:
            if self._nbytes:
                self._memory = memory = cp.cuda.alloc(self._nbytes)
                if memory.ptr != self._address:  # most often the pool returns the same memory as for the last call
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
            cp.cuda.Device().synchronize()  # the device may still run steps that were started
            self.close()
            return False
        return True

    def fact(self, key: Hashable) -> Any:
        """The fact of that name; waits for the arrays that it is computed from.

        Raises
        ------
        KeyError
            If the program has no reader of it.
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
        """Wait for all arrivals on the host, and close.

        No stream but the main one then uses the memory: whatever another stream does ends in an arrival.
        """
        for arrival in self._arrays:
            self._wait(arrival)
        self.close()

    def close(self) -> None:
        """Give the memory back to the pool, and the run to `idle`; no stream but the main one may still use it."""
        self._found.clear()
        self._waited.clear()
        self._memory = self.result = None
        self._program.idle.append(self)


def _start(calls: list[Any], bases: list[int], streams: tuple[int, int, int]) -> None:
    """Write the addresses of given arrays, which begin at `bases`, into the arguments of calls, and make the calls."""
    for start, stream, pieces, given in calls:
        for i, base, offset in given:
            pieces[i] = bases[base] + offset
        start(streams[stream])
