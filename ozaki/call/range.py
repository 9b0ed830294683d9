"""Entries of a result outside of the range of its format, about which bounds say nothing."""

from __future__ import annotations

from itertools import product
from math import isqrt
from typing import Any

import numpy as np

from ozaki.multiprecision.limbs import library, tile_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.memory import Memory
from ozaki.records.shapes import tiles_of_rows


def out_of_range(c: Any, rows_of_operands: tuple[Any, Any] | None, memory: Memory) -> int:
    """Number of entries of c that over- or underflowed, as far as c shows.

    An entry counts if it is Inf or NaN where the operands are finite, and if all its parts are smaller than the normal
    numbers of its format, unless all products that it is the sum of are zero.

    Parameters
    ----------
    c : floats, shape (batch, m, n)
    rows_of_operands : of A and of B, shapes (batch or 1, m, k) and (batch or 1, n, k), floats or `Numbers`; None if
        they are not at hand: then no entry counts that is zero, Inf or NaN
    memory : the account of what the product holds
    """
    xp, smallest = library(c), np.finfo(c.dtype).tiny
    stack, m, n = c.shape
    tile = tile_of(c) if memory.rest is None else max(16, min(tile_of(c), memory.rest // _ENTRY_BYTES))
    memory.pass_through(_ENTRY_BYTES * min(tile, max(stack * m * n, 1)))
    left, right = rows_of_operands or (None, None)
    finite = [_finite(x, xp, tile) for x in rows_of_operands or ()]
    count, side = 0, max(1, isqrt(tile))
    for batch, rows in tiles_of_rows(stack, m, n, tile):
        for first in range(0, n, tile):
            columns = slice(first, first + tile)
            part = c[batch, rows, columns]
            small = (abs(part.real) < smallest) & (abs(part.imag) < smallest)
            if left is None or right is None:
                count += int((small & (part != 0)).sum())
                continue
            large = ~xp.isfinite(part)
            of_left, of_right = (slice(None) if x.shape[0] == 1 else batch for x in (left, right))
            large &= finite[0][of_left, rows, None] & finite[1][of_right, None, columns]
            count += int(large.sum())
            if bool(small.any()):
                small &= ~large
                count += _with_products(small, left[of_left, rows], right[of_right, columns], side)
    return count


_ENTRY_BYTES = 40
"""Bytes of a tile for each entry: magnitudes and masks; and, of a square part of it, which elements are not zero."""


def _with_products(small: Any, left: Any, right: Any, side: int) -> int:
    """How many of the entries `small` are the sum of products that are not all zero.

    `side` rows, columns and inner indices are looked at at a time.
    """
    count, (_, rows, columns), k = 0, small.shape, left.shape[2]
    for at in product(range(0, small.shape[0]), range(0, rows, side), range(0, columns, side)):
        b, i, j = (slice(x, x + size) for x, size in zip(at, (1, side, side), strict=True))
        wanted = small[b, i, j]
        if not bool(wanted.any()):
            continue
        met = None
        for h in range(0, k, side):
            x, y = (
                _nonzero(of[slice(None) if of.shape[0] == 1 else b, part, h : h + side]).astype(np.float32)
                for of, part in ((left, i), (right, j))
            )
            found = x @ y.swapaxes(1, 2) > 0
            met = found if met is None else met | found
        count += int((wanted & met).sum())
    return count


def _finite(x: Any, xp: Any, tile: int) -> Any:
    """Whether all elements of a row are finite, shape (batch, rows)."""
    found = xp.full(x.shape[:2], True)
    if not isinstance(x, Numbers):
        batch, rows, k = x.shape
        for at in tiles_of_rows(batch, rows, k, tile):
            for h in range(0, k, tile):
                found[at] &= xp.isfinite(x[at[0], at[1], h : h + tile]).all(axis=-1)
    return found


def _nonzero(x: Any) -> Any:
    """Whether elements are not zero."""
    if isinstance(x, Numbers):
        return (x.signs != 0).any(axis=-1) if x.is_complex else x.signs != 0
    return x != 0
