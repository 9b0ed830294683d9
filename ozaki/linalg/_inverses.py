"""Approximate inverses with proven residuals, which correct solutions and bound their errors.

The inverse R that float64 finds of an ill-conditioned matrix A has hardly a correct digit, but R A is better
conditioned than A, if that product is accurate. The inverse of R A, times R, is a better inverse, and so on until its
residual is small: the method of S. M. Rump, "Inversion of extremely ill-conditioned matrices in floating-point", 2009.
For least squares the triangular factor of QR stands in place of the inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import step
from ozaki.functions.products import gemm, matmul
from ozaki.linalg._arrays import adjoint, array_library, rounded
from ozaki.linalg._upper import LEAST, column_norm, column_sizes, magnitudes, row_norm
from ozaki.records.accuracy import Accuracy

Bounds = npt.NDArray[np.float64]

LARGEST = 2.0**300
"""The largest condition number: what is above counts as singular."""

_INVERSES = 10
"""The most inverses that are multiplied: each divides the condition number of R A by 2**30 or more."""

LIMIT = f"2^{log2(LARGEST):.0f} is the limit"
"""What messages say of `LARGEST`."""

_SINGULAR = f"singular, or its condition number is too large ({LIMIT}, rows and columns scaled)"
_DEPENDENT = f"columns are dependent, or its condition number is too large ({LIMIT}, columns scaled)"

MOST_FACTORS = 12
"""The most inverses of factors that precondition a matrix: each divides its condition number by 2**30 or more."""

CONTRACTION = 2.0**-10
"""The largest norm of a residual I - R A with which R is taken as an inverse of A: a step gains ten bits at least."""


def componentwise(tolerance: float) -> Accuracy:
    """The componentwise accuracy of a product inside; no coarser than 2**-8, which is as cheap."""
    return Accuracy("componentwise", min(tolerance, 2.0**-8))


def tolerance_for(allowed: Any, terms: Any) -> float:
    """The largest tolerance, at most 2**-8, with which a product adds no more than `allowed` to a column.

    `terms` are sums of the abs of the product's terms, the largest of each column, times what an error of the product
    is multiplied by later. The tolerance is 0, which asks for every bit, where a column allows next to nothing.
    """
    live = terms > 0
    return not_tiny(min(float((allowed[live] / terms[live]).min()) if live.any() else 1.0, 2.0**-8))


def not_tiny(tolerance: float) -> float:
    """The tolerance, or 0, which asks for every bit, in place of one below `LEAST`."""
    return tolerance if tolerance >= LEAST else 0.0


def product_within(x: Any, y: Any, tolerance: float) -> Any:
    """The multiprecision product x y, its elements off by no more than the tolerance."""
    fine = not_tiny(min(tolerance / (row_norm(x) * float(magnitudes(y).max())), 2.0**-8))
    return matmul(x, y, accuracy=componentwise(fine), dtype="mp")


def product_of_inverses(x: Any, y: Any, count: int) -> Any:
    """A product of `count` inverses in float64 and one more: all 53 bits of each, and some more."""
    return matmul(x, y, accuracy=componentwise(2.0 ** -(113 + 53 * count)), dtype="mp")


def errors_of(tolerance: float, terms: Any) -> Any:
    """Error bounds of the columns of a product computed with a tolerance; zeros for 0: the product is exact then."""
    return tolerance * terms + LEAST * (terms > 0) if tolerance else np.zeros_like(terms)


@dataclass(frozen=True)
class LeftInverse:
    """An approximate inverse R of a square matrix A.

    Attributes
    ----------
    a, r : matrices, shape (n, n)
    contraction : an upper bound of the row norm of I - R A, below 1
    norm_a, norm_r : upper bounds of row norms
    """

    a: Any
    r: Any
    contraction: float
    norm_a: float
    norm_r: float

    @property
    def residual_gain(self) -> float:
        """An error e of b - A x changes the correction by no more than this times e."""
        return self.norm_r

    @property
    def error_gain(self) -> float:
        """If x is off by e, the bound after the next correction is near the contraction times this times e."""
        return 1.0

    def correction(self, rest: Any, error: Bounds, allowed: Bounds) -> tuple[Any, Bounds]:
        """What to add to x, and how far the sum may be from the solution: of each column the largest abs.

        `rest` is b - A x but for an error that changes the correction by no more than `error`, of each column the
        largest abs; products add errors of `allowed`.

        With E = I - R A the solution is x + (I - E)^-1 R (b - A x), so for d = R (b - A x) + f it is at most
        (norm(E) norm(d) + norm(f)) / (1 - norm(E)) from x + d.
        """
        d, added = _correction_product(self.r, rest, self.norm_r, allowed)
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
    """

    a: Any
    s: Any
    contraction: float
    norm_a: float
    norm_s: float
    columns_a: float
    columns_s: float

    @property
    def residual_gain(self) -> float:
        """As of `LeftInverse`."""
        return self.norm_s * self.columns_s * self.columns_a

    @property
    def error_gain(self) -> float:
        """As of `LeftInverse`: an error e in x changes u by S^-1 e, and the bound by norm(S) norm(S^-1 e)."""
        return max(1.0, self.norm_s * self.norm_a)

    def correction(self, rest: Any, error: Bounds, allowed: Bounds) -> tuple[Any, Bounds]:
        """As of `LeftInverse`. The solution is x + S (I - G)^-1 u with u = S^H A^H (b - A x)."""
        w, of_w = _correction_product(adjoint(self.a), rest, self.residual_gain, allowed)
        u, of_u = _correction_product(adjoint(self.s), w, self.norm_s * self.columns_s, allowed)
        d, of_d = _correction_product(self.s, u, self.norm_s, allowed)
        spread = self.norm_s * self.contraction * column_sizes(u) + error + of_w + of_u
        return d, spread / (1 - self.contraction) + of_d


def _correction_product(x: Any, y: Any, gain: float, allowed: Bounds) -> tuple[Any, Bounds]:
    """The product x y, and by how much its error changes a correction: of each column the largest abs, or `allowed`.

    `gain` is the norm of x times what an error of the product is multiplied by later.
    """
    terms = gain * column_sizes(y)
    tolerance = tolerance_for(allowed, terms)
    return matmul(x, y, accuracy=componentwise(tolerance), dtype="mp"), errors_of(tolerance, terms)


def left_inverse(a: Any, why: str = _SINGULAR) -> LeftInverse:
    """An inverse of a square matrix whose rows and columns are alike in size; `why` says what it means to find none.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular, or its condition number above `LARGEST`.
    """
    xp, dtype = array_library(a), _float(a)
    eye, norm_a = xp.eye(a.shape[0]), row_norm(a)
    r = _inverse(rounded(a), why)
    for count in range(1, _INVERSES + 1):
        norm_r = row_norm(r)
        condition = _checked(norm_r * norm_a, why)
        # A correction gains 26 bits, if no more are needed of this product; each takes a few slices.
        tolerance = min(2.0**-26 / condition, 2.0**-8)
        residual = gemm(-1, r, a, 1, eye, accuracy=componentwise(tolerance), dtype=dtype)
        contraction = row_norm(residual) * (1 + 2.0**-50) + 2 * tolerance * condition
        step("inverse %d: norm of I - R A up to %s", count, contraction)
        if contraction <= CONTRACTION:
            return LeftInverse(a, r, contraction, norm_a, norm_r)
        # Of R A as much as float64 holds.
        r = _shaken(r, 1) if count == 1 else r
        product = matmul(r, a, accuracy=componentwise(2.0**-60 / condition), dtype=dtype)
        r = product_of_inverses(_shaken(_inverse(product, why), 2 * count + 1), r, count)
    raise np.linalg.LinAlgError(f"a: {why}")


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
    for count in range(1, _INVERSES + 1):
        norm_s, columns_s = row_norm(s), column_norm(s)
        condition = _checked(max(norm_a * norm_s, columns_a * columns_s), _DEPENDENT)
        tolerance = min(2.0**-60 / condition, 2.0**-8)
        w = matmul(a, s, accuracy=componentwise(tolerance), dtype=dtype)
        norm_w, columns_w = row_norm(w), column_norm(w)
        # Row and column norms of what w differs from A S: the tolerance, and the rounding to float64.
        rows, columns = tolerance * norm_a * norm_s + 2.0**-52 * norm_w, tolerance * columns_a * columns_s
        columns += 2.0**-52 * columns_w
        fine = min(2.0**-26 / (columns_w * norm_w), 2.0**-8)
        residual = gemm(-1, adjoint(w), w, 1, eye, accuracy=componentwise(fine), dtype=dtype)
        contraction = row_norm(residual) * (1 + 2.0**-50) + 2 * fine * columns_w * norm_w
        contraction += columns * norm_w + columns_w * rows + columns * rows
        step("inverse %d: norm of I - (A S)^H (A S) up to %s", count, contraction)
        if contraction <= CONTRACTION:
            return LeastSquaresInverse(given, s, contraction, norm_a, norm_s, columns_a, columns_s)
        s, factor = _shaken(s, 1) if count == 1 else s, xp.triu(_inverse(xp.linalg.qr(w, mode="r"), _DEPENDENT))
        s = product_of_inverses(s, _shaken(factor, 2 * count + 1), count)
    raise np.linalg.LinAlgError(f"a: {_DEPENDENT}")


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


def _inverse(x: Any, why: str) -> Any:
    """The library's own inverse of a matrix, or, where that finds x singular, of one that differs by roundings.

    Raises
    ------
    numpy.linalg.LinAlgError
        With the message `why`, if it finds none.
    """
    xp = array_library(x)
    for changed in (x, *_changed(x)):
        try:
            found = xp.linalg.inv(changed)
        except np.linalg.LinAlgError:
            continue
        if bool(xp.isfinite(found).all()):
            return found
    raise np.linalg.LinAlgError(f"a: {why}")


def _changed(x: Any) -> Any:
    """Matrices that differ from x by relative changes of some 2**-50, which hardly leave it singular."""
    xp = array_library(x)
    size = abs(x).max() if x.size else 0.0
    for place in (3, 7):
        yield x + 2.0**-52 * _signs(x, place) * size + 2.0**-50 * size * xp.eye(len(x))


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
