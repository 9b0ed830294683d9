"""NumPy: what IEEE arithmetic gives where NaN or Inf is touched (docs/definitions.md, section 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats

_PATCH = 256
"""Rows, columns and inner indices that are looked at together: a few hundred KiB."""


def patch(
    left: npt.NDArray[Any], right: npt.NDArray[Any], flags: list[npt.NDArray[np.int64]], out: npt.NDArray[Any]
) -> None:
    """What IEEE arithmetic gives in rows and columns with NaN or Inf."""
    for b in range(out.shape[0]):
        i, j = (min(b, len(x) - 1) for x in (left, right))
        rows, cols = (np.flatnonzero(flag[at]) for flag, at in zip(flags, (i, j), strict=True))
        for some, others in ((rows, np.arange(out.shape[2])), (np.arange(out.shape[1]), cols)):
            for r in range(0, len(some), _PATCH):
                for c in range(0, len(others), _PATCH):
                    at = np.ix_(some[r : r + _PATCH], others[c : c + _PATCH])
                    out[b][at] = _sign_product(left[i], right[j], *at)


def _sign_product(
    a: npt.NDArray[Any], b: npt.NDArray[Any], rows: npt.NDArray[np.intp], cols: npt.NDArray[np.intp]
) -> Floats:
    """Entries of a b^T, of which only NaN and Inf matter: finite elements count as their signs."""
    total = np.zeros((rows.size, cols.size))
    for h in range(0, a.shape[1], _PATCH):
        x, y = (of[at.ravel(), h : h + _PATCH] for of, at in ((a, rows), (b, cols)))
        total += np.matmul(_signs(x), _signs(y).T)
    total[np.isnan(total)] = np.nan  # one NaN, whatever the processor made
    return total


def _signs(x: npt.NDArray[Any]) -> Floats:
    """The sign of finite elements; NaN and Inf as they are."""
    return np.where(np.isfinite(x), np.sign(x), x).astype(np.float64)
