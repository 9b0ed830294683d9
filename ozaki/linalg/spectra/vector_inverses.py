"""Inverses of matrices of eigenvectors, which may be ill-conditioned, with bounds of their residuals row by row."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np

from ozaki.call.operands import holds_complex
from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import Floats, array_library, exactly, on_host, rounded
from ozaki.linalg.common.products import UNIT, componentwise, native_error, native_product
from ozaki.linalg.common.upper import magnitudes, row_norm
from ozaki.linalg.systems.inverses import left_inverse
from ozaki.multiprecision.numbers import Numbers

_GOOD = 2.0**-20
"""The largest norm of I - Y X with which the inverse Y of X that float64 finds is good enough. A correction gains as
many bits as that norm has, and so many has a native product with Y, since its error has the same bound."""

_BETTER = 2.0**-40
"""As `_GOOD`, of an inverse in more bits."""

FINEST = 2.0**-940
"""The smallest tolerance of a residual: bounds are float64 numbers."""


def row_sums(x: Any) -> Floats:
    """Upper bounds of the sums of abs of rows, in NumPy."""
    return np.asarray(on_host(magnitudes(x).sum(axis=1)) * (1 + (x.shape[1] + 64) * 2.0**-53))


def inverse_of(x: Any, guess: Any) -> tuple[Any, Floats, float] | None:
    """A matrix Y near the inverse of X, upper bounds of the row sums of abs(I - Y X), and of the largest, below 1.

    The array library's inverse, or, of an ill-conditioned X, a guess or `left_inverse` with Newton-Schulz steps. None
    if X is singular, or nearly.
    """
    xp, n = array_library(x), x.shape[0]
    near = rounded(x)
    try:
        y = xp.linalg.inv(near)
        of_rows = row_sums(y)
        missing = on_host(abs(xp.eye(n) - native_product(y, near)).sum(axis=1))
        missing = missing + (native_error(y, near) + 2 * UNIT) * of_rows * row_norm(x)
        missing *= 1 + (n + 64) * 2.0**-50
        if float(missing.max()) <= _GOOD:
            return y, missing, float(missing.max())
    except np.linalg.LinAlgError:
        pass
    if isinstance(guess, Numbers) and (found := _newton(x, guess)) is not None:
        return found
    try:
        return _newton(x, exactly(left_inverse(x).r))
    except np.linalg.LinAlgError:
        return None


def _newton(x: Any, y: Any) -> tuple[Any, Floats, float] | None:
    """The inverse near y as `inverse_of` returns it, by Newton-Schulz steps; None if these do not converge."""
    xp, n, norm_x = array_library(x), x.shape[0], row_norm(x)
    dtype, before = "complex128" if holds_complex(x) else "float64", 1.0
    while True:
        of_rows = row_sums(y)
        condition = float(of_rows.max()) * norm_x
        if not condition < 1 / FINEST:
            return None
        fine = min(2.0**-50 / condition, 2.0**-8)
        rest = gemm(-1, y, x, 1, xp.eye(n), accuracy=componentwise(fine), dtype=dtype)
        missing = on_host(abs(rest).sum(axis=1)) * (1 + (n + 64) * 2.0**-50) + fine * (of_rows * norm_x + 1)
        contraction = float(missing.max())
        if contraction <= _BETTER:
            return y, missing, contraction
        if not contraction < before / 1.5:
            return None
        before, bits = contraction, ceil(log2(condition)) + 60
        y = (y + matmul(rest, y, accuracy=componentwise(2.0**-bits), dtype="mp")).round_to(bits)


def native_inverse(x: Any) -> Any:
    """NumPy's own inverse; Inf in place of one that there is not."""
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        return np.full(x.shape, np.inf)
