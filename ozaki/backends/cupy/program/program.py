"""A program: named buffers, the steps that read and write them, and the facts that follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy.typing as npt

from ozaki.backends.cupy.program.arena import ALIGNMENT, Life, most_at_once, offsets
from ozaki.backends.cupy.program.arrays import Buffer
from ozaki.backends.cupy.program.steps import Arrive, Launch, Step, Upload
from ozaki.records.report import bytes_in_words

if TYPE_CHECKING:
    from ozaki.backends.cupy.program.run import Run


MOST_IDLE = 8
"""The most runs of a program that are idle: as many threads as run it at a time find one."""


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


class Room(NamedTuple):
    """What a run of a program needs.

    Attributes
    ----------
    workspace : the most bytes of counted workspace buffers, those that the program keeps included, at a time
    kept : bytes of those that it keeps
    offsets, nbytes : where the other buffers lie in one piece of device memory, in bytes, and the bytes of that piece
    pinned : buffers in host memory
    aside : whether a step is on a stream other than the main one
    waits : whether the host is to wait for arrays that the program brings it
    """

    workspace: int
    kept: int
    offsets: dict[Buffer, int]
    nbytes: int
    pinned: list[Buffer]
    aside: bool
    waits: bool

    @property
    def counted_in_one_piece(self) -> int:
        """Bytes of the one piece of memory, without buffers that do not count as workspace."""
        small = sum(-(-x.nbytes // ALIGNMENT) * ALIGNMENT for x in self.offsets if not x.counted)
        return max(self.nbytes - small, 0)


@dataclass(frozen=True, eq=False)
class Program:
    """What a device does in a product, or for some facts; threads may run a program at the same time.

    Attributes
    ----------
    given : buffers of the caller, bound when the program runs, in this order; the result, if it computes one, is last
    inputs : buffers that an earlier program of the call keeps, and that the steps read
    steps : in the order in which the host starts them
    releases : (i, buffer) for each buffer that no step after the first i steps needs, inputs among them
    keeps : buffers that later programs of the call read
    readers : readers of the facts that the steps bring to the host, by the facts' names
    title : what the program computes, for listings
    idle : runs of this program that no call uses at present, for later calls
    """

    given: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    releases: tuple[tuple[int, Buffer], ...]
    keeps: tuple[Buffer, ...] = ()
    readers: Mapping[Hashable, Reader] = field(default_factory=dict)
    title: str = ""
    idle: deque[Run] = field(default_factory=lambda: deque(maxlen=MOST_IDLE), init=False, repr=False)

    def then(self, following: Program) -> Program:
        """Both programs as one, in one piece of memory; `following` reads what this one keeps."""
        given = dict.fromkeys((*self.given, *following.given))
        return Program(
            tuple(given),
            tuple(dict.fromkeys((*self.inputs, *(x for x in following.inputs if x not in self.keeps)))),
            self.steps + following.steps,
            self.releases + tuple((at + len(self.steps), buffer) for at, buffer in following.releases),
            following.keeps,
            {**self.readers, **following.readers},
            following.title,
        )

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers that the steps read or write, each once, in the order in which steps first touch them."""
        return tuple(self._first)

    @cached_property
    def _first(self) -> dict[Buffer, int]:
        """The number of the first step that needs each buffer.

        A buffer of a launch that overlaps the step before it is needed from that step on.
        """
        first: dict[Buffer, int] = {}
        for i, step in enumerate(self.steps):
            at = i - 1 if isinstance(step, Launch) and step.overlaps else i
            for buffer in step.buffers:
                first.setdefault(buffer, at)
        return first

    @cached_property
    def _lives(self) -> dict[Buffer, Life]:
        """From which step to which one each buffer of the workspace that the program makes is needed."""
        last, end = {buffer: at - 1 for at, buffer in self.releases}, len(self.steps)
        return {
            x: Life(x.nbytes, first, end if x in self.keeps else last.get(x, end))
            for x, first in self._first.items()
            if x.kind == "workspace" and x not in self.inputs
        }

    @cached_property
    def workspace(self) -> int:
        """The most bytes of counted workspace buffers, those that it keeps included, that are needed at a time."""
        return most_at_once([life for x, life in self._lives.items() if x.counted])

    @cached_property
    def room(self) -> Room:
        """What a run needs, known before anything is allocated.

        A buffer that a stream other than the main one touches shares its memory with no other buffer, because that
        stream is not ordered with the main one's steps before and after. Buffers that the program keeps lie elsewhere.
        """
        aside = {x for step in self.steps if step.stream != "main" for x in step.buffers}
        end = len(self.steps)
        lives = {
            x: Life(x.nbytes, 0, end) if x in aside else life for x, life in self._lives.items() if x not in self.keeps
        }
        begins, nbytes = offsets([*lives.values()])
        return Room(
            self.workspace,
            sum(x.nbytes for x in self.keeps if x.counted),
            dict(zip(lives, begins, strict=True)),
            nbytes,
            [x for x in self._first if x.kind == "host" and x not in self.inputs],
            any(step.stream != "main" for step in self.steps),
            any(isinstance(step, Arrive) for step in self.steps),
        )

    @property
    def repeatable(self) -> bool:
        """Whether the program is valid for other operands: no step uploads what the host computed from these ones."""
        return not any(isinstance(step, Upload) and step.of_operands for step in self.steps)

    def run(self) -> Run:
        """A run of this program that no call uses, which is not started yet."""
        try:
            return self.idle.pop()
        except IndexError:
            from ozaki.backends.cupy.program.run import Run

            return Run(self)

    def __str__(self) -> str:
        head = f"{self.title}; " * bool(self.title) + f"workspace {bytes_in_words(self.workspace)}"
        return "\n".join([head, *(f"{i:>3}  {step}" for i, step in enumerate(self.steps, 1))])
