"""Approximate inverses with proven residuals, which correct solutions and bound their errors.

The inverse R that float64 finds of an ill-conditioned matrix A has hardly a correct digit, but R A is better
conditioned than A, if that product is accurate. The inverse of R A, times R, is a better inverse, and so on until its
residual is small: the method of S. M. Rump, "Inversion of extremely ill-conditioned matrices in floating-point", 2009.
For least squares the triangular factor of QR stands in place of the inverse. Of well-conditioned matrices a native
product shows that the inverse is good, and native products correct solutions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import isfinite, log2
from typing import Any

import numpy as np

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import step
from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import adjoint, array_library, rounded
from ozaki.linalg.common.products import (
    UNIT,
    Bounds,
    componentwise,
    errors_of,
    native_error,
    native_product,
    product,
    product_of_inverses,
    tolerance_for,
)
from ozaki.linalg.common.upper import (
    LEAST,
    UP,
    column_norm,
    column_sizes,
    magnitudes,
    norms_on_host,
    row_norm,
)
from ozaki.linalg.determinants.singular import is_singular

LARGEST = 2.0**300
"""The largest condition number: what is above counts as singular."""

_INVERSES = 24
"""The most inverses that are multiplied: most divide the condition number of R A by 2**30 or more, those of a large
Hilbert matrix by 2**10 or more."""

LIMIT = f"2^{log2(LARGEST):.0f} is the limit"
"""What messages say of `LARGEST`."""

_SINGULAR = f"singular, or its condition number is too large ({LIMIT}, rows and columns scaled)"
_DEPENDENT = f"columns are dependent, or its condition number is too large ({LIMIT}, columns scaled)"

_TOO_LARGE = 2.0**100
"""How much larger than the inverse one may be that is found on the way to it, of nearly dependent columns."""

_LARGEST_FACTOR = LARGEST**2
"""The largest condition number of the triangular factor of A S in least squares, where S is the inverse of that of A up
to roundings of 2**-53. Of rows far apart, large ones first, S has columns as large as rows of A are small, and the
factor is the identity and, above its diagonal, 2**-53 times up to the condition number of A; so is its inverse."""

_SHAKEN = 2.0**40
"""A condition number above which an S in float64 is too rough for least squares: I - (A S)^H (A S) is some 2**-53 times
that."""

_NEARLY_SINGULAR = 2.0**80
"""A condition number, above what the inverse of a singular matrix in float64 shows, above which it is asked whether the
matrix is singular, by an elimination modulo a prime: it takes a tenth of the time of an inverse and its residual."""

_MOST_ROWS = 512
"""Rows of the largest matrix of which that is asked: it is done on the host."""

_LITTLE_WORK = 2.0**24
"""Multiplications that may be made to know it where that does not tell: some 0.02 seconds."""

MOST_FACTORS = 24
"""The most inverses of factors that precondition a matrix, as `_INVERSES`; rows may be apart, too."""

CONTRACTION = 2.0**-10
"""The largest norm of a residual I - R A with which R is taken as an inverse of A: a step gains ten bits at least.
Where a native product proves it, products of a correction are native ones: they err by no more than that bound has in
it."""


@dataclass(frozen=True)
class LeftInverse:
    """An approximate inverse R of a square matrix A.

    Attributes
    ----------
    a, r : matrices, shape (n, n)
    contraction : an upper bound of the row norm of I - R A, below 1
    norm_a, norm_r : upper bounds of row norms
    native : whether native products, and residuals in float64, do for corrections: R is in float64, too
    """

    a: Any
    r: Any
    contraction: float
    norm_a: float
    norm_r: float
    native: bool = False

    @property
    def residual_gain(self) -> float:
        """An error e of b - A x changes the correction by no more than this times e."""
        return self.norm_r

    @property
    def residual_in_float64(self) -> bool:
        """Whether b - A x may be rounded to float64: what that changes is small beside b - A x, and so beside x."""
        return self.native

    @property
    def error_gain(self) -> float:
        """If x is off by e, the bound after the next correction is near the contraction times this times e."""
        return 1.0

    def first(self, b: Any) -> Any:
        """A solution in float64, with as many digits as the contraction lets expect, and 0 for what is not finite."""
        return _finite(native_product(self.r, rounded(b)))

    def correction(self, rest: Any, error: Bounds, allowed: Bounds) -> tuple[Any, Bounds]:
        """What to add to x, and how far the sum may be from the solution: of each column the largest abs.

        `rest` is b - A x but for an error that changes the correction by no more than `error`, of each column the
        largest abs; products that are not native add errors of `allowed`.

        With E = I - R A the solution is x + (I - E)^-1 R (b - A x), so for d = R (b - A x) + f it is at most
        (norm(E) norm(d) + norm(f)) / (1 - norm(E)) from x + d.
        """
        multiply = _native_times if self.native else _accurate_times
        d, added = multiply(self.r, self.norm_r, rest, 1.0, allowed)
        return d, (self.contraction * column_sizes(d) + error + added) / (1 - self.contraction)


@dataclass(frozen=True)
class LeastSquaresInverse:
    """A matrix S such that the columns of A S are nearly orthonormal: S S^H A^H is nearly the pseudoinverse of A.

    Attributes
    ----------
    a : matrix, shape (m, n)
    s : matrix, shape (n, n), upper triangular
    contraction : an upper bound of the row norm of G = I - (A S)^H (A S), below 1
    norm_a, norm_s : upper bounds of row norms, and `columns_a`, `columns_s` of column norms
    native : whether native products do for corrections, but for A^H (b - A x); S is in float64, too
    """

    a: Any
    s: Any
    contraction: float
    norm_a: float
    norm_s: float
    columns_a: float
    columns_s: float
    native: bool = False

    @property
    def residual_gain(self) -> float:
        """As of `LeftInverse`."""
        return self.norm_s * self.columns_s * self.columns_a

    @property
    def residual_in_float64(self) -> bool:
        """As of `LeftInverse`: no, as b - A x may be large beside A x, and A^H (b - A x) cancels."""
        return False

    @property
    def error_gain(self) -> float:
        """As of `LeftInverse`: an error e in x changes u by S^-1 e, and the bound by norm(S) norm(S^-1 e)."""
        return max(1.0, self.norm_s * self.norm_a)

    def first(self, b: Any) -> Any:
        """As of `LeftInverse`."""
        found = rounded(b)
        for factor in (adjoint(rounded(self.a)), adjoint(self.s), self.s):
            found = native_product(factor, found)
        return _finite(found)

    def correction(self, rest: Any, error: Bounds, allowed: Bounds) -> tuple[Any, Bounds]:
        """As of `LeftInverse`. The solution is x + S (I - G)^-1 u with u = S^H A^H (b - A x)."""
        multiply, gain = _native_times if self.native else _accurate_times, self.norm_s * self.columns_s
        w, of_w = _accurate_times(adjoint(self.a), self.columns_a, rest, gain, allowed, in_float64=self.native)
        u, of_u = multiply(adjoint(self.s), self.columns_s, w, self.norm_s, allowed)
        d, of_d = multiply(self.s, self.norm_s, u, 1.0, allowed)
        spread = self.norm_s * self.contraction * column_sizes(u) + error + of_w + of_u
        return d, spread / (1 - self.contraction) + of_d


def _finite(x: Any) -> Any:
    """Numbers with 0 in place of Inf and NaN: of right-hand sides that float64 does not hold."""
    xp = array_library(x)
    return xp.where(xp.isfinite(x), x, 0.0)


def _accurate_times(
    x: Any, norm_x: float, y: Any, gain: float, allowed: Bounds, in_float64: bool = False
) -> tuple[Any, Bounds]:
    """The product x y, and by how much its error changes a correction: of each column the largest abs, or `allowed`.

    `norm_x` is the row norm of x, and `gain` what an error of the product is multiplied by later.
    """
    terms = gain * norm_x * norms_on_host(y, 0)
    tolerance = tolerance_for(allowed, terms)
    found = product(x, y, tolerance, multiprecision=not in_float64)
    errors = errors_of(tolerance, terms)
    if in_float64:
        errors += gain * (UNIT * column_sizes(found) + LEAST * (terms > 0))
    return found, errors


def _native_times(x: Any, norm_x: float, y: Any, gain: float, _: Bounds) -> tuple[Any, Bounds]:
    """As `_accurate_times`, by a native product."""
    terms, y = gain * norm_x * column_sizes(y), rounded(y)
    return native_product(x, y), (native_error(x, y) + UNIT) * terms + LEAST * (terms > 0)


def left_inverse(a: Any, why: str = _SINGULAR, near: Any = None) -> LeftInverse:
    """An inverse of a square matrix whose rows and columns are alike in size; `why` says what it means to find none.

    `near` is an approximate one in float64, finite, where that is known.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular, or its condition number above `LARGEST`.
    """
    high, eye, norm_a = rounded(a), array_library(a).eye(a.shape[0]), row_norm(a)
    r = _inverse(high, why) if near is None else near
    contraction = _native_contraction(high, r, norm_a, eye)
    step("inverse in float64: norm of I - R A up to %s", contraction)
    if contraction <= CONTRACTION:
        return LeftInverse(a, r, contraction, norm_a, row_norm(r), native=True)
    try:
        return _in_many_bits(a, r, why)
    except np.linalg.LinAlgError:
        # Changes by some units of the last place undo such an inverse, as of tiny elements, instead of improving it.
        if not row_norm(r) * norm_a > _NEARLY_SINGULAR:
            raise
    return _in_many_bits(a, _inverse(next(_changed(high)), why), why)


def _in_many_bits(a: Any, r: Any, why: str) -> LeftInverse:
    """As `left_inverse`, by inverses of R A, from an R in float64.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    dtype, eye, norm_a, asked = _float(a), array_library(a).eye(a.shape[0]), row_norm(a), False
    for count in range(1, _INVERSES + 1):
        norm_r = row_norm(r)
        condition = _checked(norm_r * norm_a / _TOO_LARGE, why) * _TOO_LARGE
        # A correction gains 26 bits, if no more are needed of this product; each takes a few slices.
        tolerance = min(2.0**-26 / condition, 2.0**-8)
        rest = gemm(-1, r, a, 1, eye, accuracy=componentwise(tolerance), dtype=dtype)
        contraction = row_norm(rest) * (1 + 2.0**-50) + 2 * tolerance * condition
        step("inverse %d: norm of I - R A up to %s", count, contraction)
        if contraction <= CONTRACTION:
            _checked(condition, why)
            return LeftInverse(a, r, contraction, norm_a, norm_r)
        if condition > _NEARLY_SINGULAR and not asked and len(eye) <= _MOST_ROWS:
            asked = True
            if is_singular(a, _LITTLE_WORK):
                break
        # Of R A as much as float64 holds.
        r = _shaken(r, 1) if count == 1 else r
        better = matmul(r, a, accuracy=componentwise(2.0**-60 / condition), dtype=dtype)
        r = product_of_inverses(_shaken(_inverse(better, why), 2 * count + 1), r, count)
    raise np.linalg.LinAlgError(f"a: {why}")


def _native_contraction(a: Any, r: Any, norm_a: float, eye: Any) -> float:
    """An upper bound of the row norm of I - R A by a native product; a is A rounded to float64.

    The factor is for all roundings here, and for what underflows, as norm(R) norm(A) is 1/2 at least.
    """
    missed = (native_error(r, a) + UNIT) * row_norm(r) * norm_a
    return (row_norm(eye - native_product(r, a)) + missed) * UP


def least_squares_inverse(a: Any) -> LeastSquaresInverse:
    """The inverse for least squares of a matrix, shape (m, n), m >= n, whose columns are alike in size.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the columns are dependent, or the condition number is above `LARGEST`.
    """
    xp, dtype, given = array_library(a), _float(a), a
    # Of large rows first: QR in float64 is accurate row by row then. No S depends on the order of the rows.
    a = a[xp.argsort(-magnitudes(a).max(axis=1))]
    eye, norm_a, columns_a = xp.eye(a.shape[1]), row_norm(a), column_norm(a)
    s = xp.triu(_inverse(xp.linalg.qr(rounded(a), mode="r"), _DEPENDENT))
    norm_s, columns_s = row_norm(s), column_norm(s)
    w = native_product(rounded(a), s)
    relative, of_square = native_error(a, s) + UNIT, native_error(w.T, w)
    gram = eye - native_product(adjoint(w), w)
    contraction = _square_contraction(gram, w, of_square, relative * norm_a * norm_s, relative * columns_a * columns_s)
    step("inverse in float64: norm of I - (A S)^H (A S) up to %s", contraction)
    if contraction <= CONTRACTION:
        return LeastSquaresInverse(given, s, contraction, norm_a, norm_s, columns_a, columns_s, native=True)
    # Not where S may be good enough as it is.
    s = _shaken(s, 1) if norm_a * norm_s > _SHAKEN else s
    for count in range(1, _INVERSES + 1):
        norm_s, columns_s = row_norm(s), column_norm(s)
        condition = max(norm_a * norm_s, columns_a * columns_s)
        _checked(condition / _TOO_LARGE, _DEPENDENT)
        tolerance = min(2.0**-60 / condition, 2.0**-8)
        w = matmul(a, s, accuracy=componentwise(tolerance), dtype=dtype)
        # Row and column norms of what w differs from A S: the tolerance, and the rounding to float64.
        rows = tolerance * norm_a * norm_s + 2.0**-52 * row_norm(w)
        columns = tolerance * columns_a * columns_s + 2.0**-52 * column_norm(w)
        fine = min(2.0**-26 / (column_norm(w) * row_norm(w)), 2.0**-8)
        gram = gemm(-1, adjoint(w), w, 1, eye, accuracy=componentwise(fine), dtype=dtype)
        contraction = _square_contraction(gram, w, 2 * fine, rows, columns)
        step("inverse %d: norm of I - (A S)^H (A S) up to %s", count, contraction)
        if contraction <= CONTRACTION:
            _checked(condition, _DEPENDENT)
            return LeastSquaresInverse(given, s, contraction, norm_a, norm_s, columns_a, columns_s)
        factor = xp.triu(_inverse(xp.linalg.qr(w, mode="r"), _DEPENDENT, _LARGEST_FACTOR))
        s = product_of_inverses(s, _shaken(factor, 2 * count + 1), count)
    raise np.linalg.LinAlgError(f"a: {_DEPENDENT}")


def _square_contraction(gram: Any, w: Any, tolerance: float, rows: float, columns: float) -> float:
    """An upper bound of the row norm of I - (A S)^H (A S), `gram` being I - W^H W.

    That is off by the tolerance times abs(W^H) abs(W), and W by a matrix with these row and column norms. The factor is
    for roundings here, and for what underflows.
    """
    norm_w, columns_w = row_norm(w), column_norm(w)
    missed = tolerance * columns_w * norm_w + columns * norm_w + columns_w * rows + columns * rows
    return (row_norm(gram) + missed) * UP


def _float(a: Any) -> str:
    return "complex128" if holds_complex(a) else "float64"


def _checked(condition: float, why: str) -> float:
    """The condition number, if it is not too large; `why` says what it means if it is.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    if not isfinite(condition) or condition > LARGEST:
        raise np.linalg.LinAlgError(f"a: {why}")
    return condition


def _inverse(x: Any, why: str, limit: float = LARGEST) -> Any:
    """The library's own inverse of a matrix, or, where that finds x singular, of one that differs by roundings.

    Where its norm times that of x is beyond the limit, x counts as singular but for tiny elements: where some are of
    rows and columns that are far apart, pivots may be such, though x is far from singular.

    Raises
    ------
    numpy.linalg.LinAlgError
        With the message `why`, if it finds none.
    """
    xp = array_library(x)
    for changed in chain((x,), _changed(x)):
        try:
            found = xp.linalg.inv(changed)
        except np.linalg.LinAlgError:
            continue
        if bool(xp.isfinite(found).all()) and row_norm(found) * row_norm(changed) <= limit:
            return found
    raise np.linalg.LinAlgError(f"a: {why}")


def _changed(x: Any) -> Any:
    """Matrices that differ from x by changes of some 2**-50, or more, of its largest element.

    Of the first ones elimination may find pivots of zero, too, as their elements are few units of the last place apart.
    """
    xp = array_library(x)
    size = abs(x).max() if x.size else 0.0
    for place, unit in ((3, 2.0**-52), (7, 2.0**-52), (11, 2.0**-50), (15, 2.0**-48), (19, 2.0**-46)):
        yield x + unit * (_signs(x, place) + 4 * xp.eye(len(x))) * size


def _shaken(x: Any, step: int) -> Any:
    """The matrix with relative changes of some 2**-50, others for each step.

    An inverse in float64 may be a matrix of lower rank, exactly. All products with it are, so no inverse of them would
    make up for it.
    """
    return x * (1 + 2.0**-50 * _signs(x, step))


def _signs(x: Any, step: int) -> Any:
    """Whole numbers from -5 to 5, in no apparent order but always the same for a step, in the shape of x."""
    places = array_library(x).arange(x.size).reshape(x.shape) + 1000 * step
    return (places * 2654435761 % 2**32 >> 16) % 11 - 5.0  # Knuth's multiplicative hash
