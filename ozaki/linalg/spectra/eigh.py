"""Eigenvalues and eigenvectors of Hermitian matrices to a named accuracy."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import named, reached, step
from ozaki.functions.products import gemm, matmul
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import Sum, added, adjoint, array_library, exactly, hermitian, on_host, rounded
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import UNIT, componentwise, native_error, native_product, not_tiny, product, residual
from ozaki.linalg.common.scaling import ZERO, Powers, scaled, tops, without_tiny
from ozaki.linalg.common.upper import LEAST, column_norm, least_magnitudes, magnitudes, norms, row_norm
from ozaki.linalg.factors.correcting import MOST_CORRECTIONS, factor_target, native
from ozaki.linalg.systems.solution import empty, formatted, in_format, missing, too_small
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import part_of


class Eigen(NamedTuple):
    """Eigenvalues and eigenvectors, and what is proven of them.

    Attributes
    ----------
    values : array or MPArray, shape (n,), real, ascending
    vectors : array or MPArray, shape (n, n); its columns
    error_bound : float
        No eigenvalue differs from the exact one of the same place by more than this times the largest abs of the exact
        ones.
        Proven, rounding to the dtype included.
    vector_bounds : float64 array, NumPy, shape (n,)
        The sine of the angle between each vector, as it is returned, and an exact one is at most this; inf where
        eigenvalues lie so close that their errors leave open which is which.
    iterations : int
        Corrections.
    """

    values: Any
    vectors: Any
    error_bound: float
    vector_bounds: npt.NDArray[np.float64]
    iterations: int


@any_arrays("a", numpy=("vector_bounds",))
@default_environment
@np.errstate(all="ignore")
@named("eigh", solves=True)
def eigh(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> Eigen:
    """Find the eigenvalues and eigenvectors of a Hermitian matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (n, n), symmetric or Hermitian
        As in NumPy and LAPACK only the lower triangle is read, and of its diagonal the real part: where the upper one
        has other numbers, a stands for another matrix.
    accuracy : str, int or float, optional
        Of the eigenvalues: "fp64", a number of bits or a tolerance t, before they are rounded to their dtype. None is
        off by more than t times the largest abs of all. Up to 900 bits. Default: as many bits as the dtype has. The
        vectors become as accurate as the gaps between eigenvalues let them, which `Eigen.vector_bounds` says.
    dtype : optional
        As in `solve`; values are real.

    Returns
    -------
    Eigen

    Raises
    ------
    numpy.linalg.LinAlgError
        If corrections do not converge.
    OverflowError
        If an eigenvalue is too large for the dtype, or all are too small.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Notes
    -----
    The library's own eigenvectors, in float64, are corrected by T. Ogita and K. Aishima, "Iterative refinement for
    symmetric eigenvalue decomposition", JJIAM 35 (2018): with G = I - X^H X and N = X^H (a X - X D), X becomes
    X (I + G / 2 + K), K_ij = (N + N^H)_ij / (2 (d_j - d_i)), or 0 where eigenvalues d_i and d_j are too close; each
    step gains some 50 bits. Within such a cluster X is multiplied by the eigenvectors of the cluster's block of
    X^H a X (JJIAM 36, 2019). Then I + K, with these, is made orthonormal.
    The bound rests on X^H a X = D + N - G D and the theorems of Weyl and Ostrowski (docs/linalg.md, L5).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> found = ozaki.linalg.eigh(np.array([[2.0, 1.0], [1.0, 2.0]]), accuracy=150, dtype="mp")
    >>> found.values, found.error_bound < 2.0**-150
    (mparray([1.0, 3.0], bits=...), True)
    """
    (a,), formats = matrices(lower=True, a=a)
    check_matrix("a", a, square=True)
    target = factor_target(accuracy, dtype, formats, "of eigenvalues it is relative to the largest")
    if not a.size:
        values, vectors = empty((0,), part_of(target.dtype), a), empty(a.shape, target.dtype, a)
        return reached(Eigen(values, vectors, 0.0, np.zeros(0), 0), a.shape, vectors, "eigenvalue")
    a = hermitian(a)
    highest = tops(a, 0).max()
    scales = Powers(columns=np.full(a.shape[0], 0 if highest == ZERO else -highest))
    unit, cleared = without_tiny(scaled(a, scales))
    found = _Decomposition(unit, target.tolerance)
    while not found.bound <= target.tolerance:
        if found.steps == MOST_CORRECTIONS or (found.steps > 3 and not found.bound < found.before / 2):
            raise np.linalg.LinAlgError("a: corrections of its eigenvectors do not converge")
        found.correct(target.tolerance)
        step("correction %d: eigenvalue error <= %s", found.steps, found.bound)
    result, kept = formatted(found.values, scales.inverse(), part_of(target.dtype))
    lost = on_host(missing(found.values, kept)).max() / found.largest
    # Errors are relative to a value that may be larger than the largest exact one, by no more than the first of them.
    before = found.bound + LEAST * cleared
    bound = float((before + lost) / (1 - before) * (1 + 2.0**-40))
    if highest != ZERO and not bound < on_host(least_magnitudes(kept)).max() / found.largest:
        too_small(target.dtype)
    vectors = in_format(found.vectors, target.dtype)
    decomposed = Eigen(result, vectors, bound, found.vector_bounds(vectors), found.steps)
    return reached(decomposed, a.shape, vectors, "eigenvalue")


class _Decomposition:
    """Approximate eigenvalues D and eigenvectors X of a Hermitian matrix, the parts of whose elements are below 1.

    Those of float64 come first. Of their residuals, in float64 too, follow those after the first correction; of later
    ones residuals are computed anew, in more and more bits.

    Attributes
    ----------
    values, vectors : float64 arrays, Sums or MPArrays
    bound : an upper bound of the error of each eigenvalue, relative to the largest abs of all
    before : `bound` one correction before
    steps : corrections so far
    """

    def __init__(self, a: Any, tolerance: float) -> None:
        self._a, self._xp = a, array_library(a)
        self.values, self.vectors = native(self._xp.linalg.eigh, rounded(a), "float64 finds no eigenvalues")
        self.steps, self.bound = 0, float("inf")
        self._measure_in_float64(max(tolerance, 2.0**-80))

    def _measure_in_float64(self, tolerance: float) -> None:
        """Find the residuals of the first D and X, rounded to float64, with errors of the tolerance; and the bound."""
        a, x, d, xp = self._a, self.vectors, self.values, self._xp
        columns_x, self.largest = column_norm(x), float(on_host(magnitudes(d)).max()) or 1.0
        words, left_out = [rounded(a)], 0.0
        if isinstance(a, Numbers):
            words += [rounded(a - exactly(words[0]))]
            left_out = 2.0**-104 * row_norm(a) * row_norm(x)
        left, right = xp.concatenate([*words, x], axis=1), xp.concatenate([*[x] * len(words), xp.diag(-d)])
        terms = _product_norm(left, right)
        fine = not_tiny(min(_FINER * tolerance * self.largest / (8 * columns_x * terms), 2.0**-8))
        self._rest = product(left, right, fine, multiprecision=False)  # P = A X - X D of L5
        of_rest = fine * terms + UNIT * row_norm(self._rest) + left_out
        left = adjoint(x)
        terms = _product_norm(left, x)
        fine = not_tiny(min(_FINER * tolerance / (32 * terms), 2.0**-8))
        self._gram = residual(xp.eye(len(d)), left, x, fine, multiprecision=False)
        self._bound_by(of_rest, fine * terms + UNIT * row_norm(self._gram))

    def _measure(self, tolerance: float) -> None:
        """Find the residuals of the present D and X, with relative errors of the tolerance, and the bound."""
        a, x, xp = self._a, self.vectors, self._xp
        norm_x, columns_x, norm_a = row_norm(x), column_norm(x), row_norm(a)
        self.largest = float(on_host(magnitudes(self.values)).max()) or 1.0
        # The errors of the three products enter the bound with these factors.
        fine = min(tolerance / (8 * columns_x * norm_x * (norm_a / self.largest + 5)), 2.0**-8)
        words = tuple(xp.diag(each) for each in self.values.words(2 + ceil(-log2(fine) / 53)))
        scaled_x = matmul(x, mparray(words), accuracy=componentwise(fine), dtype="mp")
        self._rest = gemm(1, a, x, -1, scaled_x, accuracy=componentwise(fine), dtype="mp")
        self._gram = gemm(-1, adjoint(x), x, 1, xp.eye(a.shape[0]), accuracy=componentwise(fine), dtype="mp")
        # The products' errors, and what the words leave out of D.
        self._bound_by(fine * (norm_a * norm_x + 3 * norm_x * self.largest), fine * (columns_x * norm_x + 1))

    def _bound_by(self, of_rest: float, of_gram: float) -> None:
        """Bound the errors by the residuals, whose own errors have row norms of at most these."""
        columns_x, n = column_norm(self.vectors), self._a.shape[0]
        self._of_rest, self._of_gram = of_rest, of_gram
        self._norm_rest, self._norm_gram = row_norm(self._rest) + of_rest, row_norm(self._gram) + of_gram
        self._column_errors = self._norms(magnitudes(self._rest)) + of_rest * n**0.5
        self.before = self.bound
        if self._norm_gram < 0.5:
            missed = columns_x * self._norm_rest + 2 * self._norm_gram * self.largest
            self.bound = missed / (1 - self._norm_gram) / self.largest * (1 + 2.0**-40)
        else:
            self.bound = float("inf")

    def _norms(self, sizes: Any) -> npt.NDArray[np.float64]:
        """Upper bounds of the Euclidean norms of columns whose elements are no larger than these sizes."""
        unit = float(sizes.max()) + LEAST  # squares of small numbers underflow
        norms = on_host(self._xp.sqrt(((sizes / unit) ** 2).sum(axis=0)))
        found: npt.NDArray[np.float64] = unit * norms * (1 + 2.0**-40) + len(sizes) * LEAST
        return found

    def vector_bounds(self, kept: Any) -> npt.NDArray[np.float64]:
        """Upper bounds of the sines of the angles between vectors and exact ones (Davis and Kahan).

        `kept` are the vectors after they were rounded, which adds the sines of their angles to those before.
        """
        values = self.values
        n = values.high.shape[0] if isinstance(values, Sum) else len(values)
        gaps = np.full(n, np.inf)
        if n > 1:
            if isinstance(values, Sum):
                between = on_host((values.high[1:] - values.high[:-1]) + (values.low[1:] - values.low[:-1]))
            else:
                between = on_host(rounded(values[1:] - values[:-1]))
            gaps[1:] = between  # to the next lower one
            gaps[:-1] = np.minimum(gaps[:-1], between)
        gaps = gaps * (1 - 2.0**-50) - (self.bound + 2.0**-104) * self.largest - LEAST
        errors = np.where(gaps > 0, self._column_errors / gaps, np.inf) + self._norms(missing(self.vectors, kept))
        found: npt.NDArray[np.float64] = errors / (1 - self._norm_gram) ** 0.5 * (1 + 2.0**-40)
        return found

    def correct(self, tolerance: float) -> None:
        """One correction; `tolerance` is what is wanted in the end."""
        small, change, clusters = self._rotation_and_change()
        n, gram, x, values = len(small), rounded(self._gram), exactly(self.vectors), exactly(self.values)
        self.steps += 1
        next_tolerance = max(tolerance, 2.0 ** (-50 * (self.steps + 1)))  # a correction gains some 50 bits
        bits = ceil(-log2(next_tolerance) + 2 * log2(n)) + 12
        if self.steps == 1 and not clusters and self._correct_in_float64(small, change):
            if not self.bound <= tolerance:  # later corrections take sharper residuals
                self.vectors, self.values = (exactly(each).round_to(bits) for each in (self.vectors, self.values))
                self._measure(next_tolerance)
            return
        rotation = self._xp.eye(n) + small
        for part, of_cluster in clusters:
            rotation[:, part] = rotation[:, part] @ of_cluster
        x = (x + matmul(x, mparray(gram / 2), accuracy=componentwise(2.0**-bits), dtype="mp")).round_to(bits)
        x = matmul(x, _orthonormal(rotation, bits), accuracy=componentwise(2.0**-bits), dtype="mp")
        values = (values + exactly(change)).round_to(bits)
        order = _order(values)
        x, _ = without_tiny(x.round_to(bits))  # or each correction would double what elements span
        self.vectors, self.values = x[:, order], values[order]
        self._measure(next_tolerance)

    def _correct_in_float64(self, small: Any, change: Any) -> bool:
        """Add X (G / 2 + K) to X, and `change` to D; the residuals follow. False if values leave their order.

        With dX and dD what is added, P of L5 grows by A dX - X dD - dX (D + dD), and G by -X^H dX - dX^H (X + dX).
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
        largest, largest_change = (float(on_host(magnitudes(each)).max()) for each in (d, change))
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
        xp, gram = self._xp, rounded(self._gram)
        coupling = adjoint(rounded(self.vectors)) @ rounded(self._rest)  # N of `eigh`
        gaps = rounded(self.values[None, :] - self.values[:, None])
        # Eigenvalues whose distance is not well above what couples them form clusters.
        together = abs(gaps) <= 32 * (abs(coupling).max() + abs(gram).max() * self.largest) + LEAST
        small = xp.where(together, 0.0, (coupling + adjoint(coupling)) / (2 * xp.where(together, 1.0, gaps)))
        # The Rayleigh quotients of the vectors, less the eigenvalues so far.
        change = xp.diagonal(coupling).real / (1 - xp.diagonal(gram).real)
        clusters = []
        for first, last in _clusters(on_host(together)):
            part = slice(first, last)
            block = (coupling[part, part] + adjoint(coupling[part, part])) / 2
            offsets = rounded(self.values[part] - self.values[first : first + 1])
            found, of_cluster = xp.linalg.eigh(block + xp.diag(offsets))
            small[part, part] = 0
            change[part] = found - offsets
            clusters.append((part, of_cluster))
        if not all(bool(xp.isfinite(x).all()) for x in (small, change, *(of_cluster for _, of_cluster in clusters))):
            raise np.linalg.LinAlgError("a: corrections of its eigenvectors do not converge")
        return small, change, clusters


_FINER = 2.0**-16
"""How much sharper the first residuals are than the values need: of vectors they bound errors divided by gaps."""


def _product_norm(x: Any, y: Any) -> float:
    """An upper bound of the row norm of a matrix whose elements are norm(x_i) norm(y_j), Euclidean norms."""
    return float(norms(x, 1).max()) * float(norms(y, 0).sum()) * (1 + 2.0**-30)


def _orthonormal(x: Any, bits: int) -> Any:
    """A matrix of orthonormal columns near x, whose columns are nearly so, in so many bits."""
    found, eye = mparray(x), array_library(x).eye(len(x))
    while True:
        gram = gemm(-1, adjoint(found), found, 1, eye, accuracy=componentwise(2.0**-bits), dtype="mp")
        missing = row_norm(gram)
        found = (found + matmul(found, gram, accuracy=componentwise(2.0**-bits), dtype="mp").ldexp(-1)).round_to(bits)
        if not 2.0 ** (-bits / 2) < missing < 0.5:  # a step squares what is missing
            return found


def _clusters(together: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The ranges of ascending eigenvalues of which each is close to the next: (first, behind the last)."""
    ends = [0, *(i + 1 for i in range(len(together) - 1) if not together[i, i + 1]), len(together)]
    return [(p, q) for p, q in pairwise(ends) if q - p > 1]


def _order(values: Any) -> Any:
    """The places of values in ascending order; most are ascending already."""
    xp, order = array_library(values), list(range(len(values)))
    if bool((values[1:] >= values[:-1]).all()):
        return xp.asarray(order)
    exact = values.to_fractions()
    return xp.asarray(sorted(order, key=lambda i: exact[i]))
