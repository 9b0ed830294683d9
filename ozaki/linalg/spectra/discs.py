"""Gershgorin's discs of a matrix that is nearly diagonal, and what they prove of its eigenvalues and eigenvectors.

All arrays lie in NumPy: there are n x n of them at most, and products of none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import Floats
from ozaki.linalg.common.upper import LEAST, UP


class Discs(NamedTuple):
    """What is proven of the eigenvalues of D + E, D diagonal.

    Attributes
    ----------
    radii : an eigenvalue that belongs to d_i is no farther from it than this; of each group of discs that touch as many
        eigenvalues belong to the group as it has members, in any order
    alone : whether no other disc touches that of d_i
    rows : the plain radii, sums of the rows of E
    labels : numbers of the groups
    """

    radii: Floats
    alone: npt.NDArray[np.bool_]
    rows: Floats
    labels: npt.NDArray[np.intp]


def discs(gaps: Floats, sizes: Floats) -> Discs:
    """The discs of D + E, and smaller ones, where these are disjoint from others.

    Parameters
    ----------
    gaps : lower bounds of abs(d_i - d_j), infinite for i = j; symmetric
    sizes : upper bounds of abs(E)

    Notes
    -----
    For a group K of discs that touch no others, rows of K of E are multiplied by some s <= 1, and columns by 1 / s: a
    similarity. s is the least for which the discs of others, which grow, still do not touch those of K.
    """
    n = len(gaps)
    scale = _up(n)
    rows = sizes.sum(axis=1) * scale + LEAST
    labels = groups(gaps <= (rows[:, None] + rows) * scale)
    counts = np.bincount(labels, minlength=n)[labels]
    alone = counts == 1
    # All groups of one disc at once: column i of `room` is of K = {i}.
    room = gaps - (rows[:, None] + rows) * scale
    with np.errstate(all="ignore"):
        shares = np.where(sizes > 0, sizes / np.where(room > 0, room, 0.0), 0.0)
    np.fill_diagonal(shares, 0.0)
    shrunk = np.minimum(shares.max(axis=0, initial=0.0) * scale + LEAST, 1.0)
    diagonal = np.diagonal(sizes)
    others = sizes.copy()
    np.fill_diagonal(others, 0.0)
    radii = (diagonal + shrunk * others.sum(axis=1)) * scale + LEAST
    radii = np.where(alone, np.minimum(radii, rows), rows)
    for label in np.unique(labels[~alone]):
        members = labels == label
        if not members.all():
            radii[members] = _of_group(gaps, sizes, rows, members)
    return Discs(radii, alone, rows, labels)


def _of_group(gaps: Floats, sizes: Floats, rows: Floats, members: npt.NDArray[np.bool_]) -> Floats:
    """The radii of a group of discs as `discs` makes them smaller."""
    others, scale = ~members, _up(len(gaps))
    inside = sizes[np.ix_(members, members)].sum(axis=1)
    outside = sizes[np.ix_(members, others)].sum(axis=1)
    columns = sizes[np.ix_(others, members)].sum(axis=1) * scale
    room = (gaps[np.ix_(others, members)] - rows[members] * scale).min(axis=1) - rows[others] * scale
    with np.errstate(all="ignore"):
        share = np.where(columns > 0, columns / np.where(room > 0, room, 0.0), 0.0).max() * scale + LEAST
    found: Floats = (inside + min(share, 1.0) * outside) * scale + LEAST
    return found


def reach(distances: Floats, found: Discs) -> Floats:
    """Upper bounds of the errors of d_i, as which member of its group an eigenvalue is is unknown.

    `distances` are upper bounds of abs(d_i - d_j).
    """
    errors = found.radii.copy()
    for label in np.unique(found.labels[~found.alone]):
        members = np.flatnonzero(found.labels == label)
        far = distances[np.ix_(members, members)] + found.radii[members]
        errors[members] = far.max(axis=1) * UP
    return errors


def turned(found: Discs, gaps: Floats, change: Floats, sizes: Floats, errors: Floats) -> Floats:
    """Upper bounds of the distances of columns of I + W from eigenvectors of D + E, where discs are alone; else 0.

    Parameters
    ----------
    change : abs(W): element j of column i is e_ji / (d_i - d_j), but for errors of e_ji and roundings
    sizes, errors : upper bounds of abs(E), and of the errors of what W was computed from

    Notes
    -----
    Element j of the vector of eigenvalue v, with 1 in place i, is w_j = (e_ji + sum of e_jk w_k over k but i) / (v -
    d_j), at most 1, since v is in no other disc (docs/linalg.md, L10).
    """
    scale = _up(len(gaps))
    rows, radii = found.rows[:, None], found.radii
    usable = found.alone & ~np.eye(len(gaps), dtype=bool)
    distance = np.where(usable, gaps - radii * scale, 1.0)
    room = np.where(usable, distance - rows * scale, 1.0).clip(0)
    with np.errstate(all="ignore"):
        largest = np.where(usable & (sizes > 0), sizes / room, 0.0).max(axis=0) * scale
    missed = errors + rows * np.minimum(largest, 1.0) + change * UP * radii
    bounds: Floats = np.where(usable, missed / distance * scale + change * 2.0**-44 + LEAST, 0.0)
    return bounds


def groups(together: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """For each index the number of its group: of those that are together, directly or by way of others."""
    n = len(together)
    labels = np.full(n, -1, np.intp)
    together = together | together.T
    single = together.sum(axis=1) - np.diagonal(together) == 0
    count = int(single.sum())
    labels[single] = np.arange(count)
    for start in range(n):
        if labels[start] >= 0:
            continue
        reached = np.zeros(n, bool)
        reached[start] = True
        border = reached
        while border.any():
            border = together[border].any(axis=0) & ~reached
            reached = reached | border
        labels[reached] = count
        count += 1
    return labels


def _up(n: int) -> float:
    """More than the roundings of a sum of n numbers, and of a few operations more, change it."""
    return 1 + (n + 64) * 2.0**-52
