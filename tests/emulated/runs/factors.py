"""Factors by blocks of columns, on the device: their bounds hold, and LU exchanges rows as the array library does."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

import ozaki
from ozaki.linalg.factors import lu
from ozaki.linalg.factors.blocked import cholesky_by_blocks, lu_by_blocks
from ozaki.linalg.factors.cholesky import native_factor


def _holds(a: np.ndarray, left: Any, right: Any, error: float) -> None:
    """The row-column error of left right as a matrix is at most `error`."""
    x, y = cp.asnumpy(left), cp.asnumpy(right)
    missed = abs(ozaki.residual(x, y, a))
    sizes = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=0))
    assert (missed <= error * sizes * (1 + 2.0**-40)).all() and error < 1e-14, error


def factors_by_blocks(rng: np.random.Generator) -> None:
    """Of real and complex matrices, whose last block is narrower."""
    for n, width in ((10, 4), (7, 7), (9, 2)):
        for is_complex in (False, True):
            a: Any = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if is_complex else 0)
            order, lower, upper, error = lu_by_blocks(cp.asarray(a), lu._native_factors, width)
            _holds(a[cp.asnumpy(order)], lower, upper, error)
            assert (abs(cp.asnumpy(lower)) <= (2**0.5 if is_complex else 1) + 2.0**-50).all()
            a = a @ a.conj().T / n + np.eye(n)
            a = (a + a.conj().T) / 2
            lower, error = cholesky_by_blocks(cp.asarray(a), native_factor, width)
            _holds(a, lower, lower.conj().T, error)
