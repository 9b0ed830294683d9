"""What a program knows of the operands of a product: plain data, and symbolic arrays made of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ozaki.backends.cupy.program.arrays import DTYPES, Array, Buffer, Place, View, contiguous_steps, view_of
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.multiprecision.limbs import limbs_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.shapes import SIDES, Side


class OperandView(NamedTuple):
    """An operand, or a result, without its addresses.

    Attributes
    ----------
    arrays : views of the arrays in which it lies: of floats one, or two if its rows are a copy; of multiprecision
        numbers signs, exponents and limbs; of a prepared operand `PreparedSlices.arrays`
    rows : views of the last of these arrays, or of all planes, as stacks of rows, shape (batch, rows, k), which begin
        where they do; None of a prepared operand, and where no step needs rows
    bits : of multiprecision numbers; 0 of floats
    layout : of the slices of a prepared operand
    scaled : whether that is scaled along k
    summarised : whether it is columns of 16-bit floats, with a summary
    """

    arrays: tuple[View, ...]
    rows: tuple[View, ...] | None = None
    bits: int = 0
    layout: Layout | None = None
    scaled: bool = False
    summarised: bool = False

    def array(self, name: str, given: Callable[[str, View], Array]) -> Array | NumbersArray:
        """The symbolic array of a result, whose arrays `given` names."""
        if self.bits:
            return numbers_named(name, self.arrays, self.bits, given)
        return given(name, self.arrays[0])


def numbers_named(name: str, views: tuple[View, ...], bits: int, given: Callable[[str, View], Array]) -> NumbersArray:
    """Name the planes of multiprecision numbers, which lie alike in memory."""
    names = f"signs of {name}", f"exponents of {name}", f"limbs of {name}"
    signs, exponents, limbs = (given(*each) for each in zip(names, views, strict=True))
    return NumbersArray(signs, exponents, limbs, bits)


def result_view(c: Any) -> OperandView:
    """The view of a result: a CuPy array, or multiprecision numbers in some."""
    if isinstance(c, Numbers):
        return OperandView(tuple(map(view_of, planes_of(c))), bits=c.bits)
    return OperandView((view_of(c),))


def planes_of(x: Numbers) -> tuple[Any, Any, Any]:
    """The arrays that hold numbers, in the order in which a program names them."""
    return x.signs, x.exponents, x.limbs


def arrays_of(c: Any) -> tuple[Any, ...]:
    """The arrays in which a result lies, in the order of `OperandView.arrays`."""
    return planes_of(c) if isinstance(c, Numbers) else (c,)


def contiguous_view(dtype: str, shape: tuple[int, ...]) -> OperandView:
    """The view of a contiguous array of a dtype of NumPy."""
    return OperandView((View(DTYPES[np.dtype(dtype).char], shape, contiguous_steps(shape)),))


def contiguous_numbers(bits: int, shape: tuple[int, ...]) -> OperandView:
    """The view of contiguous multiprecision numbers."""
    planes = ("b", shape), ("q", shape), ("I", (limbs_of(bits), *shape))
    return OperandView(tuple(View(DTYPES[char], of, contiguous_steps(of)) for char, of in planes), bits=bits)


class Seed:
    """A random number that nobody can foresee, which a program is given as if it were the address of an array."""

    def __init__(self) -> None:
        self.ptr = secrets.randbits(63)

    @property
    def data(self) -> Seed:
        """What has the address."""
        return self


def same_view(x: Any, y: Any) -> bool:
    """Whether two CuPy arrays are the same elements of the same memory in the same order."""
    steps = zip(x.shape, x.strides, y.strides, strict=False)  # along an axis of one element the step does not matter
    same = x.data.ptr == y.data.ptr and x.shape == y.shape and x.dtype == y.dtype
    return bool(same and all(n == 1 or s == t for n, s, t in steps))


@dataclass(frozen=True)
class Views:
    """Both operands of a product, and what is added to it, without addresses.

    Attributes
    ----------
    left, right : OperandView
    addend : of floats; None if nothing is added, or multiprecision numbers
    itself : whether a matrix is multiplied by its own transpose: the rows of A are the columns of B, in memory, too
    adjoint : whether B is the conjugate transpose of A, in other memory
    verified : whether the product is projected, for which programs are given a random number
    """

    left: OperandView
    right: OperandView
    addend: View | None = None
    itself: bool = False
    adjoint: bool = False
    verified: bool = False


@dataclass(frozen=True, eq=False)
class Inputs:
    """Both operands as the programs of one call name them.

    Attributes
    ----------
    views : what they were made of
    buffers : all given buffers, in the order of the arrays of both operands and the addend
    given : floating-point operands that are not prepared, in the shapes in which the caller gave them
    rows_given : their rows
    numbers : the rows of operands of multiprecision numbers
    prepared : slices of the operands that are prepared
    addend : of floats, or None
    seed : the place of a random number, which is bound in place of an address, of a product that is projected
    """

    views: Views
    buffers: tuple[Buffer, ...]
    given: Mapping[Side, Array] = field(default_factory=dict)
    rows_given: Mapping[Side, Array] = field(default_factory=dict)
    numbers: Mapping[Side, NumbersArray] = field(default_factory=dict)
    prepared: Mapping[Side, Slices] = field(default_factory=dict)
    addend: Array | None = None
    seed: Place | None = None

    @classmethod
    def of(cls, views: Views) -> Inputs:
        """Name the arrays of both operands."""
        buffers: list[Buffer] = []

        def named(name: str, view: View) -> Array:
            buffers.append(Buffer(name, 0, "given"))
            return Array(buffers[-1], 0, *view)

        given: dict[Side, Array] = {}
        rows: dict[Side, Array] = {}
        numbers: dict[Side, NumbersArray] = {}
        prepared: dict[Side, Slices] = {}
        for side, name, of in zip(SIDES, "ab", (views.left, views.right), strict=True):
            if of.layout is not None:
                prepared[side] = _slices_named(name, of, named)
            elif of.bits:
                numbers[side] = numbers_named(name, of.rows or of.arrays, of.bits, named)
            else:
                given[side] = array = named(name, of.arrays[0])
                if len(of.arrays) > 1:
                    array = named(f"copy of {name}", of.arrays[1])
                if of.rows is not None:
                    rows[side] = Array(array.buffer, 0, *of.rows[0])
        addend = None if views.addend is None else named("addend", views.addend)
        seed = None
        if views.verified:
            buffers.append(Buffer("seed", 0, "given"))
            seed = Place(buffers[-1])
        return cls(views, tuple(buffers), given, rows, numbers, prepared, addend, seed)

    @cached_property
    def multiprecision(self) -> bool:
        """Whether an operand holds multiprecision numbers."""
        return bool(self.numbers) or any(of.described.tops is not None for of in self.prepared.values())


def _slices_named(name: str, of: OperandView, named: Callable[[str, View], Array]) -> Slices:
    """The slices of a prepared operand as given arrays."""
    last = f"{name}.summary" if of.summarised else f"{name}.inner factors" if of.scaled else f"{name}.tops"
    names = name, f"{name}.fields", f"{name}.planes", f"{name}.exponents", last
    x, fields, planes, mu, *more = (named(*each) for each in zip(names, of.arrays, strict=False))
    assert of.layout is not None
    found = more[0] if more else None
    if of.summarised:
        described = Described(x, fields, summary=found)
    else:
        described = Described(x, fields, inner=found) if of.scaled else Described(x, fields, tops=found)
    return Slices(described, planes, of.layout, mu)
