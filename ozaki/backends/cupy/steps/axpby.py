"""The last step of `ozaki.gemm`: alpha x + beta y in one pass."""

from __future__ import annotations

from functools import lru_cache

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out

_SPAN = {"d": 2048, "f": 4096}
"""Entries that a block computes, by the result's dtype: SPAN of kernels/conversion/axpby.cu."""


def axpby(b: Builder, alpha: float, x: Array, beta: float, y: Array | None, out: Array) -> None:
    """Add the step out = alpha x + beta y, both products and their sum rounded.

    All have shape (batch, rows, columns). x and out are contiguous and of one dtype; y has that dtype or float32, or is
    None: out = alpha x. out may be x, or y where y is contiguous.
    """
    addend = x if y is None else y  # an address that is not read, without y
    b.launch(_axpby_kernel(alpha, beta, y is not None, x.view, addend.view), x, addend, Out(out.at))


@lru_cache(maxsize=1024)
def _axpby_kernel(alpha: float, beta: float, add: bool, x: View, y: View) -> Kernel:
    batch, rows, cols = x.shape
    macros: Macros = {"OUTPUT": x.ctype, "ADDEND": y.ctype, "ADD": int(add)}
    grid = (batch * rows * -(-cols // _SPAN[x.char]),)
    return Kernel.of(
        "conversion/axpby.cu", "axpby", macros, grid, (256,), alpha, None, beta, None, None, rows, cols, *y.steps
    )
