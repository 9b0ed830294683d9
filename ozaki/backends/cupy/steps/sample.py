"""A sample of both operands: measures of the first elements of each row (docs/bounds.md, B9)."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.operands import Described
from ozaki.bounds.description import SAMPLED, Least
from ozaki.caches import cached
from ozaki.schemes import magnitude_bits


def sample(b: Builder, x: Array, y: Array, whole: tuple[Described, Described] | None = None) -> Evidence:
    """Begin to find what the first `SAMPLED` real numbers of float32 rows show; the evidence is (Least, Least).

    Parameters
    ----------
    x, y : the left and the right operand, shapes (batch, rows, k)
    whole : both operands with the largest elements of whole rows, if the two launches directly before found these
        while they cut words; or None
    """
    blocks = min(ceil(max(of.shape[0] * of.shape[1] for of in (x, y)) / _ROWS_AT_ONCE), _MOST_BLOCKS)
    assert whole is None or all(side.only_largest for side in whole)
    kernel, width = _sample_kernel(blocks, x.view, y.view, whole is not None)
    target = b.host("sample", (2, blocks, len(Least._fields)), "d")
    left, right = (x, y) if whole is None else (side.fields for side in whole)
    b.launch(kernel, x, left, y, right, Out(target))
    arrival = b.arrive(target)

    def least(found: npt.NDArray[Any]) -> tuple[Least, Least]:
        of_left, of_right = (
            Least(elements * 4.0**width, sums, int(steps), bool(all_seen))
            for elements, sums, steps, all_seen in found.min(axis=1).tolist()
        )
        return of_left, of_right

    return b.evidence(arrival, least)


_ROWS_AT_ONCE, _MOST_BLOCKS = 32, 128
"""Rows that a block of kernels/proof/sample.cu samples at a time; the most blocks for each operand."""


@cached(1024)
def _sample_kernel(blocks: int, x: View, y: View, whole: bool) -> tuple[Kernel, int]:
    """The kernel, and the bits of the magnitudes that it sums."""
    some = min(x.dtype.parts * x.shape[2], SAMPLED)
    macros: Macros = {
        "INPUT": x.dtype.ctype_of_part,
        "REALS": x.dtype.parts,
        "LEFT_ALONG_K": x.along_k,
        "RIGHT_ALONG_K": y.along_k,
    }
    macros |= {"WHOLE": int(whole), "MOST": SAMPLED}
    sides = ((None, *view.steps_of_parts, *view.shape[:2], None) for view in (x, y))
    more = some, (width := magnitude_bits(some)), 2.0**-width, int(whole)
    return Kernel.of("proof/sample.cu", "sample", macros, (2 * blocks,), (256,), *sides, None, *more), width
