"""NumPy's own product."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np


def native(a: Any, b: Any, dtype: str, out: Any) -> int:
    """The native product out = a b, in `dtype`, of matrices or of stacks, whose batches are broadcast.

    Returns the bytes of operands that were converted.
    """
    if a.ndim > 2 and prod(b.shape[:-2]) == 1:  # one product of all rows
        a, b, out = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:]), out.reshape(-1, b.shape[-1])
    x, y = (of.astype(dtype, copy=False) for of in (a, b))
    np.matmul(x, y, out=out)
    return sum(new.nbytes for new, old in ((x, a), (y, b)) if new is not old)
