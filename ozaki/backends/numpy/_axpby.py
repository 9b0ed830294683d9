"""How gemm ends on NumPy: alpha x + beta y."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import TILE


def axpby(
    alpha: np.floating[Any],
    x: npt.NDArray[Any],
    beta: np.floating[Any],
    y: npt.NDArray[Any] | None,
    out: npt.NDArray[Any],
) -> None:
    """out = alpha x + beta y, both products and the sum rounded; y (None: not read) float32 or as x. Overwrites x."""
    np.multiply(x, alpha, out=x)
    if y is not None:
        _add_scaled(x, beta, y)
    if out is not x:
        out[...] = x


def _add_scaled(x: npt.NDArray[Any], beta: np.floating[Any], y: npt.NDArray[Any]) -> None:
    """x += beta y, product and sum rounded, in parts: no array as large as x is held beside it."""
    if x.size <= TILE:
        x += y.astype(x.dtype, copy=False) * beta
        return
    step = len(x) * TILE // x.size
    if step == 0:
        for part, added in zip(x, y, strict=True):
            _add_scaled(part, beta, added)
    else:
        for first in range(0, len(x), step):
            x[first : first + step] += y[first : first + step].astype(x.dtype, copy=False) * beta
