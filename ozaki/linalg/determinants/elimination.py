"""Gaussian elimination in float64, all matrices of a stack together. NumPy alone has no factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.linalg.common.arrays import array_library

_NARROW = 8
"""Columns that are eliminated one by one: fewer than pay for a product."""


def factors(a: Any) -> tuple[Any, Any, Any, Any]:
    """Factors of matrices of floats: orders of their rows, signs of these, matrices near the inverses of L, and U.

    A zero on the diagonal of U is replaced by 2**-52 times the largest element. Of singular matrices, and where numbers
    overflow, the factors may be any numbers, NaN and Inf, too.

    Parameters
    ----------
    a : array, shape (..., n, n), n > 0

    Returns
    -------
    order : array of ints, shape (..., n)
    signs : float64 array, shape (...): 1 of an even order, -1 of an odd one
    inverse : array, shape (..., n, n), unit lower triangular
    upper : array, shape (..., n, n)
    """
    xp, shape, n = array_library(a), a.shape, a.shape[-1]
    a = a.reshape(-1, n, n).copy()
    count = len(a)
    every, signs = xp.arange(count), xp.ones(count)
    order = xp.zeros((count, n), np.int64) + xp.arange(n)
    inverse = xp.zeros(a.shape, a.dtype) + xp.eye(n)
    least = abs(a).max(axis=(1, 2)) * 2.0**-52

    def exchange(x: Any, j: int, rows: Any) -> None:
        at_rows = x[every, rows]
        x[every, rows] = x[:, j]
        x[:, j] = at_rows

    def eliminate(low: int, high: int) -> None:
        """Eliminate columns, and find the block of the inverse of L on the diagonal there."""
        if high - low > _NARROW:
            middle = (low + high) // 2
            eliminate(low, middle)
            a[:, low:middle, middle:high] = inverse[:, low:middle, low:middle] @ a[:, low:middle, middle:high]
            a[:, middle:, middle:high] -= a[:, middle:, low:middle] @ a[:, low:middle, middle:high]
            eliminate(middle, high)
        else:
            for j in range(low, high):
                rows = abs(a[:, j:, j]).argmax(axis=1) + j
                exchange(a, j, rows)
                exchange(order, j, rows)
                signs[...] *= xp.where(rows == j, 1.0, -1.0)
                a[:, j, j] = xp.where(a[:, j, j] == 0, least, a[:, j, j])
                a[:, j + 1 :, j] /= a[:, j, j, None]
                a[:, j + 1 :, j + 1 : high] -= a[:, j + 1 :, j, None] * a[:, j, None, j + 1 : high]
            middle = low + 1
        invert(low, high, middle)

    def invert(low: int, high: int, middle: int) -> None:
        """The block of the inverse of L, of whose two parts on the diagonal those of columns from `middle` on."""
        if high - low > _NARROW:
            below = inverse[:, middle:high, middle:high] @ a[:, middle:high, low:middle]
            inverse[:, middle:high, low:middle] = -(below @ inverse[:, low:middle, low:middle])
            return
        for i in range(low + 1, high):
            inverse[:, i, None, low:i] = -(a[:, i, None, low:i] @ inverse[:, low:i, low:i])

    eliminate(0, n)
    return order.reshape(shape[:-1]), signs.reshape(shape[:-2]), inverse.reshape(shape), xp.triu(a).reshape(shape)
