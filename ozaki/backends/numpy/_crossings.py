"""How many entries of a product will be undecided when they are rounded, foretold on NumPy (docs/bounds.md, B14)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._scaled import ScaledRows, plain
from ozaki.bounds.description import Description
from ozaki.bounds.undecided import Crossings, Floats, crossings
from ozaki.schemes import Scheme

_SAMPLED = 48, 4
"""Rows of A and columns of B of a matrix, and matrices, whose products are looked at to foretell undecided entries."""


_SLAB = 2**13
"""Inner indices that are multiplied at a time for that."""


def foretell(left: Described, right: Described, scheme: Scheme, dtype: str) -> Crossings:
    """The fact `Undecided`, from some rows of A and columns of B of some matrices."""
    rows, matrices = _SAMPLED
    batch = max(left.x.shape[0], right.x.shape[0])
    b = slice(0, None, -(-batch // matrices))
    parts = []
    for side in (left, right):
        some = slice(0, None, max(side.x.shape[1] // rows, 1)), slice(0, rows)
        x = side.x[b if side.x.shape[0] > 1 else slice(None), some[0]][:, some[1]]
        description = side.on_host.part(b if side.x.shape[0] > 1 else slice(None), some[0])
        parts.append((x, description.part(slice(None), some[1])))
    (x, of_left), (y, of_right) = parts
    k, c = x.shape[2], np.zeros(())
    for h in range(0, k, _SLAB):
        hs = slice(h, h + _SLAB)
        c = c + np.matmul(_reduced(x[:, :, hs], of_left), _reduced(y[:, :, hs], of_right).swapaxes(1, 2))
    return crossings(c, of_left, of_right, scheme, dtype)


def foretelling_bytes(k: int) -> int:
    """Bytes that `foretell` holds for rows of k elements."""
    rows, matrices = _SAMPLED
    return 8 * matrices * rows * (6 * min(k, _SLAB) + 12 * rows)


def _reduced(x: npt.NDArray[Any] | ScaledRows, description: Description) -> Floats:
    """Some rows times 2**-top, NaN and Inf as zero."""
    found = plain(x).astype(np.float64)
    found[~np.isfinite(found)] = 0
    return np.ldexp(found, -description.top.astype(np.int32)[..., None])
