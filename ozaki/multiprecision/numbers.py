"""`Numbers`: binary floating-point numbers of any precision as planes of signs, exponents and limbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import index as integer_of
from typing import Any, Self, TypeVar

import numpy as np

from ozaki.multiprecision.limbs import library, limbs_of

FARTHEST = 2**60
"""Largest magnitude of the exponent of an element that a caller may give; sums and multiples stay within int64."""

MOST_BITS = 2**24
"""Most bits of an element that an operation makes out of shorter ones: of a sum of numbers that lie far apart."""

AnyNumbers = TypeVar("AnyNumbers", bound="Numbers")


class Numbers:
    """An array of numbers of up to `bits` bits each, with exponents of their own.

    An element is signs 2**exponents F, F the fraction 0.b1 b2 b3... whose bits the limbs hold, the highest limb first.
    F is in [1/2, 1), unless the element is zero: so two elements of a row may lie a million binary orders apart, and
    neither takes more memory for it. There is no NaN, no infinity and no negative zero.

    Parameters
    ----------
    signs : int8 array: -1, 0 or 1
    exponents : int64 array of the same shape; 0 where the element is zero
    limbs : uint32 array, shape (L, *signs.shape), L the least number of limbs that hold `bits` bits
    bits : int
        Most bits that an element may have, from its first set bit to its last.

    Attributes
    ----------
    signs, exponents, limbs, bits : as above; to be read, not written
    """

    def __init__(self, signs: Any, exponents: Any, limbs: Any, bits: int) -> None:
        assert limbs.shape == (limbs_of(bits), *signs.shape) and exponents.shape == signs.shape
        self.signs, self.exponents, self.limbs, self.bits = signs, exponents, limbs, bits

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.signs.shape)

    @property
    def ndim(self) -> int:
        return int(self.signs.ndim)

    @property
    def size(self) -> int:
        return int(self.signs.size)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the elements take."""
        return int(self.signs.nbytes + self.exponents.nbytes + self.limbs.nbytes)

    @property
    def library(self) -> Any:
        """The module, numpy or cupy, in whose memory the elements lie."""
        return library(self.limbs)

    @property
    def flat(self) -> tuple[Any, Any, Any]:
        """Signs, exponents and limbs of shapes (n,), (n,) and (L, n), in row-major order; views where possible."""
        return self.signs.reshape(-1), self.exponents.reshape(-1), self.limbs.reshape(len(self.limbs), -1)

    def __getitem__(self, index: Any) -> Self:
        """Select elements as NumPy does; a view where NumPy makes one."""
        index = index if isinstance(index, tuple) else (index,)
        if all(_is_basic(each) for each in index):
            return self._each(lambda x, lead: x[(*lead, *index)])
        # Arrays of indices: where slices lie between them, NumPy would put their axes before that of the limbs.
        places = library(self.limbs).arange(self.size).reshape(self.shape)[index]
        signs, exponents, limbs = self.flat
        return type(self)(signs[places], exponents[places], limbs[:, places], self.bits)

    def reshape(self, *shape: Any) -> Self:
        """The elements, in row-major order, in another shape; a view where possible."""
        sizes = np.broadcast_to(np.False_, self.shape).reshape(*shape).shape  # takes -1; refuses what does not fit
        return self._each(lambda x, lead: x.reshape(x.shape[: len(lead)] + sizes))

    def transpose(self, *axes: Any) -> Self:
        """The axes in another order, by default the reverse one; a view."""
        order = np.empty(tuple(range(self.ndim))).transpose(*axes).shape  # refuses what is no order of the axes
        return self._each(lambda x, lead: x.transpose(*range(len(lead)), *(len(lead) + axis for axis in order)))

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Two axes exchanged; a view."""
        axes = [*range(self.ndim)]
        axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
        return self.transpose(axes)

    def copy(self) -> Self:
        """The same elements in memory of their own, in row-major order."""
        return self._each(lambda x, lead: x.copy(order="C"))

    def _each(self, change: Callable[[Any, tuple[slice, ...]], Any]) -> Self:
        """Change signs, exponents and limbs alike: change(x, lead), `lead` the indices of axes before the array's."""
        xp = library(self.limbs)
        signs, exponents = (xp.asarray(change(x, ())) for x in (self.signs, self.exponents))
        limbs = change(self.limbs, (slice(None),))
        return type(self)(signs, exponents, limbs, self.bits)


def moved(x: AnyNumbers, xp: Any) -> AnyNumbers:
    """The same numbers in the memory of the library `xp`; x itself, if it lies there."""
    if library(x.limbs) is xp:
        return x
    move = xp.asarray if xp is not np else sys.modules["cupy"].asnumpy
    return type(x)(move(x.signs), move(x.exponents), move(x.limbs), x.bits)


def _is_basic(index: Any) -> bool:
    """Whether NumPy makes a view for this part of an index."""
    if index is None or index is Ellipsis or isinstance(index, slice):
        return True
    if isinstance(index, bool | np.bool_) or hasattr(index, "shape"):
        return isinstance(index, np.integer)
    try:
        integer_of(index)
    except TypeError:
        return False
    return True
