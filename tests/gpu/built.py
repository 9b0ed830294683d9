"""Steps of a program, built directly and run on CuPy arrays part by part, as a first call runs them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from ozaki.backends.cupy import backend, devices
from ozaki.backends.cupy.program.arrays import Place, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.run import Execution
from ozaki.backends.cupy.steps.describing import describe, description_on_host
from ozaki.bounds.description import FIELDS
from ozaki.records.memory import Memory


class Growing(Builder):
    """A builder of several programs one after the other, each of which keeps all that it does not release."""

    def take(self):
        """The program of the steps since the last call."""
        made = [Place(buffer) for buffer in self._made if buffer.kind == "workspace"]
        program = self.program(keeps=[place for place in made if place.buffer not in self._released])
        self._steps, self._releases, self._made = [], [], set()
        return program


class Steps:
    """A program under construction, and the memory that it runs in.

    Attributes
    ----------
    device : the record of the device that the steps are built for
    b : the builder
    """

    def __init__(self, device=None):
        self.device, self.b, self._execution = device or devices.current(), Growing(), Execution()

    def given(self, *arrays):
        """The symbolic arrays of the program that stand for CuPy arrays."""
        named = [self.b.given(f"given {i}", view_of(x)) for i, x in enumerate(arrays)]
        for array, real in zip(named, arrays, strict=True):
            self._execution.bind([array.buffer], [real])
        return named if len(named) > 1 else named[0]

    def run(self):
        """Run the steps that were added since the last run."""
        self._execution.run(self.b.take())

    def real(self, array):
        """The CuPy array, in memory of the program, for a symbolic one, after the steps that were added."""
        self.run()
        return self._execution.array(array)

    def evidence(self, evidence):
        """The value of evidence, after the steps that were added; waits for it."""
        self.run()
        return self._execution.evidence(evidence)

    def described(self, *arrays):
        """Add steps that describe CuPy arrays (batch, rows, k); return what they describe."""
        return [describe(self.b, self.given(x)) for x in arrays]


def description(x):
    """The description of the rows of a CuPy array (batch, rows, k), in host memory: a dict by names of fields."""
    steps = Steps()
    (described,) = steps.described(x)
    found = steps.evidence(description_on_host(steps.b, described))
    return {field: getattr(found, field) for field in FIELDS}


def work_of(a, b):
    """The CuPy backend's `Work` for the product of two CuPy matrices, whose `measure` finds facts about them."""
    rows = {"left": a[None], "right": b.T[None]}
    return backend.work(a, b, rows.__getitem__, str(np.result_type(a.dtype, b.dtype)), Memory(None))


@cache
def with_tiles_for_all(device):
    """The record of a device on which no matrix is too small for tiles."""
    tiles = replace(device.family.tiles, smallest=0)
    return replace(device, family=replace(device.family, tiles=tiles))


@cache
def without_tiles(device):
    """The record of a device without kernels for tiles."""
    return replace(device, family=replace(device.family, tiles=None))
