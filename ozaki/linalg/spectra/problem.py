"""Hermitian eigenvalue problems a x = w x and a x = w b x: operands, scaled; what is reached, rounded."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import array_library, masked, on_host, rounded, taken
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.scaling import ZERO, Powers, scaled, tops, without_tiny
from ozaki.linalg.common.targets import SMALLEST, Target
from ozaki.linalg.common.triangles import mirrored, read
from ozaki.linalg.common.upper import LEAST, UP, least_magnitudes
from ozaki.linalg.determinants.singular import is_singular
from ozaki.linalg.factors.correcting import MOST_CORRECTIONS, native
from ozaki.linalg.spectra.clusters import NOT_CONVERGING
from ozaki.linalg.spectra.decomposition import HermitianDecomposition
from ozaki.linalg.spectra.generalised import NOT_POSITIVE, first_of_pair
from ozaki.linalg.systems.solution import formatted, missing, too_small
from ozaki.planning.checks import check_flag
from ozaki.records.formats import part_of

_ZERO_VALUE = (
    "accuracy: an eigenvalue is zero, or too small to be told from it; ask for Accuracy('normwise', tolerance)"
)


def operands(a: Any, b: Any, lower: bool, uplo: str | None) -> tuple[Any, Any, list[str]]:
    """A Hermitian matrix, another one or None, from one triangle of each, and the formats that they had.

    Raises
    ------
    ValueError, TypeError
        For operands that cannot be used.
    """
    if isinstance(b, str):
        raise TypeError(f"b: {b!r}; expected a matrix (UPLO={b!r} names a triangle)")
    check_flag("lower", lower)
    if uplo is not None:
        if uplo not in ("L", "U", "l", "u"):
            raise ValueError(f"UPLO: {uplo!r}; expected 'L' or 'U'")
        lower = uplo in ("L", "l")
    given = {"a": a} if b is None else {"a": a, "b": b}
    found, formats = matrices(**{name: read(name, x, lower, "real") for name, x in given.items()})
    for name, x in zip(given, found, strict=True):
        check_matrix(name, x, square=True)
        check_axes(name, x, found[0])
    found = [mirrored(x, lower, conjugate=True) if x.size else x for x in found]
    return found[0], found[1] if len(found) > 1 else None, formats


def check_axes(name: str, x: Any, a: Any) -> None:
    """Refuse matrices of other sizes than those of a, or leading axes that do not fit its.

    Raises
    ------
    ValueError
    """
    if x.shape[-2:] == a.shape[-2:]:
        with suppress(ValueError):
            np.broadcast_shapes(x.shape[:-2], a.shape[:-2])
            return
    raise ValueError(f"{name}: shape {tuple(x.shape)} does not fit a of shape {tuple(a.shape)}")


def places_of(subset: Any, n: int) -> slice:
    """The places of the eigenvalues that are wanted: from the first to the last, both of them, or all.

    Raises
    ------
    ValueError, TypeError
        If they are no two places of n, in order.
    """
    if subset is None:
        return slice(0, n)
    try:
        first, last = map(index, subset)
    except (TypeError, ValueError):
        raise TypeError(f"subset_by_index: {subset!r}; expected two integers, the first and the last place") from None
    if not 0 <= first <= last < n:
        raise ValueError(
            f"subset_by_index: {subset!r}; expected (first, last) with 0 <= first <= last < {n}, as a has {n} rows"
        )
    return slice(first, last + 1)


class HermitianProblem(NamedTuple):
    """An eigenvalue problem that is scaled by powers of two, so that the largest elements are about 1.

    Attributes
    ----------
    a, b : Hermitian matrices, shape (n, n); b with a diagonal of about 1, or None
    of_values, of_vectors : powers of two by which values and vectors are to be multiplied afterwards
    cleared : whether tiny elements were left out
    is_zero : whether a is zero
    """

    a: Any
    b: Any
    of_values: Powers
    of_vectors: Powers
    cleared: bool
    is_zero: bool

    @staticmethod
    def of(a: Any, b: Any) -> HermitianProblem:
        """The problem of two Hermitian matrices that are not empty.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the diagonal of b is not positive.
        """
        n, cleared_b, of_rows = a.shape[0], False, np.zeros(a.shape[0], np.int64)
        if b is not None:
            diagonal = tops(masked(b, array_library(b).eye(n)), 0)
            if (diagonal == ZERO).any():
                raise np.linalg.LinAlgError(NOT_POSITIVE)
            of_rows = -(diagonal // 2)
            b, cleared_b = without_tiny(scaled(b, Powers(of_rows, of_rows)))
            if not bool((array_library(b).diagonal(rounded(b)).real > 0).all()):
                raise np.linalg.LinAlgError(NOT_POSITIVE)
        highest = tops(a, 0, Powers(of_rows, of_rows)).max()
        by = 0 if highest == ZERO else highest
        unit, cleared = without_tiny(scaled(a, Powers(None if b is None else of_rows, of_rows - by)))
        values = Powers(columns=np.full(n, by))
        return HermitianProblem(unit, b, values, Powers(rows=of_rows), cleared or cleared_b, bool(highest == ZERO))

    def decomposition(self, tolerance: float, values_alone: bool = False) -> HermitianDecomposition:
        """The library's own eigenvalues and eigenvectors, of which corrections start.

        Raises
        ------
        numpy.linalg.LinAlgError
            If there are none, or b is not positive definite.
        """
        if self.b is None:
            eigh = array_library(self.a).linalg.eigh
            first = native(eigh, rounded(self.a), "float64 finds no eigenvalues")
        else:
            first = first_of_pair(self.a, self.b)
        return HermitianDecomposition(self.a, self.b, first, tolerance, values_alone=values_alone)

    def solved(self, target: Target, values_alone: bool, places: slice) -> tuple[HermitianDecomposition, Any, Bounds]:
        """A decomposition that meets the target at some places; all its values, and upper bounds of their errors.

        Raises
        ------
        numpy.linalg.LinAlgError
            If corrections do not converge.
        ValueError
            If an eigenvalue cannot be told from zero, and its relative error is to be small.
        """
        relative, goal = target.measure == "relative", target.tolerance / 2
        if relative and self.is_zero:
            raise ValueError(_ZERO_VALUE)
        # Of a relative accuracy the smallest value decides, and a sharper residual takes hardly longer.
        found, last = self.decomposition(goal * 2.0**-24 if relative else goal, values_alone), np.inf
        while True:
            if values_alone:
                values, errors = found.refined(goal * found.largest / 2)
            else:
                values, errors = found.values, np.full(self.a.shape[0], found.bound * found.largest)
            errors = errors + LEAST * found.largest * self.cleared
            worst = float(errors[places].max())
            step("correction %d: error of eigenvalues up to %s of the largest", found.steps, worst / found.largest)
            sizes = (on_host(least_magnitudes(values)) - errors).clip(0)
            if self.is_zero and worst <= target.tolerance * found.largest:
                return found, rounded(values) * 0, np.zeros(self.a.shape[0])
            wanted = sizes[places]
            if (errors[places] <= target.tolerance * (wanted if relative else sizes.max())).all():
                return found, values, errors
            if relative and worst <= goal * found.largest:
                goal = self._finer(goal, target.tolerance, sizes / found.largest, places)
            if found.steps == MOST_CORRECTIONS or (found.steps > 3 and not worst < last / 2 and not relative):
                raise np.linalg.LinAlgError(NOT_CONVERGING)
            last = worst if isfinite(worst) else last
            found.correct(goal)

    def _finer(self, goal: float, tolerance: float, sizes: Bounds, places: slice) -> float:
        """The goal, relative to the largest value, in place of one at which values miss a relative tolerance.

        `sizes` are lower bounds of their abs, relative to the largest.

        Raises
        ------
        ValueError
            If a wanted value cannot be told from zero.
        """
        wanted = sizes[places]
        least = float(wanted.min())
        if goal == SMALLEST or (least and tolerance * least < 4 * SMALLEST):
            raise ValueError(_ZERO_VALUE)
        # A singular matrix has an eigenvalue of zero, which more bits would not show: it is wanted, if none of the
        # others may be zero.
        none_else = (sizes == 0).sum() == (wanted == 0).sum()
        if not least and none_else and is_singular(self.a):
            raise ValueError(_ZERO_VALUE)
        # Corrections take few bits first, and it is asked after each whether these are enough.
        return max(min(goal / 4, tolerance * least / 4), SMALLEST) if least else SMALLEST

    def rounded_values(self, values: Any, errors: Bounds, target: Target, places: slice) -> tuple[Any, Bounds]:
        """Values at some places in the target's format, and upper bounds of their errors, in the target's measure.

        Raises
        ------
        OverflowError
            If one is too large for the format, or too small.
        """
        dtype = part_of(target.dtype)
        sizes = (on_host(least_magnitudes(values)) - errors).clip(0)
        if target.measure == "normwise":
            sizes[:] = 1.0 if self.is_zero else sizes.max()
        wanted, sizes, powers = taken(values, places), sizes[places], self.of_values.columns
        assert powers is not None
        result, kept = formatted(wanted, Powers(columns=powers[places]), dtype)
        missed = errors[places] + on_host(missing(wanted, kept))
        bounds: Bounds = missed / sizes * UP
        if not bounds.max() < 1:
            too_small(dtype)
        return result, bounds
