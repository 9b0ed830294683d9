"""Scaling along k: (A S) (S^-1 B), S a diagonal of powers of two, has the same product (docs/definitions.md, 10)."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

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
    s = np.where(counts, (_means(right) - _means(left)) >> 1, 0)
    fits = in_reach(left, s, reaches[0]) & in_reach(right, -s, reaches[1]) & (np.abs(s) <= min(reaches))
    return s, counts, np.all(fits | ~counts, axis=-1)


def own_exponents(of: Exponents, reach: int) -> tuple[Ints, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The exponents by which an operand that is prepared alone is scaled, the other one by their negatives.

    The mean exponent at each inner index becomes 0. Returns what `inner_exponents` returns.
    """
    counts: npt.NDArray[np.bool_] = of.number > 0
    s = np.where(counts, -_means(of), 0)
    fits = in_reach(of, s, reach) & (np.abs(s) <= reach)
    return s, counts, np.all(fits | ~counts, axis=-1)


def out_of_reach(name: str, form: str) -> NoReturn:
    """Refuse an operand beside a prepared one, whose scaled elements leave their format.

    Raises
    ------
    ValueError
    """
    raise ValueError(
        f"{name}: elements leave the range of {form} once they are scaled as the prepared operand asks; prepare it "
        "with a plan of inner_scaling=False"
    )


def in_reach(of: Exponents, shift: Ints, reach: int) -> npt.NDArray[np.bool_]:
    """Whether the elements at each inner index, times 2**shift, are within the reach of a format."""
    fits: npt.NDArray[np.bool_] = (of.least + shift >= -reach) & (of.largest + shift <= reach)
    return fits


def _means(of: Exponents) -> Ints:
    """The mean exponents at inner indices, rounded down; 0 where there are none."""
    means: Ints = of.total // np.maximum(of.number, 1)
    return means
