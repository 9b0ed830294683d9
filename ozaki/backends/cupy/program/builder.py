"""The one way to make a program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import SIZES, Array, Buffer, Place, View, contiguous_strides
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
)


class Builder:
    """Builds the program of one product, part by part, without any memory.

    What a part of it does may depend on what the parts before have found; its arrays are known by name alone.

    Attributes
    ----------
    stream : the stream of the steps that are added
    title : what the program computes, for people
    """

    def __init__(self) -> None:
        self.stream: Stream = "main"
        self.title = ""
        self._steps: list[Step] = []
        self._releases: list[tuple[int, Buffer]] = []
        self._released: set[Buffer] = set()
        self._given: list[Buffer] = []
        self._readers: dict[Hashable, Reader] = {}
        self._taken = 0, 0
        self._known: set[Buffer] = set()

    def given(self, name: str, view: View) -> Array:
        """An array of the caller's; given arrays are bound in the order in which they were named."""
        buffer = Buffer(name, 0, "given")
        self._given.append(buffer)
        return Array(buffer, 0, *view)

    def array(self, name: str, shape: tuple[int, ...], char: str, counted: bool = True) -> Array:
        """A new array in memory of the device; not `counted` as workspace if it has a few bytes a row."""
        itemsize = SIZES[char]
        strides = contiguous_strides(shape, itemsize)
        nbytes = itemsize
        for n in shape:
            nbytes *= n
        return Array(Buffer(name, nbytes, "workspace", counted), 0, char, shape, strides)

    def buffer(self, name: str, nbytes: int, counted: bool = True) -> Place:
        """New memory of the device."""
        return Place(Buffer(name, nbytes, "workspace", counted))

    def zeroed(self, name: str, nbytes: int) -> Place:
        """New memory of the device that is zero, of few bytes."""
        place = self.buffer(name, nbytes, counted=False)
        self.add(Clear(self.stream, place, nbytes))
        return place

    def host(self, name: str, shape: tuple[int, ...], char: str) -> Array:
        """A new array in memory of the host, which the device can write."""
        made = self.array(name, shape, char)
        return Array(Buffer(name, made.nbytes, "host"), 0, char, shape, made.strides)

    def add(self, step: Step) -> None:
        """What its stream does next.

        Raises
        ------
        ValueError
            If a buffer was released before.
        """
        for buffer in step.buffers:
            if buffer in self._released:
                raise ValueError(f"{buffer.name}: released before the step {step.name!r}")
        self._steps.append(step)

    def launch(self, kernel: Kernel, *arguments: Array | Place | Out, overlaps: bool = False) -> None:
        """Add the launch of a kernel with its addresses, in order; `Out` are those that it writes."""
        places = []
        written = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, Out):
                written.append(i)
                places.append(argument.place)
            else:
                places.append(argument.at if isinstance(argument, Array) else argument)
        assert len(places) == len(kernel.addresses), (kernel.function, len(places), len(kernel.addresses))
        if kernel.launched:
            self.add(Launch(self.stream, kernel, tuple(places), frozenset(written), overlaps))

    def release(self, *released: Array | Place) -> None:
        """Nothing that is added from now on needs these buffers; given ones and those released before stay so."""
        for each in released:
            buffer = each.buffer
            if buffer.kind == "workspace" and buffer not in self._released:
                self._released.add(buffer)
                self._releases.append((len(self._steps), buffer))

    @contextmanager
    def on(self, stream: Stream, fork: bool = False) -> Iterator[None]:
        """Add steps to another stream meanwhile; with `fork` they wait for all that this stream was given so far."""
        outer = self.stream
        if fork and stream != outer:
            self.add(Fork(stream, outer))
        self.stream = stream
        try:
            yield
        finally:
            self.stream = outer

    def to_host(self, name: str, source: Place, shape: tuple[int, ...], char: str) -> Arrive:
        """Copy what lies there to the host; the host can wait for what is returned."""
        target = self.host(name, shape, char)
        self.add(CopyToHost(self.stream, source, target.at, target.nbytes))
        return self.arrive(target)

    def cleared_on_host(self, name: str, shape: tuple[int, ...], char: str) -> Array:
        """Memory of the host that is zero until steps added from now on write it."""
        target = self.host(name, shape, char)
        self.add(ClearHost(self.stream, target.at, target.nbytes))
        return target

    def arrive(self, array: Array) -> Arrive:
        """Let the host wait for an array of the host, as the steps that were added so far leave it."""
        step = Arrive(self.stream, array)
        self.add(step)
        return step

    @staticmethod
    def evidence(arrival: Arrive, of: Callable[[npt.NDArray[Any]], Any]) -> Evidence:
        """What a function makes of an array of the host, once it is there; the function holds no operands."""
        return Evidence(arrival, of)

    def read(self, key: Hashable, evidence: tuple[Evidence, ...], value: Callable[..., Any]) -> Reader:
        """Register how the fact of that name follows from what the program's own steps bring to the host.

        `value` takes what the evidence comes to, computes on the host alone, and holds no operands. Whoever asks for
        the fact sees to it that NumPy does not warn meanwhile.
        """
        reader = Reader(evidence, value)
        self._readers[key] = reader
        return reader

    def reader(self, key: Hashable) -> Reader | None:
        """How that fact is found; None if no step has been added for it."""
        return self._readers.get(key)

    def take(self) -> Program:
        """The steps since the last take."""
        first, released = self._taken
        steps, releases = self._steps[first:], self._releases[released:]
        self._taken = len(self._steps), len(self._releases)
        known = frozenset(self._known)
        for step in steps:
            self._known.update(step.buffers)
        releases = [(at - first, buffer) for at, buffer in releases]
        return Program(tuple(self._given), tuple(steps), tuple(releases), before=known)

    def whole(self) -> Program:
        """All steps from the beginning."""
        given, steps, releases = tuple(self._given), tuple(self._steps), tuple(self._releases)
        return Program(given, steps, releases, dict(self._readers), title=self.title)
