"""How exact the entries of a product are, relative to themselves (docs/bounds.md, B10)."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Out, Upload
from ozaki.backends.cupy.steps.numbers import NumbersArray, NumbersView
from ozaki.bounds.description import Description
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.relative import FARTHEST, MANTISSA_BITS, NONE, UNBOUNDED, Quotient
from ozaki.caches import cached


def worst_quotient(
    b: Builder, terms: ErrorTerms, exponent: int, left: Description, right: Description, c: Array | NumbersArray
) -> Evidence:
    """Begin to find the largest quotient of the image error of an entry and the entry; the evidence is a `Quotient`.

    Parameters
    ----------
    terms : of the image error, in units of 2**exponent
    left, right : the descriptions of both operands
    c : the product, shape (batch, m, n); the parts of a complex entry count one by one
    """
    places: list[Place] = []
    for description, of in ((left, terms.left), (right, terms.right)):
        units = np.broadcast_to(description.top + description.scale, of.shape[1:]).astype(np.int64)
        for name, data in (("error terms", of), ("units", units)):
            place = b.buffer(name, data.nbytes, counted=False)
            b.add(Upload(b.stream, np.ascontiguousarray(data).tobytes(), place))
            places.append(place)
    worst = b.zeroed("worst quotient", 8)
    for part in (c,) if isinstance(c, NumbersArray) else c.real_parts:
        entries = (part.exponents.at, part.limbs.at) if isinstance(part, NumbersArray) else (part.at,)
        kernel = _kernel(part.view, exponent, terms.left.shape[1:], terms.right.shape[1:])
        b.launch(kernel, *places, *entries, Out(worst))
    arrival = b.to_host("worst quotient", worst, (1,), "q")
    b.release(*places, worst)

    def quotient(found: npt.NDArray[np.int64]) -> Quotient:
        key = int(found[0]) % 2**64
        if key in (0, 2**64 - 1):
            return NONE if key == 0 else UNBOUNDED
        return Quotient((key >> (MANTISSA_BITS + 2)) - FARTHEST - 1, key % 2 ** (MANTISSA_BITS + 2))

    return b.evidence(arrival, quotient)


@cached(1024)
def _kernel(c: View | NumbersView, exponent: int, left: tuple[int, int], right: tuple[int, int]) -> Kernel:
    macros: Macros = {"MULTIPRECISION": int(isinstance(c, NumbersView))}
    entries: tuple[Any, ...]
    if isinstance(c, NumbersView):
        entries = (None, None, *c.steps)
    else:
        macros["OUTPUT"] = c.dtype.ctype
        entries = (None, *c.steps)
    sides = ((None, None, prod(of), of[1] if of[0] > 1 else 0) for of in (left, right))
    _, m, n = c.shape
    grid = (ceil(prod(c.shape) / 2048),)
    return Kernel.of(
        "proof/relative.cu",
        "worst_quotient",
        macros,
        grid,
        (256,),
        *sides,
        entries,
        m,
        n,
        prod(c.shape),
        exponent,
        None,
    )
