"""A sample of how much the large elements of both operands meet (kernels/proof/overlap.cu)."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Out
from ozaki.bounds.overlap import Indices, sampled_matrices
from ozaki.caches import cached


def overlap(b: Builder, x: Array, y: Array) -> Evidence:
    """Begin to find `planning.facts.Overlap`, a float, for both operands, shapes (batch, rows, k), float32 or float64.

    A few hundred elements of a few rows are read, on the stream "proof", while the main stream goes on.
    """
    count, _ = sampled_matrices(max(x.shape[0], y.shape[0]))
    with b.on("proof", fork=True):
        target = b.host("overlap", (count,), "d")
        b.launch(_overlap_kernel(x.view, y.view), x, y, Out(target))
        return b.evidence(b.arrive(target), _least)


def _least(found: npt.NDArray[Any]) -> float:
    return float(found.min())


@cached(1024)
def _overlap_kernel(x: View, y: View) -> Kernel:
    (count, step), (segments, index_step, indices) = (
        sampled_matrices(max(x.shape[0], y.shape[0])),
        Indices.of(x.shape[2]),
    )
    macros: Macros = {
        "INPUT_A": x.dtype.ctype_of_part,
        "INPUT_B": y.dtype.ctype_of_part,
        "REALS": x.dtype.parts,
        "SEGMENTS": segments,
    }
    sides = ((None, *view.steps_of_parts, *view.shape[:2]) for view in (x, y))
    numbers = step, x.shape[2], index_step, indices
    return Kernel.of("proof/overlap.cu", "overlap", macros, (count,), (_THREADS,), *sides, None, *numbers)


_THREADS = 512
"""Threads of a block of kernels/proof/overlap.cu."""
