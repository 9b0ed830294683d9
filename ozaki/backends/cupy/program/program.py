"""A program: named buffers, and steps on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arena import Life, most_at_once, offsets
from ozaki.backends.cupy.program.arrays import Buffer
from ozaki.backends.cupy.program.steps import Arrive, Launch, Step, Upload

if TYPE_CHECKING:
    from ozaki.backends.cupy.program.run import Run


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a function makes of an array that arrives on the host."""

    arrival: Arrive
    of: Callable[[npt.NDArray[Any]], Any]


@dataclass(frozen=True, eq=False)
class Reader:
    """How a fact follows from evidence."""

    evidence: tuple[Evidence, ...]
    value: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Program:
    """What a device does in a product, or in a part of one; immutable, so that threads may run it at the same time.

    Attributes
    ----------
    given : buffers that are bound when it runs, in this order
    steps : in the order in which the host starts them
    releases : buffers that are not needed any more, each after so many steps
    readers : by their names, the facts that its steps bring to the host
    before : of a part, the buffers that the parts before have touched
    title : what it computes, for people
    idle : runs of it that no call uses at present
    """

    given: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    releases: tuple[tuple[int, Buffer], ...]
    readers: Mapping[Hashable, Reader] = field(default_factory=dict)
    before: frozenset[Buffer] = frozenset()
    title: str = ""
    idle: list[Run] = field(default_factory=list, repr=False)

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """All that its steps touch."""
        return tuple(dict.fromkeys(buffer for step in self.steps for buffer in step.buffers))

    @cached_property
    def touched(self) -> tuple[tuple[Buffer, ...], ...]:
        """Of each step the buffers that no step before touches."""
        known, first = set(self.before), []
        for step in self.steps:
            new = tuple([buffer for buffer in step.buffers if buffer not in known])
            known.update(new)
            first.append(new)
        return tuple(first)

    def _lives(self, buffers: Sequence[Buffer]) -> list[Life]:
        """When buffers are needed, from the first step that touches each to its release, or the end."""
        first = {
            buffer: i - 1 if isinstance(step, Launch) and step.overlaps else i
            for i, (step, new) in enumerate(zip(self.steps, self.touched, strict=True))
            for buffer in new
        }
        last = {buffer: at - 1 for at, buffer in self.releases}
        end = len(self.steps)
        return [Life(x.nbytes, first.get(x, 0), last.get(x, end)) for x in buffers]

    @cached_property
    def workspace(self) -> int:
        """Most bytes of counted workspace that are needed at a time."""
        return most_at_once(self._lives([x for x in self.buffers if x.kind == "workspace" and x.counted]))

    @cached_property
    def arena(self) -> tuple[dict[Buffer, int], int]:
        """Where the buffers of the device lie in one piece of memory, and its bytes.

        A buffer that another stream than the main one touches shares its memory with none: nothing orders that stream
        with what the main one does before and after.
        """
        buffers = [x for x in self.buffers if x.kind == "workspace"]
        aside = {x for step in self.steps if step.stream != "main" for x in step.buffers}
        end = len(self.steps)
        lives = [
            Life(x.nbytes, 0, end) if x in aside else life
            for x, life in zip(buffers, self._lives(buffers), strict=True)
        ]
        begins, nbytes = offsets(lives)
        return dict(zip(buffers, begins, strict=True)), nbytes

    @cached_property
    def aside(self) -> bool:
        """Whether it needs other streams than the main one."""
        return any(step.stream != "main" for step in self.steps)

    @property
    def repeatable(self) -> bool:
        """Whether it is of use for other operands: no step hands the device what the host has worked out."""
        return not any(isinstance(step, Upload) for step in self.steps)

    def start(self, arrays: Sequence[Any], result: Callable[[], Any]) -> Run | None:
        """Run the whole program with these arrays, on CuPy's current stream.

        Parameters
        ----------
        arrays : what is read, in the order of `given`, on the current device, of the views that they were named with;
            they live until the run ends
        result : called when the steps before the first that touches it are under way; the array of the last of `given`

        Returns
        -------
        A run, to be used in a `with` statement: at its end the memory goes back to CuPy's pool. None if there is not
        enough memory to run all at once; then nothing is under way any more.
        """
        try:
            run = self.idle.pop()
        except IndexError:
            from ozaki.backends.cupy.program.run import Run

            run = Run(self)
        return run if run.start(arrays, result) else None

    def __str__(self) -> str:
        head = f"{self.title}; " * bool(self.title) + f"workspace {_bytes(self.workspace)}"
        return "\n".join([head, *(f"{i:>3}  {step}" for i, step in enumerate(self.steps, 1))])


def _bytes(n: int) -> str:
    """A number of bytes for people."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} bytes"
