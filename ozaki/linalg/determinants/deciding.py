"""One determinant: by triangular matrices, or exactly, where it is to be exact or cannot be told from zero."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ozaki.linalg.common.scaling import ZERO, Powers, scaled, tops, tops_or_zero, without_tiny
from ozaki.linalg.determinants import modular, triangular
from ozaki.linalg.determinants.integers import integers
from ozaki.linalg.determinants.scalars import Determinant, Scalar
from ozaki.linalg.systems.inverses import LIMIT

_ZERO = Determinant(Scalar(0), 0.0, 0)

_MOST_WORK = 2.0**35
"""Most multiplications modulo primes, some 20 seconds, that are made without being asked for."""

_LITTLE_WORK = 2.0**22
"""Multiplications modulo primes that take no longer than a determinant by triangular matrices."""

SMALL = 12
"""Rows of a matrix whose determinant takes less time exactly than by triangular matrices."""

_ROUNDING = 2.0**-75
"""An error with which nearly every determinant rounds to one float64 number."""


def determinant(a: Any, tolerance: float) -> Determinant:
    """The determinant of a square matrix to a relative tolerance; zero where it is.

    Raises
    ------
    numpy.linalg.LinAlgError
        If it cannot be told from zero, and to find it exactly would take too long.
    """
    if not a.shape[0]:
        return Determinant(Scalar(1), 0.0, 0)
    rows = tops(a, 1)
    if (rows == ZERO).any() or (tops(a, 0) == ZERO).any():
        return _ZERO
    if a.shape[0] <= SMALL:
        with suppress(np.linalg.LinAlgError):
            return exact(a, _LITTLE_WORK)
    columns = tops_or_zero(a, 0, Powers(-rows))
    unit, cleared = without_tiny(scaled(a, Powers(-rows, -columns)))
    try:
        found = triangular.determinant(unit, tolerance, cleared)
    except np.linalg.LinAlgError:
        return exact(a, _MOST_WORK)
    shift = sum(rows.tolist()) + sum(columns.tolist())
    return found._replace(value=found.value._replace(exponent=found.value.exponent + shift))


def rounding_exactly(a: Any, dtype: str) -> Determinant:
    """A determinant so accurate that it rounds as the exact one does: to real floats of a dtype."""
    if _work(*integers(a)[1:]) > _LITTLE_WORK:
        try:
            found = determinant(a, _ROUNDING)
        except np.linalg.LinAlgError:
            return exact(a)
        x = found.value.multiprecision(False)
        margin = x * 2.0**-70
        if not found.error or (x - margin).astype(dtype) == (x + margin).astype(dtype):
            return found
    return exact(a)


def exact(a: Any, most: float = np.inf) -> Determinant:
    """The determinant, exactly.

    Raises
    ------
    numpy.linalg.LinAlgError
        If it takes more than `most` multiplications, or has too many bits.
    """
    exponent, real, imag = integers(a)
    if not real:
        return Determinant(Scalar(1), 0.0, 0) if not a.shape[0] else _ZERO
    if _work(real, imag) > most:
        raise np.linalg.LinAlgError(
            f"a: singular, or its condition number is too large ({LIMIT}, rows and columns scaled); accuracy='exact' "
            "finds its determinant, in some minutes or more"
        )
    return Determinant(Scalar(*modular.determinant(real, imag), exponent), 0.0, 0)


def _work(real: modular.Wholes, imag: modular.Wholes | None) -> float:
    """Multiplications that an exact determinant takes."""
    return modular.work(len(real), modular.bits_of_bound(real, imag))
