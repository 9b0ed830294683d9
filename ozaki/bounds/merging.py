"""How what is found in parts of rows merges into the description of the whole rows: by maximum, then by addition.

A part is some of the inner indices of some rows. Both rounds are associative, so any parts, merged in any order, give
the fields that one pass over the whole rows gives (docs/definitions.md, 1). The second round needs the result of the
first, since magnitudes are in units of the whole row's largest element.

| round | array | merged by |
|---|---|---|
| extremes | float64, (2, rows): the largest magnitude, minus the smallest nonzero one | maximum |
| sums | int64, (4, rows): magnitudes, squares, elements that are no multiples of the unit, NaN and Inf | addition |
"""

from __future__ import annotations

from math import inf

import numpy as np
import numpy.typing as npt

from ozaki.bounds.description import FIELDS, Description, Ints
from ozaki.records.formats import precision_of
from ozaki.schemes import magnitude_bits
from ozaki.schemes.image import EMPTY_TOP

Floats = npt.NDArray[np.float64]

SUMS = ("magnitudes", "squares", "unaligned", "nonfinite")
"""What the second round adds."""


def no_extremes(rows: int) -> Floats:
    """The extremes of rows of which no element was seen."""
    found = np.zeros((2, rows))
    found[1] = -inf
    return found


def tops(extremes: Floats) -> npt.NDArray[np.int32]:
    """The frexp exponents of the largest elements; 0 of rows of zeros."""
    found: npt.NDArray[np.int32] = np.frexp(extremes[0])[1]
    return found


def described(extremes: Floats, sums: Ints, k: int, dtype: str) -> Description:
    """The description of rows, each field of shape (1, rows), from the merged results of both rounds.

    Parameters
    ----------
    extremes, sums : merged over all parts
    k : real numbers of a whole row
    dtype : the format of the elements
    """
    width, top = magnitude_bits(k), tops(extremes).astype(np.int64)
    magnitudes, squares, unaligned, nonfinite = sums
    empty = extremes[0] == 0
    smallest = np.where(empty, 1.0, -extremes[1])
    lowest = np.frexp(smallest)[1].astype(np.int64) - precision_of(dtype)
    bottom = np.where(unaligned == 0, top - width, lowest)
    peak = np.ceil(np.ldexp(extremes[0], (width - top).astype(np.int32))).astype(np.int64)
    top[empty] = bottom[empty] = EMPTY_TOP
    fields = dict(zip(FIELDS, (top, peak, magnitudes, squares, bottom, nonfinite), strict=True))
    return Description(k, **{name: field[None] for name, field in fields.items()})
