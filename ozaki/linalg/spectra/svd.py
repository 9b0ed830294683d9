"""Singular values and singular vectors to a named accuracy."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import named
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import Sum, adjoint, array_library, on_host, taken
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.scaling import ZERO, Powers, scaled, tops, without_tiny
from ozaki.linalg.common.targets import Target, target_of, target_of_real
from ozaki.linalg.common.upper import LEAST, UP, least_magnitudes
from ozaki.linalg.spectra import stacks
from ozaki.linalg.spectra.graded import GradedDecomposition, graded
from ozaki.linalg.spectra.singular import SingularDecomposition, relative_to_each
from ozaki.linalg.systems.gathering import logged, of_each, with_the_rest
from ozaki.linalg.systems.solution import empty, formatted, missing, too_small
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import is_multiprecision, part_of


class SingularValues(NamedTuple):
    """Singular values, and what is proven of them.

    Attributes
    ----------
    values : array or MPArray, shape (..., min(m, n)), real, descending
    error_bound : float, or NumPy array of float64 of the shape of a stack
        No value differs from the exact one of the same place by more than this times the largest exact one
        ("normwise", the default), or times itself ("relative"). Proven, rounding to the dtype included.
    error_bounds : NumPy array of float64, shape (..., min(m, n))
        The same of each value; `error_bound` is the largest.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    values: Any
    error_bound: Any
    error_bounds: npt.NDArray[np.float64]
    iterations: int


class SVD(NamedTuple):
    """A singular value decomposition a = u[:, :k] diag(s) vh[:k], k = min(m, n), and what is proven of it.

    Attributes
    ----------
    u : array or MPArray, shape (..., m, m), or (..., m, k) without `full_matrices`
    s : array or MPArray, shape (..., k), real, descending
    vh : array or MPArray, shape (..., n, n), or (..., k, n)
    error_bound, error_bounds : of s, as of `SingularValues`
    vector_bounds : NumPy array of float64, shape (..., 2, k)
        The sine of the angle between each of the first k columns of u, as it is returned, and an exact left singular
        vector is at most that of the first row, between rows of vh and exact right ones at most that of the second;
        inf where singular values lie so close that their errors leave open which is which, and for left vectors (right
        ones, if a is wide) of a matrix that is not square also where one cannot be told from 0.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    u: Any
    s: Any
    vh: Any
    error_bound: Any
    error_bounds: npt.NDArray[np.float64]
    vector_bounds: npt.NDArray[np.float64]
    iterations: int


@any_arrays("a", numpy=("error_bound", "error_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("svdvals", solves=True)
def svdvals(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> SingularValues:
    """Find the singular values of a matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., m, n), real or complex
    accuracy : Accuracy, str, int or float, optional
        Before values are rounded to their dtype. "fp64", a number of bits or a tolerance t: none is off by more than t
        times the largest of all. `Accuracy("relative", t)`: by no more than t times itself. Up to 900 bits. Default:
        as many bits as the dtype has.
    dtype : optional
        As in `solve`; values are real.

    Returns
    -------
    SingularValues

    Raises
    ------
    numpy.linalg.LinAlgError
        If corrections do not converge.
    OverflowError
        If a value is too large for the dtype, or all, of a relative accuracy one, are too small.
    ValueError, TypeError
        For operands that cannot be used, before any work; for a relative accuracy where a value is 0, or so small that
        it cannot be told from 0.

    Notes
    -----
    As `svd`; of the vectors, which are corrected in float64 if that does, no more is computed than values need
    (docs/linalg.md, L9). Those of up to 64 rows and columns together are found at once, of a stack, too (L16).

    Examples
    --------
    >>> import numpy as np, ozaki, ozaki.linalg
    >>> hilbert = 1 / (1 + np.add.outer(np.arange(10.0), np.arange(10.0)))
    >>> found = ozaki.linalg.svdvals(hilbert, accuracy=ozaki.Accuracy("relative", 2.0**-53))
    >>> float(found.values[-1]), found.error_bound < 3e-16  # NumPy's last one has three digits
    (1.0932524...e-13, True)
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a)
    target = target_of_real(accuracy, dtype, formats)
    one = partial(_values_of_one, target=target)
    quick = stacks.singular_values(adjoint(a) if a.shape[-2] < a.shape[-1] else a, target)
    if quick is None:
        found = of_each(one, a)
    else:
        values, bounds = quick.values[..., ::-1].copy(), quick.error_bounds[..., ::-1].copy()
        found = with_the_rest(SingularValues(values, quick.error_bound, bounds, 0), quick.reached, one, a)
    return logged(found, a, found.values, _MEASURES[target.measure])


def _values_of_one(a: Any, target: Target) -> SingularValues:
    """The singular values of one matrix."""
    if not a.size:
        return SingularValues(empty((0,), part_of(target.dtype), a), 0.0, np.zeros(0), 0)
    scale = Scaled(a)
    found = scale.decomposition(target, vectors=False)
    values, bounds = scale.rounded(found, target)
    return SingularValues(values, float(bounds.max()), bounds, found.steps)


@any_arrays("a", numpy=("error_bound", "error_bounds", "vector_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("svd", solves=True)
def svd(
    a: Any, full_matrices: bool = True, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None
) -> SVD:
    """Find the singular values and vectors of a matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., m, n), real or complex
    full_matrices : bool, optional
        Whether u and vh are square; else they have min(m, n) columns and rows, which takes less time and memory.
    accuracy : Accuracy, str, int or float, optional
        Of the singular values, as in `svdvals`. The vectors become as accurate as the gaps between them let them, which
        `SVD.vector_bounds` says.
    dtype : optional
        As in `solve`; singular values are real.

    Returns
    -------
    SVD

    Raises
    ------
    numpy.linalg.LinAlgError, OverflowError, ValueError, TypeError
        As in `svdvals`.

    Notes
    -----
    The library's own vectors, in float64, are corrected as by T. Ogita and K. Aishima, "Iterative refinement for
    singular value decomposition based on matrix multiplication", JCAM 369 (2020); where values are so close that this
    would divide by next to nothing, the block of such a cluster is decomposed, and its vectors turned. The bounds rest
    on theorems of Weyl and Ostrowski for a u = v s + p (docs/linalg.md, L9).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> found = ozaki.linalg.svd(np.array([[3.0, 0.0], [4.0, 5.0]]), accuracy=150, dtype="mp")
    >>> found.s, found.error_bound < 2.0**-150  # the roots of 45 and 5
    (mparray([ 6.7082, 2.23607], bits=152), True)
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a)
    target = target_of(accuracy, dtype, formats)
    found = of_each(lambda each: _of_one(each, full_matrices, target), a)
    return logged(found, a, found.s, _MEASURES[target.measure])


def _of_one(a: Any, full_matrices: bool, target: Target) -> SVD:
    """The decomposition of one matrix."""
    if not a.size:
        return _of_nothing(a, full_matrices, target)
    scale = Scaled(a)
    found = scale.decomposition(target, vectors=True, full=full_matrices)
    values, bounds = scale.rounded(found, target)
    (u, of_u), (v, of_v) = found.vectors(target.dtype)
    angles = found.vector_bounds((u, of_u), (v, of_v))
    if scale.wide:
        u, v, angles = v, u, angles[::-1].copy()
    return SVD(u, values, adjoint(v), float(bounds.max()), bounds, angles, found.steps)


_MEASURES = {"normwise": "singular value", "relative": "relative"}
"""What logs call the measures of values."""


def _of_nothing(a: Any, full_matrices: bool, target: Target) -> SVD:
    """The decomposition of a matrix without elements."""
    xp, (m, n) = array_library(a), a.shape

    def eye(rows: int, columns: int) -> Any:
        wide = is_multiprecision(target.dtype)
        x = xp.eye(rows, columns, dtype="float64" if wide else target.dtype)
        return mparray(x) if wide else x

    u, vh = (eye(m, m), eye(n, n)) if full_matrices else (eye(m, 0), eye(0, n))
    return SVD(u, empty((0,), part_of(target.dtype), a), vh, 0.0, np.zeros(0), np.zeros((2, 0)), 0)


class Scaled:
    """A matrix times a power of two, tall, or the adjoint of a wide one, whose largest element is about 1.

    Attributes
    ----------
    unit : the matrix
    wide : whether it is the adjoint
    exponent : of the power of two, which its values are to be multiplied by
    zero : whether all elements are 0
    cleared : whether it is without tiny elements that it had (docs/linalg.md, L6)
    """

    def __init__(self, a: Any) -> None:
        self.wide = a.shape[0] < a.shape[1]
        a = adjoint(a) if self.wide else a
        highest = tops(a, 0).max()
        self.zero = bool(highest == ZERO)
        self.exponent = 0 if self.zero else int(highest)
        self.unit, self.cleared = without_tiny(scaled(a, self._powers(a.shape[1], -self.exponent)))

    @staticmethod
    def _powers(columns: int, exponent: int) -> Powers:
        return Powers(columns=np.full(columns, exponent))

    def decomposition(
        self, target: Target, *, vectors: bool, full: bool = False
    ) -> SingularDecomposition | GradedDecomposition:
        """The decomposition whose values are as accurate as the target says."""
        if target.measure == "relative" and not (self.zero or self.cleared):
            tolerance = min(target.tolerance, 2.0**-53) if vectors else target.tolerance
            of_graded = graded(self.unit, tolerance, full)
            if of_graded is not None:
                return of_graded
        relative = target.measure == "relative"
        found = SingularDecomposition(self.unit, target.tolerance, full=full, vectors=vectors, of_least=relative)
        if relative:
            relative_to_each(found, target.tolerance)
        else:
            found.reach(target.tolerance)
        return found

    def errors(self, found: SingularDecomposition) -> npt.NDArray[np.float64]:
        """Upper bounds of the errors of the values, for the elements that were left out, too (docs/linalg.md, L6)."""
        return found.errors + LEAST * self.cleared * found.largest

    def rounded(
        self, found: SingularDecomposition | GradedDecomposition, target: Target
    ) -> tuple[Any, npt.NDArray[np.float64]]:
        """The values of the matrix in the target's format, and bounds of their errors in its measure.

        Raises
        ------
        OverflowError
            If one is too large for the format, or too small.
        """
        if isinstance(found, GradedDecomposition):
            return found.rounded_values(self.exponent, part_of(target.dtype))
        errors = self.errors(found)
        values = found.values
        if isinstance(values, Sum):  # second words may be out of order, by less than errors
            xp = array_library(values)
            values = taken(values, xp.lexsort(-xp.stack([values.low, values.high])))
        result, kept = formatted(values, self._powers(len(errors), self.exponent), part_of(target.dtype))
        lost = on_host(missing(values, kept))
        if target.measure == "relative":
            bounds = (errors + lost) / (found.least() - (errors - found.errors)).clip(LEAST)
            gone = bool((bounds >= 1).any())
        else:
            bounds = (errors + lost) / (found.largest - errors.max()) if not self.zero else np.zeros(len(errors))
            gone = not self.zero and not bool(lost.max() < on_host(least_magnitudes(kept)).max())
        if gone:
            too_small(target.dtype)
        return result, bounds * UP
