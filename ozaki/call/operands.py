"""Two operands as stacks of rows: their dtypes, and the errors about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from ozaki.call.format_checks import check_finite
from ozaki.call.integers import of_objects, of_sequences
from ozaki.interchange.halves import HalfArray
from ozaki.interchange.plain import variable_named
from ozaki.multiprecision.convert import exactly, is_matrix
from ozaki.multiprecision.numbers import Integers, Numbers
from ozaki.multiprecision.quads import is_quad
from ozaki.records.formats import COMPLEX, DTYPES, HALVES, MULTIPRECISION, is_multiprecision, precision_of
from ozaki.records.prepared import Prepared
from ozaki.records.shapes import Shape, Shapes, Side

_NAMES = {key: name for name in DTYPES for key in (name, np.dtype(name))}
"""Names of the supported dtypes, by name and by NumPy dtype."""

BroadcastTo = Callable[[Any, Shape], Any]
"""An array library's function `broadcast_to(x, shape)`."""


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
        if not self.multiprecision:
            check_finite(name, self.value)


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
    if isinstance(x, HalfArray):
        return _Elements(x.bits, x.bits, x.shape, x.format, precision_of(x.format), 1, False)
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
    if dtype.kind in "iu" and dtype.itemsize == 8:  # NumPy casts these without asking
        return f" ({x}.astype('float64') is exact up to 2**53)"
    if dtype.name in HALVES:
        return f" ({x}.astype('float32') is exact)"
    if np.can_cast(dtype, np.float64):
        return f" ({x}.astype('float64') is exact)"
    if dtype.kind not in "fc":
        return ""
    usual = "float64" if dtype.kind == "f" else "complex128"
    return f" ({x}.astype('{usual}') rounds what is longer than 53 bits, ozaki.mparray({x}) keeps all bits)"
