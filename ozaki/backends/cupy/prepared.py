"""Prepared operands: split once, in device memory, for many products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.inputs import OperandView, numbers_named, planes_of
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.run import Execution
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.engines.row_digits import row_engine
from ozaki.backends.cupy.steps.inner import own_factors
from ozaki.backends.cupy.steps.numbers import describe_numbers
from ozaki.backends.cupy.steps.operands import Layout
from ozaki.backends.cupy.steps.rows_of_digits import split_columns
from ozaki.interchange.kinds import Given
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.plan import Plan
from ozaki.schemes.row_digits import RowDigits


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
    inner : factors of inner indices by which the rows are scaled along k, float64, shape (batch, k); else None
    summary : of columns of 16-bit floats, bytes (`steps.rows_of_digits`); else None
    """

    x: Any
    fields: Any
    planes: Any
    mu: Any
    layout: Layout
    tops: Any = None
    inner: Any = None
    summary: Any = None

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays that a product reads: `x`, `fields`, `planes`, `mu`; and `tops`, `inner` or `summary`, if any."""
        more = (array for array in (self.tops, self.inner, self.summary) if array is not None)
        return self.x, self.fields, self.planes, self.mu, *more

    @cached_property
    def given(self) -> Given:
        """The device; dtype, shape and strides of the rows; and the addresses of `arrays`."""
        x = self.x
        return x.data.device_id, (x.dtype.char, x.shape, x.strides), tuple(array.data.ptr for array in self.arrays)

    @property
    def view(self) -> OperandView:
        """Everything but addresses."""
        more = self.inner is not None, self.summary is not None
        return OperandView(tuple(map(view_of, self.arrays)), None, 0, self.layout, *more)


def split(rows: Any, side: str, plan: Plan) -> PreparedSlices:
    """Split rows, shape (batch, rows, k), for products by a plan of slices or words."""
    assert plan.scheme is not None
    device, b, execution = devices.current(), Builder(), Execution()
    if isinstance(plan.scheme, RowDigits):
        return _split_columns(rows, plan, device, b, execution)
    multiprecision = isinstance(rows, Numbers)
    if multiprecision:
        rows = alike(rows)
        numbers = numbers_named(side, tuple(map(view_of, planes_of(rows))), rows.bits, b.given)
        execution.bind([of.buffer for of in (numbers.signs, numbers.exponents, numbers.limbs)], planes_of(rows))
        described = describe_numbers(b, numbers)
    else:
        x = b.given(side, view_of(rows))
        execution.bind([x.buffer], [rows])
        described = describe(b, x, own_factors(b, x) if plan.inner_scaling else None)
    slices = engine_of(device, plan, multiprecision).split(b, described, side, plan.scheme)
    wanted = [described.fields, slices.planes, slices.mu]
    if described.tops is not None:
        wanted += [described.tops, described.x]
    if described.inner is not None:
        wanted.append(described.inner)
    execution.run(b.program(keeps=wanted))

    kept, tops = rows, None
    if described.tops is not None:
        x = described.x
        straight = x if x.contiguous else x.swapped()
        kept, tops = execution.array(straight), execution.array(described.tops)
        kept = kept if x.contiguous else kept.swapaxes(1, 2)
    fields, planes, exponents = map(execution.array, (described.fields, slices.planes, slices.mu))
    inner = None if described.inner is None else execution.array(described.inner)
    return PreparedSlices(kept, fields, planes, exponents, slices.layout, tops, inner)


def _split_columns(rows: Any, plan: Plan, device: Device, b: Builder, execution: Execution) -> PreparedSlices:
    """Split the columns of 16-bit floats, given as rows; these are kept as such."""
    x = b.given("right", view_of(rows))
    execution.bind([x.buffer], [rows])
    assert isinstance(plan.scheme, RowDigits)
    slices = split_columns(b, row_engine(device, plan, plan.shape[0]), plan.scheme, x)
    described = slices.described
    assert described.summary is not None
    wanted = [described.fields, slices.planes, slices.mu, described.summary]
    copied = described.x is not x
    if copied:
        wanted.append(described.x)
    execution.run(b.program(keeps=wanted))
    fields, planes, mu, summary = map(execution.array, wanted[:4])
    kept = rows
    if copied:  # with padding along k
        x = described.x
        whole = Array(x.buffer, x.offset, x.dtype, (*x.shape[:2], x.steps[1]), x.steps)
        kept = execution.array(whole)[..., : x.shape[2]]
    return PreparedSlices(kept, fields, planes, mu, slices.layout, summary=summary)


def same_engine(plan: Plan, other: Plan) -> bool:
    """Whether the slices of an operand for one plan lie as the other one's engine wants them on the current device."""
    device = devices.current()
    return engine_of(device, plan) == engine_of(device, other)


def alike(x: Numbers) -> Numbers:
    """The numbers themselves, if their planes lie alike in memory; else a copy."""
    axes = x.ndim
    steps = {tuple(step // plane.itemsize for step in plane.strides[-axes:]) for plane in planes_of(x)}
    return x if len(steps) == 1 else x.copy()
