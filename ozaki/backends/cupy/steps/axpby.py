"""The last step of `ozaki.gemm` by a product that is rounded already: alpha x + beta y in one pass."""

from __future__ import annotations

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.caches import cached

_SPAN = {"d": 2048, "f": 4096}
"""Entries that a block computes, by the result's dtype: SPAN of kernels/conversion/axpby.cu."""


def axpby(b: Builder, alpha: float, x: Array, beta: float, y: Array | None) -> None:
    """Add the step x = alpha x + beta y, in place, both products and their sum rounded.

    Both have shape (batch, rows, columns), x is contiguous; y is in other memory, or None: x = alpha x.
    """
    addend = x if y is None else y  # an address that is not read, without y
    b.launch(_axpby_kernel(alpha, beta, int(y is not None), x.view, addend.view), x, addend, Out(x))


def multiple(b: Builder, beta: float, y: Array, out: Array) -> None:
    """Add the step out = beta y, rounded once, shapes as of `axpby`: what is left of alpha A B + beta C without A B."""
    b.launch(_axpby_kernel(0.0, beta, _ALONE, out.view, y.view), out, y, Out(out))


_ALONE = 2
"""The value of the macro ADD for an addend alone."""


@cached(1024)
def _axpby_kernel(alpha: float, beta: float, add: int, x: View, y: View) -> Kernel:
    batch, rows, cols = x.shape
    macros: Macros = {"OUTPUT": x.dtype.ctype, "ADDEND": y.dtype.ctype, "ADD": add}
    grid = (batch * rows * -(-cols // _SPAN[x.dtype.char]),)
    return Kernel.of(
        "conversion/axpby.cu", "axpby", macros, grid, (256,), alpha, None, beta, None, None, rows, cols, *y.steps
    )
