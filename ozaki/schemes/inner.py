"""Scaling along k: (A S) (S^-1 B), S a diagonal of powers of two, has the same product (docs/definitions.md, 10)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

REACH = {"float32": 120, "float64": 1000}
"""Largest magnitude of the exponents of S, and of scaled elements, by their format: all are normal numbers then."""


class Exponents(NamedTuple):
    """The exponents of the finite nonzero elements at each inner index of a matrix, as frexp counts them.

    Each field is an array of integers, shape (batch, k); those of all parts of complex elements count.

    Attributes
    ----------
    number : of these elements
    total : sum of their exponents
    least, largest : the extreme ones; of no meaning where there are none
    """

    number: Ints
    total: Ints
    least: Ints
    largest: Ints


def inner_exponents(
    left: Exponents, right: Exponents, reaches: tuple[int, int]
) -> tuple[Ints, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The exponents s of S, and which inner indices count, both of shape (batch, k), of some of all inner indices.

    s_t is the floor of half the difference of the mean exponents of row t of B and of column t of A, each rounded down.
    An index at which either has no nonzero element contributes nothing, and does not count.

    Parameters
    ----------
    left, right : of the columns of A and of the rows of B
    reaches : `REACH` of the formats of both

    Returns
    -------
    s, counts
    in_reach : shape (batch,), whether the formats hold all scaled elements; where they do not, at any index, s is 0
    """
    counts: npt.NDArray[np.bool_] = (left.number > 0) & (right.number > 0)
    means = (of.total // np.maximum(of.number, 1) for of in (left, right))
    of_left, of_right = means
    s = np.where(counts, (of_right - of_left) >> 1, 0)
    fits = np.abs(s) <= min(reaches)
    for of, shift, reach in zip((left, right), (s, -s), reaches, strict=True):
        fits &= (of.least + shift >= -reach) & (of.largest + shift <= reach)
    in_reach: npt.NDArray[np.bool_] = np.all(fits | ~counts, axis=-1)
    return s, counts, in_reach
