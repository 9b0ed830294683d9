"""The eigenvalues of a general matrix, to a target, or refused."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import exactly, on_host, rounded
from ozaki.linalg.common.scaling import Exponents, Powers, scaled, tops, without_tiny
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import LEAST
from ozaki.linalg.factors.correcting import MOST_CORRECTIONS
from ozaki.linalg.spectra.balancing import balance, on_diagonal
from ozaki.linalg.spectra.similarity import Decomposition
from ozaki.multiprecision.numbers import Numbers, moved

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


class Spectrum(NamedTuple):
    """The eigenvalues of a matrix that is scaled, and balanced.

    Attributes
    ----------
    values : Sum or MPArray, complex, NumPy: eigenvalues times 2**-highest
    errors : upper bounds of their errors
    highest : as above
    not_real : the places of values that are not real, if the matrix is
    real : whether the matrix and all values are real
    steps : corrections
    powers : by which the matrix is balanced
    decomposition : of the balanced matrix; None where the diagonal has all eigenvalues
    """

    values: Any
    errors: Floats
    highest: int
    not_real: Places
    real: bool
    steps: int
    powers: Exponents
    decomposition: Decomposition | None


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
    diagonal = exactly(on_host(a.diagonal()) if not isinstance(a, Numbers) else moved(a.diagonal(), np))
    real = not diagonal.is_complex
    if not with_vectors and not len(others):
        highest = int(tops(a, 0).max())
        values = diagonal.ldexp(-highest)
        return Spectrum(values, np.zeros(n), highest, others, real, 0, np.zeros(n, np.int64), None)
    block = a[others][:, others] if 0 < len(others) < n else a
    powers = balance(block)
    balanced = scaled(block, Powers(-powers, powers))
    highest = int(tops(balanced, 0).max())
    unit, _ = without_tiny(scaled(balanced, Powers(columns=np.full(len(powers), -highest))))
    diagonal = diagonal.ldexp(-highest)
    largest = float(abs(rounded(diagonal[exact])).max(initial=0.0)) * (1 - 2.0**-40)
    found = _decomposition(unit, target, highest, largest, settled=bool(exact.all()))
    pairs = found.pairs
    if exact.all():
        values = _by_vectors(diagonal, found)
        return Spectrum(values, np.zeros(n), highest, others, real, found.steps, powers, found)
    values, errors, not_real = found.values, found.errors, np.sort(np.concatenate((pairs.first, pairs.second)))
    if len(others) < n:
        order = np.argsort(np.concatenate((others, np.flatnonzero(exact))))
        values = np.concatenate((exactly(values), diagonal[exact]))[order]
        errors = np.concatenate((errors, np.zeros(n - len(others))))[order]
    return Spectrum(values, errors, highest, others[not_real], real and not len(not_real), found.steps, powers, found)


def moduli(values: Any, errors: Floats) -> tuple[Floats, float]:
    """Lower bounds of the abs of eigenvalues with these errors, and of the largest of all."""
    least = (abs(rounded(values)) * (1 - 2.0**-45) - errors - LEAST).clip(0)
    return least, float(least.max())


def _by_vectors(diagonal: Any, found: Decomposition) -> Any:
    """The eigenvalues on the diagonal in the order of eigenvectors, where that is known, near it elsewhere."""
    far = abs(rounded(exactly(found.values)[:, None] - diagonal[None, :]))
    order = np.zeros(len(far), np.intp)
    for i in [*np.flatnonzero(found.alone), *np.flatnonzero(~found.alone)]:
        order[i] = far[i].argmin()
        far[:, order[i]] = inf
    return diagonal[order]


def _decomposition(a: Any, target: Target, highest: int, other: float, settled: bool) -> Decomposition:
    """A decomposition of a matrix, scaled by 2**-highest, whose values meet the target.

    Errors may be relative to an eigenvalue as large as `other`, too. `settled` says that all values are known: those
    that touch others then need not meet the target.

    Raises
    ------
    numpy.linalg.LinAlgError
        If they do not.
    """
    relative = target.measure == "relative"
    found = Decomposition(a, relative, target.tolerance)
    least_error, idle = inf, 0
    while True:
        sizes, largest = moduli(found.values, found.errors)
        bounds = found.errors / (sizes if relative else max(largest, other)) * (1 + 2.0**-40)
        missed = np.flatnonzero(~(bounds <= target.tolerance) & (found.alone | (not settled)))
        if not len(missed):
            return found
        error = float(found.errors[missed].max())
        step("%d corrections: eigenvalue error <= %s", found.steps, error)
        idle = 0 if error < least_error / 2 else idle + 1
        least_error = min(error, least_error)
        if found.steps == MOST_CORRECTIONS or idle > _MOST_IDLE or error < _ZERO:
            if settled:
                return found
            _refuse(found, missed, bounds, relative, highest)
        near = abs(rounded(found.values))
        size = near[near > 0].min(initial=1.0) if relative else max(near.max(), other)
        try:
            found.correct(target.tolerance * float(size))
        except np.linalg.LinAlgError:
            if settled:
                return found
            _refuse(found, missed, bounds, relative, highest)


_MOST_IDLE = 3
"""The most corrections on end that do not make errors less by half: the first ones may only gather digits."""

_ZERO = 2.0**-800
"""An eigenvalue of a scaled matrix that is known to be below this counts as zero."""


def _refuse(
    found: Decomposition, missed: npt.NDArray[np.intp], bounds: npt.NDArray[np.float64], relative: bool, highest: int
) -> NoReturn:
    """Refuse eigenvalues that are not known to their accuracy.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    worst = missed[np.argsort(-bounds[missed], kind="stable")][:3]
    shown = []
    for i in worst:
        value = complex(rounded(exactly(found.values)[i : i + 1].ldexp(highest))[0])
        shown.append(f"{i} ({value.real if value.imag == 0 else value:.6g}, to {bounds[i]:.2g})")
    more = f" and {len(missed) - 3} more" if len(missed) > 3 else ""
    why, remedy = "may be multiple, or too close to others", "ask for a lower accuracy"
    if relative:
        why, remedy = f"may be zero, {why.removeprefix('may be ')}", f"{remedy}, or for one relative to the largest"
    raise np.linalg.LinAlgError(f"accuracy: not reached by eigenvalues {', '.join(shown)}{more}, which {why}; {remedy}")
