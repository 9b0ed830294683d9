"""Two operands as stacks of rows: shapes, batches, dtypes and the errors about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from numbers import Integral
from typing import Any, Literal

import numpy as np

DTYPES = ("float32", "float64")

_NAMES = {key: name for name in DTYPES for key in (name, np.dtype(name))}

Shape = tuple[int, ...]

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Shapes:
    """The shapes of one product.

    Attributes
    ----------
    batch : leading dimensions of the result
    shape : (m, k, n)
    result : shape of the result, without the dimensions that a vector operand lacks
    fold : the batch lies in the left operand alone, so its matrices are stacked into one
    """

    batch: Shape
    shape: tuple[int, int, int]
    result: Shape
    fold: bool

    @cached_property
    def stack(self) -> tuple[int, int, int]:
        """(batch, m, n) of the result as computed."""
        m, _, n = self.shape
        count = prod(self.batch)
        return (1, count * m, n) if self.fold else (count, m, n)


@lru_cache(maxsize=1024)
def shapes(a: Shape, b: Shape) -> Shapes:
    """Array-API matmul: vectors, leading batch dimensions with broadcasting.

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
    fold = prod(right[:-2]) == 1 and len(batch) > 0
    return Shapes(batch, (m, k, n), result, fold)


def broadcast(left: Shape, right: Shape) -> Shape:
    """The batch that two come to, of as many axes as an array may have: `numpy.broadcast_shapes` takes 32 of them.

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
"""Inner indices for which bounds and sums are worked out (docs/bounds.md)."""


def as_array(name: str, x: Any, backend: Any) -> Any:
    """x as an array of the backend.

    Raises
    ------
    TypeError
        Where it cannot be one.
    """
    try:
        return backend.asarray(x)
    except MemoryError:
        raise
    except Exception as error:  # whatever an object makes of being converted
        raise TypeError(f"{name}: expected an array of float32 or float64, got {type(x).__name__} ({error})") from None


def as_library_has_it(c: Any) -> Any:
    """A result; without axes, as indexing has it: NumPy makes a scalar of it, CuPy leaves it an array."""
    return c[()] if c.ndim == 0 else c


def shape_of(name: str, x: tuple[Any, ...]) -> Shape:
    """A shape that the caller gives.

    Raises
    ------
    ValueError
        Where it is not one.
    """
    if not all(isinstance(size, Integral) and int(size) >= 0 for size in x):
        raise ValueError(f"{name}: {x!r} is not a shape; expected a tuple of whole numbers, none negative")
    return tuple(int(size) for size in x)


def left_rows(a: Any, sizes: Shapes) -> Any:
    """a as (batch, m, k), of batch 1 where it has none."""
    m, k, _ = sizes.shape
    x = a[None, :] if a.ndim == 1 else a
    if sizes.fold:
        return x.reshape(1, -1, k) if x.size else x.reshape(1, prod(sizes.batch) * m, k)
    return _stack(x, sizes, (m, k))


def right_rows(b: Any, sizes: Shapes) -> Any:
    """b transposed, as (batch, n, k), of batch 1 where it has none."""
    _, k, n = sizes.shape
    x = b[:, None] if b.ndim == 1 else b
    if sizes.fold:
        return x.reshape(1, k, n).swapaxes(1, 2)
    return _stack(x, sizes, (k, n)).swapaxes(1, 2)


def _stack(x: Any, sizes: Shapes, matrix: tuple[int, int]) -> Any:
    if x.ndim == 2 or prod(x.shape[:-2]) == 1:
        return x.reshape(1, *matrix)
    if x.shape[:-2] != sizes.batch:
        x = _broadcast(x, sizes.batch + matrix)
    return x.reshape(prod(sizes.batch), *matrix)


def _broadcast(x: Any, shape: Shape) -> Any:
    if not hasattr(x, "get"):
        return np.broadcast_to(x, shape)
    import cupy

    return cupy.broadcast_to(x, shape)


def dtype_of(name: str, x: Any) -> str:
    """The operand's dtype, if it is one that the library multiplies.

    Raises
    ------
    TypeError
        For any other dtype.
    """
    known = _NAMES.get(x.dtype)
    if known is None:
        remedy = f" ({name}.astype('float64') converts)" if x.dtype.kind in "biuf" else ""
        raise TypeError(f"{name}: dtype {x.dtype} is not supported; expected float32 or float64{remedy}")
    return known


def dtype_named(dtype: Any) -> str:
    """The name of a dtype that the caller gives.

    Raises
    ------
    TypeError
        For one that the library does not multiply.
    """
    try:
        name = str(np.dtype(dtype))
    except TypeError:
        name = ""
    if name not in DTYPES:
        raise TypeError(f"dtype: {dtype!r} is not supported; expected 'float32' or 'float64'")
    return name
