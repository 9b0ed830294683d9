"""Approximate eigenvalues and eigenvectors of a Hermitian matrix, or of a pair of them, with what they err by."""

from __future__ import annotations

from math import ceil, inf, log2
from typing import Any

import numpy as np

from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import Sum, added, adjoint, array_library, exactly, on_host, rounded, taken
from ozaki.linalg.common.products import (
    UNIT,
    Bounds,
    componentwise,
    native_error,
    native_product,
    not_tiny,
    product,
    product_within,
)
from ozaki.linalg.common.scaling import without_tiny
from ozaki.linalg.common.upper import (
    LEAST,
    UP,
    column_norm,
    frobenius_norm,
    largest_abs,
    magnitudes,
    norms_on_host,
    row_norm,
)
from ozaki.linalg.spectra.clusters import (
    FINER,
    NOT_CONVERGING,
    decomposed_block,
    errors_by_coupling,
    orthonormal,
    ranges,
)
from ozaki.linalg.systems.solution import missing
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray

_WIDEST = 2.0**24
"""How much wider a block's distances may be than what couples eigenvalues, if that lets errors be smaller: float64 errs
in a block relative to its width."""

_CLOSE = 2.0**20
"""Eigenvalues form a cluster if what couples them is above their distance over this. Of what couples others a
correction leaves that share at most; within a cluster it leaves what float64 errs by, relative to the cluster's
width."""


class HermitianDecomposition:
    """Approximate eigenvalues D and eigenvectors X of a Hermitian matrix A, the parts of whose elements are below 1.

    With a positive definite B they are those of the pair, A x = d B x. The residuals P = A X - B X D, G = I - X^H B X
    bound what they err by (docs/linalg.md, L5 and L11). Those of the first X, if it is in float64, are rounded to
    float64, and of them follow those after the first correction; of later ones residuals are computed anew, in more and
    more bits.

    With `values_alone`, and X in float64, G is first known to few bits: enough for `refined`, which may be called at
    once, while `bound` is inf. The first `correct` finds both residuals as accurately as others have them.

    Parameters
    ----------
    a, b : Hermitian matrices; None for b is the identity
    first : the first D, in float64, and X, in float64 or many bits
    tolerance : what is wanted in the end, relative to the largest abs of all eigenvalues
    values_alone : whether `refined` values are wanted, not vectors, which then need half of the bits

    Attributes
    ----------
    values, vectors : float64 arrays, Sums or MPArrays, shapes (n,), ascending, and (n, n), columns
    largest : the largest abs of the values, rounded up; 1 if all are zero
    bound : an upper bound of the error of each of `values`, relative to `largest`
    steps : corrections so far
    """

    def __init__(self, a: Any, b: Any, first: tuple[Any, Any], tolerance: float, *, values_alone: bool = False) -> None:
        self._a, self._b, self._xp, self._values_alone = a, b, array_library(a), values_alone
        self.values, self.vectors = first
        self.steps, self.bound = 0, inf
        self._coupling: Any = None
        self._rough = values_alone and not isinstance(self.vectors, Numbers)
        if self._rough:
            self._measure_for_values(tolerance)
        else:
            self._measure_first(tolerance)

    # Residuals -------------------------------------------------------------------------------------------------------

    def _measure_first(self, tolerance: float) -> None:
        """Find the residuals of the first D and X, and the bound."""
        if self._b is None:
            self._measure_in_float64(tolerance)
        else:
            self._measure(*self._tolerances(tolerance))

    def _measure_in_float64(self, tolerance: float) -> None:
        """Find the residuals of the first D and X, rounded to float64, with errors of the tolerance; and the bound."""
        x, xp, columns_x = self.vectors, self._xp, column_norm(self.vectors)
        self.largest = largest_abs(self.values) or 1.0
        left, right, left_out = self._factors_of_rest([x])
        terms = _product_norm(left, right)
        fine = FINER * max(tolerance, 2.0**-80) * self.largest / (8 * columns_x * terms)
        fine = not_tiny(min(fine, 2.0**-8))
        self._rest = product(left, right, fine, multiprecision=False)
        of_rest = fine * terms + UNIT * row_norm(self._rest) + x.shape[0] ** 0.5 * left_out
        eye = xp.eye(x.shape[0])  # one product is quicker than a residual, which adds a matrix
        left, right = xp.concatenate([adjoint(x), eye], axis=1), xp.concatenate([-x, eye])
        terms = _product_norm(left, right)
        fine = not_tiny(min(FINER * max(tolerance, 2.0**-80) / (32 * terms), 2.0**-8))
        self._gram = product(left, right, fine, multiprecision=False)
        self._bound_by(of_rest, fine * terms + UNIT * row_norm(self._gram))

    def _measure_for_values(self, tolerance: float) -> None:
        """As `_measure_in_float64`, also for pairs, for refined values alone: G bounds what is of second order."""
        x, d, size = self.vectors, self.values, frobenius_norm(self.vectors)
        self.largest = largest_abs(d) or 1.0
        tolerance = max(tolerance, 2.0**-100)
        b_x, of_b_x = self._words_of_b_x(tolerance / (64 * size))
        left, right, left_out = self._factors_of_rest(b_x)
        gain = 32 * (1 if self._b is None else size)
        self._rest, error = _rounded_product(left, right, tolerance * self.largest / gain)
        self._spectral_of_rest = error + left_out + len(x) * LEAST + of_b_x * self.largest
        adjoint_x, eye = adjoint(x), self._xp.eye(len(x))
        if self._b is None:
            self._gram = eye - native_product(adjoint_x, x)
            of_gram = (native_error(adjoint_x, x) + 2 * UNIT) * (size**2 + 1)
        else:
            left = self._xp.concatenate([*[adjoint_x] * len(b_x), eye], axis=1)
            right = self._xp.concatenate([*(-each for each in b_x), eye])
            self._gram, of_gram = _rounded_product(left, right, 2.0**-10 * tolerance**0.5)
            of_gram += size * of_b_x
        self._spectral_gram = (frobenius_norm(self._gram) + of_gram) * UP

    def _words_of_b_x(self, tolerance: float) -> tuple[list[Any], float]:
        """B X as a sum of float64 matrices, and a bound of the spectral norm of what it is off by."""
        b, x, xp = self._b, self.vectors, self._xp
        if b is None:
            return [x], 0.0
        words, left_out = _words(b), 2.0**-104 * frobenius_norm(b) * frobenius_norm(x)
        high = native_product(words[0], x)
        left, right = xp.concatenate([*words, xp.eye(len(x))], axis=1), xp.concatenate([*[x] * len(words), -high])
        low, error = _rounded_product(left, right, tolerance)
        return [high, low], error + len(words) * left_out + len(x) * LEAST

    def _factors_of_rest(self, b_x: list[Any]) -> tuple[Any, Any, float]:
        """Two float64 matrices with the product P = A X - B X D, and a bound of what they leave out of A X."""
        a, x, xp = self._a, self.vectors, self._xp
        words = _words(a)
        left_out = 2.0**-104 * frobenius_norm(a) * frobenius_norm(x) if len(words) > 1 else 0.0
        right = xp.concatenate([*[x] * len(words), *[xp.diag(-self.values)] * len(b_x)])
        return xp.concatenate([*words, *b_x], axis=1), right, left_out

    def _measure(self, tolerance: float, of_gram: float) -> None:
        """Find the residuals of the present D and X, and the bound: P with relative errors of the tolerance.

        Those of G are `of_gram`.
        """
        a, b, x, xp = self._a, self._b, self.vectors, self._xp
        norm_x, columns_x, norm_a = row_norm(x), column_norm(x), row_norm(a)
        norm_b = 1.0 if b is None else row_norm(b)
        self.largest = largest_abs(self.values) or 1.0
        # The errors of the products enter the bound with these factors.
        gain = 8 * columns_x * norm_x * (1 if b is None else 4 * a.shape[0] ** 2)
        fine = min(tolerance / (gain * (norm_a / self.largest + 5 * norm_b)), 2.0**-8)
        of_gram = min(of_gram / (gain * 5 * norm_b), 2.0**-8)
        if min(fine, of_gram) < LEAST:
            raise np.linalg.LinAlgError("a: too ill-conditioned for this accuracy; ask for fewer bits")
        bx, of_bx = x, 0.0
        if b is not None:
            of_bx = min(fine, of_gram)
            bx = matmul(b, x, accuracy=componentwise(of_bx), dtype="mp")
        words = tuple(xp.diag(each) for each in exactly(self.values).words(2 + ceil(-log2(fine) / 53)))
        scaled_x = matmul(bx, mparray(words), accuracy=componentwise(fine), dtype="mp")
        self._rest = gemm(1, a, x, -1, scaled_x, accuracy=componentwise(fine), dtype="mp")
        self._gram = gemm(-1, adjoint(x), bx, 1, xp.eye(a.shape[0]), accuracy=componentwise(of_gram), dtype="mp")
        # The products' errors, and what the words leave out of D.
        size_x = norm_b * norm_x * (1 + of_bx)
        of_rest = fine * (norm_a * norm_x + 3 * size_x * self.largest) + of_bx * norm_b * norm_x * self.largest
        self._bound_by(of_rest, columns_x * (of_gram * size_x + of_bx * norm_b * norm_x) + of_gram)

    def _bound_by(self, of_rest: float, of_gram: float) -> None:
        """Bound the errors by the residuals, whose own errors have row norms of at most `of_rest` and `of_gram`."""
        columns_x, n = column_norm(self.vectors), self._a.shape[0]
        self._of_rest, self._of_gram = of_rest, of_gram
        self._spectral_of_rest = n**0.5 * of_rest
        self._norm_gram = row_norm(self._gram) + of_gram
        self._spectral_gram = min(self._norm_gram, frobenius_norm(self._gram) + n**0.5 * of_gram) * UP
        self.bound = inf
        if self._b is None:
            missed = columns_x * (row_norm(self._rest) + of_rest)
        else:
            # X and P may be large, and their product small: it is computed in many bits.
            allowed = max(self._spectral_of_rest * columns_x, LEAST)
            left, rest = adjoint(self.vectors), self._rest
            some = bool(magnitudes(rest).any())
            coupling = rounded(product_within(left, rest, allowed) if some else rest)
            self._of_coupling = columns_x * n**0.5 * of_rest + n * allowed + UNIT * frobenius_norm(coupling) + n * LEAST
            self._coupling = coupling
            missed = row_norm(coupling) + n**0.5 * self._of_coupling
        if self._norm_gram < 0.5:
            missed += 2 * self._norm_gram * self.largest
            self.bound = missed / (1 - self._norm_gram) / self.largest * UP

    def _coupled(self) -> tuple[Any, float]:
        """N = X^H P in float64, and an upper bound of the spectral norm of what it errs by."""
        if self._coupling is not None:
            return self._coupling, self._of_coupling
        left, rest = adjoint(rounded(self.vectors)), rounded(self._rest)
        found = native_product(left, rest)
        of_product = (native_error(left, rest) + 4 * UNIT) * frobenius_norm(self.vectors) * frobenius_norm(rest)
        size = 1 + self._spectral_gram if self._b is None else frobenius_norm(self.vectors)
        error = of_product + size * self._spectral_of_rest + len(left) * LEAST
        return found, error * UP

    # Bounds ----------------------------------------------------------------------------------------------------------

    def _gaps(self) -> Bounds:
        """Lower bounds of the distances of each value to the next, ascending; below zero, if they may be equal."""
        values, rounding = self.values, LEAST
        if isinstance(values, Sum):
            between = (values.high[1:] - values.high[:-1]) + (values.low[1:] - values.low[:-1])
            rounding += 2.0**-104 * self.largest
        else:
            between = rounded(values[1:] - values[:-1])
        found: Bounds = on_host(between) * (1 - 2.0**-50) - rounding
        return found

    def refined(self, share: float) -> tuple[Any, Bounds]:
        """Values with errors of second order, and upper bounds of these, in NumPy (docs/linalg.md, L11).

        Eigenvalues are put into one block if their distance would not let errors be as small as `share`, if they can.
        """
        n, gram = self._a.shape[0], self._spectral_gram
        coupling, missed = self._coupled()
        half = (coupling + adjoint(coupling)) / 2
        size = frobenius_norm(half) + missed
        missed = missed + 2 * UNIT * size + 5 * gram * gram * self.largest + 2 * gram * size
        if not (gram <= 0.25 and size < inf):
            return self.values, np.full(n, inf)
        change, errors, gaps = self._xp.diagonal(half).real.copy(), np.zeros(n), self._gaps()
        half = half - self._xp.diag(change)
        blocks = ranges(gaps <= 8 * size + min(4 * size * (size / share), _WIDEST * size))
        for part in _several(blocks):
            offsets = self._offsets(part)
            found, _, errors[part] = decomposed_block(half[part, part] + self._xp.diag(change[part]), offsets)
            change[part] = found - offsets
        columns = norms_on_host(half, 0)
        errors += errors_by_coupling(columns, gaps - 2 * size, blocks, size) + missed
        exact = isinstance(self.values, Sum | Numbers)
        values = exactly(self.values) + exactly(change) if exact else added(self.values, change)
        if _several(blocks):  # whose tiny values may be out of order, by less than the error that all of them have
            values = taken(values, _order(values))
        return values, errors * UP + LEAST

    def vector_bounds(self, kept: Any, places: slice) -> Bounds:
        """Upper bounds of the sines of the angles between vectors at some places and exact ones (Davis and Kahan).

        `kept` are these vectors after they were rounded, which adds the sines of their angles to those before. Angles
        are those of the inner product of B.
        """
        n, of_norm = self._a.shape[0], 1.0
        if self._b is None:
            errors = norms_on_host(self._rest, 0) + n**0.5 * self._of_rest
        else:
            errors = norms_on_host(self._coupling, 0) + self._of_coupling
            errors, of_norm = errors / (1 - self._norm_gram) ** 0.5, row_norm(self._b) ** 0.5
        gaps, between = np.full(n, inf), self._gaps()
        gaps[1:] = between  # to the next lower one
        gaps[:-1] = np.minimum(gaps[:-1], between)
        gaps = gaps - self.bound * self.largest * (1 + 2.0**-50)
        errors, gaps = errors[places], gaps[places]
        rounding = of_norm * norms_on_host(missing(taken(self.vectors, (..., places)), kept), 0)
        errors = np.where(gaps > 0, errors / np.where(gaps > 0, gaps, 1.0), inf) + rounding
        found: Bounds = errors / (1 - self._norm_gram) ** 0.5 * UP
        return found

    def _offsets(self, part: slice) -> Any:
        """How far the values of a cluster are above its first, in float64."""
        values = Sum(*(each[part] for each in self.values)) if isinstance(self.values, Sum) else self.values[part]
        values = exactly(values)
        return rounded(values - values[:1])

    # Corrections -----------------------------------------------------------------------------------------------------

    def _tolerances(self, tolerance: float) -> tuple[float, float]:
        """Those of the next residuals P and G; `tolerance` is what is wanted in the end."""
        next_one = max(tolerance, 2.0 ** (-50 * (self.steps + 1)))  # a correction gains some 50 bits
        # Errors of refined values are of second order, but for those of P.
        return (max(tolerance, next_one * 2.0**-50), next_one) if self._values_alone else (next_one, next_one)

    def correct(self, tolerance: float) -> None:
        """One correction, or sharper residuals, if these may be enough; `tolerance` is what is wanted in the end."""
        if self._rough:
            self._rough = False
            self._measure_first(tolerance)
            return
        if isinstance(self.values, Sum):  # later corrections take sharper residuals
            bits = self._bits(tolerance)
            self.vectors, self.values = (exactly(each).round_to(bits) for each in (self.vectors, self.values))
            self._measure(*self._tolerances(tolerance))
            if self.bound <= tolerance:
                return
        small, change, clusters = self._rotation_and_change()
        n, xp = len(small), self._xp
        self.steps += 1
        first = self.steps == 1 and not self._values_alone and self._b is None
        if first and not clusters and self._correct_in_float64(small, change):
            return
        bits, gram = self._bits(tolerance), rounded(self._gram)
        rotation = xp.eye(n) + small
        for part, of_cluster in clusters:
            rotation[:, part] = rotation[:, part] @ of_cluster
        turned = orthonormal(rotation, bits)
        size = row_norm(gram)
        more = matmul(mparray(gram / 2), turned, accuracy=componentwise(2.0**-bits / (size + LEAST)), dtype="mp")
        x = matmul(
            exactly(self.vectors), (turned + more).round_to(bits), accuracy=componentwise(2.0**-bits), dtype="mp"
        )
        values = (exactly(self.values) + exactly(change)).round_to(bits)
        order = _order(values)
        x, _ = without_tiny(x.round_to(bits))  # or each correction would double what elements span
        self.vectors, self.values = x[:, order], values[order]
        self._measure(*self._tolerances(tolerance))

    def _bits(self, tolerance: float) -> int:
        """The bits of X and D after this correction; `tolerance` is what is wanted in the end."""
        n, (_, next_one) = self._a.shape[0], self._tolerances(tolerance)
        found = ceil(-log2(next_one) + 2 * log2(n)) + 12
        if self._b is None:
            return found
        return found + ceil(log2(column_norm(self.vectors)) + log2(row_norm(self._b)) + log2(row_norm(self.vectors)))

    def _correct_in_float64(self, small: Any, change: Any) -> bool:
        """Add X (G / 2 + K) to X, and `change` to D; the residuals follow. False if values leave their order.

        With dX and dD what is added, P of L5 grows by A dX - X dD - dX (D + dD) and G by -X^H dX - dX^H (X + dX).
        """
        a, x = rounded(self._a), self.vectors
        dx = native_product(x, self._gram / 2 + small)
        values, vectors = added(self.values, change), added(x, dx)
        d, y = values.high, vectors.high
        if not bool((d[1:] > d[:-1]).all()):
            return False
        self._rest = self._rest + (native_product(a, dx) - (x * change + dx * d))
        self._gram = self._gram - (native_product(adjoint(x), dx) + native_product(adjoint(dx), y))
        norm_dx, columns_dx, error = row_norm(dx), column_norm(dx), native_error(x, dx) + 2.0**-50
        largest, largest_change = (largest_abs(each) for each in (d, change))
        terms = row_norm(a) * norm_dx + row_norm(x) * largest_change + norm_dx * largest
        of_rest = self._of_rest + error * terms + UNIT * row_norm(self._rest)
        terms = column_norm(x) * norm_dx + columns_dx * row_norm(y)
        of_gram = self._of_gram + error * terms + UNIT * row_norm(self._gram)
        self.values, self.vectors, self.largest = values, vectors, largest or 1.0
        self._bound_by(of_rest, of_gram)
        return True

    def _rotation_and_change(self) -> tuple[Any, Any, list[tuple[slice, Any]]]:
        """What turns the vectors towards exact ones, and what is added to the values, in float64.

        The first is K of `eigh`; the last are the clusters of eigenvalues, with eigenvectors of the blocks of each.
        """
        xp, (coupling, missed), between, size = self._xp, self._coupled(), self._gaps(), self._spectral_gram
        half = (coupling + adjoint(coupling)) / 2
        coupled = float(abs(half - xp.diag(xp.diagonal(half))).max())
        # What else there may be: errors of N, and terms of second order (docs/linalg.md, L11).
        coupled += missed + 5 * size * size * self.largest + 2 * size * frobenius_norm(half) + LEAST
        # Without clusters the first correction is quick, and mostly enough, even if it is as large as a 32nd.
        close = 32 if self.steps == 0 and (between > 32 * coupled).all() else _CLOSE
        blocks = ranges(between <= close * coupled)
        places = xp.asarray(np.repeat(np.arange(len(blocks)), [last - first for first, last in blocks]))
        together = places[None, :] == places[:, None]
        gaps = rounded(self.values[None, :] - self.values[:, None])
        small = xp.where(together, 0.0, half / xp.where(together, 1.0, gaps))
        # The Rayleigh quotients of the vectors, less the eigenvalues so far.
        change = xp.diagonal(coupling).real / (1 - xp.diagonal(rounded(self._gram)).real)
        clusters = []
        for part in _several(blocks):
            offsets = self._offsets(part)
            found, of_cluster = xp.linalg.eigh(half[part, part] + xp.diag(offsets))
            change[part] = found - offsets
            clusters.append((part, of_cluster))
        if not all(bool(xp.isfinite(x).all()) for x in (small, change, *(of_cluster for _, of_cluster in clusters))):
            raise np.linalg.LinAlgError(NOT_CONVERGING)
        return small, change, clusters


def _rounded_product(x: Any, y: Any, error: float) -> tuple[Any, float]:
    """The product of two float64 matrices, rounded to float64, and an upper bound of the Frobenius norm of its error.

    That is at most `error`, or 2**-8 of the product of both norms, if this is less; and the rounding.
    """
    terms = frobenius_norm(x) * frobenius_norm(y)
    fine = not_tiny(min(error / terms, 2.0**-8))
    found = product(x, y, fine, multiprecision=False)
    return found, fine * terms + UNIT * frobenius_norm(found)


def _product_norm(x: Any, y: Any) -> float:
    """An upper bound of the row norm of a matrix whose elements are norm(x_i) norm(y_j), Euclidean norms."""
    return float(norms_on_host(x, 1).max()) * float(norms_on_host(y, 0).sum()) * (1 + 2.0**-30)


def _words(a: Any) -> list[Any]:
    """A matrix as a sum of float64 ones: of many bits two, which leave out less than a 2**-104th of each element."""
    high = rounded(a)
    return [high, rounded(a - exactly(high))] if isinstance(a, Numbers) else [high]


def _several(blocks: list[tuple[int, int]]) -> list[slice]:
    """The places of blocks of more than one eigenvalue."""
    return [slice(first, last) for first, last in blocks if last - first > 1]


def _order(values: Any) -> Any:
    """The places of values in ascending order; most are ascending already."""
    xp = array_library(values)
    if isinstance(values, Sum):
        return xp.lexsort(xp.stack([values.low, values.high]))
    order = list(range(len(values)))
    if bool((values[1:] >= values[:-1]).all()):
        return xp.asarray(order)
    exact = values.to_fractions()
    return xp.asarray(sorted(order, key=lambda i: exact[i]))
