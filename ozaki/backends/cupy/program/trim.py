"""A program without the steps that its result and its facts do not depend on.

In a first call steps are added before the plan is certain: operands are split for a plan that turns out to be another
one, facts are begun that nobody asks for. A repeated call has no use for these.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from ozaki.backends.cupy.program.arrays import Buffer
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.steps import Arrive, Fork, Launch, Step


def trimmed(program: Program, facts: Collection[Hashable]) -> Program:
    """The same program for its result, the last of `given`, and for these facts.

    A step stays if it writes a buffer that a later step which stays touches, whatever part of it: what a step writes,
    it may read as well, as a counter that was cleared. So does a step that the one after it overlaps with: that one
    waits for nothing else (kernels/hardware/launch.cuh).
    """
    readers = {name: reader for name, reader in program.readers.items() if name in facts}
    arrivals = {evidence.arrival for reader in readers.values() for evidence in reader.evidence}
    needed: set[Buffer] = {program.given[-1]}
    waiting: set[str] = set()
    """Streams with a step that stays after the present one."""
    staying: list[int] = []
    following: Step | None = None
    for i in reversed(range(len(program.steps))):
        step = program.steps[i]
        if isinstance(step, Fork):
            stays = step.stream in waiting
            waiting |= {step.after} if stays else set()
        elif isinstance(step, Arrive):
            stays = step in arrivals
        else:
            overlapped = isinstance(following, Launch) and following.overlaps
            stays = overlapped or any(place.buffer in needed for place in step.writes)
        following = step if stays else None
        if stays:
            staying.append(i)
            waiting.add(step.stream)
            needed.update(step.buffers)
    staying.reverse()
    steps = tuple(program.steps[i] for i in staying)
    touched = {buffer for step in steps for buffer in step.buffers}
    releases = tuple((sum(i < at for i in staying), buffer) for at, buffer in program.releases if buffer in touched)
    return Program(program.given, steps, releases, readers, title=program.title)
