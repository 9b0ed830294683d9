"""Entries of a result outside of the range of its format, about which bounds say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki._operands import tiles_of_rows
from ozaki.multiprecision.limbs import library, tile_of
from ozaki.multiprecision.numbers import Numbers


def out_of_range(c: Any, rows_of_operands: tuple[Any, Any] | None) -> int:
    """Number of entries of c that over- or underflowed, as far as c shows.

    An entry counts if it is Inf or NaN where the operands are finite, and if all its parts are smaller than the normal
    numbers of its format, unless all products that it is the sum of are zero.

    Parameters
    ----------
    c : floats, shape (batch, m, n)
    rows_of_operands : of A and of B, shapes (batch or 1, m, k) and (batch or 1, n, k), floats or `Numbers`; None if
        they are not at hand: then no entry counts that is zero, Inf or NaN
    """
    xp, smallest = library(c), np.finfo(c.dtype).tiny
    if rows_of_operands is None:
        return int(((abs(c.real) < smallest) & (abs(c.imag) < smallest) & (c != 0)).sum())
    left, right = rows_of_operands
    finite = [_finite(x, xp) for x in (left, right)]
    count = 0
    stack, m, n = c.shape
    for batch, rows in tiles_of_rows(stack, m, max(n, left.shape[2]), tile_of(c)):
        of_left, of_right = (slice(None) if x.shape[0] == 1 else batch for x in (left, right))
        part = c[batch, rows]
        large = ~xp.isfinite(part)
        small = (abs(part.real) < smallest) & (abs(part.imag) < smallest)
        if bool(small.any()):
            x, y = (_nonzero(each) for each in (left[of_left, rows], right[of_right]))
            small &= x.astype(np.float32) @ y.astype(np.float32).swapaxes(1, 2) > 0
        large &= finite[0][of_left, rows, None] & finite[1][of_right, None, :]
        count += int((large | small).sum())
    return count


def _finite(x: Any, xp: Any) -> Any:
    """Whether all elements of a row are finite, shape (batch, rows)."""
    return xp.full(x.shape[:2], True) if isinstance(x, Numbers) else xp.isfinite(x).all(axis=-1)


def _nonzero(x: Any) -> Any:
    """Whether elements are not zero."""
    if isinstance(x, Numbers):
        return (x.signs != 0).any(axis=-1) if x.is_complex else x.signs != 0
    return x != 0
