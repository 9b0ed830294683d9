"""How many entries of a product will be undecided when they are rounded, foretold on NumPy (docs/bounds.md, B14)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._scaled import plain
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.bounds.undecided import Crossings, Floats, crossings
from ozaki.schemes import Scheme

Indices = npt.NDArray[np.int64]

_ROWS, _MATRICES, _ELEMENTS = 48, 4, 2**18
"""Rows of A and columns of B of a matrix, and matrices, that are looked at; fewer rows than these, but four, where they
have more elements."""


def looked_at(shape: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Which matrices and rows of an operand, shape (batch, rows, k), are looked at: some, in ascending order."""
    batch, rows, k = shape
    return _spread(batch, _MATRICES), _spread(rows, min(max(_ELEMENTS // max(k, 1), 4), _ROWS))


def _spread(size: int, count: int) -> Indices:
    """At most `count` numbers below `size`, all over it, at distances that no period of rows has (golden ratio)."""
    if size <= count:
        return np.arange(size)
    return np.unique((np.arange(count) * _GOLDEN % 1 * size).astype(np.int64))


_GOLDEN = (5**0.5 - 1) / 2


def some_rows(x: Described) -> Described:
    """The rows of an operand that are looked at, and their descriptions."""
    matrices, rows = looked_at(x.x.shape)
    return Described(x.x[matrices][:, rows], x.fields[:, matrices][:, :, rows], x.finite)


def foretell(left: Described, right: Described, scheme: Scheme, dtype: str) -> Crossings:
    """What some rows of A and columns of B, as `some_rows` picks them, say of entries in the format `dtype`."""
    (x, m, k), (y, n, _) = left.x.shape, right.x.shape
    c, slab = np.zeros((max(x, y), m, n)), _slab(left.x.shape, right.x.shape)
    for h in range(0, k, slab):
        hs = slice(h, h + slab)
        c += np.matmul(_reduced(left, hs), _reduced(right, hs).swapaxes(1, 2))
    return crossings(c, left.on_host, right.on_host, scheme, dtype)


def foretelling_bytes(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Bytes that `foretell` holds for operands of these shapes: copies of rows, and arrays of all their entries."""
    (b, m), (d, n) = (tuple(map(len, looked_at(x))) for x in (left, right))
    slab = _slab((b, m, left[2]), (d, n, left[2]))
    rows = 8 * (b * m + d * n)
    return rows * left[2] + 4 * rows * slab + 96 * max(b, d) * m * n + OBJECTS


def _slab(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Inner indices that are multiplied at a time, of rows of these shapes."""
    return min(max(TILE // max(left[0] * left[1], right[0] * right[1]), 1), max(left[2], 1))


def _reduced(x: Described, hs: slice) -> Floats:
    """Rows times 2**-top, NaN and Inf as zero, at some inner indices; contiguous, so that BLAS adds in one order."""
    found = plain(x.x[:, :, hs]).astype(np.float64, order="C")
    found[~np.isfinite(found)] = 0
    return np.ldexp(found, -x.on_host.top.astype(np.int32)[..., None])
