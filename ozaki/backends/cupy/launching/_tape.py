"""What a device does with the arrays of a call, noted once and done again with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from threading import local
from typing import Any

import cupy as cp
from cupy.cuda import get_current_stream, runtime


class Step(local):
    """What a device does with arrays that only a call names. Each thread has its own copy, since a call writes into it.

    Attributes
    ----------
    words : the arguments, in pieces of eight bytes
    places : where among them addresses stand
    start : does it on the stream of that address
    """

    words: Any
    places: list[int]
    start: Callable[[int], object]

    def __call__(self, *arrays: Any) -> None:
        for i, array in zip(self.places, arrays, strict=True):
            self.words[i] = array.ptr
        stream = get_current_stream().ptr
        self.start(stream)
        if _thread.tape is not None:
            _thread.tape.note(self, [array.ptr for array in arrays], stream)


class Clear(Step):
    """Zero that many bytes."""

    def __init__(self, size: int) -> None:
        self.places, self.words = [0], [0]
        words = self.words
        self.start = lambda stream: runtime.memsetAsync(words[0], 0, size, stream)


class Copy(Step):
    """Copy that many bytes to pinned memory of the host, which lives as long as what copies."""

    def __init__(self, target: Any, size: int) -> None:
        self.places, self.words = [0], [0]
        words = self.words
        self.start = lambda stream: runtime.memcpyAsync(target.ptr, words[0], size, runtime.memcpyDeviceToHost, stream)


class Reset(Step):
    """Zero memory of the host: at once, so nothing that writes it may be under way."""

    def __init__(self, memory: Any) -> None:
        self.places, self.words = [], []
        self.start = lambda stream: memory.fill(0)


class Record(Step):
    """Record an event."""

    def __init__(self, event: cp.cuda.Event) -> None:
        self.places, self.words = [], []
        self.start = lambda stream: runtime.eventRecord(event.ptr, stream)


def cleared(size: int) -> cp.cuda.MemoryPointer:
    """Zeroed memory of the current stream."""
    memory = cp.cuda.alloc(size)
    _clear(size)(memory)
    return memory


@lru_cache(maxsize=1024)
def _clear(size: int) -> Clear:
    return Clear(size)


class Tape:
    """Steps and the memory between them, noted once and done again with other arrays of the same views.

    Much of what a small product takes is the host's work between launches. Everything that the device does while it
    records must be a `Step`.
    """

    def __init__(self) -> None:
        self._given: list[tuple[int, int, int]] = []  # of each array, the addresses: of its first element, least, end
        self._memory: list[tuple[int, int, int]] = []  # what was allocated: first address, end, offset in all of it
        self._kept: list[tuple[int, int, Any]] = []  # memory of the host: first address, end
        self._steps: list[_Noted] = []
        self._bytes = 0
        self._stream = 0
        self._all_steps = True

    @property
    def complete(self) -> bool:
        """Every address was of the arrays, or of memory allocated meanwhile or kept; and there were not too many."""
        known = all(place for *_, places in self._steps for place in places)
        return self._all_steps and len(self._steps) < _MOST_STEPS and known

    @staticmethod
    def misses() -> None:
        """Something is done that is no step: what records now, if anything does, is never complete."""
        if _thread.tape is not None:
            _thread.tape._all_steps = False

    @staticmethod
    def keeps(memory: Any, size: int) -> None:
        """Memory of the host that steps write, the same when they are done again; what reads it knows when."""
        if _thread.tape is not None:
            _thread.tape._kept.append((memory.ptr, memory.ptr + size, memory))

    @contextmanager
    def recording(self, *arrays: Any) -> Iterator[None]:
        """Note what is done; the arrays are those that later calls replace, in this order."""
        self._given = [(array.data.ptr, *_extent(array)) for array in arrays]
        self._stream = get_current_stream().ptr
        allocate = cp.cuda.get_allocator()

        def noted(size: int) -> cp.cuda.MemoryPointer:
            memory = allocate(size)
            self._memory.append((memory.ptr, memory.ptr + size, self._bytes))
            self._bytes += -(-size // 512) * 512
            return memory

        outer, _thread.tape = _thread.tape, self
        try:
            with cp.cuda.using_allocator(noted):
                yield
        finally:
            _thread.tape = outer

    def note(self, step: Step, addresses: list[int], stream: int) -> None:
        """Called by steps while this tape records, on the current stream or one beside."""
        if len(self._steps) == _MOST_STEPS:
            return
        places: list[Any] = []
        for i, address in zip(step.places, addresses, strict=True):
            place = self._place(address)
            places.append(place and (i, *place))
        self._steps.append((step.start, None if stream == self._stream else stream, step.words, places))

    def _place(self, address: int) -> tuple[int, int] | None:
        """The number of an array, or of the memory after them, and the offset there; None of an array not known.

        Memory that is kept counts as the last one, which begins at 0.
        """
        for first, end, offset in reversed(self._memory):
            if first <= address < end:
                return len(self._given), address - first + offset
        if any(first <= address < end for first, end, _ in self._kept):
            return len(self._given) + 1, address
        at = [i for i, (first, *_) in enumerate(self._given) if address == first]
        within = at[-1:] or [i for i, (_, least, end) in enumerate(self._given) if least <= address < end]
        return (within[0], address - self._given[within[0]][0]) if len(within) == 1 else None

    def begin(self, *arrays: Any) -> Callable[[Any], cp.cuda.MemoryPointer]:
        """The steps again, up to the first that needs the last of the arrays, which is not given yet.

        What is returned takes that one, does the others, and returns the memory between them, to be held until streams
        beside are through.
        """
        if not _thread.has_context:  # as a new one, even with the number of one that has ended
            cp.cuda.Device().use()
            _thread.has_context = True
        memory = cp.cuda.alloc(self._bytes)
        bases = [*[array.data.ptr for array in arrays], 0, memory.ptr, 0]
        stream = get_current_stream().ptr
        first = self._first_of_last
        _do(self._steps[:first], bases, stream)

        def rest(last: Any) -> cp.cuda.MemoryPointer:
            bases[-3] = last.data.ptr
            _do(self._steps[first:], bases, stream)
            return memory

        return rest

    @cached_property
    def _first_of_last(self) -> int:
        """The number of the first step that needs the last array."""
        last = len(self._given) - 1
        needing = (i for i, (*_, places) in enumerate(self._steps) if any(base == last for _, base, _ in places))
        return next(needing, len(self._steps))


_Noted = tuple[Callable[[int], object], int | None, Any, list[tuple[int, int, int]]]
"""What starts it, on which stream unless that is the tape's, its arguments, and where which addresses stand."""


def _do(steps: list[_Noted], bases: list[int], stream: int) -> None:
    for start, beside, words, places in steps:
        for i, base, offset in places:
            words[i] = bases[base] + offset
        start(stream if beside is None else beside)


_MOST_STEPS = 4096
"""Of a tape that is kept: beyond, as of large batches one by one, the host is soon ahead of the device."""


def _extent(x: Any) -> tuple[int, int]:
    """The least address of an array's bytes, and their end."""
    if x.size == 0:
        return x.data.ptr, x.data.ptr
    steps = [(n - 1) * stride for n, stride in zip(x.shape, x.strides, strict=True)]
    least, last = (sum(pick(step, 0) for step in steps) for pick in (min, max))
    return x.data.ptr + least, x.data.ptr + last + x.dtype.itemsize


class _Thread(local):
    tape: Tape | None = None
    has_context = False


_thread = _Thread()
