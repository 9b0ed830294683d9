"""Prepared operands: split once, in device memory, for many products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp

from ozaki._plan import Plan
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.program.arrays import view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices


@dataclass(frozen=True, eq=False)
class PreparedSlices:
    """The arrays of a prepared operand.

    Attributes
    ----------
    x : the rows, shape (batch, rows, k)
    fields : their description, int64, shape (6, batch, rows)
    planes : the bytes of the slices, in the order of `layout`
    mu : the image exponents, int32, shape (batch, rows)
    layout : where slices lie in `planes`
    """

    x: Any
    fields: Any
    planes: Any
    mu: Any
    layout: Layout

    @property
    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """The arrays that a product reads: `x`, `fields`, `planes` and `mu`."""
        return self.x, self.fields, self.planes, self.mu

    def named(self, b: Builder, name: str) -> Slices:
        """The slices as given arrays of a program, named there in the order of `arrays`."""
        names = name, f"{name}.fields", f"{name}.planes", f"{name}.exponents"
        x, fields, planes, mu = (b.given(of, view_of(real)) for of, real in zip(names, self.arrays, strict=True))
        return Slices(Described(x, fields), planes, self.layout, mu)


def split(rows: Any, side: str, plan: Plan) -> PreparedSlices:
    """Split rows, shape (batch, rows, k), for products by a plan of slices or words."""
    assert plan.scheme is not None
    device, b, memory = devices.current(), Builder(), FirstCall()
    x = b.given(side, view_of(rows))
    memory.bind(x, rows)
    slices = engine_of(device, plan).split(b, describe(b, x), side, plan.scheme)
    part = b.take()
    memory.run(part)
    fields, planes, exponents = (
        memory.array(of) if of.buffer in part.buffers else cp.empty(of.shape, of.char)  # no step writes what is empty
        for of in (slices.described.fields, slices.planes, slices.mu)
    )
    return PreparedSlices(rows, fields, planes, exponents, slices.layout)
