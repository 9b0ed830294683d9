"""Error bounds of results that are rounded to nearest: from these alone, by their largest elements."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ozaki.linalg.common.arrays import on_host
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.upper import UP
from ozaki.records.formats import part_of

_UNITS = {"float64": (2.0**-53, -1075), "float32": (2.0**-24, -150)}
"""Half a unit in the last place, relative, and the exponent of half the smallest number."""


def vector_errors(x: Any, axis: int) -> Bounds:
    """Upper bounds of the error of each row (axis 1) or column (axis 0), over its norm: Euclidean, or largest abs.

    A nearest float x is off by no more than 2^-53 abs(x), or, where it is subnormal, by half the smallest number; of
    complex numbers each part is. Inf of zeros.
    """
    unit, least = _UNITS[part_of(x.dtype.name)]
    parts = on_host(x)
    sizes = np.maximum(abs(parts.real), abs(parts.imag)).astype(np.float64).max(axis=axis, initial=0.0)
    count = 2 * parts.shape[axis]
    with np.errstate(all="ignore"):
        # In two steps: half the smallest float64 is none.
        found: Bounds = np.where(
            sizes > 0, unit + sqrt(count) * 2.0 ** (least // 2) / sizes * 2.0 ** (least - least // 2), np.inf
        )
    return found * UP


def product_errors(rows: Bounds, columns: Bounds) -> Bounds:
    """Upper bounds of the error of each column of a product of rows and columns that are off by these, over norms."""
    left = float(rows.max(initial=0.0))
    return (left + columns + left * columns) * UP
