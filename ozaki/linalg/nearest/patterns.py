"""Which elements of factors and solutions are zero because of where the matrix has zeros, whatever its numbers are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.array import MPArray

Pattern = npt.NDArray[np.bool_]
"""True where an element may be other than zero."""


def pattern_of(x: MPArray) -> Pattern:
    """Where a matrix is not zero."""
    found: Pattern = (x.signs != 0).any(axis=-1) if x.is_complex else x.signs != 0
    return found


def filled(a: Pattern, pivots: int) -> Pattern:
    """Where elimination of that many columns, rows in their order, may leave other numbers than zeros.

    Below the diagonal that is the pattern of the lower factor.
    """
    a = a.copy()
    for k in range(pivots):
        a[k + 1 :, k + 1 :] |= a[k + 1 :, k, None] & a[k, k + 1 :]
    return a


def with_real_diagonal(a: Pattern, is_complex: bool) -> Pattern:
    """The pattern of a factor whose diagonal is real: of a complex one that of both parts, as a last axis."""
    return np.stack([a, a & ~np.eye(*a.shape, dtype=np.bool_)], axis=-1) if is_complex else a


def of_solution(a: Pattern, b: Pattern) -> Pattern:
    """Where the solution of a x = b may have other numbers than zeros.

    The inverse of a matrix is a polynomial in it (Cayley and Hamilton), so an element of it is zero unless a path of
    nonzero elements leads from its row to its column.
    """
    paths, before = a | np.eye(len(a), dtype=np.bool_), 0
    while (now := int(paths.sum())) != before:
        before = now
        # Products of whole numbers below 2**24 are exact in float32.
        paths = paths.astype(np.float32) @ paths.astype(np.float32) > 0
    found: Pattern = paths.astype(np.float32) @ b.astype(np.float32) > 0
    return found
