"""Pseudoinverses to a named accuracy."""

from __future__ import annotations

from functools import partial
from math import ceil, inf, log2
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import named, reached, step
from ozaki.functions.products import gemm, matmul
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint, array_library, exactly, on_host
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import Bounds, componentwise, not_tiny
from ozaki.linalg.common.scaling import ZERO, Powers, check_span, nonzero_tops, scaled, tops, tops_or_zero
from ozaki.linalg.common.targets import SMALLEST, Target
from ozaki.linalg.common.upper import LEAST, UP, least_magnitudes, norms_on_host, spectral_norm
from ozaki.linalg.factors.correcting import factor_target
from ozaki.linalg.spectra.ranks import counted_above, limit
from ozaki.linalg.spectra.singular import SingularDecomposition
from ozaki.linalg.spectra.svd import Scaled
from ozaki.linalg.systems.gathering import of_each, with_the_rest
from ozaki.linalg.systems.inverses import LIMIT, least_squares_inverse
from ozaki.linalg.systems.solution import empty, formatted, missing, too_small
from ozaki.linalg.systems.stacks import Inverses, Solved, at_once, least_squares
from ozaki.multiprecision.numbers import moved
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


class PseudoInverse(NamedTuple):
    """A pseudoinverse, and what is proven of it.

    Attributes
    ----------
    x : array or MPArray, shape (..., n, m)
    error_bound : float, or NumPy array of float64 of the shape of a stack
        No element differs from the exact one by more than this times the largest element of its column. Proven,
        rounding to the dtype included.
    error_bounds : NumPy array of float64, shape (..., m)
        The same of each column; `error_bound` is the largest.
    rank : int, or NumPy array of int of the shape of a stack
        Of a, or how many singular values are above `rtol` times the largest.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    x: Any
    error_bound: Any
    error_bounds: npt.NDArray[np.float64]
    rank: Any
    iterations: int


@any_arrays("a", numpy=("error_bound", "error_bounds", "rank"))
@default_environment
@np.errstate(all="ignore")
@named("pinv", solves=True)
def pinv(
    a: Any,
    *,
    rtol: float | None = None,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> PseudoInverse:
    """Find the pseudoinverse of a matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., m, n), real or complex
        Of independent columns, or rows if it is wide, unless `rtol` is given.
    rtol : float, optional
        Singular values that are no larger than this times the largest count as zeros. Default: none does, and a matrix
        whose columns and rows are dependent is refused, as its pseudoinverse depends on errors of any size.
    accuracy, dtype
        As in `solve`, whose x the columns are; of the measure "normwise".

    Returns
    -------
    PseudoInverse

    Raises
    ------
    numpy.linalg.LinAlgError
        If neither columns nor rows are independent, without `rtol`, or the condition number is above 2^300, columns
        scaled, or rows if a is wide; with `rtol`, if a singular value cannot be told from that share of the largest.
    ValueError, TypeError, OverflowError
        As in `solve`.

    Notes
    -----
    Without `rtol` it is S inv(I - G) (a S)^H with the S and G of `lstsq`, S corrected until G is small; with `rtol`
    it is that of the singular value decomposition, with bounds by theorems of Davis and Kahan, and of Wedin
    (docs/linalg.md, L9).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> found = ozaki.linalg.pinv(np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 2.0]]))
    >>> found.x.round(12), found.error_bound < 2e-16
    (array([[ 0.5,  0.5, -0.5],
           [ 0. ,  0. ,  0.5]]), True)
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a)
    expected = "a number above 0 and below 1, or None"
    rtol = limit("rtol", rtol, expected)
    if rtol is not None and not 0 < rtol < 1:
        raise ValueError(f"rtol: {rtol!r}; expected {expected}")
    target = factor_target(accuracy, dtype, formats, "of columns it is relative to the largest element")
    one = partial(_of_one, rtol=rtol, target=target)
    quick = _of_stack(a, target) if rtol is None and a.ndim > 2 else None
    found = of_each(one, a) if quick is None else with_the_rest(*quick, one, a)
    return reached(found, a.shape, found.x, "normwise")


def _of_stack(a: Any, target: Target) -> tuple[PseudoInverse, npt.NDArray[np.bool_]] | None:
    """The pseudoinverses of a stack, and which of them meet the target; None if they are not found at once."""
    m, n = a.shape[-2:]
    if m < n or not a.size or not at_once(target, m, a):
        return None
    found = _as_inverses(a, target)
    bounds, ranks = on_host(found.error_bounds), np.full(a.shape[:-2], n)
    return PseudoInverse(found.x, bounds.max(axis=-1), bounds, ranks, found.steps), on_host(found.reached)


def _as_inverses(a: Any, target: Target) -> Solved:
    """As `inv` or `lstsq` find inverses of independent columns at once."""
    m, n = a.shape[-2:]
    return Inverses(a).inverses(target) if m == n else least_squares(a, array_library(a).eye(m), target)


def _of_one(a: Any, rtol: float | None, target: Target) -> PseudoInverse:
    """The pseudoinverse of one matrix."""
    if not a.size or (rtol is not None and bool((tops(a, 0) == ZERO).all())):
        return PseudoInverse(empty(a.shape[::-1], target.dtype, a), 0.0, np.zeros(a.shape[0]), 0, 0)
    if rtol is None and (quick := _in_float64(a, target)) is not None:
        return quick
    wide = a.shape[0] < a.shape[1]
    tall = adjoint(a) if wide else a
    method = _Regular(tall) if rtol is None else _Truncated(tall, rtol)
    goal = target.tolerance / 8
    while True:
        found = method.near(goal)
        powers = Powers(columns=method.exponents) if wide else Powers(rows=method.exponents)
        found = found.adjoint() if wide else found
        errors, unit = _errors(found, powers)
        relative = float(_relative(unit, errors).max())
        step("pseudoinverse: errors of columns up to %s", relative)
        if relative <= target.tolerance:
            break
        goal *= min(target.tolerance / (4 * relative), 0.5) if relative < inf else 2.0**-60
        if goal < SMALLEST:
            raise ValueError(_UNREACHED)
    x, bounds = _rounded(found.x, powers, errors, target)
    return PseudoInverse(x, float(bounds.max()), bounds, method.rank, method.steps)


def _in_float64(a: Any, target: Target) -> PseudoInverse | None:
    """The pseudoinverse of a matrix of independent columns, or rows, as `inv` or `lstsq` finds it at once.

    None where it does not meet the target, and of other matrices.
    """
    m, n = a.shape
    if not at_once(target, max(m, n), a):
        return None
    if m < n:
        return _of_wide(a, target)
    found = _as_inverses(a, target)
    if not bool(found.reached):
        return None
    bounds = on_host(found.error_bounds)
    return PseudoInverse(found.x, float(bounds.max()), bounds, n, found.steps)


def _of_wide(a: Any, target: Target) -> PseudoInverse | None:
    """As `_in_float64`, the adjoint of the pseudoinverse of the adjoint, whose errors of columns are those of rows."""
    (m, n), xp = a.shape, array_library(a)
    some = xp.asarray(np.flatnonzero(tops(a, 0) != ZERO))  # relative to a row of zeros no error is small
    if len(some) < m:
        return None
    tall, eye = adjoint(a[:, some]), xp.eye(len(some))
    finer = target._replace(tolerance=target.tolerance / 64)  # columns of the pseudoinverse are about alike
    limits = np.finfo(target.dtype)
    unit = float(limits.eps) / 2
    for _ in range(2):
        found = least_squares(tall, eye, finer)
        sizes = on_host(abs(found.x)).astype(np.float64)
        largest, columns = float(sizes.max(initial=0.0)), sizes.max(axis=1, initial=0.0)
        # What subnormal elements lose is less than what the largest one of a column may.
        if not (bool(found.reached) and finer.tolerance < 2.0**-4 and float(columns.min()) > 4 * float(limits.tiny)):
            return None
        missed = finer.tolerance * largest / (1 - finer.tolerance - 2 * unit) / columns
        if float(missed.max()) <= target.tolerance:
            total = missed + unit * (1 + 4 * unit + 2.0**-20)
            bounds = total / (1 - total) * UP
            x = xp.zeros((n, m), dtype=found.x.dtype)
            x[some] = adjoint(found.x)
            return PseudoInverse(x, float(bounds.max()), bounds, m, found.steps)
        finer = target._replace(tolerance=target.tolerance * float(columns.min()) / largest / 16)
    return None


def _errors(found: _Found, powers: Powers) -> tuple[Bounds, Any]:
    """Upper bounds of the largest errors of columns, in units of their largest elements, about; and these in units."""
    to_unit = _to_unit(found.x, powers)
    rows = np.zeros(len(found.left), np.int64) if powers.rows is None else powers.rows
    columns = to_unit.columns
    assert columns is not None
    top = rows.max()
    left = float((found.left * np.exp2(np.clip(rows - top, -2000, 0).astype(float)) + LEAST).max())
    errors = np.ldexp(found.right * left, np.clip(columns + top, -5000, 5000).astype(np.int32))
    return np.where(found.right > 0, errors + LEAST, 0.0), scaled(found.x, to_unit)


def _to_unit(x: Any, powers: Powers) -> Powers:
    """These powers of two, and those by which the largest elements of columns of x times them become about 1."""
    sizes = tops_or_zero(x, 0, powers)
    return Powers(powers.rows, -sizes if powers.columns is None else powers.columns - sizes)


def _relative(unit: Any, errors: Bounds) -> Bounds:
    """Errors of columns relative to their largest exact elements; inf where these may be 0, but for exact zeros."""
    sizes = on_host(least_magnitudes(unit)).max(axis=0) - errors
    found: Bounds = np.where(errors > 0, np.where(sizes > 0, errors / np.where(sizes > 0, sizes, 1.0), inf), 0.0)
    return found


def _rounded(x: Any, powers: Powers, errors: Bounds, target: Target) -> tuple[Any, Bounds]:
    """The result in the target's format, and bounds of the errors of its columns.

    Raises
    ------
    OverflowError
        If an element is too large for it, or a column too small.
    """
    found, kept = formatted(x, powers, target.dtype)
    to_unit = _to_unit(x, powers)
    unit = scaled(x, to_unit)
    lost = on_host(missing(unit, scaled(kept, to_unit))).max(axis=0)
    exact = on_host(least_magnitudes(unit)).max(axis=0) - errors
    total = errors + lost
    bounds = np.where(total > 0, total / np.where(exact > 0, exact, LEAST), 0.0) * UP
    if bool((bounds >= 1).any()):
        too_small(target.dtype)
    return found, bounds


_UNREACHED = (
    "accuracy: out of reach, since elements of the pseudoinverse have sizes that are too far apart, or one of its "
    "columns is zero without a row of zeros in a; scale the rows or columns of a"
)


class _Found(NamedTuple):
    """An approximate pseudoinverse of a scaled matrix.

    Attributes
    ----------
    x : MPArray
    left, right : NumPy arrays of float64: element (i, j) is off by no more than left[i] right[j]
    """

    x: Any
    left: npt.NDArray[np.float64]
    right: npt.NDArray[np.float64]

    def adjoint(self) -> _Found:
        """The same of the adjoint matrix."""
        return _Found(adjoint(self.x), self.right, self.left)


class _Regular:
    """The pseudoinverse of a tall matrix of independent columns.

    Attributes
    ----------
    exponents : of the powers of two that rows of the result are to be multiplied by
    rank, steps : as of `PseudoInverse`

    Raises
    ------
    numpy.linalg.LinAlgError
        If columns are not proven to be independent.
    """

    def __init__(self, a: Any) -> None:
        try:
            self.exponents = -nonzero_tops(a, 0, "columns are dependent, column")
            self._a = scaled(a, Powers(columns=self.exponents))
            check_span("a", self._a)
            self._s = exactly(least_squares_inverse(self._a).s)
        except np.linalg.LinAlgError:
            raise np.linalg.LinAlgError(
                f"a: neither columns nor rows are independent, or its condition number is too large ({LIMIT}); name "
                "rtol, the share of the largest singular value up to which others count as zeros"
            ) from None
        self.rank, self.steps = a.shape[1], 0

    def near(self, goal: float) -> _Found:
        """S (a S)^H, S corrected until G = I - (a S)^H (a S) is at most the goal (docs/linalg.md, L3 and L9)."""
        a, eye = self._a, array_library(self._a).eye(self._a.shape[1])
        sizes = norms_on_host(a, 1)
        while True:
            s, norm_s, norm_a = self._s, spectral_norm(self._s), spectral_norm(a)
            fine = not_tiny(min(goal / (16 * (1 + norm_a * norm_s) ** 2), 2.0**-8))
            w = matmul(a, s, accuracy=componentwise(fine), dtype="mp")
            gram = gemm(-1, adjoint(w), w, 1, eye, accuracy=componentwise(fine), dtype="mp")
            norm_w, off = spectral_norm(w), fine * norm_a * norm_s
            lacking = spectral_norm(gram) + fine * (norm_w**2 + 1) + off * (2 * norm_w + off)
            if lacking <= goal:
                break
            bits = ceil(-log2(goal) + 2 * log2(1 + norm_a * norm_s)) + 8
            turned = matmul(s, gram, accuracy=componentwise(2.0**-bits), dtype="mp").ldexp(-1)
            self._s = (s + turned).round_to(bits)
            self.steps += 1
        x = matmul(s, adjoint(w), accuracy=componentwise(fine), dtype="mp")
        of_rows = fine * sizes * norm_s  # what rows of W are off by
        right = (lacking / (1 - lacking) + fine) * (norms_on_host(w, 1) + of_rows) + of_rows
        return _Found(x, norms_on_host(s, 1), right * (1 + 2.0**-20) + LEAST * (sizes > 0))


class _Truncated:
    """The pseudoinverse of a tall matrix whose singular values up to `rtol` times the largest count as zeros.

    Attributes
    ----------
    exponents, rank, steps : as of `_Regular`

    Raises
    ------
    numpy.linalg.LinAlgError
        If one cannot be told from that.
    """

    def __init__(self, a: Any, rtol: float) -> None:
        xp = array_library(a)
        # A row or column of zeros is one of the pseudoinverse, too, and relative to it no error is small.
        rows, columns = np.flatnonzero(tops(a, 1) != ZERO), np.flatnonzero(tops(a, 0) != ZERO)
        self._of_rows = xp.eye(a.shape[0])[xp.asarray(rows)]
        self._of_columns = xp.eye(a.shape[1])[:, xp.asarray(columns)]
        self._rows, self._columns = rows, columns
        self._scale = Scaled(a[xp.asarray(rows)][:, xp.asarray(columns)])
        self.exponents = np.full(a.shape[1], -self._scale.exponent)
        found = self._found = SingularDecomposition(self._scale.unit, 2.0**-53, vectors=True)
        while True:
            self.rank, least, most = counted_above(found, self._scale, None, rtol)
            if least == most:
                break
            if found.bound < 2.0**-250:
                raise np.linalg.LinAlgError(
                    f"rtol: singular value {least} cannot be told from {rtol} times the largest one; name another"
                )
            found.reach(found.bound * (2.0**-40 if found.steps else 2.0**-8))

    @property
    def steps(self) -> int:
        return self._found.steps

    def near(self, goal: float) -> _Found:
        """The sum of v u^H / s of all singular values that count."""
        found, r, xp = self._found, self.rank, array_library(self._scale.unit)
        least = found.least()
        worst = float(found.errors.max())
        gap = least[r - 1] - (float(least[r]) + 2 * worst if r < len(least) else 0.0)
        tolerance = goal * (least[r - 1] / found.largest) ** 2 * min(gap / found.largest, 1.0) / 64
        if tolerance < SMALLEST:
            raise ValueError(_UNREACHED)
        try:
            found.reach(tolerance)
        except np.linalg.LinAlgError:  # float64 finds no corrections beside elements that are so far apart
            raise ValueError(_UNREACHED) from None
        found.to_multiprecision(tolerance)
        fine, bits = not_tiny(tolerance), ceil(-log2(tolerance)) + 8
        shares = [1 / x for x in exactly(found.values[:r]).to_fractions()]
        rows = [[x if i == j else 0 for j in range(r)] for i, x in enumerate(shares)]
        diagonal = moved(mparray(rows, bits=bits), xp)
        v, u = found.v[:, :r], found.u[:, :r]
        v, u = (u, v) if self._scale.wide else (v, u)
        x = matmul(v, diagonal, accuracy=componentwise(fine), dtype="mp")
        x = matmul(x, adjoint(u), accuracy=componentwise(fine), dtype="mp")
        if x.shape != (self._of_columns.shape[0], self._of_rows.shape[1]):
            x = matmul(self._of_columns, x, accuracy="exact", dtype="mp")
            x = matmul(x, self._of_rows, accuracy="exact", dtype="mp")
        right = np.zeros(self._of_rows.shape[1])
        right[self._rows] = self._error(fine)
        left = np.zeros(x.shape[0])
        left[self._columns] = 1.0
        return _Found(x, left, right)

    def _error(self, fine: float) -> float:
        """A bound of the spectral norm of the error, where products err by `fine` (docs/linalg.md, L9)."""
        found, r = self._found, self.rank
        least, worst, left_out = found.least(), float(self._scale.errors(found).max()), LEAST * self._scale.cleared
        last = float(least[r - 1])
        rest, other = (each + left_out for each in found.residuals())
        gap = last - (float(least[r]) + 2 * worst if r < len(least) else 0.0)
        lacking, largest = found.lacking, found.largest + worst
        if not (gap > 0 and last > 0 and lacking < 0.1):
            return inf
        # The projector onto V's space, then U S + P in place of A V, and its pseudoinverse.
        angle = float(np.hypot(rest, other)) / gap / (1 - lacking) ** 0.5
        share = rest / last
        square = lacking + 2.5 * share + share**2
        if not square < 0.25:
            return inf
        of_range = 2 * 1.62 * largest * angle / last**2
        of_u = (square / (1 - square) * (1.25 + share) + share) * 1.25 / last
        products = 4 * fine * spectral_norm(found.v) * spectral_norm(found.u) / last
        return float(of_range + of_u + products) * (1 + 2.0**-20)
