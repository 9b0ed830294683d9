"""Prepared operands: split once, in device memory, for many products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.binding import bound_numbers
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.numbers import describe_numbers
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.plan import Plan


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
    tops : int64, shape (batch, rows), after `fields` in memory, if `x` is the leading bits of multiprecision rows; else
        None
    """

    x: Any
    fields: Any
    planes: Any
    mu: Any
    layout: Layout
    tops: Any = None

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays that a product reads: `x`, `fields`, `planes` and `mu`; and `tops`, if there are any."""
        tops = () if self.tops is None else (self.tops,)
        return self.x, self.fields, self.planes, self.mu, *tops

    def named(self, b: Builder, name: str) -> tuple[Slices, tuple[Array, ...]]:
        """The slices as given arrays of a program; and these arrays, named there in the order of `arrays`."""
        names = name, f"{name}.fields", f"{name}.planes", f"{name}.exponents", f"{name}.tops"
        symbols = tuple(b.given(of, view_of(real)) for of, real in zip(names, self.arrays, strict=False))
        x, fields, planes, mu = symbols[:4]
        tops = None if self.tops is None else symbols[4]
        return Slices(Described(x, fields, tops=tops), planes, self.layout, mu), symbols


def split(rows: Any, side: str, plan: Plan) -> PreparedSlices:
    """Split rows, shape (batch, rows, k), for products by a plan of slices or words."""
    assert plan.scheme is not None
    device, b, memory = devices.current(), Builder(), FirstCall()
    multiprecision = isinstance(rows, Numbers)
    if multiprecision:
        described = describe_numbers(b, bound_numbers(b, memory, side, rows))
    else:
        x = b.given(side, view_of(rows))
        memory.bind(x, rows)
        described = describe(b, x)
    slices = engine_of(device, plan, multiprecision).split(b, described, side, plan.scheme)
    part = b.take()
    memory.run(part)

    def real(of: Array) -> Any:
        return memory.array(of) if of.buffer in part.buffers else cp.empty(of.shape, of.char)  # no step writes it

    kept, tops = rows, None
    if described.tops is not None:
        x = described.x
        straight = x if x.contiguous else x.swapped()
        kept, tops = real(straight), real(described.tops)
        kept = kept if x.contiguous else kept.swapaxes(1, 2)
    fields, planes, exponents = map(real, (described.fields, slices.planes, slices.mu))
    return PreparedSlices(kept, fields, planes, exponents, slices.layout, tops)
