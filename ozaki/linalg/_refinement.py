"""Solutions that get as accurate as is asked, with the error of each column bounded."""

from __future__ import annotations

from math import ceil, ldexp, log2
from typing import Any

import numpy as np

from ozaki.driver.watching import step
from ozaki.functions.products import gemm, matmul
from ozaki.linalg._arrays import array_library
from ozaki.linalg._inverses import (
    Bounds,
    LeastSquaresInverse,
    LeftInverse,
    componentwise,
    errors_of,
    left_inverse,
    not_tiny,
    tolerance_for,
)
from ozaki.linalg._scaling import without_tiny
from ozaki.linalg._upper import LEAST, column_sizes, row_norm
from ozaki.multiprecision.objects import mparray

MOST_CORRECTIONS = 200
"""The most corrections of a solution: 900 bits take fewer than 100."""


class Refinement:
    """The solution of a x = b, or the one of least squares, corrected by its residual in more and more bits.

    Attributes
    ----------
    x : MPArray, shape (n, columns)
    errors : float64 array, shape (columns,): an upper bound of the largest error in each column of x
    steps : corrections so far
    """

    def __init__(self, inverse: LeftInverse | LeastSquaresInverse, b: Any) -> None:
        self._inverse, self._b, self._b_sizes = inverse, b, column_sizes(b)
        self.x: Any = None
        self.errors: Bounds = np.full(b.shape[1], np.inf)
        self.steps = 0

    def reach(self, goal: float) -> None:
        """Correct x until the errors of each column are at most `goal` times its largest element."""
        while self.x is None or not self._within(goal):
            share = max(goal, self._inverse.contraction ** (self.steps + 1)) / (4 * self._inverse.error_gain)
            if share < LEAST or self.steps == MOST_CORRECTIONS:
                raise np.linalg.LinAlgError("a: too ill-conditioned for this accuracy; ask for fewer bits")
            self._correct(share)
            self.steps += 1
            step("correction %d: errors of columns up to %s", self.steps, self.errors.max(initial=0.0))

    def _within(self, goal: float) -> bool:
        return bool((self.errors <= goal * (column_sizes(self.x) - self.errors)).all())

    def _correct(self, share: float) -> None:
        """One correction whose products and rounding err by no more than this share of the largest element."""
        inverse = self._inverse
        if self.x is None:
            rest, error, sizes = mparray(self._b), np.zeros_like(self._b_sizes), self._b_sizes / inverse.norm_a
        else:
            sizes = column_sizes(self.x)
            terms = inverse.residual_gain * (inverse.norm_a * sizes + self._b_sizes)
            tolerance = tolerance_for(share * sizes / 8, terms)
            rest = gemm(-1, inverse.a, self.x, 1, self._b, accuracy=componentwise(tolerance), dtype="mp")
            error = errors_of(tolerance, terms)
        d, errors = inverse.correction(rest, error, share * sizes / 8)
        bits = ceil(-log2(share)) + 8
        self.x = (d if self.x is None else self.x + d).round_to(bits)
        self.errors = errors + 2.0**-bits * column_sizes(self.x)


def inverse_within(a: Any, goal: float) -> Any:
    """The inverse of a well-conditioned matrix, each column off by no more than `goal` times its largest element.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    inversion = Inversion(left_inverse(a))
    inversion.reach(goal)
    return inversion.x


class Inversion:
    """The inverse of a matrix by Newton-Schulz steps R + (I - R A) R, which square the residual I - R A.

    Attributes
    ----------
    x, errors, steps : as of `Refinement`
    """

    def __init__(self, inverse: LeftInverse) -> None:
        self._inverse, self._contraction = inverse, inverse.contraction
        self.x: Any = mparray(inverse.r)
        self.steps = 0

    @property
    def errors(self) -> Bounds:
        # The inverse is (I - E)^-1 R, so it differs from R by no more than norm(E) / (1 - norm(E)) norm(R) in a column.
        return self._contraction / (1 - self._contraction) * column_sizes(self.x)

    def reach(self, goal: float) -> None:
        """Step until the errors of each column are at most `goal` times its largest element."""
        while self._contraction / (1 - 2 * self._contraction) > goal:
            self._step(max(self._contraction**2, goal / 4))
            self.steps += 1
            step("step %d: norm of the residual up to %s", self.steps, self._contraction)

    def _step(self, added: float) -> None:
        """One step that leaves a residual of norm(E)^2, and `added` from products and roundings."""
        a, norm_a, r = self._inverse.a, self._inverse.norm_a, self.x
        norm_r = row_norm(r)
        tolerance = not_tiny(min(added / (8 * norm_r * norm_a), 2.0**-8))
        e = gemm(-1, r, a, 1, array_library(a).eye(a.shape[0]), accuracy=componentwise(tolerance), dtype="mp")
        e, cleared = without_tiny(e)  # or each step would double what elements span
        # tol (abs(R) abs(A) + I) bounds the error of e; the norms have a product of 3/4 at least.
        missed = 3 * tolerance * norm_r * norm_a + LEAST * cleared
        contraction = row_norm(e) + missed
        growth = contraction * (norm_r * norm_a)
        d_tolerance = not_tiny(min(added / (8 * growth), 2.0**-8) if growth else 2.0**-8)
        d = matmul(e, r, accuracy=componentwise(d_tolerance), dtype="mp")
        bits = ceil(3 + log2(norm_r) + log2(norm_a) - log2(added)) + 1
        self.x, _ = without_tiny((r + d).round_to(bits))  # which adds less than LEAST to the residual
        # With E = I - R A, e = E + F, and H what products and rounding add, the new residual is
        # I - (R + e R + H) A = E^2 - F (I - E) - H A.
        more = d_tolerance * growth + ldexp(row_norm(self.x) * norm_a, -bits)
        self._contraction = contraction**2 + missed * (1 + contraction) + more + LEAST
