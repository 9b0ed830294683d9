"""One-sided Jacobi rotations in float64 of columns far apart in size, each column with an exponent of its own.

Their scaled form is that of J. Demmel and K. Veselic, "Jacobi's method is more accurate than QR", SIAM J. Matrix Anal.
Appl. 13 (1992): what a rotation adds to a column is small beside that column, whatever the other one's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.scaling import Exponents

Places = npt.NDArray[np.int64]

_MOST_SWEEPS = 30
"""Sweeps over all pairs: some 8 are usual."""

_SMALL = 2.0**-44
"""Cosines of angles between columns up to which these count as orthogonal: corrections make more of them."""

_NOTHING = 2.0**-1000
"""Cosines up to which no rotation is needed: NumPy divides complex numbers by subnormal ones to NaN."""

FARTHEST = 500
"""Exponents of columns farther apart count as so far: the square of such a ratio is nothing beside 1."""


def rotated(b: npt.NDArray[Any], exponents: Exponents) -> tuple[npt.NDArray[Any], Exponents]:
    """V' for which the columns of b V' are orthogonal, their norms from 1/2 to 1, and exponents, nearly descending.

    With D of the given exponents and E of those that are returned, V = inv(D) V' E is nearly unitary, and b D V is
    (b V') E. b has the shape (m, n), m >= n.

    Raises
    ------
    numpy.linalg.LinAlgError
        If columns of b are dependent.
    """
    order = np.argsort(-exponents, kind="stable")
    e = exponents[order]
    by = np.ldexp(1.0, np.clip(e[None, :] - e[:, None], -FARTHEST, FARTHEST))
    # Rotations of R^H, R of the QR decomposition of b D, take fewer sweeps than those of b D; V = inv(R) Y S.
    upper: Any = np.linalg.qr(b[:, order], mode="r")
    again: Any = np.linalg.qr((np.triu(upper) * np.triu(by)).conj().T, mode="r")
    y, of_y = _orthogonal((np.tril(again.conj().T) * np.tril(by.T)), e)
    # V is R^H Y inv(S), too, Y being nearly unitary: where the elements of V are small that finds them.
    units = e[:, None] - of_y[None, :]
    squares = (abs(y) ** 2).sum(axis=0)
    by_adjoint = upper.conj().T @ y / squares * np.ldexp(1.0, 2 * units.clip(None, 0))
    found = np.where(units >= 0, np.linalg.solve(upper, y), by_adjoint)
    v = np.empty_like(found)
    v[order] = found
    return v, of_y


def _orthogonal(y: npt.NDArray[Any], e: Exponents) -> tuple[npt.NDArray[Any], Exponents]:
    """Columns of y, in units of 2**e, made orthogonal, and their new units, in which norms are from 1/2 to 1."""
    x, e = y.T.copy(), e.copy()
    for _ in range(_MOST_SWEEPS):
        tops = np.frexp(np.linalg.norm(x, axis=1))[1].astype(np.int64)
        x *= np.ldexp(1.0, -tops)[:, None]
        e += tops
        order = np.lexsort((-np.linalg.norm(x, axis=1), -e))
        x, e = x[order], e[order]
        if max((_rotate(x, e, first, second) for first, second in _pairs(len(x))), default=0.0) <= _SMALL:
            break
    return x.T.copy(), e


def _pairs(n: int) -> Iterator[tuple[Places, Places]]:
    """All pairs of n places, in rounds of pairs that share none: the circle method."""
    places = np.arange(n + n % 2)
    half = len(places) // 2
    for _ in range(len(places) - 1):
        first, second = places[:half], places[half:][::-1]
        real = (first < n) & (second < n)
        yield np.minimum(first, second)[real], np.maximum(first, second)[real]
        places[1:] = np.roll(places[1:], 1)


def _rotate(x: npt.NDArray[Any], e: Exponents, first: Places, second: Places) -> float:
    """Make each first row orthogonal to its second one, in place; the largest abs of a cosine before."""
    p, q = x[first], x[second]
    a, b = np.linalg.norm(p, axis=1), np.linalg.norm(q, axis=1)
    cosines = (p.conj() * q).sum(axis=1) / (a * b)
    sizes = abs(cosines)
    some = sizes > _NOTHING
    phases = np.where(some, cosines / np.where(some, sizes, 1.0), 1.0)
    by = np.ldexp(1.0, np.clip(e[second] - e[first], -FARTHEST, FARTHEST))
    ratio = by * (b / a)  # of the second norm to the first; above 1 where rotations have changed their order
    swap = ratio > 1
    r = np.where(swap, 1 / ratio, ratio)
    # tan of the angle over r, the larger column getting the smaller one's share of it.
    below = (1 - r * r) + np.sqrt((1 - r * r) ** 2 + 4 * (r * sizes) ** 2)
    tau = 2 * sizes / np.where(below > 0, below, 1.0)
    cos = (1 / np.sqrt(1 + (r * tau) ** 2))[:, None]
    # In units of their own: p + s t q and q - (t / s) p, s the ratio of units; the other way round if q is larger.
    of_q, of_p = np.where(swap, -tau * (a / b), 0.0), np.where(swap, 0.0, tau * (b / a))
    of_q = np.where(swap, of_q, r * tau * by)
    of_p = np.where(swap, r * tau / by * -1, of_p)
    q = q * phases.conj()[:, None]
    x[first], x[second] = cos * (p + of_q[:, None] * q), cos * (q - of_p[:, None] * p)
    return float(sizes.max(initial=0.0))
