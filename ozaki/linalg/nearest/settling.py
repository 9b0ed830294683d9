"""Results rounded to nearest: by intervals in more and more bits, and exactly where these do not decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import inside, step
from ozaki.linalg.common.arrays import array_library
from ozaki.linalg.common.targets import MOST_BITS
from ozaki.linalg.nearest.intervals import Interval, Mask, rounded
from ozaki.linalg.nearest.patterns import Pattern
from ozaki.multiprecision.array import MPArray
from ozaki.records.formats import COMPLEX, part_of

QUICK = 2.0**22, 2.0**28, 2.0**31
"""After the first, second and third intervals: nanoseconds up to which exact elimination takes less time than intervals
of twice as many bits."""

AFFORDABLE = 2.0**34
"""Nanoseconds of exact elimination, some 15 seconds, beyond which an entry that lies on a boundary is refused."""


class Problem(Protocol):
    """A problem whose solution has one or several arrays.

    Attributes
    ----------
    names : what messages call the arrays
    first_bits : of the first intervals
    """

    names: tuple[str, ...]
    first_bits: int

    def enclose(self, bits: int) -> list[Interval]:
        """Intervals that hold the entries of each array; 2**-bits is about their size, relative to some norm.

        Raises
        ------
        numpy.linalg.LinAlgError, ValueError
            If there are none of so many bits.
        """
        ...

    def sharpened(self, intervals: list[Interval], bits: int) -> list[Interval]:
        """Intervals that take the place of these, which `enclose` found, where entries are known exactly."""
        ...

    def patterns(self) -> list[Pattern]:
        """Where the arrays may be other than zero; a last axis may tell parts of complex numbers apart."""
        ...

    def work(self, which: list[Mask]) -> float:
        """About how many nanoseconds `exact` takes."""
        ...

    def exact(self, which: list[Mask]) -> list[MPArray]:
        """The arrays, of which at least these entries round to every float format as the exact ones do."""
        ...


class _Open:
    """Arrays of which some entries are not decided yet.

    Attributes
    ----------
    values : the floats; of complex arrays the last axis has the parts
    open : where they are not decided
    vanished : for each array, whether an entry that is not zero, or may be so, became zero
    """

    def __init__(self, count: int, dtype: str) -> None:
        self.dtype = dtype
        self.values: list[npt.NDArray[Any]] = []
        self.open: list[Mask] = []
        self.vanished = [False] * count

    def narrow(self, intervals: list[Interval]) -> None:
        """Decide what intervals decide."""
        found = [rounded(each, self.dtype) for each in intervals]
        if not self.values:
            self.values = [each.low for each in found]
            self.open = [np.ones(each.low.shape, np.bool_) for each in found]
        for i, each in enumerate(found):
            now = self.open[i] & each.decided
            self.values[i] = np.where(now, each.low, self.values[i])
            self.open[i] &= ~now
            self.vanished[i] |= bool((now & each.may_vanish).any())

    def clear(self, patterns: list[Pattern]) -> None:
        """Set zeros where patterns have them."""
        for i, pattern in enumerate(patterns):
            zero = ~(pattern[..., None] if self.open[i].ndim > pattern.ndim else pattern) & self.open[i]
            self.values[i] = np.where(zero, 0, self.values[i])
            self.open[i] &= ~zero

    def fill(self, exact: list[MPArray]) -> None:
        """Decide all by exact numbers."""
        for i, each in enumerate(exact):
            real = MPArray._of(each.parts)
            found = real.astype(part_of(self.dtype)) + np.zeros((), part_of(self.dtype))
            self.vanished[i] |= bool((self.open[i] & (found == 0) & (real.signs != 0)).any())
            self.values[i] = np.where(self.open[i], found, self.values[i])
            self.open[i] = np.zeros_like(self.open[i])

    @property
    def count(self) -> int:
        return sum(int(each.sum()) for each in self.open)

    def masks(self) -> list[Mask]:
        """Where an entry is not decided, or a part of one."""
        return [np.asarray(each.any(axis=-1)) if self.dtype in COMPLEX else each for each in self.open]


def settled(problem: Problem, dtype: str, like: Any) -> tuple[list[Any], list[bool]]:
    """The arrays of a problem's solution, each part of an entry the nearest float, ties to even; in the memory of like.

    The second result says of each array whether an entry that is not zero, or may be so, was rounded to zero.

    Raises
    ------
    numpy.linalg.LinAlgError
        If an entry lies on a boundary between two floats, or so near that 900 bits do not tell, and exact elimination
        would take too long; and what finds intervals raises of the matrix.
    OverflowError
        If an entry is too large for the dtype.
    """
    state = _Open(len(problem.names), dtype)
    for place, bits in enumerate(levels(problem.first_bits)):
        try:
            with inside():
                intervals = problem.enclose(bits)
        except (np.linalg.LinAlgError, ValueError):
            if place == 0:
                raise
            break
        state.narrow(intervals)
        step("intervals of %d bits: %d entries are undecided", bits, state.count)
        if place == 0 and state.count:
            state.clear(problem.patterns())
        if place < 2 and state.count:
            state.narrow(problem.sharpened(intervals, bits))
        if not state.count or (place < len(QUICK) and problem.work(state.masks()) < min(QUICK[place], AFFORDABLE)):
            break
    if state.count and problem.work(state.masks()) < AFFORDABLE:
        state.fill(problem.exact(state.masks()))
        step("exact elimination decides the others")
    _check_decided(problem, state)
    found = [_as_dtype(each, dtype) for each in state.values]
    if not all(bool(np.isfinite(each).all()) for each in found):
        raise OverflowError(f"dtype: an element of the result is too large for {dtype}; ask for dtype='mp'")
    xp = array_library(like)
    return [xp.asarray(each) for each in found], state.vanished


def levels(bits: int) -> Iterator[int]:
    """Numbers of bits, each twice as many as the one before, up to the most there are."""
    while bits < MOST_BITS:
        yield bits
        bits *= 2
    yield MOST_BITS


def _check_decided(problem: Problem, state: _Open) -> None:
    """Refuse a result of which an entry is not decided.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    for name, mask, values in zip(problem.names, state.masks(), state.values, strict=True):
        if mask.any():
            index = tuple(int(i) for i in np.argwhere(mask)[0])
            near = complex(*values[index]) if values.ndim > mask.ndim else float(values[index])
            raise np.linalg.LinAlgError(
                f"reproducible: {name}{[*index]} is 0, or lies on a boundary between two floats near {near}, "
                f"or nearer to one than 2^-{MOST_BITS}, and the matrix is too large to decide it exactly; leave "
                "reproducible=False, or ask for dtype='mp' and round that"
            )


def _as_dtype(x: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Parts as complex numbers, if the dtype is complex."""
    return np.ascontiguousarray(x).view(dtype)[..., 0] if dtype in COMPLEX else x
