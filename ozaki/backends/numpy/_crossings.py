"""How many entries of a product will be undecided when they are rounded, foretold on NumPy (docs/bounds.md, B14)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._scaled import ScaledRows, plain
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.bounds.description import Description
from ozaki.bounds.undecided import Crossings, Floats, crossings
from ozaki.schemes import Scheme

_SAMPLED = 48, 4
"""Rows of A and columns of B of a matrix, and matrices, whose products are looked at to foretell undecided entries."""


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
    k, c, slab = x.shape[2], np.zeros(()), max(TILE // max(x.shape[0] * x.shape[1], y.shape[0] * y.shape[1]), 1)
    for h in range(0, k, slab):
        hs = slice(h, h + slab)
        c = c + np.matmul(_reduced(x[:, :, hs], of_left), _reduced(y[:, :, hs], of_right).swapaxes(1, 2))
    return crossings(c, of_left, of_right, scheme, dtype)


def foretelling_bytes(left: Described, right: Described) -> int:
    """Bytes that `foretell` holds: a few copies of a tile of rows, and arrays of all entries that are looked at."""
    rows, matrices = _SAMPLED
    (x, m, k), (y, n, _) = left.x.shape, right.x.shape
    m, n, matrices = min(m, rows), min(n, rows), min(max(x, y), matrices)
    return 8 * (5 * min(TILE, matrices * (m + n) * k) + 12 * matrices * m * n) + OBJECTS


def _reduced(x: npt.NDArray[Any] | ScaledRows, description: Description) -> Floats:
    """Some rows times 2**-top, NaN and Inf as zero."""
    found = plain(x).astype(np.float64)
    found[~np.isfinite(found)] = 0
    return np.ldexp(found, -description.top.astype(np.int32)[..., None])
