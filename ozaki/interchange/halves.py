"""Arrays of 16-bit floats of libraries whose formats NumPy and CuPy may lack: the bits, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ozaki.records.formats import HALVES

EIGHT_BITS = "float8_"
"""How the names of 8-bit formats begin, in NumPy (by ml_dtypes) and PyTorch alike."""


@dataclass(frozen=True, eq=False)
class HalfArray:
    """An array of 16-bit floats.

    Attributes
    ----------
    bits : array of NumPy or CuPy, uint16, any strides
    format : "float16" or "bfloat16"
    """

    bits: Any
    format: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.bits.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return int(self.bits.ndim)

    def __getitem__(self, at: Any) -> HalfArray:
        """Some of the numbers: a view, where NumPy or CuPy gives one."""
        return HalfArray(self.bits[at], self.format)

    def swapaxes(self, first: int, second: int) -> HalfArray:
        """The array with two axes exchanged: a view."""
        return HalfArray(self.bits.swapaxes(first, second), self.format)

    def transpose(self, *axes: Any) -> HalfArray:
        """The array with its axes in another order: a view."""
        return HalfArray(self.bits.transpose(*axes), self.format)

    def reshape(self, *shape: Any) -> HalfArray:
        """The numbers in another shape: a view, where NumPy or CuPy gives one."""
        return HalfArray(self.bits.reshape(*shape), self.format)

    def diagonal(self, axis1: int, axis2: int) -> HalfArray:
        """The diagonals along two axes, as the last axis: a view."""
        return HalfArray(self.bits.diagonal(axis1=axis1, axis2=axis2), self.format)

    @property
    def _an_array(self) -> Any:
        """The bits, which lie where the numbers do (`process.placement.where_they_lie`)."""
        return self.bits


ONE = {"float16": 0x3C00, "bfloat16": 0x3F80}
"""The bits of the number one."""


def half_format_of(x: Any) -> str | None:
    """The 16-bit format of an array, also of a plain one of NumPy or CuPy; None of anything else."""
    if isinstance(x, HalfArray):
        return x.format
    dtype = getattr(x, "dtype", None)
    if getattr(dtype, "itemsize", None) != 2:
        return None
    if getattr(dtype, "char", None) == "e":  # NumPy takes some microseconds for a name
        return "float16"
    name = getattr(dtype, "name", None)
    return name if name in HALVES else None


def as_bits(x: Any) -> Any:
    """The bits of an array of 16-bit floats, uint16: a view. Anything else as it is."""
    if isinstance(x, HalfArray):
        return x.bits
    return x.view(np.uint16) if half_format_of(x) is not None else x


def plain_halves(x: Any) -> Any:
    """An array of 8-bit floats of ml_dtypes as bfloat16, which has all of these numbers; any other as it is.

    Of 16-bit floats in another byte order a copy in that of the machine, in which their bits are read.
    """
    dtype: Any = getattr(x, "dtype", None)
    size = getattr(dtype, "itemsize", 0)
    if size == 2 and not dtype.isnative:
        return x.astype(dtype.newbyteorder("="))
    if size != 1 or not dtype.name.startswith(EIGHT_BITS):  # `name` takes a microsecond
        return x
    from ml_dtypes import bfloat16

    return x.astype(bfloat16)


def widened(x: Any) -> Any:
    """The float32 values of an array of 16-bit floats: a copy."""
    if not isinstance(x, HalfArray):
        return x.astype(np.float32)
    if x.format == "float16":
        return x.bits.view(np.float16).astype(np.float32)
    wide = x.bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def narrowed(x: Any, half: str) -> HalfArray:
    """Float32 numbers, an array of NumPy or CuPy, rounded to a 16-bit format."""
    if half == "float16":
        rounded = x.astype(np.float16).view(np.uint16)
    else:
        bits = x.view(np.uint32)
        rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16  # to nearest, ties to even
    return HalfArray(np.where(np.isnan(x), _NAN[half], rounded).astype(np.uint16), half)


_NAN = {"float16": 0x7E00, "bfloat16": 0x7FC0}
"""The bits of the NaN that results have."""
