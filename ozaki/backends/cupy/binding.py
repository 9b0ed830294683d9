"""Arrays of a caller as a program sees them: multiprecision numbers as its own arrays, and which views are the same."""

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


def same_view(x: Any, y: Any) -> bool:
    """Whether two CuPy arrays are the same elements of the same memory in the same order."""
    steps = zip(x.shape, x.strides, y.strides, strict=False)  # along an axis of one element the step does not matter
    same = x.data.ptr == y.data.ptr and x.shape == y.shape and x.dtype == y.dtype
    return bool(same and all(n == 1 or s == t for n, s, t in steps))
