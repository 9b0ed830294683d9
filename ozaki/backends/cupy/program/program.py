"""A program: named buffers, the steps that read and write them, and the facts that follow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arena import ALIGNMENT, Life, most_at_once, offsets
from ozaki.backends.cupy.program.arrays import Buffer
from ozaki.backends.cupy.program.steps import Arrive, Launch, Step, Upload
from ozaki.records.report import bytes_in_words

if TYPE_CHECKING:
    from ozaki.backends.cupy.program.run import Run


@dataclass(frozen=True, eq=False)
class Evidence:
    """A value that the host computes from one array, once that has arrived: `of(array)`."""

    arrival: Arrive
    of: Callable[[npt.NDArray[Any]], Any]


@dataclass(frozen=True, eq=False)
class Reader:
    """How the host computes a fact: `value`, called with the values of all `evidence`."""

    evidence: tuple[Evidence, ...]
    value: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Program:
    """All that a device does in a product, or in a part of one; threads may run a program at the same time.

    Attributes
    ----------
    given : buffers of the caller, bound when the program runs, in this order; in a whole program the result is last
    steps : in the order in which the host starts them
    releases : (i, buffer) for each buffer that no step after the first i steps needs
    readers : readers of the facts that the steps bring to the host, by the facts' names
    before : in a part, the buffers that earlier parts have touched
    title : what the program computes, for listings
    idle : runs of this program that no call uses at present, to be used again
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
        """All buffers that the steps read or write, each once."""
        return tuple(dict.fromkeys(buffer for step in self.steps for buffer in step.buffers))

    @cached_property
    def touched(self) -> tuple[tuple[Buffer, ...], ...]:
        """For each step, the buffers that it is the first to touch, earlier parts included."""
        known, first = set(self.before), []
        for step in self.steps:
            new = tuple([buffer for buffer in step.buffers if buffer not in known])
            known.update(new)
            first.append(new)
        return tuple(first)

    def _lives(self, buffers: Sequence[Buffer]) -> list[Life]:
        """When each buffer is needed: from the first step that touches it to its release, or to the end.

        A buffer of a launch that overlaps the step before it is needed from that step on.
        """
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
        """The most bytes of counted workspace buffers that are needed at a time."""
        return most_at_once(self._lives([x for x in self.buffers if x.kind == "workspace" and x.counted]))

    @cached_property
    def arena(self) -> tuple[dict[Buffer, int], int]:
        """The offset in bytes of each workspace buffer in one piece of memory, and the bytes of that piece.

        A buffer that a stream other than the main one touches shares its memory with no other buffer, because that
        stream is not ordered with the main one's steps before and after.
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

    @property
    def counted_in_one_piece(self) -> int:
        """Bytes of the one piece of memory of a repeated call, without buffers that do not count as workspace."""
        small = sum(-(-x.nbytes // ALIGNMENT) * ALIGNMENT for x in self.arena[0] if not x.counted)
        return max(self.arena[1] - small, 0)

    @cached_property
    def uses_side_streams(self) -> bool:
        """Whether any step is on a stream other than the main one."""
        return any(step.stream != "main" for step in self.steps)

    @property
    def repeatable(self) -> bool:
        """Whether the program is valid for other operands: no step uploads what the host computed from these ones."""
        return not any(isinstance(step, Upload) and step.of_operands for step in self.steps)

    def start(self, arrays: Sequence[Any], result: Callable[[], Any]) -> Run | None:
        """Start all steps for these arrays, on CuPy's current stream and, for proofs, two more.

        Parameters
        ----------
        arrays : the operands, in the order of `given`, on the current device, with the dtypes, shapes and strides that
            were given to the builder; the caller keeps them alive until the run ends
        result : returns the array of the result, the last of `given`; called once all steps before the first that
            touches it have been started, so that the host allocates it while the device works

        Returns
        -------
        A run, to be used in a `with` statement, at the end of which its memory goes back to CuPy's pool. None if memory
        does not suffice for the whole program; then the device has completed whatever was started.
        """
        try:
            run = self.idle.pop()
        except IndexError:
            from ozaki.backends.cupy.program.run import Run

            run = Run(self)
        return run if run.start(arrays, result) else None

    def __str__(self) -> str:
        head = f"{self.title}; " * bool(self.title) + f"workspace {bytes_in_words(self.workspace)}"
        return "\n".join([head, *(f"{i:>3}  {step}" for i, step in enumerate(self.steps, 1))])
