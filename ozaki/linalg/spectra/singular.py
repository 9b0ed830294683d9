"""Singular values and vectors, corrected until they are as accurate as is asked, with the error of each bounded.

The names here are those of docs/linalg.md, L9: P = A V - U B and the Gram residuals G = I - U^H U and H = I - V^H V say
how far the singular values of B are from those of A. B is diagonal, but for blocks of clusters, whose own
decompositions are cheap and nearly exact.
"""

from __future__ import annotations

from math import ceil, inf, log2
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import step
from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import Sum, added, adjoint, array_library, exactly, on_host, rounded
from ozaki.linalg.common.products import (
    UNIT,
    Bounds,
    componentwise,
    native_error,
    native_product,
    not_tiny,
    product,
)
from ozaki.linalg.common.scaling import without_tiny
from ozaki.linalg.common.targets import SMALLEST
from ozaki.linalg.common.upper import (
    LEAST,
    UP,
    frobenius_norm,
    least_magnitudes,
    magnitudes,
    norms_on_host,
    spectral_norm,
)
from ozaki.linalg.determinants.singular import is_singular
from ozaki.linalg.factors.correcting import MOST_CORRECTIONS, native
from ozaki.linalg.spectra.blocks import NONE_FOUND, Block, block_of_small_values, block_of_values
from ozaki.linalg.spectra.clusters import FINER, LESS, orthonormal, ranges
from ozaki.linalg.spectra.graded import too_small_value
from ozaki.linalg.systems.solution import in_format, missing, widened
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray

_APART = 2.0**16
"""Values form a cluster if their difference is at most this times the largest element that couples vectors.
Corrections of vectors of others are below 2**-16, and their fourth powers below the last bit of float64."""

_SMALL = 2.0**-34
"""Of tall matrices, left vectors of singular values below this share of the largest are found anew: what LAPACK's lack
outside of the space of all of them would be as large as these values."""


class Correction(NamedTuple):
    """What one correction changes, in float64.

    Attributes
    ----------
    alike, apart : skew matrices, shape (p, p), p the columns of U, by whose sum U is turned, and V by their difference
    outside : what U gets that does not lie in its space, of its shape, or None
    middle : what is added to B, shape (p, n)
    change : what is added to each value, shape (n,)
    blocks : the clusters
    limit : up to which difference values are in a cluster
    """

    alike: Any
    apart: Any
    outside: Any
    middle: Any
    change: Any
    blocks: list[Block]
    limit: float


class SingularDecomposition:
    """Approximate singular values S, descending, and vectors U and V of a matrix with m >= n, its largest element ~1.

    Those of float64 come first. Of their residuals follow those after the first correction, in float64; of later ones
    residuals are computed anew, in more and more bits.

    Parameters
    ----------
    a : matrix, shape (m, n), m >= n >= 1
    tolerance : which is wanted, relative to the largest value
    of_least : whether it is wanted relative to the least one instead, as float64 finds it
    full : whether U has m columns; else n
    vectors : whether vectors are wanted, too

    Attributes
    ----------
    values, u, v : float64 arrays, Sums or MPArrays, shapes (n,), (m, n) or (m, m), and (n, n); vectors are columns
    largest : a number near the largest value, or 1 if that is 0
    errors : upper bounds of the errors of all values, in NumPy
    bound : the largest of them, relative to `largest`
    steps : corrections so far
    """

    def __init__(
        self, a: Any, tolerance: float, *, full: bool = False, vectors: bool = True, of_least: bool = False
    ) -> None:
        self._a, self._xp, self._vectors = a, array_library(a), vectors
        high = rounded(a)
        u, s, vh = native(lambda x: tuple(self._xp.linalg.svd(x, full_matrices=full)), high, NONE_FOUND)
        self.values, self.u, self.v = s, u, adjoint(vh)
        self.steps, self.bound, self._before = 0, inf, [inf, inf]
        self._blocks: list[Block] = []
        self.errors: Bounds = np.full(a.shape[1], inf)
        if not full and a.shape[0] > a.shape[1] and bool(s[-1] < _SMALL * s[0]):
            self._renew_small(int((s >= _SMALL * s[0]).sum()))
        if of_least and bool(s[0] > 0):
            tolerance *= float(s[-1] / s[0]) / 8
        self._measure_in_float64(max(tolerance, 2.0**-80))

    @property
    def _n(self) -> int:
        return int(self._a.shape[1])

    # Residuals and bounds --------------------------------------------------------------------------------------------

    def _measure_in_float64(self, tolerance: float) -> None:
        """Find the residuals of the first U, S and V, rounded to float64, with errors of the tolerance."""
        a, u, v, s, xp = self._a, self.u, self.v, self.values, self._xp
        self._blocks = []
        self.largest = float(on_host(magnitudes(s)).max()) or 1.0
        finer = FINER if self._vectors else 2.0**-4
        words, left_out = [rounded(a)], 0.0
        if isinstance(a, Numbers):
            words += [rounded(a - exactly(words[0]))]
            left_out = 2.0**-104 * spectral_norm(a) * spectral_norm(v)
        left = xp.concatenate([*words, u[:, : self._n]], axis=1)
        right = xp.concatenate([*[v] * len(words), xp.diag(-s)])
        terms = frobenius_norm(left) * frobenius_norm(right)
        fine = not_tiny(min(finer * tolerance * self.largest / (8 * terms), 2.0**-8))
        self._rest = product(left, right, fine, multiprecision=False)
        self._of_rest = fine * terms + UNIT * spectral_norm(self._rest) + left_out
        self._gram_u, self._of_gram_u = self._gram_of(u, finer * tolerance)
        self._gram_v, self._of_gram_v = self._gram_of(v, finer * tolerance)
        self._bound_errors()

    def _gram_of(self, x: Any, tolerance: float) -> tuple[Any, float]:
        """I - X^H X in float64, and a bound of its error's spectral norm."""
        eye = self._xp.eye(x.shape[1])
        left, right = self._xp.concatenate([eye, -adjoint(x)], axis=1), self._xp.concatenate([eye, x])
        terms = frobenius_norm(right) ** 2
        fine = not_tiny(min(tolerance / (16 * terms), 2.0**-8))
        gram = product(left, right, fine, multiprecision=False)
        return gram, fine * terms + UNIT * spectral_norm(gram) + LEAST

    def _measure(self, tolerance: float) -> None:
        """Find the residuals of the present U, S and V, with relative errors of the tolerance."""
        a, u, v, xp = self._a, self.u, self.v, self._xp
        self._blocks = []
        self.largest = float(on_host(magnitudes(self.values)).max()) or 1.0
        norm_a, norm_u, norm_v = spectral_norm(a), spectral_norm(u), spectral_norm(v)
        sizes = norm_a * norm_v / self.largest + 3 * norm_u
        fine = not_tiny(min(tolerance / (8 * (sizes + norm_u**2 + norm_v**2)), 2.0**-8))
        words = tuple(xp.diag(each) for each in self.values.words(2 + ceil(-log2(fine) / 53)))
        scaled_u = matmul(u[:, : self._n], mparray(words), accuracy=componentwise(fine), dtype="mp")
        self._rest = gemm(1, a, v, -1, scaled_u, accuracy=componentwise(fine), dtype="mp")
        self._of_rest = fine * sizes * self.largest  # of both products, and what the words leave out of S
        for name, x, norm in (("u", u, norm_u), ("v", v, norm_v)):
            eye = xp.eye(x.shape[1])
            gram = gemm(-1, adjoint(x), x, 1, eye, accuracy=componentwise(fine), dtype="mp")
            setattr(self, f"_gram_{name}", gram)
            setattr(self, f"_of_gram_{name}", fine * (norm**2 + 1))
        self._bound_errors()

    def _bound_errors(self) -> None:
        """Bound the errors of values: those of A V, of U B and of B (docs/linalg.md, L9)."""
        rest = self._rest
        self._norm_rest = min(spectral_norm(rest), frobenius_norm(rest)) + self._of_rest
        self._gap_u = spectral_norm(self._gram_u) + self._of_gram_u
        self._gap_v = spectral_norm(self._gram_v) + self._of_gram_v
        self._before = [self._before[-1], self.bound]
        if not max(self._gap_u, self._gap_v) < 0.5:
            self.bound, self.errors = inf, np.full(self._n, inf)
            return
        of_blocks = np.zeros(self._n)
        for block in self._blocks:
            of_blocks[block.columns] = block.error
        # G B and B H of L9: what is lacking of vectors of small values matters little.
        shifted = self.largest * (self._of_gram_u + self._of_gram_v)
        lacking = self._weighed(self._gram_u, True) + 1.25 * self._weighed(self._gram_v, False) + 2 * shifted
        missed = (self._norm_rest + lacking) / (1 - self._gap_v) + of_blocks + self._inverted()
        self.errors = missed * UP
        self.bound = float(self.errors.max()) / self.largest * UP

    def _between(self) -> Any:
        """How far each value is above the next one, in float64; below zero where they are out of order."""
        values = self.values
        if isinstance(values, Sum):
            return (values.high[:-1] - values.high[1:]) + (values.low[:-1] - values.low[1:])
        return rounded(values[:-1] - values[1:])

    def _inverted(self) -> float:
        """By how much values may differ from those in descending order, which alone have a place."""
        return -float(self._between().clip(None, 0.0).sum()) * UP if self._n > 1 else 0.0

    def _weighed(self, gram: Any, left: bool) -> float:
        """An upper bound of the spectral norm of G B, G the Gram residual of U (`left`), or of B H, H that of V."""
        sizes = magnitudes(gram)
        if self._blocks:
            middle = self._middle if left else self._middle.T
            weighed = native_product(sizes, middle) * (1 + native_error(sizes, middle))
        else:
            weighed = sizes[:, : self._n] * magnitudes(self.values)
        return spectral_norm(weighed) + LEAST

    def least(self) -> npt.NDArray[np.float64]:
        """Lower bounds of the exact singular values, zeros where they may be 0; in NumPy."""
        found: npt.NDArray[np.float64] = ((on_host(least_magnitudes(self.values)) - self.errors) * (1 - 2.0**-50)).clip(
            0
        )
        return found

    def dependent(self) -> bool:
        """Whether columns of A are known to be dependent, so that the last value is zero; False where they are not."""
        m, n = self._a.shape
        return is_singular(self._a if m == n else matmul(adjoint(self._a), self._a, accuracy="exact", dtype="mp"))

    def residuals(self) -> tuple[float, float]:
        """Upper bounds of the spectral norms of A V - U S and A^H U - V S, vectors of clusters turned."""
        turned = 1.25 * max((block.turned for block in self._blocks), default=0.0)
        largest = self.largest + float(self.errors.max())
        return self._norm_rest + turned, 3 * (self._norm_rest + largest * (self._gap_u + self._gap_v)) + turned

    @property
    def lacking(self) -> float:
        """An upper bound of the spectral norms of I - U^H U and I - V^H V, of vectors of no clusters."""
        return max(self._gap_u, self._gap_v)

    def vector_bounds(self, u: Any, v: Any) -> npt.NDArray[np.float64]:
        """Upper bounds of the sines of angles between vectors and exact ones, shape (2, n): of U, and of V.

        `u` and `v` are arrays and what each of their columns is off by, as of `vectors`.
        """
        n, m = self._n, self._a.shape[0]
        values = self.values
        gaps = np.full(n, inf)
        if n > 1:
            between = on_host(self._between())
            gaps[1:] = between  # to the next larger one
            gaps[:-1] = np.minimum(gaps[:-1], between)
        sizes, worst = on_host(magnitudes(values)), float(self.errors.max())
        lost = worst + LEAST + 2.0**-104 * self.largest * isinstance(values, Sum)
        both, found = float(np.hypot(*self.residuals())), []
        for gap, (_, off), tall in ((self._gap_u, u, m > n), (self._gap_v, v, False)):
            # Left vectors may also turn into what is orthogonal to the range of A.
            apart = (np.minimum(gaps, sizes) if tall else gaps) * (1 - 2.0**-50) - lost
            sines = np.where(apart > 0, both / np.where(apart > 0, apart, 1.0), inf) + off[:n]
            found.append(sines / (1 - gap) ** 0.5 * (1 + 2.0**-18))
        return np.where(np.stack(found) < 1, found, inf)

    # Corrections -----------------------------------------------------------------------------------------------------

    def reach(self, tolerance: float) -> None:
        """Correct until no value is off by more than the tolerance times the largest.

        Raises
        ------
        numpy.linalg.LinAlgError
            If corrections do not converge.
        """
        while not self._within(tolerance):
            # Some gain in every other step.
            gained = self.bound < self._before[0] / 2 or self.bound <= tolerance
            if self.steps == MOST_CORRECTIONS or (self.steps > 4 and not gained):
                raise np.linalg.LinAlgError(_NOT_CONVERGING)
            self._correct(tolerance)
            step("correction %d: singular value error <= %s", self.steps, self.bound)

    def to_multiprecision(self, tolerance: float) -> None:
        """Take multiprecision numbers, with vectors of clusters turned, for a correction to the tolerance."""
        if self._blocks or not isinstance(self.u, Numbers):
            self.steps = max(self.steps, 1)
            self._to_multiprecision(ceil(-log2(tolerance) + 2 * log2(max(self._a.shape))) + 12)
            self._measure(tolerance)

    def _within(self, tolerance: float) -> bool:
        lacking = max(self._gap_u, self._gap_v) if self._vectors else 0.0
        return self.bound <= tolerance and lacking <= tolerance

    def _correct(self, tolerance: float) -> None:
        """One correction; `tolerance` is what is wanted in the end."""
        self.steps += 1
        if self.steps == 1:
            correction = self._correction()
            if self._correct_in_float64(correction) and self._within(tolerance):
                return
        next_tolerance = max(tolerance, 2.0 ** (-50 * (self.steps + 1)))  # a correction gains some 50 bits
        bits = ceil(-log2(next_tolerance) + 2 * log2(max(self._a.shape))) + 12
        if not isinstance(self.u, Numbers):
            self._to_multiprecision(bits)
            self._measure(next_tolerance)
            return
        correction = self._correction(next_tolerance * self.largest / 64)
        small, left_out = self._small_outside(correction)
        alike, apart, n = correction.alike, correction.apart, self._n
        # Rounded to float64 the squares of large ones would leave vectors not orthonormal.
        large = frobenius_norm(alike) ** 2 > 2.0 ** (50 - bits)
        self.u = self._added(self.u, self._gram_u, (alike, apart), correction.outside, bits, large)
        self.v = self._added(self.v, self._gram_v, (alike[:n, :n], -apart[:n, :n]), None, bits, large)
        self._blocks = correction.blocks
        self.values = (self.values + exactly(correction.change)).round_to(bits)
        self._turn(bits)
        self._order()
        if left_out > next_tolerance * self.largest / 16:
            self._renew_small(small, bits)
        self._measure(next_tolerance)

    def _to_multiprecision(self, bits: int) -> None:
        """Take multiprecision numbers in place of floats, with vectors of clusters turned."""
        self.values, self.u, self.v = (exactly(each).round_to(bits) for each in (self.values, self.u, self.v))
        self._turn(bits)
        self._order()

    def _added(self, x: Any, gram: Any, turns: tuple[Any, Any], outside: Any, bits: int, large: bool) -> Any:
        """X (I + G / 2) turned by a sum of two skew matrices, + outside; G the Gram residual I - X^H X.

        One of these may be far below the other: so both are added in many bits.
        """
        alike, apart = turns
        gram, eye = rounded(gram) / 2, self._xp.eye(len(alike))
        if large:
            exact = orthonormal(mparray((eye, alike, apart)), bits)
            fine = componentwise(not_tiny(min(2.0**-bits / (frobenius_norm(gram) + LEAST), 2.0**-8)))
            change = exact - eye + matmul(mparray(gram), exact, accuracy=fine, dtype="mp")
        else:
            both = alike + apart
            change = mparray((alike, apart, both @ both / 2, gram))
        if outside is not None:
            high = rounded(outside)
            change = change - adjoint(high) @ high / 2
        fine = componentwise(not_tiny(min(2.0**-bits / (frobenius_norm(change) + LEAST), 2.0**-8)))
        found = x + matmul(x, change.round_to(bits), accuracy=fine, dtype="mp")
        found = found if outside is None else found + outside
        return without_tiny(found.round_to(bits))[0]  # or each correction would double what elements span

    def _turn(self, bits: int) -> None:
        """Multiply multiprecision vectors of clusters by the vectors of their blocks."""
        if not self._blocks:
            return
        is_complex = self._is_complex()
        sides = []
        for x, rows in ((self.u, True), (self.v, False)):
            turn = self._xp.eye(x.shape[1], dtype="complex128" if is_complex else "float64")
            for block in self._blocks:
                part = block.rows if rows else block.columns
                turn[part, part] = block.left if rows else block.right
            turned = matmul(x, orthonormal(turn, bits), accuracy=componentwise(2.0**-bits), dtype="mp")
            sides.append(without_tiny(turned.round_to(bits))[0])
        self.u, self.v = sides
        self._blocks = []

    def _order(self) -> None:
        """Put multiprecision values, and vectors with them, into descending order; none is negative."""
        values, xp = self.values, self._xp
        if bool((values[:-1] >= values[1:]).all()) and bool((values >= 0).all()):
            return
        exact = values.to_fractions()
        signs = np.array([-1.0 if x < 0 else 1.0 for x in exact])
        order = sorted(range(len(exact)), key=lambda i: -abs(exact[i]))
        of_u = xp.asarray([*order, *range(len(exact), self.u.shape[1])])
        self.values, self.u = abs(values)[xp.asarray(order)], self.u[:, of_u]
        flip = mparray(xp.diag(xp.asarray(signs)))
        self.v = matmul(self.v, flip, accuracy="exact", dtype="mp")[:, xp.asarray(order)]

    def _is_complex(self) -> bool:
        x = self._a
        return bool(x.is_complex if isinstance(x, Numbers) else x.dtype.kind == "c")

    def _coupling(self) -> Any:
        """E = U^H P - G S / 2 + S H / 2 of L9 in float64, shape of B; G and H are the Gram residuals of U and V."""
        s, n = rounded(self.values), self._n
        gram_u, gram_v = rounded(self._gram_u), rounded(self._gram_v)
        coupling = adjoint(rounded(self.u)) @ rounded(self._rest) - gram_u[:, :n] * (s / 2)
        coupling[:n] += (s / 2)[:, None] * gram_v
        return coupling

    def _outside(self) -> Any:
        """What of P lies outside of the space of U."""
        if not isinstance(self.u, Numbers):
            return self._rest - self.u @ (adjoint(self.u) @ self._rest)
        # Rounded to float64 it would not be orthogonal to U, relative to its size.
        fine = componentwise(2.0**-self.u.bits)
        inner = matmul(adjoint(self.u), self._rest, accuracy=fine, dtype="mp")
        return self._rest - matmul(self.u, inner, accuracy=fine, dtype="mp")

    @staticmethod
    def _times(x: Any, by: Any) -> Any:
        """Columns times numbers."""
        if not isinstance(x, Numbers):
            return x * by
        return matmul(x, mparray(array_library(by).diag(by)), accuracy=componentwise(2.0**-x.bits), dtype="mp")

    def _small_outside(self, correction: Correction) -> tuple[int, float]:
        """The first value that is not told from 0 by a correction, and the largest element of P outside for all these.

        What a correction cannot mend, since it would divide by them.
        """
        if correction.outside is None:
            return self._n, 0.0
        large = on_host(abs(rounded(self.values)) > correction.limit)
        first = int(large.sum())
        return first, float(abs(rounded(self._outside()[:, first:])).max()) if first < self._n else 0.0

    def _correction(self, negligible: float = 0.0) -> Correction:
        """The correction of second order: what turns vectors, and what is added to B.

        Clusters whose blocks have nothing above `negligible` outside of the diagonal are not turned.
        """
        xp, n, p = self._xp, self._n, self.u.shape[1]
        values, coupling = self.values, self._coupling()
        limit = _APART * float(abs(coupling).max()) + LEAST
        s = xp.zeros(p)
        s[:n] = rounded(values)
        square = xp.zeros((p, p), dtype=coupling.dtype)
        square[:, :n] = coupling
        hermitian, skew = (square + adjoint(square)) / 2, (square - adjoint(square)) / 2
        differences, sums = xp.zeros((p, p)), s[None, :] + s[:, None]
        differences[:] = s[None, :] - s[:, None]
        differences[:n, :n] = rounded(values[None, :] - values[:, None])
        near, small = abs(differences) <= limit, sums <= limit
        by_differences = xp.where(near, 0.0, hermitian / xp.where(near, 1.0, differences))
        by_sums = xp.where(small, 0.0, skew / xp.where(small, 1.0, sums))
        middle = (xp.where(near, hermitian, 0.0) + xp.where(small, skew, 0.0))[:, :n]
        outside = None
        if p < self._a.shape[0]:
            outside = self._times(self._outside(), xp.where(s > limit, 1.0 / xp.where(s > limit, s, 1.0), 0.0))
        change = xp.diagonal(middle).real.copy()
        blocks = self._decomposed(coupling, middle, near, change, negligible)
        if not all(bool(xp.isfinite(x).all()) for x in (by_differences, by_sums, change)):
            raise np.linalg.LinAlgError(_NOT_CONVERGING)
        return Correction(by_differences, by_sums, outside, middle, change, blocks, limit)

    def _decomposed(self, coupling: Any, middle: Any, near: Any, change: Any, negligible: float) -> list[Block]:
        """The blocks of clusters, decomposed; `change` gets what is added to their values."""
        limit = _APART * float(abs(coupling).max()) + LEAST
        n, p, values = self._n, self.u.shape[1], self.values
        s = on_host(rounded(values))
        joined = np.diagonal(on_host(near)[:n, :n], 1)  # each value with the next
        clusters = [(first, last) for first, last in ranges(joined) if last - first > 1]
        if s[-1] <= limit and not (clusters and clusters[-1][1] == n):
            clusters.append((n - 1, n))
        blocks = []
        for first, last in clusters:
            columns = slice(first, last)
            small = last == n and s[-1] <= limit
            outer = middle[first : p if small else last, columns].copy()
            outer[: last - first] -= self._xp.diag(self._xp.diagonal(outer).real)
            if float(abs(outer).sum()) <= negligible and (negligible or not small):
                continue
            if small and negligible and self._vanishes(slice(first, p), columns, coupling):
                change[columns] = -rounded(values[columns])
                continue
            if small:
                block = block_of_small_values(slice(first, p), columns, middle, rounded(values[columns]))
                before = rounded(values[columns])
            else:
                before = rounded(values[columns] - values[first : first + 1])
                block = block_of_values(columns, middle, before)
            change[columns] = block[1] - before
            lost = UNIT * float(abs(block[1]).max() + abs(before).max())
            blocks.append(block[0]._replace(error=block[0].error + lost, turned=block[0].turned + lost))
        return blocks

    def _vanishes(self, rows: slice, columns: slice, coupling: Any) -> bool:
        """Whether the block of values that may be 0 is below what couples it to others: it will hardly stay then."""
        block, others = coupling[rows, columns].copy(), abs(coupling)
        block[: columns.stop - columns.start] += self._xp.diag(rounded(self.values[columns]))
        others[rows, columns] = 0.0
        return float(abs(block).sum()) <= float(others.max())

    def _correct_in_float64(self, correction: Correction) -> bool:
        """Add a correction to float64 vectors and values; the residuals follow. False if values leave their order.

        With dU, dV and M what is added to U, V and B, P becomes P + A dV - dU S - (U + dU) M, and I - U^H U becomes
        less by U^H dU + dU^H (U + dU).
        """
        a, u, v, s, n = rounded(self._a), self.u, self.v, self.values, self._n
        # The terms of second order of an orthonormal matrix: of the exponential of what turns.
        left, right = correction.alike + correction.apart, (correction.alike - correction.apart)[:n, :n]
        left, right = left + left @ left / 2, right + right @ right / 2
        outside = correction.outside
        left = left if outside is None else left - adjoint(outside) @ outside / 2
        du = native_product(u, self._gram_u / 2 + left)
        du = du if outside is None else du + outside
        dv = native_product(v, self._gram_v / 2 + right)
        values, of_u, of_v = added(s, correction.change), added(u, du), added(v, dv)
        x, y, d = of_u.high, of_v.high, values.high
        middle = correction.middle
        self._middle = abs(middle)  # of B; needed where it has blocks
        self._middle[:n] += self._xp.diag(s)
        self._rest = self._rest + (native_product(a, dv) - du[:, :n] * s - native_product(x, middle))
        self._gram_u = self._gram_u - (native_product(adjoint(u), du) + native_product(adjoint(du), x))
        self._gram_v = self._gram_v - (native_product(adjoint(v), dv) + native_product(adjoint(dv), y))
        norm_du, norm_dv, norm_x, norm_y = map(spectral_norm, (du, dv, x, y))
        norm_u, norm_v = spectral_norm(u), spectral_norm(v)
        error = max(native_error(adjoint(u), du), native_error(x, middle)) + 2.0**-50
        terms = spectral_norm(a) * norm_dv + norm_du * self.largest + norm_x * spectral_norm(middle)
        self._of_rest += error * terms + UNIT * spectral_norm(self._rest) + LEAST
        self._of_gram_u += error * norm_du * (norm_u + norm_x) + UNIT * spectral_norm(self._gram_u) + LEAST
        self._of_gram_v += error * norm_dv * (norm_v + norm_y) + UNIT * spectral_norm(self._gram_v) + LEAST
        self.values, self.u, self.v, self._blocks = values, of_u, of_v, correction.blocks
        self.largest = float(on_host(magnitudes(d)).max()) or 1.0
        if not bool((d[:-1] >= d[1:]).all()):
            return False
        self._bound_errors()
        return True

    def _renew_small(self, first: int, bits: int = 0) -> None:
        """Find left vectors of the values from `first` on anew, from A V: U may lack their directions.

        In float64, or with so many bits; the residuals are not those of the new vectors.
        """
        xp, a, n = self._xp, self._a, self._n
        later = self.v[:, first:]
        if bits:
            of_later = matmul(a, later, accuracy=componentwise(2.0**-bits), dtype="mp")
            before = self.u[:, :first]
            inner = matmul(adjoint(before), of_later, accuracy=componentwise(2.0**-bits), dtype="mp")
            of_later = rounded(of_later - matmul(before, inner, accuracy=componentwise(2.0**-bits), dtype="mp"))
        else:
            terms = frobenius_norm(a) * frobenius_norm(later)
            of_later = product(a, later, not_tiny(min(2.0**-100 / terms, 2.0**-8)), multiprecision=False)
        sizes = abs(of_later).max(axis=0)
        sizes = xp.where(sizes > 0, sizes, 1.0)
        q, r = xp.linalg.qr(xp.concatenate([rounded(self.u)[:, :first], of_later / sizes], axis=1))
        turn, s, right = xp.linalg.svd(r[first:, first:] * sizes)
        new, right = q[:, first:n] @ turn, adjoint(right)
        if not bits:
            self.u = xp.concatenate([self.u[:, :first], new], axis=1)
            self.v = xp.concatenate([self.v[:, :first], later @ right], axis=1)
            self.values = xp.concatenate([self.values[:first], s])
            return
        fine = componentwise(2.0**-bits)
        new, right = mparray(new), orthonormal(right, bits)
        for _ in range(1 + ceil(log2(bits / 50)) if bits > 50 else 1):
            if first:
                inner = matmul(adjoint(before), new, accuracy=fine, dtype="mp")
                new = (new - matmul(before, inner, accuracy=fine, dtype="mp")).round_to(bits)
            new = orthonormal(new, bits)
        later = matmul(later, right, accuracy=fine, dtype="mp").round_to(bits)
        self.u = without_tiny(np.concatenate([self.u[:, :first], new], axis=1))[0]
        self.v = without_tiny(np.concatenate([self.v[:, :first], later], axis=1))[0]
        self.values = np.concatenate([self.values[:first], mparray(s)])
        self._order()

    # Results ---------------------------------------------------------------------------------------------------------

    def vectors(self, dtype: str) -> tuple[tuple[Any, Bounds], tuple[Any, Bounds]]:
        """U and V in a format, and by how much each column differs from the vector that is bounded, as Euclidean norms.

        Those of clusters that were found in float64 are turned here.
        """
        return self._turned(self.u, True, dtype), self._turned(self.v, False, dtype)

    def _turned(self, x: Any, left: bool, dtype: str) -> tuple[Any, Bounds]:
        if not self._blocks:
            found = in_format(x, dtype)
            return found, norms_on_host(missing(x, widened(found)), 0)
        high, low = x if isinstance(x, Sum) else (x, self._xp.zeros_like(x))
        off = np.zeros(high.shape[1])
        turned, rest = high.copy(), low.copy()
        for block in self._blocks:
            part, by = (block.rows, block.left) if left else (block.columns, block.right)
            turned[:, part] = native_product(high[:, part], by) + native_product(low[:, part], by)
            rest[:, part] = 0.0
            sizes = spectral_norm(high[:, part]) * spectral_norm(by)
            off[part] = (native_error(high[:, part], by) + 2 * UNIT) * sizes + LEAST
        found = in_format(Sum(turned, rest), dtype)
        return found, off + norms_on_host(missing(Sum(turned, rest), widened(found)), 0)


_NOT_CONVERGING = f"a: corrections of its singular vectors do not converge; {LESS}"


def relative_to_each(
    found: SingularDecomposition, tolerance: float, part: slice = slice(None), floor: float = SMALLEST
) -> None:
    """Correct until each value, or each of a part, is off by no more than the tolerance times itself.

    Raises
    ------
    ValueError
        If one cannot be told from 0, or from `floor` times the largest, or not be had in so many bits.
    numpy.linalg.LinAlgError
        If corrections do not converge.
    """
    dependent: bool | None = None
    while True:
        least = found.least()
        if bool((found.errors <= tolerance * least)[part].all()):
            return
        goal = min(tolerance * float(least[part].min()), float(found.errors.max()) / 4) / found.largest / 2
        goal = goal if goal else found.bound * 2.0**-60
        if not least[part].min() > 0 and dependent is None:
            dependent = found.dependent()  # then the last value is zero, which more bits would not show
        if dependent or goal < SMALLEST or (found.bound < floor and not least[part].min() > 0):
            place = len(least) - 1 if dependent else range(len(least))[part][int(least[part].argmin())]
            if least[place] > 0:
                share = least[place] / found.largest
                raise ValueError(
                    f"accuracy: too many bits of singular value {place}, which is about {share:.1g} times the largest; "
                    "ask for fewer, or for Accuracy('normwise', tolerance)"
                )
            raise ValueError(too_small_value(place))
        found.reach(goal)
