"""Balancing a square matrix by powers of two, exactly, so that rows and columns are alike in size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import array_library, on_host
from ozaki.linalg.common.scaling import Exponents
from ozaki.multiprecision.numbers import Numbers

_ALIKE = 6
"""Rows and columns whose largest elements differ by no more than 2**_ALIKE are left as they are."""

_SWEEPS = 20
"""The most sweeps over all rows and columns. A reducible matrix may have no balance."""


def balance(a: Any) -> Exponents:
    """Exponents s for which the elements a_ij 2**(s_j - s_i) have rows and columns alike in size.

    The largest elements beside the diagonal are compared, row i and column i, as B. N. Parlett and C. Reinsch do with
    norms ("Balancing a matrix for calculation of eigenvalues and eigenvectors", Numer. Math. 13, 1969): maxima need no
    sums of numbers that may lie thousands of binary orders apart.
    """
    return balance_of(_exponents(a))


def balance_of(sizes: npt.NDArray[np.float64]) -> Exponents:
    """As `balance`, of a matrix whose elements have these exponents, -inf those of zeros."""
    sizes, n = sizes.copy(), len(sizes)
    np.fill_diagonal(sizes, -np.inf)
    powers = np.zeros(n, np.int64)
    rows, columns = sizes.max(axis=1, initial=-np.inf), sizes.max(axis=0, initial=-np.inf)
    both = np.isfinite(rows) & np.isfinite(columns)
    if not both.any() or np.abs(rows - columns, where=both, out=np.zeros(n)).max() <= _ALIKE:
        return powers
    for _ in range(_SWEEPS):
        changed = False
        for i in range(n):
            row, column = sizes[i].max(), sizes[:, i].max()
            if np.isfinite(row) and np.isfinite(column) and (by := round((row - column) / 2)):
                powers[i] += by
                sizes[i] -= by
                sizes[:, i] += by
                changed |= abs(by) > 1
        if not changed:
            break
    balanced: Exponents = powers - powers.max()
    return balanced


def on_diagonal(a: Any) -> npt.NDArray[np.bool_]:
    """Which elements of the diagonal are eigenvalues since their rows or columns have no others, in NumPy.

    Rows and columns of these count no more for others: so of a triangular matrix, in whatever order, all are.
    """
    xp = array_library(a)
    nonzero = a.signs != 0 if isinstance(a, Numbers) else a != 0
    pattern = on_host(xp.asarray(nonzero).any(axis=2) if nonzero.ndim == 3 else nonzero).copy()
    np.fill_diagonal(pattern, False)
    rows, columns, found = pattern.sum(axis=1), pattern.sum(axis=0), np.zeros(len(pattern), bool)
    while (single := ~found & ((rows == 0) | (columns == 0))).any():
        i = int(single.argmax())
        found[i] = True
        rows -= pattern[:, i]
        columns -= pattern[i]
    return found


def _exponents(a: Any) -> npt.NDArray[np.float64]:
    """The exponents of the larger parts of elements as floats in NumPy, and -inf of zeros."""
    xp = array_library(a)
    if isinstance(a, Numbers):
        found = xp.where(a.signs != 0, a.exponents.astype(np.float64), -np.inf)
        return on_host(found.max(axis=2) if a.is_complex else found)
    parts = xp.maximum(abs(a.real), abs(a.imag)) if a.dtype.kind == "c" else abs(a)
    return on_host(exponents_of(parts))


def exponents_of(x: Any) -> Any:
    """The exponents of floats that are not negative, as floats; -inf of zeros."""
    xp = array_library(x)
    return xp.where(x > 0, xp.frexp(x)[1].astype(np.float64), -np.inf)
