"""The last step of `gemm` on NumPy: alpha x + beta y."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._tiles import TILE


def axpby(
    alpha: np.floating[Any],
    x: npt.NDArray[Any],
    beta: np.floating[Any],
    y: npt.NDArray[Any] | None,
    out: npt.NDArray[Any],
) -> None:
    """Compute out = alpha x + beta y, or alpha x if y is None; each operation rounds.

    x has the dtype of out, and is overwritten; y has that dtype or float32.
    """
    np.multiply(x, alpha, out=x)
    if y is not None:
        _add_scaled(x, beta, y)
    if out is not x:
        out[...] = x


def _add_scaled(x: npt.NDArray[Any], beta: np.floating[Any], y: npt.NDArray[Any]) -> None:
    """Compute x += beta y, product and sum rounded, in parts of `TILE` elements: no copy as large as x is held."""
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
