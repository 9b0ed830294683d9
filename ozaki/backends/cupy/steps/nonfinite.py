"""Entries of the result that NaN and Inf in the operands determine (docs/definitions.md, section 6)."""

from __future__ import annotations

from itertools import chain
from math import ceil

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.epilogue import (
    Combine,
    Expression,
    Round,
    arguments_of,
    expression_of,
    macros_of,
    places_of,
)
from ozaki.backends.cupy.steps.operands import Described
from ozaki.caches import cached

_BLOCK = (128, 2048)
"""Rows and columns of C that belong to a block of kernels/conversion/nonfinite.cu."""


def patch(b: Builder, left: Described, right: Described, epilogue: Round | Combine) -> None:
    """Replace the entries of the result in rows of A and columns of B that have NaN or Inf."""
    out = epilogue.out
    assert isinstance(out, Array)
    kernel = _patch_kernel(left.x.view, right.x.view, out.view, expression_of(epilogue))
    b.launch(kernel, left.x, right.x, left.fields, right.fields, Out(out), *places_of(epilogue))


@cached(1024)
def _patch_kernel(a: View, b: View, out: View, expression: Expression | None) -> Kernel:
    batch, m, n = out.shape
    macros: Macros = {
        "INPUT_A": a.dtype.ctype_of_part,
        "INPUT_B": b.dtype.ctype_of_part,
        "OUTPUT": out.dtype.ctype_of_part,
    }
    macros["REALS"] = out.dtype.parts
    macros |= macros_of(expression)
    grid = (batch * ceil(m / _BLOCK[0]) * ceil(n / _BLOCK[1]),)
    steps = ((0 if view.shape[0] == 1 else view.steps_of_parts[0], *view.steps_of_parts[1:]) for view in (a, b, out))
    sizes = a.shape[0], b.shape[0], m, n, a.shape[2]
    more = arguments_of(expression)
    return Kernel.of(
        "conversion/nonfinite.cu", "patch", macros, grid, (256,), *[None] * 5, *chain(*steps), *sizes, *more
    )
