"""Multiprecision numbers of a caller's as arrays of a program."""

from __future__ import annotations

from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.multiprecision.numbers import Numbers


def bound_numbers(b: Builder, memory: FirstCall, name: str, real: Numbers) -> NumbersArray:
    """Name numbers in a program that `memory` runs; a copy of them if their planes do not lie alike in memory."""
    planes = real.signs, real.exponents, real.limbs
    axes = real.ndim
    if len({tuple(step // plane.itemsize for step in plane.strides[-axes:]) for plane in planes}) > 1:
        real = real.copy()
        planes = real.signs, real.exponents, real.limbs
    numbers = NumbersArray.given(b, name, real)
    for symbol, plane in zip((numbers.signs, numbers.exponents, numbers.limbs), planes, strict=True):
        memory.bind(symbol, plane)
    return numbers
