"""The largest elements of the rows of an operand: where no proof asks for more, faster than a whole description."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki._description import FIELDS, Described
from ozaki.backends.cupy.launching._launch import Launch, Macros, View
from ozaki.backends.cupy.launching._tape import Clear


class Tops(Described):
    """What max scaling and words need: of the fields, the first, as bits of the largest element, and the last."""


def tops(x: Any) -> Tops:
    """The largest elements of the rows of x, shape (batch, rows, k)."""
    fields = cp.empty((len(FIELDS), *x.shape[:2]), np.int64)
    clear, launch = _finding(cp.cuda.runtime.getDevice(), View.of(x))
    clear(fields.data)
    launch(x.data, fields.data)
    return Tops(x, fields)


@lru_cache(maxsize=1024)
def _finding(device: int, view: View) -> tuple[Clear, Launch]:
    batch, rows, k = view.shape
    pack = 16 // view.itemsize
    block = (8, 32 * pack * _LOADS) if view.along_k else (32 * pack, 8 * _LOADS)
    grid = (batch * ceil(rows / block[0]) * ceil(k / block[1]),)
    macros: Macros = {"INPUT": view.ctype, "ALONG_K": view.along_k}
    launch = Launch("conversion/tops.cu", "tops", macros, grid, (256,), None, *view.steps, *view.shape, None)
    return Clear(8 * len(FIELDS) * batch * rows), launch


_LOADS = 8
"""Of a thread, as in kernels/conversion/tops.cu."""
