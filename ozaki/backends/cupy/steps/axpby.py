"""How gemm ends: alpha x + beta y in one pass."""

from __future__ import annotations

from functools import lru_cache

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out

_SPAN = {"d": 2048, "f": 4096}
"""Elements of a block, as in kernels/conversion/axpby.cu."""


def axpby(b: Builder, alpha: float, x: Array, beta: float, y: Array | None, out: Array) -> None:
    """out = alpha x + beta y, both products and the sum rounded; y, if not None, float32 or as x.

    All of shape (batch, rows, columns), x and out contiguous; out may be x or y.
    """
    addend = x if y is None else y  # what is not read has to lie somewhere
    b.launch(_adding(alpha, beta, y is not None, x.view, addend.view), x, addend, Out(out.at))


@lru_cache(maxsize=1024)
def _adding(alpha: float, beta: float, add: bool, x: View, y: View) -> Kernel:
    batch, rows, cols = x.shape
    macros: Macros = {"OUTPUT": x.ctype, "ADDEND": y.ctype, "ADD": int(add)}
    grid = (batch * rows * -(-cols // _SPAN[x.char]),)
    return Kernel.of(
        "conversion/axpby.cu", "axpby", macros, grid, (256,), alpha, None, beta, None, None, rows, cols, *y.steps
    )
