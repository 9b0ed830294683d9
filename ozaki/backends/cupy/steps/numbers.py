"""Multiprecision numbers in programs: their planes, their leading bits, and descriptions of rows of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.steps import Clear, Out
from ozaki.backends.cupy.steps.describing import describe_into
from ozaki.backends.cupy.steps.operands import Described
from ozaki.bounds.description import FIELDS
from ozaki.caches import cached


def leading_bytes(size: int) -> int:
    """Bytes of the leading bits of so many multiprecision numbers, which are float64."""
    return 8 * size


class NumbersView(NamedTuple):
    """Multiprecision numbers without their addresses: all that the choice of a kernel and its grid depends on.

    Attributes
    ----------
    bits : bits that a number has room for
    shape, steps : shape, and elements from one index to the next, in every plane
    limb, limbs : elements from one plane of limbs to the next, and the number of these planes
    """

    bits: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    limb: int
    limbs: int

    @property
    def along_k(self) -> int:
        """1 if neighbours along k lie closer together in memory than neighbouring rows, else 0; of (batch, rows, k)."""
        return int(self.shape[1] == 1 or abs(self.steps[2]) <= abs(self.steps[1]))

    @property
    def struct(self) -> tuple[Any, ...]:
        """The struct NumbersView of kernels/arithmetic/numbers.cuh, without addresses."""
        return None, None, None, self.limb, self.limbs, *self.steps


@dataclass(frozen=True)
class NumbersArray:
    """An array of multiprecision numbers: the planes of `Numbers`, which lie alike in memory.

    Attributes
    ----------
    signs, exponents : int8 and int64
    limbs : uint32, shape (limbs, *shape)
    bits : as of `Numbers`
    """

    signs: Array
    exponents: Array
    limbs: Array
    bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.signs.shape

    @property
    def view(self) -> NumbersView:
        """Everything but addresses."""
        limb, *steps = self.limbs.view.steps
        return NumbersView(self.bits, self.shape, tuple(steps), limb, self.limbs.shape[0])

    @property
    def places(self) -> tuple[Place, Place, Place]:
        """The addresses of the first elements of the planes."""
        return self.signs.at, self.exponents.at, self.limbs.at

    def part(self, axis: int, first: int, last: int) -> NumbersArray:
        """Elements first, ..., last - 1 along an axis."""
        signs, exponents = (plane.part(axis, first, last) for plane in (self.signs, self.exponents))
        return NumbersArray(signs, exponents, self.limbs.part(axis + 1, first, last), self.bits)


def describe_numbers(b: Builder, x: NumbersArray) -> Described:
    """Describe multiprecision rows, shape (batch, rows, k), by their leading bits, scaled so that `top` is 0."""
    batch, rows, _ = x.shape
    name, count = x.signs.buffer.name.removeprefix(_SIGNS), batch * rows
    record = b.array(f"{name}.fields", (_RECORD, batch, rows), "q", counted=False)
    fields, tops = record.part(0, 0, len(FIELDS)), record.at_index(0, len(FIELDS))
    b.add(Clear(b.stream, tops.at, 16 * count))
    values = _leading_array(b, name, x)
    first, second, last = _leading_kernels(x.view, values.view.steps)
    b.launch(first, *x.places, Out(record))
    b.launch(second, *x.places, Out(record), Out(values))
    describe_into(b, values, fields)
    b.launch(last, Out(record))
    return Described(values, fields, numbers=x, tops=tops)


_SIGNS = "signs of "
"""The name of a plane of signs begins with this; that of the array follows."""

_RECORD = len(FIELDS) + 2
"""Rows of the record of kernels/conversion/leading.cu: the fields of a description, tops, and one for its own use."""


def _leading_array(b: Builder, name: str, x: NumbersArray) -> Array:
    """A new array for leading bits, float64, whose elements lie in memory in the order of those of x."""
    batch, rows, k = x.shape
    if x.view.along_k:
        return b.array(name, (batch, rows, k), "d")
    return b.array(name, (batch, k, rows), "d").swapped()


@cached(1024)
def _leading_kernels(x: NumbersView, out: tuple[int, ...]) -> tuple[Kernel, Kernel, Kernel]:
    batch, rows, k = x.shape
    own = (8, 512) if x.along_k else (32, 128)  # ROWS and DEPTH of kernels/conversion/leading.cu
    grid = (batch * ceil(rows / own[0]) * ceil(k / own[1]),)
    macros: dict[str, str | int] = {"ALONG_K": x.along_k}
    file = "conversion/leading.cu"
    sizes = x.struct, batch, rows, k, None
    return (
        Kernel.of(file, "row_tops", macros, grid, (256,), *sizes),
        Kernel.of(file, "leading", macros, grid, (256,), *sizes, None, *out),
        Kernel.of(file, "row_bottoms", macros, (ceil(batch * rows / 256),), (256,), None, batch * rows),
    )
