"""Eigenvalues and eigenvectors of Hermitian matrices, and of pairs of them, to a named accuracy."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import taken
from ozaki.linalg.common.results import Bounded
from ozaki.linalg.common.targets import Target, target_of
from ozaki.linalg.spectra import stacks
from ozaki.linalg.spectra.problem import HermitianProblem, operands, places_of
from ozaki.linalg.systems.gathering import of_each, with_the_rest
from ozaki.linalg.systems.solution import empty, formatted
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import part_of


class _Eigen(NamedTuple):
    values: Any
    vectors: Any
    error_bound: Any
    vector_bounds: npt.NDArray[np.float64]
    iterations: int


class Eigen(Bounded, _Eigen):
    """Eigenvalues and eigenvectors, and what is proven of them.

    Attributes
    ----------
    values : array or MPArray, shape (..., n), real, ascending
        With `subset_by_index` those at some places, and so are all arrays here.
    vectors : array or MPArray, shape (..., n, n); its columns
    error_bound : float, or NumPy array of float64 of the shape of a stack
        The largest of `error_bounds`.
    vector_bounds : NumPy array of float64, shape (..., n)
        The sine of the angle between each vector, as it is returned, and an exact one is at most this; inf where
        eigenvalues lie so close that their errors leave open which is which. Of a pair the angle is that of the inner
        product x^H b y.
    iterations : int
        Corrections; of a stack the most of a matrix.
    error_bounds : NumPy array of float64, shape (..., n)
        An attribute, no item of the tuple. No eigenvalue differs from the exact one of the same place by more than this
        times the largest abs of the exact ones ("normwise", the default), or times itself ("relative"). Proven,
        rounding to the dtype included.
    """


@any_arrays("a", "b", numpy=("error_bound", "vector_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("eigh", solves=True)
def eigh(
    a: Any,
    b: Any = None,
    *,
    lower: bool = True,
    UPLO: str | None = None,
    subset_by_index: tuple[int, int] | None = None,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> Eigen:
    """Find the eigenvalues and eigenvectors of a Hermitian matrix, or of a x = w b x, to a named accuracy.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), symmetric or Hermitian
        As in NumPy and LAPACK only one triangle is read, the lower one by default, and of its diagonal the real part:
        where the other one has other numbers, a stands for another matrix.
    b : array or MPArray, shape (..., n, n), symmetric or Hermitian and positive definite, optional
        Its leading axes and those of a broadcast. Default: the identity. Of the vectors V of a pair V^H b V is the
        identity, but for rounding. An ill-conditioned b costs time, not digits.
    lower : bool, optional
        False: of a and b the upper triangle is read.
    UPLO : {"L", "U"}, optional
        As in NumPy, in place of `lower`.
    subset_by_index : (int, int), optional
        As in SciPy, the first and the last place of eigenvalues, in ascending order from 0, that are returned, with
        their vectors; only these have to be as accurate as is asked. It takes as long as all.
    accuracy : Accuracy, str, int or float, optional
        Of the eigenvalues, before they are rounded to their dtype. "fp64", a number of bits or a tolerance t: none is
        off by more than t times the largest abs of all. `Accuracy("relative", t)`: by no more than t times itself. Up
        to 900 bits. Default: as many bits as the dtype has. The vectors become as accurate as the gaps between
        eigenvalues let them, which `Eigen.vector_bounds` says.
    dtype : optional
        As in `solve`; values are real.

    Returns
    -------
    Eigen

    Raises
    ------
    numpy.linalg.LinAlgError
        If corrections do not converge; if b is not positive definite, or its condition number above 2^300, its diagonal
        scaled.
    OverflowError
        If an eigenvalue is too large for the dtype, or all, of a relative accuracy one of them, are too small.
    ValueError, TypeError
        For operands that cannot be used, before any work; for a relative accuracy where an eigenvalue is zero.

    Notes
    -----
    The library's own eigenvectors, in float64, are corrected by T. Ogita and K. Aishima, "Iterative refinement for
    symmetric eigenvalue decomposition", JJIAM 35 (2018): with G = I - X^H X and N = X^H (a X - X D), X becomes
    X (I + G / 2 + K), K_ij = (N + N^H)_ij / (2 (d_j - d_i)), or 0 where eigenvalues d_i and d_j are too close; each
    step gains some 50 bits. Within such a cluster X is multiplied by the eigenvectors of the cluster's block of
    X^H a X (JJIAM 36, 2019). Then I + K, with these, is made orthonormal.
    The bound rests on X^H a X = D + N - G D and the theorems of Weyl and Ostrowski (docs/linalg.md, L5). With b the
    residuals are a X - b X D and I - X^H b X (L11). Matrices of up to 64 rows take no product of this library, all of
    a stack at once, unless eigenvalues lie close together (L16).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> found = ozaki.linalg.eigh(np.array([[2.0, 1.0], [1.0, 2.0]]), accuracy=150, dtype="mp")
    >>> found.values, found.error_bound < 2.0**-150
    (mparray([1.0, 3.0], bits=...), True)
    """
    a, b, formats = operands(a, b, lower, UPLO)
    places = places_of(subset_by_index, a.shape[-1])
    target = target_of(accuracy, dtype, formats)
    one = partial(_of_one, target=target, places=places)
    quick = stacks.eigenvectors(a, target, places) if b is None else None
    if quick is None:
        found = of_each(one, *([a] if b is None else [a, b]))
    else:
        (values, bounds, met), bound = quick.values, quick.values.error_bound
        at_once = Eigen.of(values, quick.vectors, bound, quick.vector_bounds, 1, error_bounds=bounds)
        found = with_the_rest(at_once, met, one, a)
    return reached(found, a.shape, found.vectors, "eigenvalue")


def _of_one(a: Any, b: Any = None, *, target: Target, places: slice) -> Eigen:
    """The eigenvalues and eigenvectors of one matrix, or of one pair."""
    if not a.size:
        values, vectors = empty((0,), part_of(target.dtype), a), empty(a.shape, target.dtype, a)
        return Eigen.of(values, vectors, 0.0, np.zeros(0), 0, error_bounds=np.zeros(0))
    problem = HermitianProblem.of(a, b)
    found, values, errors = problem.solved(target, False, places)
    result, bounds = problem.rounded_values(values, errors, target, places)
    vectors, kept = formatted(taken(found.vectors, (..., places)), problem.of_vectors, target.dtype)
    angles = found.vector_bounds(kept, places)
    return Eigen.of(result, vectors, float(bounds.max()), angles, found.steps, error_bounds=bounds)
