"""Symbolic arrays: where elements will lie in a buffer, before there is any memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

Kind = Literal["given", "workspace", "host"]


@dataclass(frozen=True, eq=False)
class Dtype:
    """What is known of the elements of arrays; there is one of each dtype, in `DTYPES`.

    Attributes
    ----------
    char : as in `numpy.dtype.char`
    itemsize : bytes of an element
    ctype : its C name
    parts : real numbers of an element: 2 of a complex one
    ctype_of_part : the C name of such a number; of a real dtype `ctype`
    """

    char: str
    itemsize: int
    ctype: str
    parts: int = 1
    ctype_of_part: str = ""


_REAL = {
    "b": (1, "int8_t"), "B": (1, "uint8_t"), "H": (2, "uint16_t"), "i": (4, "int32_t"), "I": (4, "uint32_t"),
    "q": (8, "int64_t"), "l": (8, "int64_t"), "f": (4, "float"), "d": (8, "double"),
}  # fmt: skip

DTYPES = {char: Dtype(char, size, name, 1, name) for char, (size, name) in _REAL.items()} | {
    "F": Dtype("F", 8, "float2", 2, "float"),
    "D": Dtype("D", 16, "double2", 2, "double"),
}
"""All dtypes of arrays in programs, by their characters."""


@dataclass(frozen=True, eq=False)
class Buffer:
    """A piece of memory that a program names; compared by identity.

    Attributes
    ----------
    name : for people
    nbytes : size in bytes; 0 for a given buffer, whose memory is the caller's
    kind : "given" (an operand or the result, bound when the program runs), "workspace" (memory of the device) or
        "host" (pinned memory of the host, which the device writes)
    counted : whether it counts as workspace; memory of a few bytes a row does not
    """

    name: str
    nbytes: int
    kind: Kind
    counted: bool = True


class Place(NamedTuple):
    """An address: `offset` bytes from the beginning of a buffer."""

    buffer: Buffer
    offset: int = 0

    def plus(self, nbytes: int) -> Place:
        """The place `nbytes` bytes further on."""
        return Place(self.buffer, self.offset + nbytes)


class View(NamedTuple):
    """An array without its address: all that the choice of a kernel and its grid depends on.

    Attributes
    ----------
    dtype, shape : as in NumPy
    steps : elements from one index to the next along each axis
    """

    dtype: Dtype
    shape: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def steps_of_parts(self) -> tuple[int, ...]:
        """Steps in real numbers; of a real array `steps`."""
        return tuple(self.dtype.parts * step for step in self.steps)

    @property
    def along_k(self) -> int:
        """1 if neighbours along k lie closer together in memory than neighbouring rows, else 0; of (batch, rows, k)."""
        return int(self.shape[1] == 1 or abs(self.steps[2]) <= abs(self.steps[1]))


@dataclass(frozen=True)
class Array:
    """An array of a program.

    Attributes
    ----------
    buffer, offset : where the first element lies; the offset in bytes
    dtype, shape, steps : as of its `View`
    """

    buffer: Buffer
    offset: int
    dtype: Dtype
    shape: tuple[int, ...]
    steps: tuple[int, ...]

    @cached_property
    def view(self) -> View:
        """Everything but the address."""
        return View(self.dtype, self.shape, self.steps)

    @property
    def at(self) -> Place:
        """The address of the first element."""
        return Place(self.buffer, self.offset)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in memory without gaps, in the order of the indices."""
        pairs = zip(self.shape, self.steps, contiguous_steps(self.shape), strict=True)
        return self.size == 0 or all(n == 1 or step == of for n, step, of in pairs)

    def part(self, axis: int, first: int, last: int) -> Array:
        """Elements first, ..., last - 1 along an axis."""
        assert 0 <= first <= last <= self.shape[axis], (self.shape, axis, first, last)
        shape = *self.shape[:axis], last - first, *self.shape[axis + 1 :]
        offset = self.offset + first * self.steps[axis] * self.dtype.itemsize
        return Array(self.buffer, offset, self.dtype, shape, self.steps)

    def at_index(self, axis: int, i: int) -> Array:
        """Element i along an axis; the result lacks that axis."""
        shape, steps = (x[:axis] + x[axis + 1 :] for x in (self.shape, self.steps))
        return Array(self.buffer, self.offset + i * self.steps[axis] * self.dtype.itemsize, self.dtype, shape, steps)

    def with_axis(self, axis: int) -> Array:
        """The same elements with one more axis, of length 1."""
        shape = *self.shape[:axis], 1, *self.shape[axis:]
        steps = *self.steps[:axis], 0, *self.steps[axis:]
        return Array(self.buffer, self.offset, self.dtype, shape, steps)

    @property
    def real_parts(self) -> tuple[Array, ...]:
        """The real parts of all elements and, of a complex array, the imaginary ones."""
        if self.dtype.parts == 1:
            return (self,)
        part, steps = DTYPES[self.dtype.char.lower()], self.view.steps_of_parts
        return tuple(Array(self.buffer, self.offset + i * part.itemsize, part, self.shape, steps) for i in (0, 1))

    def swapped(self) -> Array:
        """The array with its last two axes exchanged."""
        shape, steps = ((*x[:-2], x[-1], x[-2]) for x in (self.shape, self.steps))
        return Array(self.buffer, self.offset, self.dtype, shape, steps)

    def reshape(self, *shape: int) -> Array:
        """The same elements in another shape; the array must be contiguous."""
        assert self.contiguous and prod(shape) == self.size, (self.shape, self.steps, shape)
        return Array(self.buffer, self.offset, self.dtype, shape, contiguous_steps(shape))


def contiguous_steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The steps of an array whose elements lie without gaps in the order of the indices."""
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


def view_of(x: Any) -> View:
    """The view of a real array, whose strides are whole elements."""
    dtype = DTYPES[x.dtype.char]
    return View(dtype, x.shape, tuple([stride // dtype.itemsize for stride in x.strides]))
