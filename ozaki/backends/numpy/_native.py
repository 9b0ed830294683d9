"""The native product on NumPy: `numpy.matmul`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np


def native(a: Any, b: Any, dtype: str, out: Any) -> int:
    """Compute out = a b by NumPy, in `dtype`, for matrices or stacks of matrices, whose batches are broadcast.

    Returns the bytes of copies of operands that have another dtype.
    """
    if a.ndim > 2 and prod(b.shape[:-2]) == 1:  # b has one matrix: multiply the rows of all matrices of a at once
        a, b, out = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:]), out.reshape(-1, b.shape[-1])
    x, y = (of.astype(dtype, copy=False) for of in (a, b))
    np.matmul(x, y, out=out)
    return sum(new.nbytes for new, old in ((x, a), (y, b)) if new is not old)
