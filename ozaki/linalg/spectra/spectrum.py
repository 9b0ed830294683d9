"""The eigenvalues of a general matrix, to a target, or refused."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import Floats, exactly, exactly_on_host, rounded
from ozaki.linalg.common.scaling import Exponents, Powers, scaled, tops, without_tiny
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import LEAST, UP
from ozaki.linalg.determinants.deciding import is_singular
from ozaki.linalg.factors.correcting import MOST_CORRECTIONS
from ozaki.linalg.spectra.balancing import balance, on_diagonal
from ozaki.linalg.spectra.conjugates import Places
from ozaki.linalg.spectra.eigenvectors import Unrounded, eigenvectors
from ozaki.linalg.spectra.similarity import GeneralDecomposition


class Spectrum(NamedTuple):
    """The eigenvalues of a matrix that is scaled, and balanced.

    Attributes
    ----------
    values : Sum or MPArray, complex, NumPy, shape (n,): eigenvalues times 2**-highest
    errors : upper bounds of their errors, shape (n,)
    highest : as above
    not_real : the places of values that are not real, if the matrix is
    real : whether the matrix and all values are real
    steps : corrections
    vectors : eigenvectors; None where they are not wanted
    """

    values: Any
    errors: Floats
    highest: int
    not_real: Places
    real: bool
    steps: int
    vectors: Unrounded | None


def spectrum(a: Any, target: Target, with_vectors: bool) -> Spectrum:
    """The eigenvalues of a matrix that is not zero, to a target.

    Eigenvalues that stand on the diagonal are exact, as those of a triangular matrix; of one that has others only where
    vectors are not wanted.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the target is not met.
    """
    exact = on_diagonal(a)
    if with_vectors and not exact.all():
        exact[:] = False
    others, n = np.flatnonzero(~exact), len(exact)
    diagonal: Any = exactly_on_host(a.diagonal())
    real = not diagonal.is_complex
    if not with_vectors and not len(others):
        highest = int(tops(a, 0).max())
        values = diagonal.ldexp(-highest)
        return Spectrum(values, np.zeros(n), highest, others, real, 0, None)
    block = a[others][:, others] if 0 < len(others) < n else a
    powers = balance(block)
    balanced = scaled(block, Powers(-powers, powers))
    highest = int(tops(balanced, 0).max())
    unit, _ = without_tiny(scaled(balanced, Powers(columns=np.full(len(powers), -highest))))
    diagonal = diagonal.ldexp(-highest)
    largest = float(abs(rounded(diagonal[exact])).max(initial=0.0)) * (1 - 2.0**-40)
    wanted = _Wanted(target, highest, largest, bool(exact.all()), with_vectors, powers, real)
    found, vectors = _decomposition(unit, block, wanted)
    pairs = found.pairs
    if exact.all():
        values = _by_vectors(diagonal, found)
        return Spectrum(values, np.zeros(n), highest, others, real, found.steps, vectors)
    values, errors, not_real = found.values, found.errors, np.sort(np.concatenate((pairs.first, pairs.second)))
    if len(others) < n:
        order = np.argsort(np.concatenate((others, np.flatnonzero(exact))))
        values = np.concatenate((exactly(values), diagonal[exact]))[order]
        errors = np.concatenate((errors, np.zeros(n - len(others))))[order]
    return Spectrum(values, errors, highest, others[not_real], real and not len(not_real), found.steps, vectors)


def moduli(values: Any, errors: Floats) -> tuple[Floats, float]:
    """Lower bounds of the abs of eigenvalues with these errors, and of the largest of all."""
    least = (abs(rounded(values)) * (1 - 2.0**-45) - errors - LEAST).clip(0)
    return least, float(least.max())


def _by_vectors(diagonal: Any, found: GeneralDecomposition) -> Any:
    """The eigenvalues on the diagonal in the order of eigenvectors, where that is known, near it elsewhere."""
    far = abs(rounded(exactly(found.values)[:, None] - diagonal[None, :]))
    order = np.zeros(len(far), np.intp)
    for i in [*np.flatnonzero(found.alone), *np.flatnonzero(~found.alone)]:
        order[i] = far[i].argmin()
        far[:, order[i]] = inf
    return diagonal[order]


class _Wanted(NamedTuple):
    """What is wanted of a decomposition of a matrix that is scaled.

    Attributes
    ----------
    target : of the values
    highest : the matrix is one times 2**-highest
    other : errors may be relative to an eigenvalue as large as this, too
    settled : whether all values are known: those that touch others then need not meet the target
    with_vectors : whether eigenvectors are wanted
    powers : by which the matrix is balanced
    real : whether the matrix is
    """

    target: Target
    highest: int
    other: float
    settled: bool
    with_vectors: bool
    powers: Exponents
    real: bool

    def vectors(self, found: GeneralDecomposition) -> Unrounded | None:
        """The eigenvectors of a decomposition; None if they are not wanted."""
        if not self.with_vectors:
            return None
        return eigenvectors(found, self.powers, self.real and (self.settled or not len(found.pairs.first)))


def _decomposition(a: Any, whole: Any, wanted: _Wanted) -> tuple[GeneralDecomposition, Unrounded | None]:
    """A decomposition of a matrix whose values meet the target, and its eigenvectors.

    For vectors that miss the tolerance there are up to two more corrections. `whole` is the matrix before it was
    balanced and scaled, with its tiny elements.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the values do not meet it.
    """
    relative, tolerance = wanted.target.measure == "relative", wanted.target.tolerance
    found = GeneralDecomposition(a, relative, tolerance)
    least_error, idle, more, asked = inf, 0, 2, False
    while True:
        sizes, largest = moduli(found.values, found.errors)
        bounds = found.errors / (sizes if relative else max(largest, wanted.other)) * UP
        missed = np.flatnonzero(~(bounds <= tolerance) & (found.alone | (not wanted.settled)))
        near = abs(rounded(found.values))
        goal = tolerance * float(near[near > 0].min(initial=1.0) if relative else max(near.max(), wanted.other))
        vectors = None
        if not len(missed):
            vectors = wanted.vectors(found)
            if vectors is None or not more or vectors.error <= tolerance:
                return found, vectors
            more -= 1
            goal = tolerance * found.least_gap * tolerance / vectors.error
        else:
            error = float(found.errors[missed].max())
            step("%d corrections: eigenvalue error <= %s", found.steps, error)
            zeros = missed[sizes[missed] == 0]
            if relative and not asked and not wanted.settled and len(zeros) and isfinite(error):
                asked = True  # once: a singular matrix has an eigenvalue of zero, which more bits would not show
                if is_singular(whole):
                    missed = zeros
                    break
            idle = 0 if error < least_error / 2 else idle + 1
            least_error = min(error, least_error)
            if found.steps == MOST_CORRECTIONS or idle > _MOST_IDLE or error < _ZERO:
                break
        try:
            found.correct(goal)
        except np.linalg.LinAlgError:
            break
    if len(missed) and not wanted.settled:
        _refuse(found, missed, bounds, wanted)
    return found, wanted.vectors(found) if vectors is None else vectors


_MOST_IDLE = 3
"""The most corrections on end that do not make errors less by half: the first ones may only gather digits."""

_ZERO = 2.0**-800
"""An eigenvalue of a scaled matrix that is known to be below this counts as zero."""


def _refuse(found: GeneralDecomposition, missed: Places, bounds: Floats, wanted: _Wanted) -> NoReturn:
    """Refuse eigenvalues that are not known to their accuracy.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    worst = missed[np.argsort(-bounds[missed], kind="stable")][:3]
    shown = []
    for i in worst:
        value = complex(rounded(exactly(found.values)[i : i + 1].ldexp(wanted.highest))[0])
        shown.append(f"{i} ({value.real if value.imag == 0 else value:.6g}, to {bounds[i]:.2g})")
    more = f" and {len(missed) - 3} more" if len(missed) > 3 else ""
    why, remedy = "may be multiple, or too close to others", "ask for a lower accuracy"
    if wanted.target.measure == "relative":
        why, remedy = f"may be zero, {why.removeprefix('may be ')}", f"{remedy}, or for one relative to the largest"
    raise np.linalg.LinAlgError(f"accuracy: not reached by eigenvalues {', '.join(shown)}{more}, which {why}; {remedy}")
