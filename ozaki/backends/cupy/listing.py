"""The program of a plan, for listings: built without operands and without a device."""

from __future__ import annotations

from math import prod

from ozaki._plan import Plan
from ozaki.backends.cupy.devices import Device
from ozaki.backends.cupy.program.arrays import View, contiguous_strides
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.native import native
from ozaki.backends.cupy.steps.product import multiply


def program_of(plan: Plan, device: Device) -> Program:
    """The program of a plan, for C-contiguous operands of its dtype, both with the whole batch.

    It has no steps for the facts that the plan rests on. `device` may be the record of one that is not present.
    """
    b, (m, k, n) = Builder(), plan.shape
    char, batch = ("d" if plan.dtype == "float64" else "f"), prod(plan.batch)
    view = _contiguous(char, (batch, k, n))
    left, out = b.given("a", _contiguous(char, (batch, m, k))), b.given("c", _contiguous(char, (batch, m, n)))
    right = b.given("b", view)
    if plan.scheme is None:
        native(b, left, right, plan.dtype, out)
    elif 0 not in (batch, m, k, n):
        multiply(b, device, engine_of(device, plan), plan, left, right.swapped(), out)
    return b.whole()


def _contiguous(char: str, shape: tuple[int, int, int]) -> View:
    return View(char, shape, contiguous_strides(shape, 8 if char == "d" else 4))
