"""The last step of `gemm` by a product that is rounded already, on NumPy: alpha x + beta c."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._combination import Combination
from ozaki.backends.numpy._tiles import TILE


def axpby(x: npt.NDArray[Any], combination: Combination) -> None:
    """Compute x = alpha x + beta c in place; each operation rounds, and so do the factors, in the dtype of x."""
    alpha, beta = (x.dtype.type(factor.value) for factor in (combination.alpha, combination.beta))
    np.multiply(x, alpha, out=x)
    if combination.c is not None:
        _add_scaled(x, beta, combination.c)


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
