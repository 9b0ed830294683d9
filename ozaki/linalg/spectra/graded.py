"""Singular values of matrices with columns far apart in size, each relative to itself, and their vectors.

A = B D, D of powers of two, and the columns of B alike. For V = inv(D) V' E, E of powers of two, too, A V is B V' E,
which takes no more bits than V' = inv(B) (A V inv(E)) needs, however far apart the columns are. With A V = Y S, S
diagonal, the Gram residuals G = I - Y^H Y and H = I - V^H V say how far the singular values of A are from S, each
relative to itself (docs/linalg.md, L9).
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from math import ceil, inf, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import step
from ozaki.functions.products import matmul
from ozaki.linalg.common.arrays import adjoint, array_library, exactly, masked, on_host, rounded
from ozaki.linalg.common.products import UNIT, Bounds, componentwise, not_tiny, product, residual
from ozaki.linalg.common.roots import of_ints, square_roots
from ozaki.linalg.common.scaling import Powers, nonzero_tops, scaled, tops_or_zero
from ozaki.linalg.common.upper import LEAST, UP, frobenius_norm, norms_on_host
from ozaki.linalg.spectra.clusters import orthonormal, ranges
from ozaki.linalg.spectra.orthogonalising import first_vectors
from ozaki.linalg.spectra.rotations import FARTHEST, rotated
from ozaki.linalg.systems.solution import formatted, in_format, missing, too_small, widened
from ozaki.multiprecision.numbers import moved

_MOST_STEPS = 40
"""Corrections gain some 40 bits each, at most 900 in all."""

_APART = 2.0**16
"""Values form a cluster if their squares differ, relative to them, by at most this times what couples vectors most."""

_NOT_CONVERGING = "a: corrections of its graded singular vectors do not converge"


def too_small_value(place: int) -> str:
    """What is said of a singular value that is no number relative to itself."""
    return (
        f"accuracy: singular value {place} is zero, or too small to be told from it; ask for "
        "Accuracy('normwise', tolerance)"
    )


class GradedDecomposition:
    """Singular values and vectors of a matrix with m >= n, each value to an accuracy relative to itself.

    Parameters
    ----------
    a : matrix, shape (m, n), m >= n >= 1
    tolerance : the largest error of each value, relative to itself
    full : whether U has m columns; else n
    turned : whether U and V are V and U of the matrix that was meant: `a` is its adjoint
    rows_apart : whether rows are far apart in size, too, so that the first V' takes many bits

    Attributes
    ----------
    values : MPArray in host memory, shape (n,): numbers near 1
    exponents : NumPy array, shape (n,): the singular values are near these numbers times 2**exponents, descending
    bound : an upper bound of the relative error of each
    steps : corrections

    Raises
    ------
    numpy.linalg.LinAlgError
        If a column is zero, or corrections do not converge, as for an ill-conditioned B.
    """

    def __init__(
        self, a: Any, tolerance: float, full: bool = False, turned: bool = False, rows_apart: bool = False
    ) -> None:
        self._xp, (self._m, self._n), self._full, self._turned = array_library(a), a.shape, full, turned
        self._of_rows = nonzero_tops(a, 0, "columns are dependent, column")  # D
        self._b = scaled(a, Powers(columns=-self._of_rows))
        self._v: Any  # V'
        if rows_apart:
            self._v, self.exponents = first_vectors(self._b, self._of_rows)
        else:
            v, self.exponents = rotated(on_host(rounded(self._b)), self._of_rows)
            if not bool(np.isfinite(v).all()):
                raise np.linalg.LinAlgError(_NOT_CONVERGING)
            self._v = exactly(self._xp.asarray(v))
        self.steps, before = 0, [inf, inf]
        self._measure(tolerance)
        while not self.bound <= tolerance:
            if self.steps == _MOST_STEPS or (self.steps > 2 and not self.bound < before[0] / 2) or not self.bound < inf:
                raise np.linalg.LinAlgError(_NOT_CONVERGING)
            before = [before[1], self.bound]
            self.steps += 1
            self._order()
            self._correct(tolerance)
            self._measure(tolerance)
            step("correction %d: relative error of singular values <= %s", self.steps, self.bound)
        self._order()

    def _measure(self, tolerance: float) -> None:
        """Find A V = B V' E, the values, G and H, and bound the errors of values."""
        n = self._n
        sizes, norm_b = norms_on_host(self._v, 0), frobenius_norm(self._b)
        share = tolerance / (64 * n)
        # Columns of B V' have norms near 1.
        fine = not_tiny(min(share / (norm_b * float(sizes.max())), 2.0**-8))
        self._w = product(self._b, self._v, fine, multiprecision=True)
        narrow = not_tiny(min(share, 2.0**-8))
        gram = product(adjoint(self._w), self._w, narrow, multiprecision=True)
        squares = gram.diagonal()
        squares = moved(squares.real if squares.is_complex else squares, np)
        if not bool((squares > 0).all()):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        self._bits = bits = ceil(-log2(share))
        self.values = square_roots(squares, bits).round_to(bits)  # of fewer bits, if all are such numbers as 1/2
        self._near = on_host(rounded(self.values))
        # Its diagonal is what the roots lack: less than 2**(3 - bits).
        self._g = -on_host(rounded(gram)) / self._near[:, None] / self._near
        self._g[range(n), range(n)] = 0.0
        v = self._unscaled
        self._h = on_host(residual(self._xp.eye(n), adjoint(v), v, narrow, multiprecision=False))
        # The columns of Y are off by what the product B V' errs by.
        self._off = fine * norm_b * sizes / self._near * UP
        norm_y, missed = n**0.5 * 1.01, float(np.linalg.norm(self._off)) * UP
        of_g = (narrow + 8 * share) * norm_y**2 + 2 * norm_y * missed + missed * missed + LEAST
        norm_v = frobenius_norm(v)
        self._gaps = (
            frobenius_norm(self._g) * (1 + 2.0**-40) + of_g,
            frobenius_norm(self._h) * (1 + 2 * UNIT) + narrow * norm_v * norm_v + LEAST,
        )
        most = max(self._gaps)
        self.bound = sum(self._gaps) / (2 * (1 - most) ** 2) * UP if most < 0.125 else inf

    @property
    def _unscaled(self) -> Any:
        """V."""
        return scaled(self._v, Powers(-self._of_rows, self.exponents))

    def _correct(self, tolerance: float) -> None:
        """Turn vectors by what couples them, to first order; those of clusters by the vectors of their blocks.

        V (I + K) takes the place of V. With r the ratio of value j to value i, K_ij = (r G_ij - r^2 H_ij) / (1 - r^2).
        """
        n, e, near = self._n, self.exponents, self._near
        g, h = ((x + x.conj().T) / 2 for x in (self._g, self._h))
        far = e[None, :] - e[:, None]
        apart, by = np.clip(far, -FARTHEST, FARTHEST), np.ldexp(1.0, -np.clip(far, -1000, 1000))
        r = np.ldexp(near[None, :] / near[:, None], apart)
        lacking = on_host(rounded(self.values[:, None] - self.values[None, :].ldexp(apart))) / near[:, None]  # 1 - r
        smaller = np.tri(n, dtype=bool).T  # as values descend; in float64 close ones may have r = 1 both ways
        r, lacking = np.where(smaller, r, 1 / r), np.where(smaller, lacking, lacking.T)
        squared = lacking * (1 + r)  # 1 - r^2, r the ratio of the smaller one to the larger one
        together = squared <= _APART * float((abs(g) + abs(h)).max())
        # H / 2 makes V unitary, and a skew matrix turns it: where r is near 1, errors of that must leave V unitary.
        skew = (r * (g - h) - lacking**2 * h / 2) / np.where(together, 1.0, squared)
        skew = np.where(smaller, skew, -skew.conj().T) * ((r > 0.5) & ~together)
        # K_ij times 2^(e_i - e_j) is what turns the columns of V'; of the smaller one of a pair it is no small number.
        apart_ones = (g - r * h) / squared, (h - r * g) / squared
        of_v = np.where(smaller, r * apart_ones[0], apart_ones[1])
        of_scaled = np.where(smaller, near[None, :] / near[:, None] * apart_ones[0], of_v * by)
        close = r > 0.5
        of_v, of_scaled = np.where(close, skew, of_v), np.where(close, skew * by, of_scaled)
        # Products and this sum are in many bits: of close values K is large, and in float64 V would not stay unitary.
        unitary, xp = np.where(close, h / 2 + skew @ skew / 2, 0.0), self._xp
        exact_v, exact_scaled = (
            exactly(xp.asarray(x)) + exactly(xp.asarray(y)) for x, y in ((of_v, unitary), (of_scaled, unitary * by))
        )
        # A row of V' whose unit is below that of a column is large for what it adds to V there: V's change is exact
        # enough where it is absolutely small.
        condition = frobenius_norm(self._b) * float(norms_on_host(self._v, 0).max()) * n
        bits = ceil(log2(condition) - log2(tolerance)) + 16
        units, fine = self._of_rows[:, None] - e[None, :], not_tiny(2.0**-bits)
        by_columns = product(self._v, exact_scaled, fine, multiprecision=True)
        by_rows = product(self._unscaled, exact_v, fine, multiprecision=True)
        by_rows = by_rows.ldexp(xp.asarray(np.where(units < 0, units, 0)))
        changed = self._v + masked(by_columns, xp.asarray(units >= 0)) + masked(by_rows, xp.asarray(units < 0))
        self._v = changed.round_to(bits)
        self._turn_clusters(together, squared, tolerance, bits)

    def _turn_clusters(self, together: npt.NDArray[np.bool_], squared: Bounds, tolerance: float, bits: int) -> None:
        """Multiply the columns of clusters by the eigenvectors of what is left of Y^H Y there."""
        e, coupled = self.exponents, self._h - self._g
        for first, last in ranges(np.diagonal(together, 1)):
            part, at = slice(first, last), np.arange(last - first)
            block = coupled[part, part].copy()
            if not float(abs(block - np.diag(block.diagonal())).max()) > tolerance / (64 * self._n):
                continue
            block[at, at] -= squared[first, part]  # squares of values, relative to the first one
            turn = orthonormal(self._xp.asarray(np.linalg.eigh(block)[1][:, ::-1].copy()), bits)
            turn = scaled(turn, Powers(e[part], -e[part]))
            v = self._v
            turned = matmul(v[:, part], turn, accuracy=componentwise(2.0**-bits), dtype="mp").round_to(bits)
            self._v = np.concatenate([v[:, :first], turned, v[:, last:]], axis=1)

    def _order(self) -> None:
        """Put values into descending order, and vectors with them."""
        exact = [x * Fraction(2) ** e for x, e in zip(self.values.to_fractions(), self.exponents.tolist(), strict=True)]
        order = np.array(sorted(range(self._n), key=exact.__getitem__, reverse=True))
        if (order[1:] > order[:-1]).all():
            return
        places = self._xp.asarray(order)
        self._v, self._w, self.values = self._v[:, places], self._w[:, places], self.values[order]
        self.exponents, self._near, self._off = self.exponents[order], self._near[order], self._off[order]
        self._g, self._h = self._g[np.ix_(order, order)], self._h[np.ix_(order, order)]

    # Results ---------------------------------------------------------------------------------------------------------

    def rounded_values(self, exponent: int, dtype: str) -> tuple[Any, Bounds]:
        """The values times 2**exponent in a real format, and bounds of their errors, relative to exact ones.

        Raises
        ------
        OverflowError
            If one is too large for the format, or too small.
        """
        values = moved(self.values, self._xp)
        result, kept = formatted(values, Powers(columns=self.exponents + exponent), dtype)
        bounds = (self.bound + on_host(missing(values, kept)) / self._near) / (1 - self.bound) * UP
        if not bool((bounds < 1).all()):
            too_small(dtype)
        return result, bounds

    def vectors(self, dtype: str) -> tuple[tuple[Any, Bounds], tuple[Any, Bounds]]:
        """U and V in a format, and by how much each column differs from that of Y or V, as Euclidean norms.

        Columns of U beyond n are orthogonal to the others, up to the tolerance.
        """
        bits, (ints, exponents) = self._bits, self.values.to_ints()
        inverses: Any = np.diag(of_ints((1 << 2 * bits) // ints, -exponents - 2 * bits))
        fine, v = componentwise(2.0**-bits), self._unscaled
        u = matmul(self._w, moved(inverses, self._xp), accuracy=fine, dtype="mp")
        off = self._off + 2.0 ** (2 - bits)
        if self._full and self._m > self._n:
            others = exactly(self._xp.linalg.qr(rounded(u), mode="complete")[0][:, self._n :])
            for _ in range(2 + bits // 50):
                inner = matmul(adjoint(u), others, accuracy=fine, dtype="mp")
                others = (others - matmul(u, inner, accuracy=fine, dtype="mp")).round_to(bits)
            u = np.concatenate([u, orthonormal(others, bits)], axis=1)
            off = np.concatenate([off, np.zeros(self._m - self._n)])
        found_u, found_v = in_format(u, dtype), in_format(v, dtype)
        of_u, of_v = (norms_on_host(missing(x, widened(found)), 0) for x, found in ((u, found_u), (v, found_v)))
        both = (found_u, off + of_u), (found_v, of_v)
        return both[::-1] if self._turned else both

    def vector_bounds(self, u: Any, v: Any) -> npt.NDArray[np.float64]:
        """Upper bounds of the sines of angles between vectors and exact ones, shape (2, n): of U, and of V.

        `u` and `v` are arrays and what each of their columns is off by, as of `vectors`.
        """
        n, (g, h), gaps = self._n, self._gaps, np.full(self._n, inf)
        if n > 1:
            # Distances of a value from the others, relative to it.
            down = np.clip(np.diff(self.exponents), -FARTHEST, 1)  # 1 of values near a power of two
            between = on_host(rounded(self.values[:-1] - self.values[1:].ldexp(down)))
            gaps[:-1] = between / self._near[:-1]
            gaps[1:] = np.minimum(gaps[1:], np.ldexp(between / self._near[1:], -down))
        apart = gaps * (1 - 2.0**-50) - self.bound
        both = float(np.hypot(g, h)) * (1 + self.bound) * (1 + max(g, h))
        turned = np.where(apart > 0, both / np.where(apart > 0, apart, 1.0), inf)
        (_, of_u), (_, of_v) = (v, u) if self._turned else (u, v)
        sines = np.stack([turned + g * (1 + g) + of_u[:n], turned * (1 + h) + of_v]) / (1 - max(g, h)) * UP
        found = np.where(sines < 1, sines, inf)
        return found[::-1].copy() if self._turned else found


def graded(a: Any, tolerance: float, full: bool = False) -> GradedDecomposition | None:
    """The decomposition of a matrix with m >= n whose columns or rows are far apart in size.

    None of other matrices, and where it is not found.

    Raises
    ------
    ValueError
        If the least value is zero, or less than a 2**-900th of the largest, or so, rows and columns being far apart.
    """
    m, n = a.shape
    of_columns, of_rows = (int(np.ptp(tops_or_zero(a, axis))) for axis in (0, 1))
    ways = [(of_columns, False)] if m > n else [(of_columns, False), (of_rows, True)]
    for span, adjoint_of in sorted(ways, reverse=True):
        if span > _FAR:
            with suppress(np.linalg.LinAlgError):
                return GradedDecomposition(adjoint(a) if adjoint_of else a, tolerance, full, adjoint_of)
    if of_rows <= _FAR:
        return None
    with suppress(np.linalg.LinAlgError):
        values = array_library(a).linalg.svd(rounded(a), compute_uv=False)
        if not bool(values[-1] > _USUAL * values[0]):
            try:
                return GradedDecomposition(a, tolerance, full, rows_apart=True)
            except OverflowError:
                raise ValueError(too_small_value(n - 1)) from None
    return None


_USUAL = 2.0**-40
"""Rows far apart that leave the least value above this share of the largest change little: float64 finds the values."""


_FAR = 24
"""How far apart exponents of columns are where this takes less time: of 12 columns 17 ms, of 100 columns 120. Up to it
most are found in float64 alone (`SingularDecomposition`), in 3 ms and 60, and of 300 columns in a third of the time."""
