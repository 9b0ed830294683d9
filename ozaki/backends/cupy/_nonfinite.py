"""What IEEE arithmetic gives on the device where NaN or Inf is touched (docs/design.md, section 8)."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from math import ceil
from typing import Any

import cupy as cp

from ozaki._description import Described
from ozaki.backends.cupy._split import Slices
from ozaki.backends.cupy.launching._launch import Launch, Macros, View

_PATCH = (128, 2048)
"""Rows and columns that a block looks after, as in kernels/conversion/nonfinite.cu."""


def patch(left: Described | Slices, right: Described | Slices, out: Any) -> None:
    """What IEEE arithmetic gives in rows and columns with NaN or Inf."""
    a, b = (x.described if isinstance(x, Slices) else x for x in (left, right))
    views = View.of(a.x), View.of(b.x), View.of(out)
    arrays = (a.x, b.x, a.fields, b.fields, out)
    _patching(cp.cuda.runtime.getDevice(), *views)(*(x.data for x in arrays))


@lru_cache(maxsize=1024)
def _patching(device: int, a: View, b: View, out: View) -> Launch:
    batch, m, n = out.shape
    macros: Macros = {"INPUT_A": a.ctype, "INPUT_B": b.ctype, "OUTPUT": out.ctype}
    grid = (batch * ceil(m / _PATCH[0]) * ceil(n / _PATCH[1]),)
    steps = ((0 if view.shape[0] == 1 else view.steps[0], *view.steps[1:]) for view in (a, b, out))
    sizes = a.shape[0], b.shape[0], m, n, a.shape[2]
    return Launch("conversion/nonfinite.cu", "patch", macros, grid, (256,), *[None] * 5, *chain(*steps), *sizes)
