"""Eigenvalues of Hermitian matrices, and of pairs of them, to a named accuracy."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import named
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.targets import Target, target_of_real
from ozaki.linalg.nearest.asking import check_format, to_nearest
from ozaki.linalg.nearest.eigenvalues import nearest_eigenvalues
from ozaki.linalg.spectra import stacks
from ozaki.linalg.spectra.problem import HermitianProblem, operands, places_of
from ozaki.linalg.systems.gathering import logged, of_each, with_the_rest
from ozaki.linalg.systems.solution import empty
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import part_of


class Eigenvalues(NamedTuple):
    """Eigenvalues, and what is proven of them.

    Attributes
    ----------
    values : array or MPArray, shape (..., n), real, ascending
        With `subset_by_index` those at some places, and so are `error_bounds`.
    error_bound : float, or NumPy array of float64 of the shape of a stack
        The largest of `error_bounds`.
    error_bounds : NumPy array of float64, shape (..., n)
        No eigenvalue differs from the exact one of the same place by more than this times the largest abs of the exact
        ones ("normwise", the default), or times itself ("relative"). Proven for these operands, rounding to the dtype
        included.
    iterations : int
        Corrections of eigenvectors: mostly none; of a stack the most of a matrix.
    """

    values: Any
    error_bound: Any
    error_bounds: npt.NDArray[np.float64]
    iterations: int


@any_arrays("a", "b", numpy=("error_bound", "error_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("eigvalsh", solves=True)
def eigvalsh(
    a: Any,
    b: Any = None,
    *,
    lower: bool = True,
    UPLO: str | None = None,
    subset_by_index: tuple[int, int] | None = None,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
    reproducible: bool = False,
) -> Eigenvalues:
    """Find the eigenvalues of a Hermitian matrix, or the w of a x = w b x, to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), symmetric or Hermitian
    b : array or MPArray, shape (..., n, n), symmetric or Hermitian and positive definite, optional
        Default: the identity. An ill-conditioned one costs time, not digits.
    lower, UPLO, subset_by_index, accuracy, dtype
        As in `eigh`.
    reproducible : bool, optional
        Of one matrix: make each value the float nearest to the exact eigenvalue, as in `solve`.

    Returns
    -------
    Eigenvalues

    Raises
    ------
    numpy.linalg.LinAlgError, OverflowError, ValueError, TypeError
        As in `eigh`; if `reproducible`, as in `solve`.

    Notes
    -----
    The library's own eigenvectors X and eigenvalues D, in float64, leave residuals P = a X - X D and G = I - X^H X.
    The eigenvalues of a are those of D + (X^H P + P^H X) / 2, but for terms of second order, which are bounded: the
    squares of norms of columns over the distances of eigenvalues. Eigenvalues that are too close for that are those of
    a block. So float64 results take one product of this library, and no correction of vectors (docs/linalg.md, L11);
    those of up to 64 rows take none, all of a stack at once (L16).

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> hilbert = 1 / (1 + np.add.outer(np.arange(8.0), np.arange(8.0)))
    >>> found = ozaki.linalg.eigvalsh(hilbert, accuracy=ozaki.Accuracy("relative", 2**-53))
    >>> found.values[0], found.error_bound < 3e-16
    (np.float64(1.11153...e-10), True)
    """
    a, b, formats = operands(a, b, lower, UPLO)
    places = places_of(subset_by_index, a.shape[-1])
    nearest, accuracy = to_nearest(accuracy, reproducible)
    if nearest and b is not None:
        raise ValueError("reproducible: the nearest numbers are found of eigenvalues of one matrix, not of a pair")
    target = target_of_real(accuracy, dtype, formats)
    if nearest:
        check_format(target.dtype)
    given = [a] if b is None else [a, b]
    one = partial(_nearest_of_one if nearest else _of_one, target=target, places=places)
    quick = None if nearest or b is not None else stacks.eigenvalues(a, target, places)
    if quick is None:
        found = of_each(one, *given)
    else:
        values, bounds, met = quick
        found = with_the_rest(Eigenvalues(values, quick.error_bound, bounds, 0), met, one, a)
    return logged(found, a, found.values, "eigenvalue")


def _of_one(a: Any, b: Any = None, *, target: Target, places: slice) -> Eigenvalues:
    """The eigenvalues of one matrix, or of one pair."""
    if not a.size:
        return Eigenvalues(empty((0,), part_of(target.dtype), a), 0.0, np.zeros(0), 0)
    problem = HermitianProblem.of(a, b)
    found, values, errors = problem.solved(target, True, places)
    result, bounds = problem.rounded_values(values, errors, target, places)
    return Eigenvalues(result, float(bounds.max()), bounds, found.steps)


def _nearest_of_one(a: Any, *, target: Target, places: slice) -> Eigenvalues:
    """The floats nearest to the eigenvalues of one matrix."""
    if not a.size:
        return _of_one(a, target=target, places=places)
    in_bits = lambda bits: eigvalsh(a, accuracy=bits, dtype="mp")  # noqa: E731
    result, bounds, steps = nearest_eigenvalues(a, target, in_bits, places)
    return Eigenvalues(result, float(bounds.max()), bounds, steps)
