"""Determinants by triangular matrices X and Y for which X A Y is nearly the identity, rows of A in some order.

That of A follows from the diagonals of X and Y, which need not be accurate inverses of factors, and from that of X A Y,
which is I + E with a small E (docs/linalg.md, L7). First factors are found in float64; for ill-conditioned matrices Y
is a product of inverses of upper factors, as in S. M. Rump's inverses. E, in more bits, corrects X and Y.
"""

from __future__ import annotations

from math import ceil, isfinite, log2
from typing import Any

import numpy as np

from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import array_library, exactly, masked, on_host, rounded
from ozaki.linalg.common.products import (
    UNIT,
    native_product,
    not_tiny,
    product,
    product_of_inverses,
    residual,
)
from ozaki.linalg.common.upper import LEAST, magnitudes, norms, row_norm
from ozaki.linalg.determinants.elimination import factors
from ozaki.linalg.determinants.scalars import Determinant, Scalar, product_of_scalars, scalars
from ozaki.linalg.systems.inverses import CONTRACTION, LARGEST, LIMIT, MOST_FACTORS

_MOST_STEPS = 12
"""The most corrections of X and Y: each squares E, so that 900 bits take seven or so."""

_ROUNDINGS = 1 + 2.0**-30
"""More than all roundings of float64 in a bound make up."""


def determinant(a: Any, tolerance: float, cleared: bool) -> Determinant:
    """The determinant of a square matrix whose rows and columns are alike in size, to a relative tolerance.

    If the matrix was `cleared` of tiny elements, the error has what these may change.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular, or too ill-conditioned.
    """
    near = _first(a)
    for steps in range(_MOST_STEPS):
        found = near.determinant(tolerance)
        step("correction %d: determinant off by up to %s", steps, found.error)
        if found.error <= tolerance:
            return found._replace(error=found.error + LEAST * cleared, steps=steps)
        near = near.corrected()
    raise _ill_conditioned()


class _Near:
    """Triangular matrices x and y, the first one with a unit diagonal, and E = x a[order] y - I.

    Attributes
    ----------
    a : the matrix with its rows in order, shape (n, n)
    sign : of the order, 1 or -1
    x, y : lower and upper triangular matrices, floats or MPArrays, shape (n, n)
    size : about the Euclidean norm of E, as far as it is known before it is found
    """

    def __init__(self, a: Any, sign: int, x: Any, y: Any, size: float) -> None:
        self.a, self.sign, self.x, self.y, self.size = a, sign, x, y, size
        self._rows, self._columns = norms(x, 1), norms(y, 0)  # Euclidean norms of rows of x and columns of y
        # Of each column j of y the sum over k of norm(column k of a) abs(y_kj): how errors of x a grow times y.
        self._grown = (norms(a, 0) @ magnitudes(y)) * _ROUNDINGS
        condition = _norm(self._rows) * max(_norm(self._grown), _norm(self._columns))
        if not isfinite(condition) or condition > LARGEST:
            raise _ill_conditioned()
        self.condition = max(condition, 1.0)
        self.e: Any = None

    def determinant(self, tolerance: float) -> Determinant:
        """The determinant, as accurately as X and Y let it be known, but no more accurately than the tolerance."""
        xp, n = array_library(self.a), self.a.shape[0]
        # Products err by no more than what leaving out E's square does, or the tolerance lets them.
        goal = max(tolerance, min(self.size, CONTRACTION) ** 2) / 32
        first = not_tiny(min(goal / (n * self.condition), 2.0**-8))
        w = product(self.x, self.a, first, multiprecision=True)
        of_w = norms(w, 1)
        second = not_tiny(min(goal / (n + n * _norm(of_w) * _norm(self._columns)), 2.0**-8))
        wide = 2 * n * UNIT * self.size > goal
        rest = residual(xp.eye(n), w, self.y, second, multiprecision=wide)  # -E
        sizes, unit = magnitudes(rest), 0.0 if wide else UNIT
        # The largest errors of elements: of W times Y, of the residual, and of its rounding to float64.
        missed = first * self._rows[:, None] * self._grown + second * of_w[:, None] * self._columns
        missed = (missed + second * xp.eye(n) + unit * sizes + LEAST) * _ROUNDINGS
        self.e = -rest
        self.size = _norm(sizes + missed)
        if not self.size < 0.5:
            return Determinant(Scalar(1), np.inf, 0)
        # With D the diagonal of I + E, det(I + E) is det(D) det(I + F), F = inv(D) (I + E) - I, of which the diagonal
        # is zero: log(det(I + F)) = -tr(F^2)/2 + tr(F^3)/3 - ... is at most norm(F)^2 / (2 (1 - norm(F))).
        f = _norm((sizes + missed) * (1 - xp.eye(n))) / (1 - self.size)
        off = f**2 / (2 * (1 - f)) if f < 1 else np.inf
        of_diagonal = _sum(missed.diagonal()) / (1 - self.size)
        bits = max(ceil(-log2(tolerance)), 53) + n.bit_length() + 16
        diagonal = exactly(self.e).diagonal() + xp.ones(n)
        above = product_of_scalars(scalars(diagonal), bits).times(Scalar(self.sign))
        value = above.over(product_of_scalars(scalars(self.y.diagonal()), bits), bits)
        logarithm = (off + of_diagonal) * _ROUNDINGS + LEAST
        # abs(exp(z) - 1) is at most abs(z) (1 + abs(z)) for abs(z) <= 1, and the products of scalars add roundings.
        error = logarithm * (1 + logarithm) if logarithm <= 1 else np.inf
        return Determinant(value, (error + 2.0 ** (5 - bits) * (n + 1) * (1 + error)) * _ROUNDINGS, 0)

    def corrected(self) -> _Near:
        """X and Y with (I - L) X and Y (I - U) in their places, L + U = E: what is left is about E squared."""
        if not self.size < CONTRACTION:
            raise _ill_conditioned()
        n = self.a.shape[0]
        strict = array_library(self.a).tri(n, k=-1)
        lower, upper = masked(self.e, strict), masked(self.e, 1 - strict)
        left = self.size**2
        tolerance = not_tiny(left / (16 * n * self.condition))
        bits = ceil(log2(n * self.condition) - 2 * log2(self.size)) + 8
        x = exactly(self.x) - exactly(product(lower, self.x, tolerance, multiprecision=True))
        y = exactly(self.y) - exactly(product(self.y, upper, tolerance, multiprecision=True))
        x, y = masked(x, strict + array_library(x).eye(n)), masked(y, 1 - strict)
        return _Near(self.a, self.sign, x.round_to(bits), y.round_to(bits), 2 * left)


def _first(a: Any) -> _Near:
    """Factors for which E is small.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there are none.
    """
    xp, n = array_library(a), a.shape[0]
    eye = xp.eye(n)
    order, sign, x, upper = _factors(rounded(a))
    y = _inverse(upper)
    for count in range(1, MOST_FACTORS + 1):
        ordered = a[order]
        # Only a guess: what is proven of E comes later.
        of_y = native_product(rounded(ordered), y) if count == 1 else _product(ordered, y)
        size = float(_norm(magnitudes(native_product(x, of_y) - eye)))
        step("factors %d: norm of the residual about %s", count, size)
        if size <= CONTRACTION:
            return _Near(ordered, sign, x, y, max(size, n * UNIT))
        if count == 1:
            of_y = _product(ordered, y)
        if not isfinite(row_norm(y)) or row_norm(y) > LARGEST:
            break
        again, turned, x, upper = _factors(of_y)
        order, sign = order[again], sign * turned
        y = product_of_inverses(y, _inverse(upper), count)
    raise _ill_conditioned()


def _product(a: Any, y: Any) -> Any:
    """The product of a and y in float64, its elements off by about 2**-70."""
    sizes = float(norms(a, 1).max()) * float(norms(y, 0).max())
    return rounded(product(a, y, not_tiny(min(2.0**-70 / sizes, 2.0**-8)), multiprecision=True))


def _ill_conditioned() -> np.linalg.LinAlgError:
    return np.linalg.LinAlgError(
        f"a: singular, or its condition number is too large ({LIMIT}, rows and columns scaled); accuracy='exact' tells"
    )


def _inverse(upper: Any) -> Any:
    """An upper triangular matrix near the inverse of one.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    xp = array_library(upper)
    try:
        found = xp.triu(xp.linalg.inv(upper))
    except np.linalg.LinAlgError:
        raise _ill_conditioned() from None
    if not bool(xp.isfinite(found).all()) or not bool((xp.diagonal(found) != 0).all()):
        raise _ill_conditioned()
    return found


def _factors(a: Any) -> tuple[Any, int, Any, Any]:
    """The order of rows, its sign, a unit lower matrix near the inverse of L, and U, of a matrix of floats.

    Raises
    ------
    numpy.linalg.LinAlgError
        If they are not finite.
    """
    xp = array_library(a)
    order, sign, inverse, upper = factors(a)
    if not bool(xp.isfinite(inverse).all()) or not bool(xp.isfinite(upper).all()):
        raise _ill_conditioned()
    return order, int(sign), inverse, upper


def _norm(x: Any) -> float:
    """An upper bound of the Euclidean norm of numbers that are not negative."""
    largest = float(x.max()) if x.size else 0.0
    if largest == 0 or not isfinite(largest):
        return largest
    return float((((x / largest) ** 2).sum()) ** 0.5) * largest * _ROUNDINGS


def _sum(x: Any) -> float:
    """An upper bound of the sum of numbers that are not negative."""
    return float(on_host(x.sum())) * _ROUNDINGS
