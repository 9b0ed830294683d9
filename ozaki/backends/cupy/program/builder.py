"""The builder of programs; nothing else adds steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import DTYPES, Array, Buffer, Place, View, contiguous_steps
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
from ozaki.backends.cupy.program.steps import (
    Arrive,
    Clear,
    ClearHost,
    CopyToHost,
    Fork,
    Launch,
    Out,
    Step,
    Stream,
    Upload,
)


class Builder:
    """Builds one program; its arrays are symbolic, so it needs no memory.

    Parameters
    ----------
    given : arrays of the caller that several programs of a call share, in the order in which they are bound

    Attributes
    ----------
    stream : the stream that steps are added to
    title : what the program computes, for listings
    """

    def __init__(self, given: Sequence[Buffer] = ()) -> None:
        self.stream: Stream = "main"
        self.title = ""
        self._steps: list[Step] = []
        self._releases: list[tuple[int, Buffer]] = []
        self._released: set[Buffer] = set()
        self._given: list[Buffer] = [*given]
        self._made: set[Buffer] = set()
        self._readers: dict[Hashable, Reader] = {}

    def given(self, name: str, view: View) -> Array:
        """Name an array of the caller's. `Run.start` binds them in the order of these calls, the result last."""
        buffer = Buffer(name, 0, "given")
        self._given.append(buffer)
        return Array(buffer, 0, *view)

    def array(self, name: str, shape: tuple[int, ...], char: str, counted: bool = True) -> Array:
        """A new contiguous array in device memory; `counted`: as workspace, which a few bytes a row are not."""
        dtype = DTYPES[char]
        buffer = self._new(Buffer(name, prod(shape) * dtype.itemsize, "workspace", counted))
        return Array(buffer, 0, dtype, shape, contiguous_steps(shape))

    def _new(self, buffer: Buffer) -> Buffer:
        self._made.add(buffer)
        return buffer

    def buffer(self, name: str, nbytes: int, counted: bool = True) -> Place:
        """A new buffer in device memory; `counted` as for `array`."""
        return Place(self._new(Buffer(name, nbytes, "workspace", counted)))

    def zeroed(self, name: str, nbytes: int) -> Place:
        """A new buffer in device memory, zeroed on the builder's stream; for few bytes, not counted as workspace."""
        place = self.buffer(name, nbytes, counted=False)
        self.add(Clear(self.stream, place, nbytes))
        return place

    def table(self, name: str, data: bytes) -> Place:
        """A new buffer in device memory with constants of the host's, copied on the builder's stream."""
        place = self.buffer(name, len(data), counted=False)
        self.add(Upload(self.stream, data, place, of_operands=False))
        return place

    def host(self, name: str, shape: tuple[int, ...], char: str) -> Array:
        """A new array in pinned host memory, which the device can write."""
        dtype = DTYPES[char]
        buffer = self._new(Buffer(name, prod(shape) * dtype.itemsize, "host"))
        return Array(buffer, 0, dtype, shape, contiguous_steps(shape))

    def add(self, step: Step) -> None:
        """Add a step after all others.

        Raises
        ------
        ValueError
            If the step touches a buffer that was released before.
        """
        for buffer in step.buffers:
            if buffer in self._released:
                raise ValueError(f"{buffer.name}: released before the step {step.name!r}")
        self._steps.append(step)

    def launch(self, kernel: Kernel, *arguments: Array | Place | Out, overlaps: bool = False) -> None:
        """Add the launch of a kernel on the builder's stream; nothing is added if its grid has no blocks.

        Parameters
        ----------
        arguments : addresses, in the order of `kernel.addresses`; those that the kernel writes as `Out`
        overlaps : the kernel runs at the same time as the step before it (`steps.Launch`)
        """
        places = []
        written = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, Out):
                written.append(i)
                argument = argument.place
            places.append(Place(argument.buffer, argument.offset))
        assert len(places) == len(kernel.addresses), (kernel.function, len(places), len(kernel.addresses))
        if all(kernel.grid):
            buffers = tuple(dict.fromkeys([place.buffer for place in places]))
            self.add(Launch(self.stream, kernel, tuple(places), frozenset(written), buffers, overlaps))

    def release(self, *released: Array | Place) -> None:
        """Free workspace buffers: no later step may touch them. Other kinds and repeated releases have no effect."""
        for each in released:
            buffer = each.buffer
            if buffer.kind == "workspace" and buffer not in self._released:
                self._released.add(buffer)
                self._releases.append((len(self._steps), buffer))

    @contextmanager
    def on(self, stream: Stream, fork: bool = False) -> Iterator[None]:
        """Add steps to another stream within the context; with `fork` they wait for all steps so far of this one."""
        outer = self.stream
        if fork and stream != outer:
            self.add(Fork(stream, outer))
        self.stream = stream
        try:
            yield
        finally:
            self.stream = outer

    def to_host(self, name: str, source: Place, shape: tuple[int, ...], char: str) -> Arrive:
        """Copy device memory into a new array of the host; the host can wait for the step that is returned."""
        target = self.host(name, shape, char)
        self.add(CopyToHost(self.stream, source, target.at, target.nbytes))
        return self.arrive(target)

    def cleared_on_host(self, name: str, shape: tuple[int, ...], char: str) -> Array:
        """A new array in host memory, zeroed by the host before it starts the steps that are added next."""
        target = self.host(name, shape, char)
        self.add(ClearHost(self.stream, target.at, target.nbytes))
        return target

    def arrive(self, array: Array) -> Arrive:
        """Add a step that the host can wait for: `array`, of the host, then holds what the steps so far wrote to it."""
        step = Arrive(self.stream, array)
        self.add(step)
        return step

    @staticmethod
    def evidence(arrival: Arrive, of: Callable[[npt.NDArray[Any]], Any]) -> Evidence:
        """The value `of(array)` of an array that arrives on the host; `of` must hold no operands."""
        return Evidence(arrival, of)

    def read(self, key: Hashable, evidence: tuple[Evidence, ...], value: Callable[..., Any]) -> Reader:
        """Register how a fact, named `key`, follows from arrays that the program's own steps bring to the host.

        `value` takes the values of the evidence as arguments, computes on the host alone, and holds no operands.
        Whoever asks for the fact turns NumPy's floating-point warnings off while `value` runs.
        """
        reader = Reader(evidence, value)
        self._readers[key] = reader
        return reader

    def reader(self, key: Hashable) -> Reader | None:
        """The registered reader of a fact; None if no steps were added for it."""
        return self._readers.get(key)

    def program(self, keeps: Iterable[Array | Place] = ()) -> Program:
        """The program of all steps; `keeps`: arrays of it that later programs of the call read."""
        kept = dict.fromkeys(each.buffer for each in keeps if each.buffer in self._made)
        touched = dict.fromkeys(buffer for step in self._steps for buffer in step.buffers)
        known = self._made.union(self._given)
        return Program(
            tuple(self._given),
            tuple(buffer for buffer in touched if buffer not in known),
            tuple(self._steps),
            tuple(self._releases),
            tuple(kept),
            dict(self._readers),
            self.title,
        )
