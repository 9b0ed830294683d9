"""Multiprecision numbers of a caller's as arrays of a program."""

from __future__ import annotations

from typing import Any

from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.multiprecision.numbers import Numbers


def planes_of(x: Numbers) -> tuple[Any, Any, Any]:
    """The arrays that hold numbers, in the order in which a program names them."""
    return x.signs, x.exponents, x.limbs


def bound_numbers(b: Builder, memory: FirstCall, name: str, real: Numbers) -> NumbersArray:
    """Name numbers in a program that `memory` runs; a copy of them if their planes do not lie alike in memory."""
    planes = planes_of(real)
    axes = real.ndim
    if len({tuple(step // plane.itemsize for step in plane.strides[-axes:]) for plane in planes}) > 1:
        real = real.copy()
        planes = planes_of(real)
    numbers = NumbersArray.given(b, name, real)
    for symbol, plane in zip((numbers.signs, numbers.exponents, numbers.limbs), planes, strict=True):
        memory.bind(symbol, plane)
    return numbers
