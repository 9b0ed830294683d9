"""Solutions that get as accurate as is asked, with the error of each column bounded."""

from __future__ import annotations

from math import ceil, ldexp, log2
from typing import Any

import numpy as np

from ozaki.driver.watching import step
from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import Sum, added, array_library, exactly
from ozaki.linalg.common.products import (
    UNIT,
    Bounds,
    componentwise,
    errors_of,
    native_error,
    native_product,
    not_tiny,
    residual,
    tolerance_for,
)
from ozaki.linalg.common.scaling import without_tiny
from ozaki.linalg.common.upper import LEAST, column_sizes, norms_on_host, row_norm
from ozaki.linalg.systems.inverses import LeastSquaresInverse, LeftInverse, left_inverse

MOST_CORRECTIONS = 200
"""The most corrections of a solution: 900 bits take fewer than 100."""


class Refinement:
    """The solution of a x = b, or the one of least squares, corrected by its residual in more and more bits.

    The first solution and the first correction are float64 numbers, unless the matrix is too ill-conditioned; their
    sum is exact, and enough for results in float64.

    Attributes
    ----------
    x : float64 array, Sum or MPArray, shape (n, columns); None before the first correction of ill-conditioned systems
    errors : float64 array, shape (columns,): an upper bound of the largest error in each column of x
    steps : corrections so far
    """

    def __init__(self, inverse: LeftInverse | LeastSquaresInverse, b: Any) -> None:
        self._inverse, self._b, self._b_sizes = inverse, b, column_sizes(b)
        self.x: Any = inverse.first(b) if inverse.native else None
        self.errors: Bounds = np.full(b.shape[1], np.inf)
        self.steps = 0

    def reach(self, goal: float) -> None:
        """Correct x until the errors of each column are at most `goal` times its largest element."""
        inverse = self._inverse
        while not self._within(goal):
            solutions = self.steps + inverse.native + 1  # the first one of ill-conditioned systems is 0
            share = max(goal, inverse.contraction**solutions) / (4 * inverse.error_gain)
            if share < LEAST or self.steps == MOST_CORRECTIONS:
                raise np.linalg.LinAlgError("a: too ill-conditioned for this accuracy; ask for fewer bits")
            self._correct(share)
            self.steps += 1
            step("correction %d: errors of columns up to %s", self.steps, self.errors.max(initial=0.0))

    def _within(self, goal: float) -> bool:
        return self.steps > 0 and bool((self.errors <= goal * (column_sizes(self.x) - self.errors)).all())

    def _correct(self, share: float) -> None:
        """One correction whose products and rounding err by no more than this share of the largest element."""
        inverse, x = self._inverse, self.x
        sizes = self._b_sizes / inverse.norm_a if x is None else column_sizes(x)
        rest, error = self._residual(share * sizes / 8)
        d, errors = inverse.correction(rest, error, share * sizes / 8)
        if inverse.native and self.steps == 0:
            self.x, self.errors = added(x, d), errors
            return
        bits = ceil(-log2(share)) + 8
        self.x = (exactly(d) if x is None else exactly(x) + exactly(d)).round_to(bits)
        self.errors = errors + 2.0**-bits * column_sizes(self.x)

    def _residual(self, allowed: Bounds) -> tuple[Any, Bounds]:
        """The residual b - a x, and by how much its error changes the correction: of each column, or `allowed`."""
        inverse, b, x = self._inverse, self._b, self.x
        if x is None:
            return exactly(b), np.zeros_like(self._b_sizes)
        terms = inverse.residual_gain * (inverse.norm_a * norms_on_host(x, 0) + self._b_sizes)
        tolerance = tolerance_for(allowed, terms)
        x = exactly(x) if isinstance(x, Sum) else x
        rest = residual(b, inverse.a, x, tolerance, multiprecision=not inverse.residual_in_float64)
        errors = errors_of(tolerance, terms)
        if inverse.residual_in_float64:
            errors += inverse.residual_gain * (UNIT * column_sizes(rest) + LEAST * (terms > 0))
        return rest, errors


def inverse_within(a: Any, goal: float) -> Any:
    """The inverse of a well-conditioned matrix, each column off by no more than `goal` times its largest element.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    inversion = Inversion(left_inverse(a))
    inversion.reach(goal)
    return exactly(inversion.x)


class Inversion:
    """The inverse of a matrix by Newton-Schulz steps R + (I - R A) R, which square the residual I - R A.

    As in `Refinement` the first step adds a float64 matrix, unless A is too ill-conditioned.

    Attributes
    ----------
    x : float64 array, Sum or MPArray, shape (n, n)
    errors, steps : as of `Refinement`
    """

    def __init__(self, inverse: LeftInverse) -> None:
        self._inverse, self._contraction = inverse, inverse.contraction
        self._eye = array_library(inverse.a).eye(inverse.a.shape[0])
        self.x: Any = inverse.r
        self.steps = 0

    @property
    def errors(self) -> Bounds:
        # The inverse is (I - E)^-1 R, so it differs from R by no more than norm(E) / (1 - norm(E)) norm(R) in a column.
        return self._contraction / (1 - self._contraction) * column_sizes(self.x)

    def reach(self, goal: float) -> None:
        """Step until the errors of each column are at most `goal` times its largest element."""
        while self._contraction / (1 - 2 * self._contraction) > goal:
            take = self._native_step if self._inverse.native and self.steps == 0 else self._step
            take(max(self._contraction**2, goal / 4))
            self.steps += 1
            step("step %d: norm of the residual up to %s", self.steps, self._contraction)

    # With E = I - R A, e = E + F, and H what products and rounding add, the new residual is
    # I - (R + e R + H) A = E^2 - F (I - E) - H A.

    def _native_step(self, share: float) -> None:
        """The step of R in float64, which leaves a residual of norm(E)^2, about `share` and what e R errs by."""
        a, norm_a, r, norm_r = self._inverse.a, self._inverse.norm_a, self._inverse.r, self._inverse.norm_r
        terms = norm_r * float(norms_on_host(a, 0).sum()) * (1 + 2.0**-30)
        tolerance = not_tiny(min(share / (8 * terms), 2.0**-8))
        e = residual(self._eye, r, a, tolerance, multiprecision=False)
        missed = tolerance * terms + UNIT * row_norm(e)
        contraction = row_norm(e) + missed
        self.x = added(r, native_product(e, r))
        self._contraction = contraction**2 + missed * (1 + contraction) + LEAST
        self._contraction += native_error(e, r) * contraction * norm_r * norm_a

    def _step(self, share: float) -> None:
        """One step that leaves a residual of norm(E)^2, and `share` from products and roundings."""
        a, norm_a, r = self._inverse.a, self._inverse.norm_a, exactly(self.x)
        norm_r = row_norm(r)
        tolerance = not_tiny(min(share / (8 * norm_r * norm_a), 2.0**-8))
        e = gemm(-1, r, a, 1, self._eye, accuracy=componentwise(tolerance), dtype="mp")
        e, cleared = without_tiny(e)  # or each step would double what elements span
        # tol (abs(R) abs(A) + I) bounds the error of e; the norms have a product of 3/4 at least.
        missed = 3 * tolerance * norm_r * norm_a + LEAST * cleared
        contraction = row_norm(e) + missed
        growth = contraction * (norm_r * norm_a)
        d_tolerance = not_tiny(min(share / (8 * growth), 2.0**-8) if growth else 2.0**-8)
        d = matmul(e, r, accuracy=componentwise(d_tolerance), dtype="mp")
        bits = ceil(3 + log2(norm_r) + log2(norm_a) - log2(share)) + 1
        self.x, _ = without_tiny((r + d).round_to(bits))  # which adds less than LEAST to the residual
        more = d_tolerance * growth + ldexp(row_norm(self.x) * norm_a, -bits)
        self._contraction = contraction**2 + missed * (1 + contraction) + more + LEAST
