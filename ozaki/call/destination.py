"""The memory of a result: that of the caller's `out`, or new memory, and the entries that are computed in it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from ozaki.backends import Backend
from ozaki.call.complex_parts import join_into, numbers_of_entries, real_entries
from ozaki.call.operands import scalar_if_no_axes
from ozaki.interchange.halves import HalfArray
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.formats import HALVES, is_multiprecision, part_bytes, part_of, stored_as
from ozaki.records.shapes import REAL, Shapes


class Destination:
    """Where the result of a product is computed.

    Parameters
    ----------
    out : array, as the caller gave it, or None
    sizes : shapes of the product
    dtype : the format of the result
    backend : Backend
    read : the arrays of operands and addend. `out` may overlap them; then the result is computed elsewhere: a report
        reads the operands after the product, and an addend is read for entries that NaN and Inf touch, after all others
        are written

    Attributes
    ----------
    out : as given
    in_place : whether the product is computed in `out`
    bytes_apart : bytes of a result that is computed apart from `out`, and copied there; else 0
    copied : these, and the bytes of entries apart from the result
    """

    def __init__(self, out: Any, sizes: Shapes, dtype: str, backend: Backend, read: Iterable[Any]) -> None:
        self._sizes, self._dtype, self._backend = sizes, dtype, backend
        self.out = out
        if out is not None:
            check_out(out, sizes.result, dtype, backend)
        self.in_place = out is not None and self._can_hold_the_result(read)
        self.bytes_apart = 0 if out is None or self.in_place else int(out.nbytes)
        self.copied = self.bytes_apart + (prod(sizes.real_stack) * part_bytes(dtype) if self._joins else 0)

    def _can_hold_the_result(self, read: Iterable[Any]) -> bool:
        in_order = self._sizes.in_order and self._backend.contiguous(self.out)
        return in_order and not any(self._backend.overlap(self.out, x) for x in read)

    @property
    def _joins(self) -> bool:
        """Whether the computed parts of complex entries lie apart, and are joined in the result afterwards."""
        return self._sizes.parts == (2, 1) and not is_multiprecision(self._dtype)

    def memory(self, dtype: str) -> Any:
        """Memory for the result, shape (batch, m, n): that of `out` if `in_place`.

        `dtype` is the format that the plan gives the result.
        """
        if is_multiprecision(dtype) and self._sizes.is_complex:
            return numbers_of_entries(self._backend.empty(self._sizes.real_stack, dtype), self._sizes.parts)
        if self.in_place:
            return self._backend.asarray("out", self.out).reshape(self._sizes.stack)
        return self._backend.empty(self._sizes.stack, dtype)

    def entries(self, c: Any) -> Any:
        """Memory for the entries of the real product of a complex one: that of its result c, if a view has that shape.

        c itself of a real product.
        """
        if self._joins:
            return self._backend.empty(self._sizes.real_stack, part_of(self._dtype))
        parts = self._sizes.parts
        return c if parts == REAL else real_entries(c, self._dtype, parts)

    def join(self, entries: Any, c: Any) -> None:
        """Bring computed entries of the real product into the result c, where they are not in its memory already."""
        if self._joins:
            join_into(entries, c)

    def shaped(self, c: Any) -> Any:
        """The computed result c in the caller's shape."""
        return c if c.shape == self._sizes.result else self._sizes.own_shape(c).reshape(self._sizes.result)

    def returned(self, c: Any) -> Any:
        """What the caller gets: a result of floats, of his shape, or `out`, to which it is copied if not `in_place`."""
        assert not isinstance(c, Numbers)
        if self.out is None:
            return scalar_if_no_axes(c)
        if not self.in_place:
            self.out[...] = c
        return self.out


def check_out(out: Any, shape: tuple[int, ...], dtype: str, backend: Backend) -> None:
    """Refuse an `out` that cannot take a result of this shape and dtype."""
    if isinstance(out, HalfArray):
        raise ValueError(f"out: shape {out.shape} and dtype {out.format}; expected {shape} and {dtype}")
    if not backend.owns(out):
        kind = type(out)
        library = "" if kind.__module__ == "builtins" else kind.__module__.partition(".")[0] + "."
        raise TypeError(f"out: {library}{kind.__name__}; expected a {backend.name} array, as the operands are")
    if tuple(out.shape) != shape or str(out.dtype) != stored_as(dtype):
        found = dtype if dtype in HALVES and str(out.dtype) == stored_as(dtype) else out.dtype  # not that of the bits
        raise ValueError(f"out: shape {tuple(out.shape)} and dtype {found}; expected {shape} and {dtype}")
    if np.ma.is_masked(out):
        raise TypeError("out: has masked elements; expected an array without any")
    if not (out.flags.c_contiguous or _elements_apart(tuple(out.shape), tuple(out.strides), out.itemsize)):
        raise ValueError("out: elements share their memory; expected an array in which each has its own")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ValueError("out: is read-only; expected a writable array")


def _elements_apart(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether no two elements of an array with these strides (bytes) share memory."""
    if 0 in shape:
        return True
    axes = sorted((abs(step), size) for step, size in zip(strides, shape, strict=True) if size > 1)
    reach, nested = itemsize, True
    for step, size in axes:
        nested = nested and step >= reach  # a stride beyond all bytes that smaller ones reach
        reach += step * (size - 1)
    if nested or prod(shape) * itemsize > reach:
        return nested
    # Strides interleave, but all elements would fit the bytes from first to last: compare where each one lies.
    places = np.zeros(1, np.int64)
    for step, size in axes:
        places = (places[:, None] + step * np.arange(size)).ravel()
    places.sort()
    return bool((np.diff(places) >= itemsize).all())
