"""The step by which planning sees how much the large elements of both operands meet (kernels/proof/overlap.cu)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Out
from ozaki.bounds.overlap import Indices, entries


def overlap(b: Builder, x: Array, y: Array) -> Evidence:
    """Begin to sample rows (batch, rows, k) of both operands, of float32 or float64: float (`planning.facts.Overlap`).

    A few hundred elements of a few rows are read, on the stream of proofs, beside whatever the main stream does.
    """
    count, _ = entries(max(x.shape[0], y.shape[0]))
    with b.on("proof", fork=True):
        target = b.host("overlap", (count,), "d")
        b.launch(_overlap(x.view, y.view), x, y, Out(target.at))
        return b.evidence(b.arrive(target), _least)


def _least(found: npt.NDArray[Any]) -> float:
    return float(found.min())


@lru_cache(maxsize=1024)
def _overlap(x: View, y: View) -> Kernel:
    (count, step), (segments, index_step, indices) = entries(max(x.shape[0], y.shape[0])), Indices.of(x.shape[2])
    macros: Macros = {"INPUT_A": x.ctype, "INPUT_B": y.ctype, "SEGMENTS": segments}
    sides = ((None, *view.steps, *view.shape[:2]) for view in (x, y))
    numbers = step, x.shape[2], index_step, indices
    return Kernel.of("proof/overlap.cu", "overlap", macros, (count,), (_THREADS,), *sides, None, *numbers)


_THREADS = 512
"""Of a block of kernels/proof/overlap.cu."""
