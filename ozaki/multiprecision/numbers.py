"""`Numbers`: binary floating-point numbers of any precision as planes of signs, exponents and limbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from operator import index as integer_of
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ozaki.multiprecision.limbs import library, limbs_of
from ozaki.process.placement import methods_where_it_lies

FARTHEST = 2**60
"""Largest magnitude of the exponent of an element that a caller may give; sums and multiples stay within int64."""

MOST_BITS = 2**24
"""Most bits of an element that an operation makes out of shorter ones: of a sum of numbers that lie far apart."""

AnyNumbers = TypeVar("AnyNumbers", bound="Numbers")


@methods_where_it_lies
class Numbers:
    """An array of numbers of up to `bits` bits each, with exponents of their own.

    An element is signs 2**exponents F, F the fraction 0.b1 b2 b3... whose bits the limbs hold, the highest limb first.
    F is in [1/2, 1), unless the element is zero: so two elements of a row may lie a million binary orders apart, and
    neither takes more memory for it. There is no NaN, no infinity and no negative zero.

    The parts of a complex number, its real and its imaginary part, are two such elements: planes of complex numbers
    have one axis more than the array, the last one, of size 2.

    Parameters
    ----------
    signs : int8 array: -1, 0 or 1
    exponents : int64 array of the same shape; 0 where the element is zero
    limbs : uint32 array, shape (L, *signs.shape), L the least number of limbs that hold `bits` bits
    bits : int
        Most bits that an element, or a part of a complex one, may have, from its first set bit to its last.
    is_complex : bool
        Whether the last axis of the planes has the real and the imaginary parts of complex numbers.

    Attributes
    ----------
    signs, exponents, limbs, bits, is_complex : as above; to be read, not written
    """

    def __init__(self, signs: Any, exponents: Any, limbs: Any, bits: int, is_complex: bool = False) -> None:
        assert limbs.shape == (limbs_of(bits), *signs.shape) and exponents.shape == signs.shape
        assert not is_complex or signs.shape[-1] == 2
        self.signs, self.exponents, self.limbs, self.bits = signs, exponents, limbs, bits
        self.is_complex = is_complex

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.signs.shape[: self.ndim])

    @property
    def ndim(self) -> int:
        return int(self.signs.ndim) - self.is_complex

    @property
    def size(self) -> int:
        return int(self.signs.size) // (1 + self.is_complex)

    @property
    def parts(self) -> Numbers:
        """The real and the imaginary parts of complex numbers as real ones, shape (*shape, 2): a view.

        Of real numbers the numbers themselves.
        """
        return Numbers(self.signs, self.exponents, self.limbs, self.bits) if self.is_complex else self

    @property
    def real(self) -> Self:
        """The real parts; a view, of real numbers the numbers themselves."""
        return self._part(0) if self.is_complex else self

    @property
    def imag(self) -> Self:
        """The imaginary parts; a view, of real numbers new zeros."""
        if self.is_complex:
            return self._part(1)
        xp = library(self.limbs)
        return self._each(lambda x, lead: xp.zeros(x.shape, x.dtype))

    def _part(self, which: int) -> Self:
        planes = (plane[..., which] for plane in (self.signs, self.exponents, self.limbs))
        signs, exponents, limbs = map(library(self.limbs).asarray, planes)
        return type(self)(signs, exponents, limbs, self.bits)

    def conj(self) -> Self:
        """The complex conjugates; real numbers themselves."""
        if not self.is_complex:
            return self
        signs = library(self.limbs).stack((self.signs[..., 0], -self.signs[..., 1]), axis=-1)
        return type(self)(signs, self.exponents, self.limbs, self.bits, True)

    def alike(self, parts: Numbers) -> Numbers:
        """The numbers whose `parts` are given: complex ones, if this object is."""
        return of_parts(parts) if self.is_complex else parts

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the elements take."""
        return int(self.signs.nbytes + self.exponents.nbytes + self.limbs.nbytes)

    @property
    def library(self) -> Any:
        """The module, numpy or cupy, in whose memory the elements lie."""
        return library(self.limbs)

    @property
    def _an_array(self) -> Any:
        """One of the planes; all lie where it does (`process.placement.where_they_lie`)."""
        return self.limbs

    @property
    def flat(self) -> tuple[Any, Any, Any]:
        """Signs, exponents and limbs of real numbers in row-major order, shapes (n,), (n,) and (L, n).

        They are views where possible.
        """
        assert not self.is_complex
        return self.signs.reshape(-1), self.exponents.reshape(-1), self.limbs.reshape(len(self.limbs), -1)

    def __getitem__(self, index: Any) -> Self:
        """Select elements as NumPy does; a view where NumPy makes one."""
        index = index if isinstance(index, tuple) else (index,)
        if all(_is_basic(each) for each in index):
            own = (slice(None),) * self.is_complex  # the axis of parts
            if Ellipsis not in index:
                index = (*index, Ellipsis)
            return self._each(lambda x, lead: x[(*lead, *index, *own)])
        # Arrays of indices: where slices lie between them, NumPy would put their axes before that of the limbs.
        places = library(self.limbs).arange(self.size).reshape(self.shape)[index]
        flat = self.reshape(-1)
        return type(self)(flat.signs[places], flat.exponents[places], flat.limbs[:, places], self.bits, self.is_complex)

    def reshape(self, *shape: Any) -> Self:
        """The elements, in row-major order, in another shape; a view where possible."""
        sizes = np.broadcast_to(np.False_, self.shape).reshape(*shape).shape  # takes -1; refuses what does not fit
        own = (2,) * self.is_complex
        return self._each(lambda x, lead: x.reshape((*x.shape[: len(lead)], *sizes, *own)))

    def transpose(self, *axes: Any) -> Self:
        """The axes in another order, by default the reverse one; a view."""
        order = np.empty(tuple(range(self.ndim))).transpose(*axes).shape  # refuses what is no order of the axes
        if self.is_complex:
            order = (*order, self.ndim)
        return self._each(lambda x, lead: x.transpose(*range(len(lead)), *(len(lead) + axis for axis in order)))

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Two axes exchanged; a view."""
        axes = [*range(self.ndim)]
        first, second = (normalize_axis_index(axis, self.ndim) for axis in (axis1, axis2))
        axes[first], axes[second] = second, first
        return self.transpose(axes)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """The diagonals of two axes, as a new last axis; a view."""
        first, second = (normalize_axis_index(axis, self.ndim) for axis in (axis1, axis2))

        def change(x: Any, lead: tuple[slice, ...]) -> Any:
            found = x.diagonal(offset, len(lead) + first, len(lead) + second)
            return found.swapaxes(-1, -2) if self.is_complex else found  # the axis of parts stays the last

        return self._each(change)

    def copy(self) -> Self:
        """The same elements in memory of their own, in row-major order."""
        return self._each(lambda x, lead: x.copy(order="C"))

    def _each(self, change: Callable[[Any, tuple[slice, ...]], Any]) -> Self:
        """Change signs, exponents and limbs alike: change(x, lead), `lead` the indices of axes before the array's."""
        xp = library(self.limbs)
        signs, exponents = (xp.asarray(change(x, ())) for x in (self.signs, self.exponents))
        limbs = change(self.limbs, (slice(None),))
        return type(self)(signs, exponents, limbs, self.bits, self.is_complex)


class Integers(Numbers):
    """Numbers that a caller gave as integers: products of them have every bit where nobody names an accuracy."""

    @classmethod
    def of(cls, x: Numbers) -> Self:
        """The same numbers, known to be integers."""
        return cls(x.signs, x.exponents, x.limbs, x.bits, x.is_complex)


def of_parts(x: Numbers) -> Numbers:
    """The complex numbers whose real and imaginary parts x has along its last axis; a view."""
    return Numbers(x.signs, x.exponents, x.limbs, x.bits, True)


_Rest = ParamSpec("_Rest")


def by_parts(
    change: Callable[Concatenate[Numbers, _Rest], Numbers],
) -> Callable[Concatenate[Numbers, _Rest], Numbers]:
    """Decorate a function of real numbers, which keeps their shape, so that it changes the parts of complex ones."""

    @wraps(change)
    def changed(x: Numbers, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> Numbers:
        return x.alike(change(x.parts, *args, **kwargs)) if x.is_complex else change(x, *args, **kwargs)

    return changed


def as_complex(x: Numbers) -> Numbers:
    """Complex numbers whose real parts are x, and whose imaginary parts are zero; x itself, if it is complex."""
    if x.is_complex:
        return x
    return of_parts(beside_zeros(x, -1))


def beside_zeros(x: Numbers, axis: int) -> Numbers:
    """Real numbers x and as many zeros after them, along a new axis, counted from the last one: in row-major order.

    Nothing else is held meanwhile.
    """
    xp, place = library(x.limbs), (..., 0, *(slice(None),) * (-1 - axis))

    def with_zeros(plane: Any) -> Any:
        at = plane.ndim + 1 + axis
        found = xp.zeros((*plane.shape[:at], 2, *plane.shape[at:]), plane.dtype)
        found[place] = plane
        return found

    return Numbers(with_zeros(x.signs), with_zeros(x.exponents), with_zeros(x.limbs), x.bits)


def moved(x: AnyNumbers, xp: Any) -> AnyNumbers:
    """The same numbers in the memory of the library `xp`; x itself, if it lies there."""
    if library(x.limbs) is xp:
        return x
    move = xp.asarray if xp is not np else sys.modules["cupy"].asnumpy
    return type(x)(move(x.signs), move(x.exponents), move(x.limbs), x.bits, x.is_complex)


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
