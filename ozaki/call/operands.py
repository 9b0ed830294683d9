"""Two operands as stacks of rows: shapes, batches, dtypes and the errors about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from numbers import Integral
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from ozaki.caches import cached
from ozaki.call.complex_parts import REAL, Parts, length_of, real_stack, spread_of
from ozaki.call.integers import of_objects, of_sequences
from ozaki.interchange.plain import variable_named
from ozaki.multiprecision.convert import exactly, is_matrix
from ozaki.multiprecision.floats import not_finite
from ozaki.multiprecision.numbers import Integers, Numbers
from ozaki.multiprecision.quads import is_quad
from ozaki.records.formats import COMPLEX, MULTIPRECISION, SIGNIFICAND_BITS, is_multiprecision, precision_of
from ozaki.records.prepared import Prepared

DTYPES = (*SIGNIFICAND_BITS, *COMPLEX)

HALVES = ("float16", "bfloat16")
"""Formats of 16 bits, bfloat16 as the package ml_dtypes gives it to NumPy."""

_NAMES = {key: name for name in DTYPES for key in (name, np.dtype(name))}
"""Names of the supported dtypes, by name and by NumPy dtype."""

Shape = tuple[int, ...]

BroadcastTo = Callable[[Any, Shape], Any]
"""An array library's function `broadcast_to(x, shape)`."""

Side = Literal["left", "right"]

SIDES: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True)
class Shapes:
    """The shapes of one product.

    Attributes
    ----------
    batch : leading dimensions of the result
    shape : (m, k, n)
    result : shape of the result, without the dimensions that a vector operand lacks
    in_left : axes of the batch along which the right operand has one matrix only: along them the matrices of the left
        operand are stacked into one matrix of more rows
    in_right : axes of the batch along which the left operand has one matrix only: along them the matrices of the right
        operand stand side by side as one matrix of more columns
    parts : real parts of an element of A and of B: 2 of complex ones
    """

    batch: Shape
    shape: tuple[int, int, int]
    result: Shape
    in_left: tuple[int, ...] = ()
    in_right: tuple[int, ...] = ()
    parts: Parts = REAL

    @property
    def is_complex(self) -> bool:
        """Whether an operand is complex."""
        return self.parts != REAL

    @property
    def length(self) -> int:
        """Products of real numbers whose sum is a part of an entry: k, or 2 k if both operands are complex."""
        return length_of(self.shape[1], self.parts)

    @property
    def spread(self) -> float:
        """Factor on a bound of the real product that gives the bound of entries (`call.complex_parts.spread_of`)."""
        return spread_of(self.parts)

    @cached_property
    def real_stack(self) -> tuple[int, int, int]:
        """Shape (batch, rows, columns) of the real product that is computed; `stack` of real operands."""
        return real_stack(self.stack, self.parts)

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Axes of the batch whose matrices are multiplied one by one."""
        return tuple(axis for axis in range(len(self.batch)) if axis not in self.in_left + self.in_right)

    @cached_property
    def stack(self) -> tuple[int, int, int]:
        """Shape (batch, m, n) in which the result is computed: stacked matrices count in m and n, not in batch."""
        m, _, n = self.shape
        count, more_rows, more_columns = (self._count(axes) for axes in (self.shared, self.in_left, self.in_right))
        return count, more_rows * m, more_columns * n

    @cached_property
    def in_order(self) -> bool:
        """Whether the computed result, of shape `stack`, has its elements in memory in the order of shape `result`."""
        moved = [axis for axis in self.shared + self.in_left if self.batch[axis] != 1]
        return moved == sorted(moved) and self._count(self.in_right) == 1

    def _count(self, axes: tuple[int, ...]) -> int:
        return prod(self.batch[axis] for axis in axes)

    def own_shape(self, c: Any) -> Any:
        """View c, contiguous and of shape `stack`, as (*batch, m, n)."""
        if self.in_order:
            return c.reshape(*self.batch, *self.shape[::2])
        sizes = [[self.batch[axis] for axis in axes] for axes in (self.shared, self.in_left, self.in_right)]
        order = [self._axes.index(axis) for axis in range(len(self.batch) + 2)]
        return c.reshape(*sizes[0], *sizes[1], self.shape[0], *sizes[2], self.shape[2]).transpose(order)

    def stacked(self, c: Any) -> Any:
        """View or copy c, of shape `result`, in the shape `stack`: the inverse of `own_shape`."""
        c = c.reshape(*self.batch, *self.shape[::2])
        return (c if self.in_order else c.transpose(self._axes)).reshape(self.stack)

    @property
    def _axes(self) -> tuple[int, ...]:
        """The axes (*batch, m, n) in the order in which the computed result has them."""
        ndim = len(self.batch)
        return *self.shared, *self.in_left, ndim, *self.in_right, ndim + 1


@cached(1024)
def shapes(a: Shape, b: Shape) -> Shapes:
    """The shapes of the product of operands of shapes a and b, by the rules of the Array API's matmul.

    Raises
    ------
    ValueError
        Naming `a` or `b`, for a scalar, inner dimensions that differ or batches that do not broadcast.
    """
    for name, shape in (("a", a), ("b", b)):
        if len(shape) == 0:
            raise ValueError(f"{name}: a scalar; expected at least one dimension (multiply by a scalar with *)")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    m, k = left[-2:]
    inner, n = right[-2:]
    if k != inner:
        expected = f"({k}, n)" if len(b) > 1 else f"({k},)"
        raise ValueError(f"b: shape {b} does not fit a of shape {a}; expected {expected}")
    try:
        batch = broadcast(left[:-2], right[:-2])
    except ValueError:
        raise ValueError(
            f"b: batch {right[:-2]} of shape {b} does not broadcast with {left[:-2]} of a, shape {a}"
        ) from None
    if k > _LONGEST:
        raise ValueError(f"a: shape {a}; expected an inner dimension of at most {_LONGEST}")
    result = batch + (() if len(a) == 1 else (m,)) + (() if len(b) == 1 else (n,))
    return Shapes(batch, (m, k, n), result, *_stacked(batch, left[:-2], right[:-2]))


def _stacked(batch: Shape, left: Shape, right: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`in_left` and `in_right` of a product, chosen so that operands that are broadcast need not be copied.

    `batch` is that of the result, `left` and `right` those of the operands.
    """
    if prod(right) == 1:
        return tuple(range(len(batch))), ()
    if prod(left) == 1 or prod(left) == prod(right) == prod(batch):
        return (), ()
    left, right = ((1,) * (len(batch) - len(of)) + of for of in (left, right))
    axes = range(len(batch))
    return (
        tuple(axis for axis in axes if right[axis] == 1 != left[axis]),
        tuple(axis for axis in axes if left[axis] == 1 != right[axis]),
    )


def broadcast(left: Shape, right: Shape) -> Shape:
    """The shape that two batches broadcast to.

    It takes any number of axes: `numpy.broadcast_shapes` takes 32, fewer than an array may have.

    Raises
    ------
    ValueError
        Where they do not broadcast.
    """
    axes = max(len(left), len(right))
    sizes = [(1,) * (axes - len(batch)) + batch for batch in (left, right)]
    if any(x != y and 1 not in (x, y) for x, y in zip(*sizes, strict=True)):
        raise ValueError(f"{left} and {right} do not broadcast")
    return tuple(y if x == 1 else x for x, y in zip(*sizes, strict=True))


_LONGEST = 2**40
"""Largest inner dimension: bounds and sums are derived up to this one (docs/bounds.md)."""


def as_array(name: str, x: Any, backend: Any) -> Any:
    """Convert x to an array of the backend, or to multiprecision numbers: matrices of mpmath and python-flint, quads.

    Floats of 16 bits become float32, which is exact, and all others have the byte order of the machine. Objects that
    are all integers become an array of int64, uint64, or, where these do not hold them, Python's ints; there are no
    other objects in the result.

    Raises
    ------
    TypeError, ValueError
        If it cannot be converted, or something of it would be lost (`interchange.plain`).
    """
    if isinstance(x, Numbers) or (type(x) is np.ndarray and x.dtype in _NAMES):
        return x
    if is_matrix(x):
        return exactly(x, name)
    found = backend.asarray(name, x)
    if found is x and found.dtype in _NAMES:
        return x
    if is_quad(found):
        return exactly(found, name)
    if found.dtype.kind == "O":
        integers = of_objects(found)
        if integers is None:
            dtype_of(name, found)  # raises
        return integers
    if found is not x and isinstance(x, Sequence):
        found = of_sequences(name, x, found)
    return found.astype(np.float32) if found.dtype.name in HALVES else found


def scalar_if_no_axes(c: Any) -> Any:
    """The result c, without axes as a scalar of NumPy; CuPy has no scalars, and c stays an array."""
    return c[()] if c.ndim == 0 else c


def shape_of(name: str, x: tuple[Any, ...]) -> Shape:
    """Check a shape that the caller gives.

    Raises
    ------
    ValueError
        If it is not a tuple of whole numbers, none negative.
    """
    if not all(isinstance(size, Integral) and int(size) >= 0 for size in x):
        raise ValueError(f"{name}: {x!r} is not a shape; expected a tuple of whole numbers, none negative")
    return tuple(int(size) for size in x)


def left_rows(a: Any, sizes: Shapes, broadcast_to: BroadcastTo) -> Any:
    """View or copy a as rows: shape (batch, rows, k), batch and rows those of `sizes.stack`, batch 1 for one matrix."""
    m, k, _ = sizes.shape
    x = a[None, :] if a.ndim == 1 else a
    if sizes.in_left or sizes.in_right:
        return _moved(x, sizes, sizes.in_left).reshape(*sizes.stack[:2], k)
    return _stack(x, sizes, (m, k), broadcast_to)


def right_rows(b: Any, sizes: Shapes, broadcast_to: BroadcastTo) -> Any:
    """View or copy the transpose of b: shape (batch, columns, k) of `sizes.stack`, batch 1 for one matrix."""
    _, k, n = sizes.shape
    x = b[:, None] if b.ndim == 1 else b
    if sizes.in_right:
        return _moved(x.swapaxes(-1, -2), sizes, sizes.in_right).reshape(sizes.stack[0], sizes.stack[2], k)
    if sizes.in_left:
        return _moved(x, sizes, ()).reshape(sizes.stack[0], k, n).swapaxes(1, 2)
    return _stack(x, sizes, (k, n), broadcast_to).swapaxes(1, 2)


def _moved(x: Any, sizes: Shapes, stacked: tuple[int, ...]) -> Any:
    """View x with its batch axes reordered: the shared ones, then those in `stacked`, then the rest, all of size 1."""
    ndim = len(sizes.batch)
    x = x.reshape((1,) * (ndim + 2 - x.ndim) + tuple(x.shape))
    rest = [axis for axis in range(ndim) if axis not in sizes.shared + stacked]
    return x.transpose(*sizes.shared, *stacked, *rest, ndim, ndim + 1)


def _stack(x: Any, sizes: Shapes, matrix: tuple[int, int], broadcast_to: BroadcastTo) -> Any:
    """x, matrices of shape `matrix`, as (1, *matrix) if it is one, else with its batch broadcast and flattened."""
    if x.ndim == 2 or prod(x.shape[:-2]) == 1:
        return x.reshape(1, *matrix)
    if x.shape[:-2] != sizes.batch:
        x = broadcast_to(x, sizes.batch + matrix)
    return x.reshape(prod(sizes.batch), *matrix)


def dtype_of(name: str, x: Any) -> str:
    """The format of an operand, which must be one that the library multiplies.

    Raises
    ------
    TypeError
        For any other dtype.
    """
    if isinstance(x, Numbers):
        return f"{MULTIPRECISION}{x.bits}"
    if isinstance(x.dtype, str):  # of a prepared operand
        return x.dtype
    known = _NAMES.get(x.dtype)
    if known is None:
        raise TypeError(
            f"{name}: dtype {x.dtype} is not supported; expected float32 or float64, complex64 or complex128"
            f"{_remedy(name, x.dtype)}"
        )
    return known


def are_integers(x: Any) -> bool:
    """Whether an operand, as `as_array` returns it, was given as integers or bools."""
    if isinstance(x, Numbers):  # whose dtype is that of the objects which NumPy makes of them
        return isinstance(x, Integers)
    return getattr(getattr(x, "dtype", None), "kind", None) in ("b", "i", "u", "O")


class Operand(Protocol):
    """An operand of a product, or what is added to it, checked: what planning asks of it, and its elements as rows.

    Attributes
    ----------
    value : the array, the multiprecision numbers or the prepared operand
    read : the arrays whose memory a product reads
    shape, format : of the elements: "float64", "complex64", "mp106"
    bits : of their significands, of complex ones of each part
    parts : real parts of an element: 2 of a complex one
    multiprecision, prepared : whether it is made of multiprecision numbers, and whether it is split already
    """

    @property
    def value(self) -> Any: ...
    @property
    def read(self) -> Any: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def format(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def parts(self) -> int: ...
    @property
    def multiprecision(self) -> bool: ...
    @property
    def prepared(self) -> bool: ...

    def rows(self, side: Side, sizes: Shapes, broadcast_to: BroadcastTo) -> Any:
        """The elements as a stack of rows, shape (batch, rows, k) of `sizes.stack`: a view, or a copy without one."""
        ...

    def matrix(self, side: Side) -> Any:
        """The matrix or stack of matrices that a native product multiplies; of a prepared operand its slices."""
        ...

    def check_finite(self, name: str) -> None:
        """Refuse NaN and Inf, which a multiprecision result cannot hold."""
        ...


class _Elements(NamedTuple):
    """An operand that is an array of floats, or of multiprecision numbers."""

    value: Any
    read: Any
    shape: Shape
    format: str
    bits: int
    parts: int
    multiprecision: bool
    prepared: bool = False

    def rows(self, side: Side, sizes: Shapes, broadcast_to: BroadcastTo) -> Any:
        return (left_rows if side == "left" else right_rows)(self.value, sizes, broadcast_to)

    def matrix(self, side: Side) -> Any:
        if len(self.shape) != 1:
            return self.value
        return self.value[None, :] if side == "left" else self.value[:, None]

    def check_finite(self, name: str) -> None:
        if not self.multiprecision and (index := not_finite(self.value)) is not None:
            raise ValueError(
                f"{name}: element {[*index]} is {self.value[index]}; an exact or multiprecision result needs finite "
                "numbers"
            )


class _Split(NamedTuple):
    """An operand that is prepared."""

    value: Prepared
    read: Any
    shape: Shape
    format: str
    bits: int
    parts: int
    multiprecision: bool
    prepared: bool = True

    def rows(self, side: Side, sizes: Shapes, broadcast_to: BroadcastTo) -> Any:
        return self.read

    def matrix(self, side: Side) -> Any:
        return self.value.slices

    def check_finite(self, name: str) -> None:
        """It was refused when it was prepared."""


def operand(name: str, x: Any) -> Operand:
    """An argument as `as_array` returns it, or a prepared one, as an operand.

    Raises
    ------
    TypeError
        For a dtype that is not supported.
    """
    if isinstance(x, Prepared):
        many, parts = is_multiprecision(x.dtype), x.plan.parts[x.side == "right"]
        return _Split(x, x.slices.x, x.shape, x.dtype, precision_of(x.dtype), parts, many)
    if isinstance(x, Numbers):
        return _Elements(x, x, tuple(x.shape), f"{MULTIPRECISION}{x.bits}", x.bits, 1 + x.is_complex, True)
    form = dtype_of(name, x)
    return _Elements(x, x, tuple(x.shape), form, _BITS[form], 1 + (form in COMPLEX), False)


_BITS = {name: precision_of(name) for name in DTYPES}


def holds_complex(x: Any) -> bool:
    """Whether x is an array of complex numbers; False for prepared operands and sequences."""
    return x.is_complex if isinstance(x, Numbers) else getattr(getattr(x, "dtype", None), "kind", "") == "c"


def _remedy(name: str, dtype: Any) -> str:
    """How an operand of another dtype can be converted, and what that loses."""
    x = variable_named(name)
    if dtype.kind in "OSUT":
        objects = f"{x}.astype(str)" if dtype.kind == "S" else x
        return f" (ozaki.mparray({objects}, bits) makes multiprecision numbers of objects and strings)"
    if np.can_cast(dtype, np.float64):
        return f" ({x}.astype('float64') is exact)"
    if dtype.kind not in "fc":
        return ""
    usual = "float64" if dtype.kind == "f" else "complex128"
    return f" ({x}.astype('{usual}') rounds what is longer than 53 bits, ozaki.mparray({x}) keeps all bits)"


def tiles_of_rows(batch: int, rows: int, k: int, tile: int) -> list[tuple[slice, slice]]:
    """Cut (batch, rows), of rows of length k, into pairs of slices of about `tile` elements."""
    step = max(1, tile // max(k, 1))
    if step >= rows:
        together = max(1, tile // max(rows * k, 1))
        return [(slice(b, b + together), slice(0, rows)) for b in range(0, batch, together)]
    return [(slice(b, b + 1), slice(r, r + step)) for b in range(batch) for r in range(0, rows, step)]
