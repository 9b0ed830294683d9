"""A bit that flips in device memory between two kernels, so that tests see `verify=True` find it, on any device.

Nothing sets `NEXT` but tests: `NEXT.append(Fault("y", 0.3, 5))` lets bit 5 of a byte of the bytes y_t flip, before they
are recombined, in the next program of a product that is checked and writes such a buffer.
"""

from __future__ import annotations

from typing import NamedTuple

from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.steps import Out


class Fault(NamedTuple):
    """A bit that flips.

    Attributes
    ----------
    buffer : the name of the buffer: "a.planes", "b.planes" (slices), "a.exponents", "b.exponents", "y" (residues of
        the product)
    place : which of its bytes, as a fraction of all
    bit : of this byte, 0 to 7
    """

    buffer: str
    place: float
    bit: int


NEXT: list[Fault] = []
"""Faults to come, the first one next."""


def flip(b: Builder, array: Array) -> None:
    """Add the step that flips a bit of an array that was written, if such a fault comes next."""
    if NEXT and NEXT[0].buffer == array.buffer.name:
        fault = NEXT.pop(0)
        offset = min(int(fault.place * array.nbytes), array.nbytes - 1)
        kernel = Kernel.of("conversion/project.cu", "flip", {}, (1,), (1,), None, 1 << fault.bit)
        b.launch(kernel, Out(array.at.plus(offset)))
