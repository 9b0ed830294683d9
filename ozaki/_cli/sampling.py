"""Samples of a product: some matrices of a stack, and rows and columns of each, picked at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ozaki
from ozaki._cli.files import Matrix
from ozaki.multiprecision.arithmetic import broadcast_to
from ozaki.records.shapes import broadcast

Array = npt.NDArray[Any]

MOST_MATRICES = 4
"""Most matrices of a stack that are sampled."""


@dataclass(frozen=True)
class Sample:
    """Rows and columns of one matrix of a stack of products.

    Attributes
    ----------
    place : the indices of the matrix in the stack
    c, a, b : the computed product, and the matrices that it is the product of
    rows, cols : the rows of `a` and the columns of `b` that were picked, in order
    """

    place: tuple[int, ...]
    c: Any
    a: Any
    b: Any
    rows: Array
    cols: Array


@dataclass(frozen=True)
class Stack:
    """A product and its operands as stacks of matrices, of the same length: a vector counts as a matrix."""

    c: Any
    a: Any
    b: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The stack's own shape, without those of the matrices."""
        return tuple(self.c.shape[:-2])


def stack_of(c: Matrix, a: Matrix, b: Matrix) -> Stack:
    """Return the product `c` of `a` and `b` as stacks; integers become multiprecision numbers, which hold any."""
    a, b, c = (_without_integers(x) for x in (a, b, c))
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    stack = broadcast(left.shape[:-2], right.shape[:-2])
    left, right = (_broadcast_to(x, (*stack, *x.shape[-2:])) for x in (left, right))
    return Stack(c.reshape(*stack, left.shape[-2], right.shape[-1]), left, right)


def samples(stack: Stack, rows: int, cols: int, seed: int, wanted: tuple[int, ...] | None = None) -> list[Sample]:
    """Pick matrices of a stack, and rows and columns of each.

    Parameters
    ----------
    stack : Stack
    rows, cols : int
        How many rows and columns to pick of each matrix; all if it has no more.
    seed : int
        Seed of the random choice.
    wanted : tuple of int, optional
        An entry that the sample has to hold: the indices of its matrix, its row and its column.
    """
    rng = np.random.default_rng(seed)
    shape, found = stack.shape, []
    matrix = None if wanted is None else int(np.ravel_multi_index(wanted[:-2], shape)) if shape else 0
    for number in _picked(rng, int(np.prod(shape)), MOST_MATRICES, matrix):
        place = tuple(int(i) for i in np.unravel_index(number, shape))
        c, a, b = stack.c[place], stack.a[place], stack.b[place]
        row, col = wanted[-2:] if wanted is not None and number == matrix else (None, None)
        picked = _picked(rng, c.shape[0], rows, row), _picked(rng, c.shape[1], cols, col)
        found.append(Sample(place, c, a, b, *picked))
    return found


def out_of_range(integers: Array, exponent: int, dtype: np.dtype[Any]) -> Array:
    """Return for each exact entry whether it, or a part of a complex one, over- or underflows a format.

    The entries are integers 2**exponent, as `reference.exact_entries` returns them.
    """
    limits = np.finfo(dtype)
    tops = np.array([int(x).bit_length() + exponent for x in integers.flat], dtype=np.int64).reshape(integers.shape)
    out = (integers != 0) & ((tops >= limits.maxexp) | (tops <= limits.minexp))
    return np.asarray(out.any(axis=-1) if out.ndim == 3 else out)  # a complex entry is two integers, its parts


def _picked(rng: np.random.Generator, size: int, count: int, wanted: int | None = None) -> Array:
    """Return `count` random indices below `size`, in order, and `wanted` among them; all if there are no more."""
    picked = rng.choice(np.arange(size), min(size, count), replace=False)
    return np.unique(picked if wanted is None else np.append(picked, wanted))


def _without_integers(x: Matrix) -> Matrix:
    """Return floats, real or complex, and multiprecision numbers as they are, integers as multiprecision numbers."""
    return x if isinstance(x, ozaki.MPArray) or x.dtype.kind in "fc" else ozaki.mparray(x)


def _broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    return ozaki.MPArray._of(broadcast_to(x, shape)) if isinstance(x, ozaki.MPArray) else np.broadcast_to(x, shape)
