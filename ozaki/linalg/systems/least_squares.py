"""Least squares of one matrix, in as many bits as it takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.functions.products import matmul
from ozaki.linalg.common.arrays import adjoint, array_library, masked, rounded
from ozaki.linalg.common.products import UNIT, componentwise, native_error, native_product
from ozaki.linalg.common.scaling import Exponents, Powers, check_span, nonzero_tops, scaled, tops_or_zero, without_tiny
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import column_norm, column_sizes
from ozaki.linalg.systems.inverses import least_squares_inverse
from ozaki.linalg.systems.refinement import Refinement
from ozaki.linalg.systems.solution import Solution, solution


def least_squares_of(a: Any, b: Any, target: Target) -> Solution:
    """The solution for a matrix of shape (m, n) and right-hand sides of shape (m, columns), neither of which is empty.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, OverflowError
        As of `ozaki.linalg.lstsq`.
    """
    scales = -nonzero_tops(a, 0, "columns are dependent, column")
    unit = scaled(a, Powers(columns=scales))  # rows are left: other weights would be another problem
    sizes = tops_or_zero(b, 0)
    unit, b, of_solutions, cleared = _projected(unit, scaled(b, Powers(columns=-sizes)))
    refinement = Refinement(least_squares_inverse(unit), scaled(b, Powers(columns=-of_solutions)))
    return solution(refinement, Powers(scales, sizes + of_solutions), target, cleared)


def _projected(a: Any, b: Any) -> tuple[Any, Any, Exponents, bool]:
    """A least squares problem as it is solved, exponents of the size of a^H b, which solutions have, and if it differs.

    The matrix and right-hand sides are cleared of tiny elements, and the last item says if there were any; but where a
    solution is much smaller than b, it may depend on these, and they stay. Where a solution is zero, since b is
    orthogonal to all columns of a, b becomes zero: no correction would come near to that, relative to its size.

    Raises
    ------
    ValueError
        If the smallest elements matter, and are too small.
    """
    (large, cleared_a), (large_b, cleared_b) = without_tiny(a), without_tiny(b)
    of_a, of_b, sizes = adjoint(rounded(large)), rounded(large_b), column_sizes(large_b)
    terms = column_norm(large) * sizes
    products, missed = native_product(of_a, of_b), 2 * native_error(of_a, of_b) + 4 * UNIT
    if not _clear(products, (_LEAST_SHARE + missed) * terms):
        products, missed = matmul(adjoint(large), large_b, accuracy=componentwise(2.0**-60), dtype="mp"), 0.0
    if _clear(products, (_LEAST_SHARE + missed) * terms):
        return large, large_b, tops_or_zero(products, 0), cleared_a or cleared_b
    check_span("a", a)
    check_span("b", b)
    products = matmul(adjoint(a), b, accuracy="exact", dtype="mp")
    kept = np.broadcast_to(column_sizes(products) > 0, b.shape).astype(np.int8)
    return a, masked(b, array_library(b).asarray(kept)), tops_or_zero(products, 0), False


_LEAST_SHARE = 2.0**-50
"""Where a^H b is larger than this share of the sums of its terms, tiny elements do not matter (docs/linalg.md, L6)."""


def _clear(products: Any, limits: Any) -> bool:
    """Whether each column of a^H b has an element above its limit; the limit of a column of zeros is 0."""
    return bool(((column_sizes(products) > limits) | (limits == 0)).all())
