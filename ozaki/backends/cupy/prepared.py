"""An operand that is split already, in memory of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp

from ozaki._plan import Plan
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.run import FirstCall
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices


@dataclass(frozen=True, eq=False)
class PreparedSlices:
    """What `ozaki.prepare` holds of an operand.

    Attributes
    ----------
    x : its rows, (batch, rows, k)
    fields : their description
    planes : the slices, in the order of `layout`
    mu : the image exponents, (batch, rows)
    layout : Layout
    """

    x: Any
    fields: Any
    planes: Any
    mu: Any
    layout: Layout

    @property
    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """All that a product reads."""
        return self.x, self.fields, self.planes, self.mu

    def named(self, b: Builder, name: str) -> Slices:
        """The slices as given arrays of a program, in that order."""
        names = name, f"{name}.fields", f"{name}.planes", f"{name}.exponents"
        x, fields, planes, mu = (b.given(of, view_of(real)) for of, real in zip(names, self.arrays, strict=True))
        return Slices(Described(x, fields), planes, self.layout, mu)


def split(rows: Any, side: str, plan: Plan) -> PreparedSlices:
    """Split rows (batch, rows, k) for products by a plan."""
    assert plan.scheme is not None
    device, b, memory = devices.current(), Builder(), FirstCall()
    x = b.given(side, view_of(rows))
    memory.bind(x, rows)
    slices = engine_of(device, plan).split(b, describe(b, device, x), side, plan.scheme)
    part = b.take()
    memory.run(part)

    def real(of: Array) -> Any:
        """Of an operand without elements no step touches some of these, which then have no memory."""
        return memory.array(of) if of.buffer in part.buffers else cp.zeros(of.shape, of.char)

    fields, planes, exponents = real(slices.described.fields), real(slices.planes), real(slices.mu)
    return PreparedSlices(rows, fields, planes, exponents, slices.layout)
