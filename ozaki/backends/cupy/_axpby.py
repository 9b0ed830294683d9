"""How gemm ends on the device: alpha x + beta y in one pass."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy as cp

from ozaki.backends.cupy.launching._launch import Launch, Macros, View

_SPAN = {"d": 2048, "f": 4096}
"""Elements of a block, as in kernels/conversion/axpby.cu."""


def axpby(alpha: float, x: Any, beta: float, y: Any | None, out: Any) -> None:
    """out = alpha x + beta y, both products and the sum rounded; y, if not None, float32 or as x. Overwrites x, too.

    x is all neighbours in memory.
    """
    direct = out.flags.c_contiguous and (y is None or not cp.may_share_memory(out, y) or _same(out, y))
    into = out if direct else x
    if x.size == 0:
        return
    neighbours = y is None or y.flags.c_contiguous
    shape = (1, 1, x.size) if neighbours else (-1, *(1, *x.shape)[-2:])
    operands = (x, x, into) if y is None else (x, y, into)  # what is not read has to lie somewhere
    views = [each.reshape(shape) for each in operands]
    launch = _adding(cp.cuda.runtime.getDevice(), float(alpha), float(beta), y is not None, *map(View.of, views[:2]))
    launch(*(each.data for each in views))
    if not direct:
        out[...] = x


def _same(x: Any, y: Any) -> bool:
    """Whether both are the same elements."""
    return bool(x.data.ptr == y.data.ptr and x.shape == y.shape and x.strides == y.strides and x.dtype == y.dtype)


@lru_cache(maxsize=1024)
def _adding(device: int, alpha: float, beta: float, add: bool, x: View, y: View) -> Launch:
    batch, rows, cols = x.shape
    macros: Macros = {"OUTPUT": x.ctype, "ADDEND": y.ctype, "ADD": int(add)}
    grid = (batch * rows * -(-cols // _SPAN[x.char]),)
    return Launch(
        "conversion/axpby.cu", "axpby", macros, grid, (256,), alpha, None, beta, None, None, rows, cols, *y.steps
    )
