"""Some entries of a product, roughly, by which undecided ones are foretold (kernels/proof/crossings.cu)."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.operands import Described
from ozaki.bounds.description import FIELDS, Description, Ints
from ozaki.bounds.sampled_products import exponents_of, looked_at, part_bits
from ozaki.caches import cached

SampledProducts = tuple[Ints, Description, Description]
"""Exponents of entries (`bounds.sampled_products.exponents_of`), and the descriptions of their rows and columns."""


def sampled_products(b: Builder, left: Described, right: Described) -> Evidence:
    """Begin to find roughly the products of some rows, both described whole, real floats; evidence: `SampledProducts`.

    Not on another stream, on which it would wait until a product leaves room for it.
    """
    sides = left, right
    counts = [looked_at(of.x.shape) for of in sides]
    (x, m), (y, n) = counts
    sizes = [len(FIELDS) * x * m, len(FIELDS) * y * n, *[max(x, y) * m * n] * 2]
    target = b.host("sampled products", (sum(sizes),), "q")
    places = [target.part(0, sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(4)]
    arguments: list[Any] = []
    for of, place in zip(sides, places, strict=False):
        arguments += [of.x, of.fields, *([] if of.inner is None else [of.inner]), Out(place)]
    b.launch(_kernel(left.x.view, right.x.view, left.inner is not None), *arguments, *map(Out, places[2:]))
    arrival = b.arrive(target)
    k = left.k

    def found(words: npt.NDArray[np.int64]) -> SampledProducts:
        of_left, of_right, entries, largest = np.split(words.copy(), np.cumsum(sizes)[:3])
        rows, columns = (
            Description(k, *fields.reshape(len(FIELDS), *count))
            for fields, count in zip((of_left, of_right), counts, strict=True)
        )
        exponents = exponents_of(entries.view(np.float64), largest, k)
        return exponents.reshape(max(x, y), m, n), rows, columns

    return b.evidence(arrival, found)


@cached(1024)
def _kernel(x: View, y: View, scaled: bool) -> Kernel:
    macros: Macros = {"INPUT_A": x.dtype.ctype, "INPUT_B": y.dtype.ctype, "INNER": int(scaled)}
    (batch_a, m), (batch_b, n) = looked_at(x.shape), looked_at(y.shape)
    sides = [(None, *of.steps, *of.shape[:2], None, None if scaled else 0, *looked_at(of.shape), None) for of in (x, y)]
    k = x.shape[2]
    grid = (ceil(n / _SIDE), ceil(m / _SIDE), max(batch_a, batch_b))
    return Kernel.of("proof/crossings.cu", "crossings", macros, grid, (256,), *sides, None, None, k, part_bits(k))


_SIDE = 4
"""Rows and columns of a block: SIDE of kernels/proof/crossings.cu."""
