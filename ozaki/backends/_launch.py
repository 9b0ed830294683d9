"""Kernel launches whose numbers are worked out once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from ctypes import addressof, c_uint64, c_void_p
from functools import cache, lru_cache
from threading import local
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from cupy.cuda import get_current_stream, runtime

from ozaki.backends._driver import launcher, most_clusters
from ozaki.backends._jit import kernel

Macros = dict[str, str | int]


class View(NamedTuple):
    """All of an array that a launch depends on: everything but its address."""

    char: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, x: Any) -> View:
        return cls(x.dtype.char, x.shape, x.strides)

    @property
    def ctype(self) -> str:
        """The C name of the floating-point dtype."""
        return "double" if self.char == "d" else "float"

    @property
    def itemsize(self) -> int:
        return np.dtype(self.char).itemsize

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides in elements."""
        return tuple(s // self.itemsize for s in self.strides)

    @property
    def along_k(self) -> int:
        """Whether elements along k lie closer together than rows do, for the shape (batch, rows, k)."""
        return int(self.shape[1] == 1 or abs(self.strides[2]) <= abs(self.strides[1]))


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
        if _recording.tape is not None:
            _recording.tape.note(self, [array.ptr for array in arrays], stream)


class Launch(Step):
    """A kernel with its grid and all arguments but the addresses of its arrays.

    What a kernel is given depends on views alone, so launches are kept by the views that they are for. CuPy's own way
    to launch takes 6 to 13 microseconds, most of them to convert arguments; this takes 3 to 5.

    Parameters
    ----------
    file, function, macros
        As for `kernel`; compiled for the current device.
    grid, block : tuples of int
    arguments : None, int, float, `struct` or tuple
        None stands for an array, an int for an integer of any size (a kernel reads as many of its low bytes as it
        declares), a float for a double, a tuple for a struct of such, each of eight bytes.
    shared_mem : int
        Bytes of dynamic shared memory.
    """

    def __init__(
        self,
        file: str,
        function: str,
        macros: Macros,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: Any,
        shared_mem: int = 0,
    ) -> None:
        self.file, self.macros = file, macros
        call = _with_shared(file, function, macros, shared_mem)
        cp.cuda.Device().use()  # a new thread has no context before
        words: list[int | None] = []
        starts = []
        for x in arguments:
            starts.append(8 * len(words))
            words += _words(x)
        self.places = [i for i, word in enumerate(words) if word is None]
        self.words = (c_uint64 * len(words))(*(word or 0 for word in words))
        addresses = (c_void_p * len(starts))(*(addressof(self.words) + start for start in starts))
        sizes = (*grid, 1, 1)[:3], (*block, 1, 1)[:3], shared_mem
        self.start = launcher(call.kernel.ptr, *sizes, addresses)


def clusters_at_once(
    file: str, function: str, macros: Macros, cluster: int, block: tuple[int, ...], shared_mem: int
) -> int:
    """How many clusters of that many blocks of a kernel the current device runs at once."""
    cp.cuda.Device().use()
    call = _with_shared(file, function, macros, shared_mem)
    return most_clusters(call.kernel.ptr, cluster, (*block, 1, 1)[:3], shared_mem)


def _with_shared(file: str, function: str, macros: Macros, shared_mem: int) -> Any:
    """The kernel, allowed that many bytes of dynamic shared memory, and no fewer than other launches of it need."""
    call = kernel(file, function, **macros)
    if shared_mem:
        call.max_dynamic_shared_size_bytes = max(shared_mem, call.max_dynamic_shared_size_bytes)
    return call


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


class Record(Step):
    """Record an event."""

    def __init__(self, event: cp.cuda.Event) -> None:
        self.places, self.words = [], []
        self.start = lambda stream: runtime.eventRecord(event.ptr, stream)


class _Order(Step):
    """One stream waits for what another one has been given so far."""

    def __init__(self, start: Callable[[int], object]) -> None:
        self.places, self.words, self.start = [], [], start


class Beside(local):
    """A second stream, for steps that need not wait for those of the current one, nor these for them.

    `fork` before all of them; steps under `with` run on the second stream; the current one goes on after them from
    `join` on. `settle` before memory is freed that was allocated under `with`, and so in the order of that stream.
    Blocks of an `urgent` stream start before those that wait on others.
    """

    def __init__(self, urgent: bool = False) -> None:
        self._stream = cp.cuda.Stream(non_blocking=True, priority=-1 if urgent else 0)
        self._events = [cp.cuda.Event(disable_timing=True) for _ in range(2)]
        own, (forked, joined) = self._stream, self._events  # which a tape holds through these functions

        def fork(stream: int) -> None:
            runtime.eventRecord(forked.ptr, stream)
            runtime.streamWaitEvent(own.ptr, forked.ptr)

        def join(stream: int) -> None:
            runtime.eventRecord(joined.ptr, own.ptr)
            runtime.streamWaitEvent(stream, joined.ptr)

        self.fork, self.join = _Order(fork), _Order(join)

    def settle(self) -> None:
        """Let the second stream wait for the current one; no step of a tape, whose memory is of the current stream."""
        stream = get_current_stream().ptr
        if not runtime.streamIsCapturing(stream):
            self.fork.start(stream)

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)


def cleared(size: int, stream: Beside | None = None) -> cp.cuda.MemoryPointer:
    """Zeroed memory of the current stream; another one clears it, if it is given."""
    memory = cp.cuda.alloc(size)
    with stream or nullcontext():
        _clear(size)(memory)
    return memory


@lru_cache(maxsize=1024)
def _clear(size: int) -> Clear:
    return Clear(size)


@cache
def beside(device: int, steps: str, urgent: bool = False) -> Beside:
    """The second stream of a device for those steps; each thread has its own."""
    return Beside(urgent)


class Tape:
    """Steps and the memory between them, noted once and done again with other arrays of the same views.

    Much of what a small product takes is the host's work between launches. Everything that the device does while it
    records must be a `Step`.
    """

    def __init__(self) -> None:
        self._given: list[tuple[int, int, int]] = []  # of each array, the addresses: of its first element, least, end
        self._memory: list[tuple[int, int, int]] = []  # what was allocated: first address, end, offset in all of it
        self._steps: list[tuple[Callable[[int], object], int | None, Any, list[tuple[int, int, int]]]] = []
        self._bytes = 0
        self._stream = 0
        self._all_steps = True

    @property
    def complete(self) -> bool:
        """Every address was one of the arrays, or memory that was allocated meanwhile; and there were not too many."""
        known = all(place for *_, places in self._steps for place in places)
        return self._all_steps and len(self._steps) < _MOST_STEPS and known

    @staticmethod
    def misses() -> None:
        """Something is done that is no step: what records now, if anything does, is never complete."""
        if _recording.tape is not None:
            _recording.tape._all_steps = False

    @contextmanager
    def recording(self, *arrays: Any) -> Iterator[None]:
        """Note what is done; the arrays are those that later calls replace, in this order."""
        self._given = [(array.data.ptr, *_extent(array)) for array in arrays]
        self._stream = get_current_stream().ptr
        allocate = cp.cuda.get_allocator()

        def noted(size: int) -> cp.cuda.MemoryPointer:
            memory = allocate(size)
            self._memory.append((memory.ptr, memory.ptr + size, self._bytes))
            self._bytes += round_up(size, 512)
            return memory

        outer, _recording.tape = _recording.tape, self
        try:
            with cp.cuda.using_allocator(noted):
                yield
        finally:
            _recording.tape = outer

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
        """The number of an array, or of the memory after them, and the offset there; None of an array not known."""
        for first, end, offset in reversed(self._memory):
            if first <= address < end:
                return len(self._given), address - first + offset
        at = [i for i, (first, *_) in enumerate(self._given) if address == first]
        within = at[-1:] or [i for i, (_, least, end) in enumerate(self._given) if least <= address < end]
        return (within[0], address - self._given[within[0]][0]) if len(within) == 1 else None

    def __call__(self, *arrays: Any) -> cp.cuda.MemoryPointer:
        """All steps again; returns the memory between them, to be held until streams beside are through."""
        memory = cp.cuda.alloc(self._bytes)
        bases = (*[array.data.ptr for array in arrays], memory.ptr)
        stream = get_current_stream().ptr
        for start, beside, words, places in self._steps:
            for i, base, offset in places:
                words[i] = bases[base] + offset
            start(stream if beside is None else beside)
        return memory


_MOST_STEPS = 4096
"""Of a tape that is kept: beyond, as of large batches one by one, the host is soon ahead of the device."""


def _extent(x: Any) -> tuple[int, int]:
    """The least address of an array's bytes, and their end."""
    if x.size == 0:
        return x.data.ptr, x.data.ptr
    steps = [(n - 1) * stride for n, stride in zip(x.shape, x.strides, strict=True)]
    least, last = (sum(pick(step, 0) for step in steps) for pick in (min, max))
    return x.data.ptr + least, x.data.ptr + last + x.dtype.itemsize


class _Recording(local):
    tape: Tape | None = None


_recording = _Recording()


def _words(x: Any) -> list[int | None]:
    """An argument in pieces of eight bytes."""
    if x is None:
        return [None]
    if isinstance(x, tuple):
        return [word for part in x for word in _words(part)]
    if isinstance(x, np.ndarray):
        memory = x.tobytes()
    else:
        memory = np.float64(x).tobytes() if isinstance(x, float) else np.int64(x).tobytes()
    memory += bytes(-len(memory) % 8)
    return [int(word) for word in np.frombuffer(memory, np.uint64)]


def output(c: View, mu_step: int, nu_step: int) -> tuple[Any, ...]:
    """The struct Output of kernels: a result (batch, m, n), and what scales it."""
    _, m, n = c.shape
    return None, *c.steps[:2], None, None, mu_step, nu_step, m | n << 32


@cache
def cluster_blocks(device: int) -> int:
    """A block for each multiprocessor, as many as clusters of two make."""
    return int(runtime.getDeviceProperties(device)["multiProcessorCount"]) // 2 * 2


class Together(NamedTuple):
    """How many tiles all clusters begin together (kernels/ring_sm90.cuh)."""

    until: int = 0

    @classmethod
    def of(cls, tiles: int, clusters: int) -> Together:
        """All but those that some clusters have and others have not; none if a cluster has but one."""
        return cls(tiles // clusters * clusters if tiles >= 2 * clusters else 0)

    @property
    def struct(self) -> tuple[int | None, int]:
        """The argument of a kernel."""
        return None if self.until else 0, self.until

    def arrays(self) -> list[cp.cuda.MemoryPointer]:
        """What the struct needs: where clusters are counted."""
        return [cleared(4)] if self.until else []


def round_up(x: int, multiple: int) -> int:
    """Smallest multiple that is not less than x."""
    return -(-x // multiple) * multiple


def struct(words: list[int]) -> Any:
    """A struct of uint32 that a kernel takes by value: CuPy passes an array of one element so."""
    return np.array(words, np.uint32).view(f"V{4 * len(words)}")
