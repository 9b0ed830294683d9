"""Orthonormal and upper triangular factors, each entry the nearest float; the diagonal of r is positive."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from ozaki.linalg.common.arrays import times_signs
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.scaling import Powers, scaled, tops_or_zero
from ozaki.linalg.common.upper import norms_on_host
from ozaki.linalg.nearest.bounds import product_errors, vector_errors
from ozaki.linalg.nearest.cholesky import rooted
from ozaki.linalg.nearest.factors import Factorise, FactorProblem
from ozaki.linalg.nearest.intervals import Interval, Mask, exponent_above
from ozaki.linalg.nearest.near import ScaledFactor, lost_vectors, nothing_known, of_square, triangular_interval
from ozaki.linalg.nearest.patterns import Pattern, filled, pattern_of, with_real_diagonal
from ozaki.linalg.nearest.quotients import by_roots
from ozaki.linalg.nearest.settling import settled
from ozaki.linalg.nearest.wholes import Wholes, bits_of, conjugate, eliminated, wholes_of, work
from ozaki.linalg.systems.solution import too_small
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved


def nearest_qr(a: Any, dtype: str, factorise: Factorise) -> tuple[Any, Any, Bounds, int]:
    """The factors of a matrix of independent columns, rounded to nearest, bounds of columns, and corrections.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, OverflowError
        As `factorise`; a LinAlgError for an entry that cannot be decided (`settled`).
    """
    problem = _Tall(a, factorise)
    (q, r), _ = settled(problem, dtype, a)
    if lost_vectors(q, 0) or lost_vectors(r, 0) or lost_vectors(r, 1):
        too_small(dtype)
    of_q = vector_errors(q, 0)
    return q, r, _product_bounds(of_q, r), problem.iterations


def _product_bounds(of_q: Bounds, r: Any) -> Bounds:
    """Bounds as those of `QR`, of factors that are the exact ones, rounded; `of_q` are those of columns of q.

    a - q r is dq r + (q + dq) dr, where rows of q have norms of at most 1, and no more than that share of dq.
    """
    return np.maximum(product_errors(of_q, of_q), product_errors(of_q, vector_errors(r, 0)))


class _Tall(FactorProblem):
    """A matrix of independent columns."""

    names: tuple[str, ...] = ("q", "r")

    def __init__(self, a: Any, factorise: Factorise) -> None:
        super().__init__(a, factorise)
        self._tops = tops_or_zero(self._a, 0)
        self._unit = scaled(self._a, Powers(columns=-self._tops))

    def enclose(self, bits: int) -> list[Interval]:
        found = self._factors(bits)
        (m, _), off = found.q.shape, found.error_bound
        q, r = moved(found.q, np), moved(found.r, np)
        try:
            upper = ScaledFactor(found.r, 0)
        except np.linalg.LinAlgError:
            return [nothing_known(x) for x in (q, r)]
        rows, columns = (norms_on_host(found.q, axis) for axis in (1, 0))
        norm_q = float(np.sqrt((columns**2).sum())) * (1 + 2.0**-20)
        # A inv(R) is Q + W, and its square I + F.
        of_w = off * m**0.5 * upper.norm * upper.inverse_norm
        g = of_square(off * norm_q**2 + 2 * norm_q * of_w + of_w**2)
        q, r, turned = _turned(q, r)
        if not g + turned < 0.25:
            return [nothing_known(x) for x in (q, r)]
        of_q = exponent_above((of_w + (rows + of_w) * 2 * (g + turned)) * (1 + 2.0**-20))
        return [Interval(q, of_q[:, None]), triangular_interval(r, upper.errors(g + 2 * turned), lower=False)]

    def patterns(self) -> list[Pattern]:
        n, of_a = self._a.shape[1], pattern_of(self._a)
        square = of_a.T.astype(np.float32) @ of_a.astype(np.float32) > 0
        found = filled(np.concatenate([square, of_a.T], axis=1), n)
        return [found[:, n:].T, with_real_diagonal(np.triu(found[:, :n]), self._a.is_complex)]

    def work(self, which: list[Mask]) -> float:
        m, n = self._a.shape
        return work(n, n // 2 + m, n, 2 * bits_of(self._unit) + m.bit_length(), self._a.is_complex)

    def exact(self, which: list[Mask]) -> list[MPArray]:
        n = self._a.shape[1]
        wholes, exponents = wholes_of(self._unit)
        found, _ = eliminated(_with_square(wholes), n)
        over, under = rooted(found, n)
        q = by_roots(tuple(x[:, n:].T for x in conjugate(over)), under, 0)
        return [q, by_roots(tuple(x[:, :n] for x in over), under[:, None], exponents[0] + self._tops)]


def _turned(q: MPArray, r: MPArray) -> tuple[MPArray, MPArray, float]:
    """The factors with a diagonal of r whose real parts are positive, and how far it is from the real axis, relatively.

    Turning it there changes rows of r, and columns of q, by no more than this.
    """
    diagonal = r.diagonal()
    signs = diagonal.real.signs
    signs = signs + (signs == 0).astype(np.int8)
    turned = 0.0
    if r.is_complex:
        real, imag = diagonal.real, diagonal.imag
        apart = (imag.exponents - real.exponents + 1).clip(-1000, 1000)  # below 2**apart
        turned = float(np.where(real.signs == 0, inf, np.where(imag.signs == 0, 0.0, np.ldexp(1.0, apart))).max())
    columns = signs[:, None] if q.is_complex else signs
    rows = signs[:, None, None] if r.is_complex else signs[:, None]
    return times_signs(q, columns), times_signs(r, rows), turned


def _with_square(a: Wholes) -> Wholes:
    """The matrix [A^H A, A^H]: elimination of the first columns finds the factors."""
    if len(a) == 1:
        return (np.concatenate([a[0].T @ a[0], a[0].T], axis=1),)
    real, imag = a
    return (
        np.concatenate([real.T @ real + imag.T @ imag, real.T], axis=1),
        np.concatenate([real.T @ imag - imag.T @ real, -imag.T], axis=1),
    )
