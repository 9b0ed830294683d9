"""Eigenvalues and right eigenvectors of general square matrices to a named accuracy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import Sum, array_library, exactly
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.scaling import ZERO, Powers, tops
from ozaki.linalg.common.targets import Target, target_of
from ozaki.linalg.common.upper import UP
from ozaki.linalg.spectra.eigenvectors import rounded_vectors
from ozaki.linalg.spectra.spectrum import moduli, spectrum
from ozaki.linalg.systems.gathering import logged, of_each
from ozaki.linalg.systems.solution import formatted, in_format, missing, too_small
from ozaki.multiprecision.numbers import Numbers, moved
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import COMPLEX, complex_of, format_named, is_multiprecision


class GeneralEigenvalues(NamedTuple):
    """Eigenvalues of a square matrix, and what is proven of them.

    Attributes
    ----------
    values : array or MPArray, shape (..., n)
        Real where all are, which only those of real matrices are; else complex, of a stack all. Conjugate pairs of real
        matrices are exact conjugates. In no order.
    error_bound : float, or NumPy array of float64 of the shape of a stack
        The largest of `error_bounds`.
    error_bounds : NumPy array of float64, shape (..., n)
        To each value belongs an exact eigenvalue, to all together all, with their multiplicities, that differs from it
        by no more than this, relative to the largest abs of all exact ones ("normwise", the default) or to its own
        ("relative"). Proven, rounding to the dtype included.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    values: Any
    error_bound: Any
    error_bounds: npt.NDArray[np.float64]
    iterations: int


class GeneralEigen(NamedTuple):
    """Eigenvalues and right eigenvectors of a square matrix, and what is proven of them.

    Attributes
    ----------
    values, error_bound, error_bounds, iterations : as of `GeneralEigenvalues`
    vectors : array or MPArray, shape (..., n, n)
        Column i belongs to value i; its Euclidean norm is 1, but for roundings of float64. Real where values are.
    vector_bounds : NumPy array of float64, shape (..., n)
        The sine of the angle between each vector, as it is returned, and an exact one is at most this; inf where
        values are not proven to belong to different eigenvalues.
    """

    values: Any
    vectors: Any
    error_bound: Any
    vector_bounds: npt.NDArray[np.float64]
    error_bounds: npt.NDArray[np.float64]
    iterations: int


@any_arrays("a", numpy=("error_bound", "error_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("eigvals", solves=True)
def eigvals(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> GeneralEigenvalues:
    """Find the eigenvalues of a square matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
    accuracy, dtype
        As in `eig`.

    Returns
    -------
    GeneralEigenvalues

    Raises
    ------
    numpy.linalg.LinAlgError, OverflowError, ValueError, TypeError
        As in `eig`.

    Notes
    -----
    As `eig`, by discs of a matrix that is similar to a; values that stand on the diagonal since their rows or columns
    have nothing else, as all of a triangular matrix, are exact (docs/linalg.md, L10).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> found = ozaki.linalg.eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> found.values.tolist(), found.error_bound < 2.0**-53
    ([1j, -1j], True)
    """
    given, target, asked = _checked(a, accuracy, dtype)

    def one(each: Any) -> GeneralEigenvalues:
        values, _, error_bound, _, error_bounds, iterations = _of_one(each, target, asked, with_vectors=False)
        return GeneralEigenvalues(values, error_bound, error_bounds, iterations)

    found = of_each(one, given)
    return logged(found, given, found.values, "eigenvalue")


@any_arrays("a", numpy=("error_bound", "error_bounds", "vector_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("eig", solves=True)
def eig(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> GeneralEigen:
    """Find the eigenvalues and right eigenvectors of a square matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
    accuracy : Accuracy, str, int or float, optional
        Of the eigenvalues: "fp64", a number of bits or a tolerance t, before they are rounded to their dtype. None is
        off by more than t times the largest abs of all, or, with `Accuracy("relative", t)`, times its own. Up to 900
        bits. Default: as many bits as the dtype has. The vectors become as accurate as the distances of eigenvalues
        let them, which `GeneralEigen.vector_bounds` says.
    dtype : optional
        As in `solve`. As NumPy 2.4 does, results of real matrices are real where all eigenvalues are, and complex
        otherwise; "complex128" or "complex64" makes all of them complex. "mp" is an `MPArray`, real or complex alike.

    Returns
    -------
    GeneralEigen

    Raises
    ------
    numpy.linalg.LinAlgError
        If eigenvalues are known to fewer bits than are asked for, as multiple ones, which depend on hundreds of bits
        of the matrix, may be; with `Accuracy("relative", t)` also where one is zero. The message names them.
    OverflowError
        If an eigenvalue is too large for the dtype, or all are too small.
    ValueError, TypeError
        For operands that cannot be used, before any work; TypeError also where `dtype` is a real one of floats, and an
        eigenvalue is not real.

    Notes
    -----
    The eigenvectors X that NumPy's LAPACK finds in float64, on the host, make inv(X) a X nearly diagonal. Gershgorin's
    discs of that matrix prove as many eigenvalues as touch each other; discs that touch no others are made smaller by
    scaling, to the square of what they were. From the same matrix follow corrections of X; groups of close
    eigenvalues are split by LAPACK anew, less their mean, and so on in more and more bits (docs/linalg.md, L10).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> found = ozaki.linalg.eig(np.array([[2.0, 1.0], [0.0, 1.0]]), accuracy=150, dtype="mp")
    >>> found.values, found.error_bound < 2.0**-150, bool(found.vector_bounds.max() < 2.0**-100)
    (mparray([2.0, 1.0], bits=...), True, True)
    """
    given, target, asked = _checked(a, accuracy, dtype)
    found = of_each(lambda each: _of_one(each, target, asked, with_vectors=True), given)
    return reached(found, given.shape, found.vectors, "eigenvalue")


def _checked(a: Any, accuracy: Any, dtype: Any) -> tuple[Any, Target, str | None]:
    """Square matrices, what is asked of their eigenvalues, and the format that is named, if one is."""
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    return a, target_of(accuracy, dtype, formats), format_named(dtype)


def _of_one(a: Any, target: Target, asked: str | None, with_vectors: bool) -> GeneralEigen:
    """What `eig` returns of one matrix; without vectors an empty array in their place."""
    xp, n = array_library(a), a.shape[0]
    if not n or tops(a, 0).max() == ZERO:
        kind = complex if holds_complex(a) else float
        values, vectors = (in_format(x, target.dtype) for x in (xp.zeros(n, kind), xp.eye(n, dtype=kind)))
        return GeneralEigen(values, vectors, 0.0, np.zeros(n), np.zeros(n), 0)
    found = spectrum(a, target, with_vectors)
    form = target.dtype
    if len(found.not_real) and not is_multiprecision(form) and form not in COMPLEX:
        if asked is not None:
            of_which = f"eigenvalue {found.not_real[0]} is not real"
            raise TypeError(f"dtype: {asked!r}, but {of_which}; expected {complex_of(form)!r} or 'mp'")
        form = complex_of(form)
    values = exactly(found.values) if is_multiprecision(form) else found.values
    if found.real and asked not in COMPLEX:
        values = Sum(values.high.real, values.low.real) if isinstance(values, Sum) else values.real
    result, kept = formatted(values, Powers(columns=np.full(n, found.highest)), form)
    errors = found.errors + missing(values, kept)
    least, largest = moduli(found.values, found.errors)
    bounds = np.where(errors > 0, errors / (least if target.measure == "relative" else largest), 0.0) * UP
    if not bounds.max() < 1:
        too_small(form)
    result = moved(result, xp) if isinstance(result, Numbers) else xp.asarray(result)
    vectors = of_vectors = np.zeros(0)
    if found.vectors is not None:
        vectors, of_vectors = rounded_vectors(found.vectors, form)
    return GeneralEigen(result, vectors, float(bounds.max()), of_vectors, bounds, found.steps)
