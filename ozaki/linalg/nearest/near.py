"""How far the entries of factors are from the true ones, by what their product is off by (docs/linalg.md, L12)."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np

from ozaki.linalg.common.arrays import on_host
from ozaki.linalg.common.scaling import Exponents, Powers, scaled, tops_or_zero
from ozaki.linalg.common.upper import norms_on_host
from ozaki.linalg.nearest.intervals import KNOWN, UNKNOWN, Interval, exponent_above
from ozaki.linalg.systems.inverses import left_inverse
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved

_UP = 1 + 2.0**-20
"""More than the roundings of a bound here."""


class ScaledFactor:
    """A triangular factor with rows (axis 1) or columns (axis 0) times powers of two, so that they are alike in size.

    Attributes
    ----------
    tops : the exponents of the powers that undo these
    norms : upper bounds of the Euclidean norms of the scaled rows or columns
    norm : their Euclidean norm: an upper bound of the Frobenius norm
    inverse_norm : an upper bound of the 2-norm of the inverse of the scaled factor
    """

    def __init__(self, factor: MPArray, axis: int) -> None:
        self.tops: Exponents = tops_or_zero(factor, axis)
        unit = scaled(factor, Powers(rows=-self.tops) if axis else Powers(columns=-self.tops))
        self.norms = norms_on_host(unit, axis)
        self.norm = float(np.sqrt((self.norms**2).sum())) * _UP
        inverse = left_inverse(unit)
        # (I - E) inv(T) = R, and 2-norms are at most sqrt(n) times row norms.
        self.inverse_norm = sqrt(len(self.norms)) * inverse.norm_r / (1 - inverse.contraction) * _UP

    def errors(self, relative: float) -> Exponents:
        """The exponents of errors of rows or columns that are relative to their norms."""
        return self.tops + exponent_above(relative * self.norms * _UP)


def triangular_interval(x: MPArray, errors: Exponents, lower: bool, unit: bool = False) -> Interval:
    """An interval of a triangular factor: zeros of the other triangle, and a diagonal of ones, are known."""
    n = x.shape[0]
    known = np.tri(n, k=-1, dtype=np.bool_).T if lower else np.tri(n, k=-1, dtype=np.bool_)
    known = known | np.eye(n, dtype=np.bool_) if unit else known
    return Interval(moved(x, np), np.where(known, KNOWN, errors))


def of_square(missed: float) -> float:
    """How far the Cholesky factor of I + F is from I, the Frobenius norm of F at most `missed`; inf for large ones."""
    return sqrt(2.0) * missed * _UP if missed <= 0.25 else inf


def of_product(missed: float) -> float:
    """As `of_square`, of both factors of I + F = (I + G) (I + H)."""
    return 2 * missed * _UP if missed <= 0.25 else inf


def nothing_known(x: MPArray) -> Interval:
    """An interval that decides nothing, around numbers of which no bound is known."""
    return Interval(moved(x, np), np.asarray(int(on_host(x.exponents).max(initial=0)) + UNKNOWN))


def lost_vectors(x: Any, axis: int) -> bool:
    """Whether a row or column of a factor is zero, which no row or column of a true one is."""
    return bool((~(x != 0).any(axis=axis)).any())
