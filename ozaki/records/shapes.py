"""The shapes of one product, and of the real product of a complex one: plain numbers.

`parts` has the number of real parts of an element of A and of B: (2, 2) of complex operands, (1, 2) or (2, 1) of a real
and a complex one, (1, 1) of real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from numbers import Integral
from typing import Any, Literal

from ozaki.caches import cached

Parts = tuple[int, int]

REAL: Parts = (1, 1)
COMPLEX: Parts = (2, 2)


def length_of(k: int, parts: Parts) -> int:
    """Products of real numbers whose sum is a part of an entry of C."""
    return k * min(parts)


def spread_of(parts: Parts) -> float:
    """Factor on a bound of the real product that gives the bound of complex entries in the same measure (B11)."""
    return _SQRT_2 if parts == (2, 2) else 1.0


_SQRT_2 = 1.4142135623730952
"""The square root of 2, rounded up."""


def real_stack(stack: tuple[int, int, int], parts: Parts) -> tuple[int, int, int]:
    """Shape (batch, rows, columns) of the real product of a complex one of shape `stack`."""
    batch, m, n = stack
    return batch, m * (2 if parts == (2, 1) else 1), n * parts[1]


Shape = tuple[int, ...]

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
    broadcast : whether an operand has fewer matrices than the result
    """

    batch: Shape
    shape: tuple[int, int, int]
    result: Shape
    in_left: tuple[int, ...] = ()
    in_right: tuple[int, ...] = ()
    parts: Parts = REAL
    broadcast: bool = False

    @cached_property
    def is_complex(self) -> bool:
        """Whether an operand is complex."""
        return self.parts != REAL

    @cached_property
    def length(self) -> int:
        """Products of real numbers whose sum is a part of an entry: k, or 2 k if both operands are complex."""
        return length_of(self.shape[1], self.parts)

    @cached_property
    def spread(self) -> float:
        """Factor on a bound of the real product that gives the bound of entries (`spread_of`)."""
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
            f"b: batch {right[:-2]} of shape {b} does not broadcast with {left[:-2]} of a, shape {a}; expected "
            "equal sizes, or 1"
        ) from None
    if k > _LONGEST:
        raise ValueError(f"a: shape {a}; expected an inner dimension of at most {_LONGEST}")
    result = batch + (() if len(a) == 1 else (m,)) + (() if len(b) == 1 else (n,))
    fewer = not prod(left[:-2]) == prod(right[:-2]) == prod(batch)
    return Shapes(batch, (m, k, n), result, *_stacked(batch, left[:-2], right[:-2]), broadcast=fewer)


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


def tiles_of_rows(batch: int, rows: int, k: int, tile: int) -> list[tuple[slice, slice]]:
    """Cut (batch, rows), of rows of length k, into pairs of slices of about `tile` elements."""
    step = max(1, tile // max(k, 1))
    if step >= rows:
        together = max(1, tile // max(rows * k, 1))
        return [(slice(b, b + together), slice(0, rows)) for b in range(0, batch, together)]
    return [(slice(b, b + 1), slice(r, r + step)) for b in range(batch) for r in range(0, rows, step)]
