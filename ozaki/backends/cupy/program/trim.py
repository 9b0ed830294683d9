"""A program without the steps that its result and its facts do not depend on.

In a first call steps are added before the plan is certain: operands may be split for a plan that is not chosen, and
facts begun that `choose` does not ask for. A repeated call does without them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from ozaki.backends.cupy.program.arrays import Buffer
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.steps import Arrive, Fork, Launch, Step


def trimmed(program: Program, facts: Collection[Hashable]) -> Program:
    """The steps of a program that its result, the last of `given`, and these facts depend on.

    A step stays if it writes a buffer that a later staying step touches. Buffers are taken as a whole, and one that a
    step writes counts as one that it reads, because it may read it first, as a counter that was cleared. A step also
    stays if the next step stays and overlaps it: that one waits for no other step (kernels/hardware/launch.cuh).
    """
    readers = {name: reader for name, reader in program.readers.items() if name in facts}
    arrivals = {evidence.arrival for reader in readers.values() for evidence in reader.evidence}
    needed: set[Buffer] = {program.given[-1]}
    waiting: set[str] = set()
    """Streams that have a staying step after the present one."""
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
