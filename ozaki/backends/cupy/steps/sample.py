"""What the first elements of each row show of all rows."""

from __future__ import annotations

from functools import lru_cache
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
from ozaki.schemes import magnitude_bits


def sample(b: Builder, x: Array, y: Array, whole: tuple[Described, Described] | None = None) -> Evidence:
    """Begin to find what the first elements of the rows of both operands, float32, show: (Least, Least).

    `whole`: their largest elements, as they were found while words were cut, right before.
    """
    blocks = min(ceil(max(of.shape[0] * of.shape[1] for of in (x, y)) / _ROWS_AT_ONCE), _BLOCKS)
    assert whole is None or all(side.largest for side in whole)
    kernel, width = _sampling(blocks, x.view, y.view, whole is not None)
    target = b.host("sample", (2, blocks, len(Least._fields)), "d")
    left, right = (x, y) if whole is None else (side.fields for side in whole)
    b.launch(kernel, x, left, y, right, Out(target.at))
    arrival = b.arrive(target)

    def least(found: npt.NDArray[Any]) -> tuple[Least, Least]:
        of_left, of_right = (
            Least(elements * 4.0**width, sums, int(steps), bool(told))
            for elements, sums, steps, told in found.min(axis=1).tolist()
        )
        return of_left, of_right

    return b.evidence(arrival, least)


_ROWS_AT_ONCE, _BLOCKS = 32, 128
"""Rows of a block of kernels/proof/look.cu; blocks for each operand, at most."""


@lru_cache(maxsize=1024)
def _sampling(blocks: int, x: View, y: View, whole: bool) -> tuple[Kernel, int]:
    """The launch, and the bits of the magnitudes in its sums."""
    some = min(x.shape[2], SAMPLED)
    macros: Macros = {"INPUT": x.ctype, "LEFT_ALONG_K": x.along_k, "RIGHT_ALONG_K": y.along_k}
    macros |= {"WHOLE": int(whole), "MOST": SAMPLED}
    sides = ((None, *view.steps, *view.shape[:2], None) for view in (x, y))
    more = some, (width := magnitude_bits(some)), 2.0**-width, int(whole)
    return Kernel.of("proof/look.cu", "look", macros, (2 * blocks,), (256,), *sides, None, *more), width
