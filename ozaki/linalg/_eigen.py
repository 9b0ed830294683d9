"""Eigenvalues and eigenvectors of Hermitian matrices to a named accuracy."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.environment import default_environment
from ozaki.driver.watching import named, reached, step
from ozaki.functions.products import gemm, matmul
from ozaki.interchange.calls import any_arrays
from ozaki.linalg._arrays import adjoint, array_library, hermitian, on_host, rounded
from ozaki.linalg._correcting import MOST_CORRECTIONS, factor_target, native
from ozaki.linalg._matrices import check_matrix, matrices
from ozaki.linalg._products import componentwise
from ozaki.linalg._scaling import ZERO, scaled, tops, without_tiny
from ozaki.linalg._solution import empty, in_format, too_small
from ozaki.linalg._upper import LEAST, column_norm, least_magnitudes, magnitudes, row_norm
from ozaki.multiprecision.objects import mparray
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
    xp = array_library(a)
    a = hermitian(a)
    highest, zeros = tops(a, 0).max(), np.zeros(a.shape[0], np.int64)
    top = 0 if highest == ZERO else int(highest)
    unit, cleared = without_tiny(scaled(a, zeros - top, zeros))
    found = _Decomposition(unit)
    while not found.bound <= target.tolerance:
        if found.steps == MOST_CORRECTIONS or (found.steps > 3 and not found.bound < found.before / 2):
            raise np.linalg.LinAlgError("a: corrections of its eigenvectors do not converge")
        found.correct(target.tolerance)
        step("correction %d: eigenvalue error <= %s", found.steps, found.bound)
    values = found.values.ldexp(xp.asarray(zeros + top))
    result, vectors = in_format(values, part_of(target.dtype)), in_format(found.vectors, target.dtype)
    kept, down = mparray(result), xp.asarray(zeros - top)
    lost = on_host(magnitudes((values - kept).ldexp(down))).max() / found.largest
    # Errors are relative to a value that may be larger than the largest exact one, by no more than the first of them.
    before = found.bound + LEAST * cleared
    bound = float((before + lost) / (1 - before) * (1 + 2.0**-40))
    if highest != ZERO and not bound < on_host(least_magnitudes(kept.ldexp(down))).max() / found.largest:
        too_small(target.dtype)
    decomposed = Eigen(result, vectors, bound, found.vector_bounds(mparray(vectors)), found.steps)
    return reached(decomposed, a.shape, vectors, "eigenvalue")


class _Decomposition:
    """Approximate eigenvalues D and eigenvectors X of a Hermitian matrix, the parts of whose elements are below 1.

    Attributes
    ----------
    values, vectors : MPArray
    bound : an upper bound of the error of each eigenvalue, relative to the largest abs of all
    before : `bound` one correction before
    steps : corrections so far
    """

    def __init__(self, a: Any) -> None:
        self._a, self._xp = a, array_library(a)
        values, vectors = native(self._xp.linalg.eigh, rounded(a), "float64 finds no eigenvalues")
        self.values, self.vectors = mparray(values), mparray(vectors)
        self.steps, self.bound = 0, float("inf")
        self._measure(2.0**-60)

    def _measure(self, tolerance: float) -> None:
        """Find the residuals of the present D and X, with relative errors of the tolerance, and the bound."""
        a, x, xp = self._a, self.vectors, self._xp
        n, norm_x, columns_x, norm_a = a.shape[0], row_norm(x), column_norm(x), row_norm(a)
        sizes = on_host(magnitudes(self.values))
        self.largest = float(sizes.max()) or 1.0
        # The errors of the three products enter the bound with these factors.
        fine = min(tolerance / (8 * columns_x * norm_x * (norm_a / self.largest + 5)), 2.0**-8)
        words = tuple(xp.diag(each) for each in self.values.words(2 + ceil(-log2(fine) / 53)))
        scaled_x = matmul(x, mparray(words), accuracy=componentwise(fine), dtype="mp")
        self._rest = gemm(1, a, x, -1, scaled_x, accuracy=componentwise(fine), dtype="mp")  # P = A X - X D of L5
        self._gram = gemm(-1, adjoint(x), x, 1, xp.eye(n), accuracy=componentwise(fine), dtype="mp")
        # The products' errors, and what the words leave out of D.
        of_rest = fine * (norm_a * norm_x + 3 * norm_x * self.largest)
        of_gram = fine * (columns_x * norm_x + 1)
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
        values = on_host(self.values.astype("float64"))
        n = len(values)
        gaps = np.full(n, np.inf)
        if n > 1:
            between = on_host((self.values[1:] - self.values[:-1]).astype("float64"))
            gaps[1:] = between  # to the next lower one
            gaps[:-1] = np.minimum(gaps[:-1], between)
        gaps = gaps * (1 - 2.0**-50) - self.bound * self.largest - LEAST
        errors = np.where(gaps > 0, self._column_errors / gaps, np.inf) + self._norms(magnitudes(self.vectors - kept))
        found: npt.NDArray[np.float64] = errors / (1 - self._norm_gram) ** 0.5 * (1 + 2.0**-40)
        return found

    def correct(self, tolerance: float) -> None:
        """One correction; `tolerance` is what is wanted in the end."""
        x = self.vectors
        self.steps += 1
        next_tolerance = max(tolerance, 2.0 ** (-50 * (self.steps + 1)))  # a correction gains some 50 bits
        rotation, change = self._rotation_and_change()
        n, gram = len(rotation), rounded(self._gram)
        bits = ceil(-log2(next_tolerance) + 2 * log2(n)) + 12
        x = (x + matmul(x, mparray(gram / 2), accuracy=componentwise(2.0**-bits), dtype="mp")).round_to(bits)
        x = matmul(x, _orthonormal(rotation, bits), accuracy=componentwise(2.0**-bits), dtype="mp")
        values = (self.values + mparray(change)).round_to(bits)
        order = _order(values)
        x, _ = without_tiny(x.round_to(bits))  # or each correction would double what elements span
        self.vectors, self.values = x[:, order], values[order]
        self._measure(next_tolerance)

    def _rotation_and_change(self) -> tuple[Any, Any]:
        """What turns the vectors towards exact ones, and what is added to the values, in float64."""
        xp, gram = self._xp, rounded(self._gram)
        coupling = adjoint(rounded(self.vectors)) @ rounded(self._rest)  # N of `eigh`
        gaps = (self.values[None, :] - self.values[:, None]).astype("float64")
        # Eigenvalues whose distance is not well above what couples them form clusters.
        together = abs(gaps) <= 32 * (abs(coupling).max() + abs(gram).max() * self.largest) + LEAST
        small = xp.where(together, 0.0, (coupling + adjoint(coupling)) / (2 * xp.where(together, 1.0, gaps)))
        # The Rayleigh quotients of the vectors, less the eigenvalues so far.
        change = xp.diagonal(coupling).real / (1 - xp.diagonal(gram).real)
        of_clusters = xp.eye(len(coupling), dtype=coupling.dtype)
        for first, last in _clusters(on_host(together)):
            part = slice(first, last)
            block = (coupling[part, part] + adjoint(coupling[part, part])) / 2
            offsets = (self.values[part] - self.values[first : first + 1]).astype("float64")
            found, of_cluster = xp.linalg.eigh(block + xp.diag(offsets))
            of_clusters[part, part], small[part, part] = of_cluster, 0
            change[part] = found - offsets
        rotation = (xp.eye(len(coupling)) + small) @ of_clusters
        if not bool(xp.isfinite(rotation).all()) or not bool(xp.isfinite(change).all()):
            raise np.linalg.LinAlgError("a: corrections of its eigenvectors do not converge")
        return rotation, change


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
