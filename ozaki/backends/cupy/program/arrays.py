"""Symbolic arrays: where elements will lie in a buffer, before there is any memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

Kind = Literal["given", "workspace", "host"]

SIZES = {"b": 1, "B": 1, "i": 4, "I": 4, "f": 4, "q": 8, "l": 8, "d": 8, "F": 8, "D": 16}
"""Bytes of an element, by its dtype's character, as `numpy.dtype.char` has it."""


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


_CTYPES = {"f": "float", "d": "double", "F": "float2", "D": "double2"}


class Place(NamedTuple):
    """An address: `offset` bytes from the beginning of a buffer."""

    buffer: Buffer
    offset: int = 0

    def plus(self, nbytes: int) -> Place:
        """The place `nbytes` bytes further on."""
        return Place(self.buffer, self.offset + nbytes)


class View(NamedTuple):
    """An array without its address: all that the choice of a kernel and its grid depends on."""

    char: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def ctype(self) -> str:
        """The C name of the dtype, which is a floating-point one."""
        return _CTYPES[self.char]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return SIZES[self.char]

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides in elements."""
        itemsize = self.itemsize
        return tuple(s // itemsize for s in self.strides)

    @property
    def parts(self) -> int:
        """Real numbers of an element: 2 of a complex one."""
        return 2 if self.char in "FD" else 1

    @property
    def ctype_of_part(self) -> str:
        """The C name of the dtype of a part; of a real array `ctype`."""
        return _CTYPES[{"F": "f", "D": "d"}.get(self.char, self.char)]

    @property
    def steps_of_parts(self) -> tuple[int, ...]:
        """Strides in real numbers; of a real array `steps`."""
        return tuple(self.parts * step for step in self.steps)

    @property
    def along_k(self) -> int:
        """1 if neighbours along k lie closer together in memory than neighbouring rows, else 0; of (batch, rows, k)."""
        return int(self.shape[1] == 1 or abs(self.strides[2]) <= abs(self.strides[1]))


@dataclass(frozen=True)
class Array:
    """An array of a program.

    Attributes
    ----------
    buffer, offset : where the first element lies; the offset in bytes
    char : dtype, as in `numpy.dtype.char`
    shape, strides : as in NumPy, strides in bytes
    """

    buffer: Buffer
    offset: int
    char: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @cached_property
    def view(self) -> View:
        """Everything but the address."""
        return View(self.char, self.shape, self.strides)

    @property
    def at(self) -> Place:
        """The address of the first element."""
        return Place(self.buffer, self.offset)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return SIZES[self.char]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in memory without gaps, in the order of the indices."""
        expected = contiguous_strides(self.shape, self.itemsize)
        pairs = zip(self.shape, self.strides, expected, strict=True)
        return self.size == 0 or all(n == 1 or stride == of for n, stride, of in pairs)

    def part(self, axis: int, first: int, last: int) -> Array:
        """Elements first, ..., last - 1 along an axis."""
        assert 0 <= first <= last <= self.shape[axis], (self.shape, axis, first, last)
        shape = *self.shape[:axis], last - first, *self.shape[axis + 1 :]
        return Array(self.buffer, self.offset + first * self.strides[axis], self.char, shape, self.strides)

    def at_index(self, axis: int, i: int) -> Array:
        """Element i along an axis; the result lacks that axis."""
        shape, strides = (x[:axis] + x[axis + 1 :] for x in (self.shape, self.strides))
        return Array(self.buffer, self.offset + i * self.strides[axis], self.char, shape, strides)

    def with_axis(self, axis: int) -> Array:
        """The same elements with one more axis, of length 1."""
        shape = *self.shape[:axis], 1, *self.shape[axis:]
        strides = *self.strides[:axis], 0, *self.strides[axis:]
        return Array(self.buffer, self.offset, self.char, shape, strides)

    @property
    def real_parts(self) -> tuple[Array, ...]:
        """The real parts of all elements and, of a complex array, the imaginary ones."""
        if self.view.parts == 1:
            return (self,)
        char, half = self.char.lower(), self.itemsize // 2
        return tuple(Array(self.buffer, self.offset + i * half, char, self.shape, self.strides) for i in (0, 1))

    def swapped(self) -> Array:
        """The array with its last two axes exchanged."""
        shape, strides = ((*x[:-2], x[-1], x[-2]) for x in (self.shape, self.strides))
        return Array(self.buffer, self.offset, self.char, shape, strides)

    def reshape(self, *shape: int) -> Array:
        """The same elements in another shape; the array must be contiguous."""
        assert self.contiguous and prod(shape) == self.size, (self.shape, self.strides, shape)
        return Array(self.buffer, self.offset, self.char, shape, contiguous_strides(shape, self.itemsize))

    def __str__(self) -> str:
        return self.buffer.name


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides, in bytes, of an array whose elements lie without gaps in the order of the indices."""
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(n, 1)
    return tuple(reversed(strides))


def view_of(x: Any) -> View:
    """The view of a real array."""
    return View(x.dtype.char, x.shape, x.strides)
