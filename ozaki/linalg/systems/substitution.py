"""Triangular systems by substitution, corrected by residuals, with errors bounded by the comparison matrix.

Substitution in float64 errs by little more than a change of each element by roundings: the condition number, which may
be 2**n, does not matter, but that of Skeel, which scaled rows leave as it is. Of a triangular matrix U the comparison
matrix <U> has abs(u_ii) on the diagonal and -abs(u_ij) elsewhere, and abs(inv(U)) is at most inv(<U>), which has no
element below 0. So an error is bounded by substitution, too, whose sums are of numbers of one sign (docs/linalg.md,
L8). No inverse of U is found, but those of blocks on the diagonal.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import step
from ozaki.functions.products import gemm
from ozaki.linalg.common.arrays import Sum, added, array_library, exactly, on_host, rounded
from ozaki.linalg.common.products import (
    UNIT,
    Bounds,
    componentwise,
    native_error,
    native_product,
    tolerance_for,
)
from ozaki.linalg.common.scaling import Exponents, Powers, scaled, tops_or_zero
from ozaki.linalg.common.upper import LEAST, UP, column_sizes, least_magnitudes, magnitudes, row_norm
from ozaki.multiprecision.numbers import Numbers

_BLOCK = 32
"""Rows of a block, whose inverse is found: so few that float64 finds a good one of random matrices, whose condition
number is 2**rows, and as many as keep the calls of products for blocks few."""

_MOST_CORRECTIONS = 100
"""The most corrections: each gains some 40 bits, or the system is solved in another way."""

_FAILS = "a: too ill-conditioned for substitution"


class Substitution:
    """The solution of U x = b for an upper triangular U, corrected by its residual in more and more bits.

    Parameters
    ----------
    u : matrix, shape (n, n), its diagonal about 1 and no element much larger
    b : matrix, shape (n, columns)
    sizes : upper bounds of abs(U), which may have elements below `LEAST` that u and b lack
    shown : int array, shape (n,): `x` and `errors` are those of the solution times 2**shown
    lower : whether `x` is to have its rows in the opposite order, as a lower triangular matrix has them

    Attributes
    ----------
    x : float64 array, Sum or MPArray, shape (n, columns)
    errors : float64 array, shape (columns,): an upper bound of the largest error in each column of x
    steps : corrections so far

    Raises
    ------
    numpy.linalg.LinAlgError
        If a block has no inverse in float64.
    """

    def __init__(self, u: Any, b: Any, sizes: Any, shown: Exponents, lower: bool) -> None:
        xp = array_library(u)
        self._u, self._b, self._sizes, self._near = u, b, sizes, rounded(u)
        diagonal = least_magnitudes(u)[xp.arange(u.shape[0]), xp.arange(u.shape[0])]
        self._inverses = _inverses(self._near)
        of_blocks = _blocks(sizes)
        by_comparison = _inverse_bounds(of_blocks, _padded(diagonal).reshape(of_blocks.shape[:2]))
        by_residual = _residual_bounds(self._inverses, _blocks(self._near), of_blocks)
        closer = (by_residual < by_comparison) | ~xp.isfinite(by_comparison)  # NaN and Inf bound nothing
        self._bounds = xp.where(closer, by_residual, by_comparison)
        self._b_sizes = magnitudes(b)
        self._live = (self._b_sizes > 0).any(axis=0)
        self._shown, self._lower = Powers(rows=shown), lower
        self._set(self._substituted(rounded(b)))
        self.errors: Bounds = np.full(b.shape[1], np.inf)
        self.steps = 0

    @property
    def growth(self) -> float:
        """How much larger than x an error may be, as far as is proven, that is small beside abs(U) abs(x) + abs(b)."""
        bounds, sizes = self._largest(self._bound(self._terms())), column_sizes(self.x)
        return float((bounds[sizes > 0] / sizes[sizes > 0]).max(initial=0.0))

    def reach(self, goal: float) -> None:
        """Correct x until the errors of each column are at most `goal` times its largest element.

        Raises
        ------
        numpy.linalg.LinAlgError
            If a correction gains nothing.
        """
        while not self._within(goal):
            before = self._relative()
            if self.steps == _MOST_CORRECTIONS or not bool(array_library(self._x).isfinite(rounded(self._x)).all()):
                raise np.linalg.LinAlgError(_FAILS)
            self._correct(max(goal / 4, min(before, 1.0) * 2.0**-64))
            self.steps += 1
            step("correction %d: errors of columns up to %s", self.steps, self.errors.max(initial=0.0))
            if not np.isfinite(self.errors).all() or (self.steps > 2 and not self._relative() < before / 2):
                raise np.linalg.LinAlgError(_FAILS)

    def _within(self, goal: float) -> bool:
        return self.steps > 0 and bool((self.errors <= goal * (column_sizes(self.x) - self.errors)).all())

    def _relative(self) -> float:
        """The largest error of a column, relative to its largest element."""
        sizes = column_sizes(self.x)
        live = sizes > 0
        return float((self.errors[live] / sizes[live]).max()) if live.any() else 0.0

    def _correct(self, share: float) -> None:
        """One correction whose residual and rounding err by no more than this share of the largest element."""
        x, near, terms, sizes = self._x, self._near, self._terms(), column_sizes(self.x)
        tolerance = tolerance_for(share * sizes / 8, self._largest(self._bound(terms)))
        rest = self._residual(tolerance)
        powers = Powers(columns=tops_or_zero(rest, 0))
        rest = rounded(scaled(rest, powers.inverse()))
        d = self._substituted(rest)
        # The error of x + d is inv(U) (rest - U d), but for what the residual errs by.
        left = magnitudes(rest - native_product(near, d)) + 4 * UNIT * magnitudes(rest)
        left += (native_error(near, d) + 4 * UNIT) * _up(native_product(self._sizes, magnitudes(d)), len(d))
        left = _scaled_up(left + LEAST * self._live, powers) + (tolerance * UP) * terms
        self.errors = self._largest(self._bound(left + LEAST * self._live))
        if self.steps == 0 and not isinstance(x, Numbers) and isinstance(change := scaled(d, powers), type(x)):
            self._set(added(x, change))
            return
        # What rounding x adds to the next residual is to be no more than what that errs by.
        bits = ceil(-log2(max(tolerance, LEAST))) + 8
        self._set((exactly(x) + scaled(exactly(d), powers)).round_to(bits))
        self.errors += 2.0**-bits * column_sizes(self.x)

    def _set(self, x: Any) -> None:
        self._x, x = x, scaled(x, self._shown)
        if self._lower:
            x = Sum(x.high[::-1], x.low[::-1]) if isinstance(x, Sum) else x[::-1]
        self.x = x

    def _largest(self, bounds: Any) -> Bounds:
        """The largest bound of each column, times 2**shown."""
        return on_host(_scaled_up(bounds, self._shown).max(axis=0))

    def _terms(self) -> Any:
        """Upper bounds of abs(U) abs(x) + abs(b), but for what underflows."""
        return _up(native_product(self._sizes, magnitudes(self._x)), len(self._near)) + self._b_sizes

    def _residual(self, tolerance: float) -> Any:
        """The residual b - U x, off by no more than the tolerance times abs(U) abs(x) + abs(b), and one rounding."""
        x = exactly(self._x) if isinstance(self._x, Sum) else self._x
        floats = not any(isinstance(each, Numbers) for each in (self._u, x, self._b))
        is_complex = any(map(holds_complex, (self._u, x, self._b)))
        dtype = "mp" if not floats else "complex128" if is_complex else "float64"
        c = self._b.astype(dtype, copy=False) if floats else self._b
        return gemm(-1, self._u, x, 1, c, accuracy=componentwise(tolerance), dtype=dtype, reproducible=True)

    def _substituted(self, y: Any) -> Any:
        """A solution of U x = y in float64."""
        return _by_blocks(-self._near, self._inverses, y, lambda x: x)

    def _bound(self, w: Any) -> Any:
        """Upper bounds of the elements of inv(<U>) w, and so of abs(inv(U) z) for each z with abs(z) <= w."""
        n, least = len(w), LEAST * (w > 0).any(axis=0)
        return _by_blocks(self._sizes, self._bounds, w, lambda x: _up(x, n) + least)


def _up(x: Any, n: int) -> Any:
    """More than sums of n products of numbers from 0 on, of which x is what float64 finds, but for underflow."""
    return x * (1 + (n + _BLOCK) * 2.0**-51) + LEAST * (x > 0)


def _scaled_up(x: Any, powers: Powers) -> Any:
    """Upper bounds times powers of two; `LEAST` is more than what underflows."""
    xp = array_library(x)
    by = xp.clip(powers.of_elements(xp), -3000, 3000).astype(np.int32)
    return xp.ldexp(x, by) + LEAST * (x > 0)


def condition(u: Any) -> float:
    """An estimate of the condition number of an upper triangular matrix in float64: not much more than that."""
    signs = 1.0 - 2.0 * (array_library(u).arange(4 * len(u)).reshape(-1, 4) * 2654435761 % 2**32 >> 31)
    largest = float(abs(_by_blocks(-u, _inverses(u), signs, lambda x: x)).max())
    return largest * row_norm(u)


def _inverses(u: Any) -> Any:
    """The inverses of the blocks on the diagonal of an upper triangular matrix, as float64 finds them."""
    xp = array_library(u)
    return xp.triu(xp.linalg.inv(_blocks(u)))


def _padded(x: Any) -> Any:
    """A vector, and as many ones as blocks take."""
    xp = array_library(x)
    return xp.concatenate([x, xp.ones(-len(x) % min(_BLOCK, len(x)))])


def _blocks(u: Any) -> Any:
    """The blocks on the diagonal of an upper triangular matrix, shape (blocks, rows, rows); the last one with ones."""
    xp, n = array_library(u), u.shape[0]
    size = min(_BLOCK, n)
    count = -(-n // size)
    found = xp.zeros((count, size, size), u.dtype)
    for i in range(count):
        block = u[i * size : (i + 1) * size, i * size : (i + 1) * size]
        found[i, : len(block), : len(block)] = block
    rows = xp.arange(n - (count - 1) * size, size)
    found[count - 1, rows, rows] = 1
    return found


def _inverse_bounds(sizes: Any, diagonal: Any) -> Any:
    """Upper bounds of the inverses of the comparison matrices of blocks.

    With D the diagonal and P = inv(D) abs(strict part), which is nilpotent, inv(<U>) is (I + P) (I + P^2) (I + P^4) ...
    inv(D).

    Parameters
    ----------
    sizes : upper bounds of abs of the elements, shape (blocks, rows, rows)
    diagonal : lower bounds of the diagonal, shape (blocks, rows)
    """
    xp, rows = array_library(sizes), sizes.shape[-1]
    strict = 1 - xp.tri(rows)

    def times(x: Any, y: Any) -> Any:
        return (native_product(x, y) * (1 + rows * 2.0**-51) + LEAST) * strict

    power = sizes * strict / diagonal[:, :, None] * (1 + 4 * UNIT)
    found = xp.eye(rows) + power
    for _ in range(ceil(log2(rows)) - 1 if rows > 1 else 0):
        power = times(power, power)
        found = (found + times(found, power)) * (1 + 4 * UNIT)
    return found / diagonal[:, None, :] * (1 + 4 * UNIT)


def _residual_bounds(inverses: Any, blocks: Any, sizes: Any) -> Any:
    """Upper bounds of abs of the inverses of blocks, from near ones: NaN where these are not near enough.

    With E = I - R U, which is upper triangular, inv(U) = inv(I - E) R, and abs(inv(I - E)) is at most inv(I - abs(E)),
    where the diagonal of that is above 0. In a block signs may cancel, which they may not in a comparison matrix.

    Parameters
    ----------
    inverses : the matrices R, shape (blocks, rows, rows)
    blocks : the matrices U, rounded to float64
    sizes : upper bounds of abs(U)
    """
    xp, rows, of_r = array_library(sizes), sizes.shape[-1], magnitudes(inverses)
    terms = _up(native_product(of_r, sizes), rows)
    missed = (native_error(inverses, blocks) + 4 * UNIT) * terms + LEAST
    e = (magnitudes(xp.eye(rows) - native_product(inverses, blocks)) + missed) * (1 + 4 * UNIT) * xp.tri(rows).T
    diagonal = e.diagonal(axis1=1, axis2=2)
    rest = xp.where(diagonal < 0.5, (1 - diagonal) * (1 - 4 * UNIT), np.nan)
    return _up(native_product(_inverse_bounds(e, rest), of_r), rows) + LEAST


def _by_blocks(off: Any, inverses: Any, y: Any, up: Any) -> Any:
    """Substitution: block i of x is the inverse i times (y_i + off_ij x_j for all later j).

    `up` is applied to what float64 finds of sums, and of products with inverses.
    """
    xp, size, n = array_library(off), inverses.shape[-1], len(y)
    x = xp.zeros(y.shape, np.result_type(off.dtype, inverses.dtype, y.dtype))
    for i in reversed(range(len(inverses))):
        rows, later = slice(i * size, min((i + 1) * size, n)), slice((i + 1) * size, n)
        right = up(y[rows] + native_product(off[rows, later], x[later])) if i + 1 < len(inverses) else y[rows]
        x[rows] = up(native_product(inverses[i, : len(right), : len(right)], right))
    return x
