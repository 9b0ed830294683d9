"""Facts that NumPy finds, from copies of the operands of a device in host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.cupy.inputs import planes_of
from ozaki.backends.cupy.prepared import PreparedSlices
from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._execute import Slices
from ozaki.backends.numpy.work import Work
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import Need
from ozaki.records.memory import Memory
from ozaki.records.shapes import SIDES, Side


def fact_on_host(need: Need, operands: tuple[Any, Any], rows_of: Callable[[Side], Any], dtype: str) -> Any:
    """A fact that NumPy finds, where cuBLAS may not multiply float64 exactly: it is the same on every backend.

    Parameters
    ----------
    operands, rows_of, dtype : as of `ProgramRuns`
    """
    rows = {side: _rows_on_host(x, side, rows_of) for side, x in zip(SIDES, operands, strict=True)}
    return Work(rows["left"], rows["right"], rows.__getitem__, dtype, Memory(None)).measure(need)


def _rows_on_host(x: Any, side: Side, rows_of: Callable[[Side], Any]) -> Any:
    """The rows of an operand in host memory; of a prepared one, described as it was when it was prepared."""
    if isinstance(x, PreparedSlices):
        tops = None if x.tops is None else cp.asnumpy(x.tops)
        described = Described(cp.asnumpy(x.x), cp.asnumpy(x.fields), tops=tops)
        return Slices(described, None, None, np.empty(0, np.int64))
    rows = rows_of(side)
    if isinstance(rows, Numbers):
        signs, exponents, limbs = map(cp.asnumpy, planes_of(rows))
        return Numbers(signs, exponents, limbs, rows.bits)
    return cp.asnumpy(rows)
