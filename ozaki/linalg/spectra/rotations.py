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

_MOST_SWEEPS = 30
"""Sweeps over all pairs: some 8 are usual."""

_SMALL = 2.0**-44
"""Cosines of angles between columns up to which these count as orthogonal: corrections make more of them."""

FARTHEST = 500
"""Exponents of columns farther apart count as so far: the square of such a ratio is nothing beside 1."""


def rotated(y: Any, exponents: Exponents) -> tuple[npt.NDArray[Any], Exponents]:
    """What makes columns orthogonal: V' with the columns of y V' orthogonal, their norms from 1/2 to 1, and exponents.

    With D of `exponents` and E of those that are returned, descending with the norms, V = inv(D) V' E is nearly
    unitary, and y D V = (y V') E. y has shape (m, n).
    """
    (m, n), e = y.shape, exponents.copy()
    x = np.concatenate([y, np.eye(n)]).T.copy()  # rows: columns of y, and below them those of V'
    for _ in range(_MOST_SWEEPS):
        tops = np.frexp(np.linalg.norm(x[:, :m], axis=1))[1].astype(np.int64)
        x *= np.ldexp(1.0, -tops)[:, None]
        e += tops
        order = np.lexsort((-np.linalg.norm(x[:, :m], axis=1), -e))
        x, e = x[order], e[order]
        worst = max((_rotate(x, e, m, first, second) for first, second in _pairs(n)), default=0.0)
        if worst <= _SMALL:
            break
    return x[:, m:].T.copy(), e


def _pairs(n: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """All pairs of n places, in rounds of pairs that share none: the circle method."""
    places = np.arange(n + n % 2)
    half = len(places) // 2
    for _ in range(len(places) - 1):
        first, second = places[:half], places[half:][::-1]
        real = (first < n) & (second < n)
        yield np.minimum(first, second)[real], np.maximum(first, second)[real]
        places[1:] = np.roll(places[1:], 1)


def _rotate(
    x: npt.NDArray[Any], e: Exponents, m: int, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
) -> float:
    """Make each first column orthogonal to its second one, in place; the largest abs of a cosine before."""
    p, q = x[first], x[second]
    a, b = np.linalg.norm(p[:, :m], axis=1), np.linalg.norm(q[:, :m], axis=1)
    cosines = (p[:, :m].conj() * q[:, :m]).sum(axis=1) / (a * b)
    sizes = abs(cosines)
    phases = np.where(sizes > 0, cosines / np.where(sizes > 0, sizes, 1.0), 1.0)
    by = np.ldexp(1.0, np.clip(e[second] - e[first], -FARTHEST, FARTHEST))
    ratio = by * (b / a)  # of the second norm to the first; above 1 where rotations have changed their order
    swap = ratio > 1
    r = np.where(swap, 1 / ratio, ratio)
    # tan of the angle over r, the larger column getting the smaller one's share of it.
    tau = 2 * sizes / ((1 - r * r) + np.sqrt((1 - r * r) ** 2 + 4 * (r * sizes) ** 2))
    cos = (1 / np.sqrt(1 + (r * tau) ** 2))[:, None]
    # In units of their own: p + s t q and q - (t / s) p, s the ratio of units; the other way round if q is larger.
    of_q, of_p = np.where(swap, -tau * (a / b), 0.0), np.where(swap, 0.0, tau * (b / a))
    of_q = np.where(swap, of_q, r * tau * by)
    of_p = np.where(swap, r * tau / by * -1, of_p)
    q = q * phases.conj()[:, None]
    x[first], x[second] = cos * (p + of_q[:, None] * q), cos * (q - of_p[:, None] * p)
    return float(sizes.max(initial=0.0))
