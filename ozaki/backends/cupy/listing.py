"""The program of a plan, for listings: built without operands and without a device."""

from __future__ import annotations

from math import prod

import numpy as np

from ozaki.backends.cupy.devices import Device
from ozaki.backends.cupy.program.arrays import View, contiguous_strides
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.native import native
from ozaki.backends.cupy.steps.numbers import NumbersArray, describe_numbers
from ozaki.backends.cupy.steps.product import multiply
from ozaki.multiprecision.limbs import limbs_of
from ozaki.records.formats import is_multiprecision, precision_of
from ozaki.records.plan import Plan


def program_of(plan: Plan, device: Device) -> Program:
    """The program of a plan, for C-contiguous operands of its dtype, both with the whole batch.

    It has no steps for the facts that the plan rests on. `device` may be the record of one that is not present.
    """
    b, (m, k, n) = Builder(), plan.shape
    batch = prod(plan.batch)
    if is_multiprecision(plan.dtype):
        _multiply_numbers(b, plan, device, batch)
        return b.whole()
    char = np.dtype(plan.dtype).char
    left, out = b.given("a", _contiguous(char, (batch, m, k))), b.given("c", _contiguous(char, (batch, m, n)))
    right = b.given("b", _contiguous(char, (batch, k, n)))
    if plan.scheme is None:
        native(b, left, right, plan.dtype, out)
    elif 0 not in (batch, m, k, n):
        multiply(b, device, engine_of(device, plan), plan, left, right.swapped(), out)
    return b.whole()


def _multiply_numbers(b: Builder, plan: Plan, device: Device, batch: int) -> None:
    """Add the steps of a product of multiprecision numbers."""
    (m, k, n), bits = plan.shape, precision_of(plan.dtype)
    left, right, out = (
        _numbers(b, name, (batch, *matrix), bits) for name, matrix in (("a", (m, k)), ("b", (k, n)), ("c", (m, n)))
    )
    if 0 not in (batch, m, k, n):
        rows = NumbersArray(right.signs.swapped(), right.exponents.swapped(), right.limbs.swapped(), bits)
        engine = engine_of(device, plan, multiprecision=True)
        multiply(b, device, engine, plan, describe_numbers(b, left), describe_numbers(b, rows), out)


def _numbers(b: Builder, name: str, shape: tuple[int, int, int], bits: int) -> NumbersArray:
    planes = ("signs", "b", shape), ("exponents", "q", shape), ("limbs", "I", (limbs_of(bits), *shape))
    signs, exponents, limbs = (b.given(f"{name}.{plane}", _contiguous(char, size)) for plane, char, size in planes)
    return NumbersArray(signs, exponents, limbs, bits)


def _contiguous(char: str, shape: tuple[int, ...]) -> View:
    return View(char, shape, contiguous_strides(shape, np.dtype(char).itemsize))
