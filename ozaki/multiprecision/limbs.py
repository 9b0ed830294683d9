"""Integers of many bits as planes of limbs, for all elements of an array at once.

Limbs are uint32 arrays of shape (L, n), the highest limb first: n magnitudes, each the sum of
limbs[l] 2**(32 (L - 1 - l)). Bit 0 of a magnitude is the highest bit of its highest limb, bit 32 L - 1 the lowest. A
magnitude is *normalised* if its bit 0 is set, or if it is zero. Every function takes NumPy or CuPy arrays and returns
arrays of the same library.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

LIMB_BITS = 32


def library(x: Any) -> Any:
    """The module, numpy or cupy, whose array x is."""
    return sys.modules["cupy"] if type(x).__module__.split(".")[0] == "cupy" else np


def tile_of(x: Any) -> int:
    """Elements to process at a time: on a CPU a few arrays of this size stay in its cache, on a GPU memory is saved."""
    return 2**14 if library(x) is np else 2**22


def largest(x: Any, least: int) -> int:
    """The largest element, if it is above `least`; CuPy's max takes no `initial`."""
    return max(int(x.max()), least) if x.size else least


def limbs_of(bits: int) -> int:
    """Number of limbs that hold so many bits."""
    return -(-bits // LIMB_BITS)


def leading_zeros(limbs: Any) -> Any:
    """Number of zero bits before the first one that is set, int64; 32 L for a magnitude of zero."""
    xp = library(limbs)
    first = xp.argmax(limbs != 0, axis=0)
    head = xp.take_along_axis(limbs, first[None], 0)[0]
    zeros = LIMB_BITS * (first + 1) - xp.frexp(head.astype(np.float64))[1]
    return xp.where(head == 0, LIMB_BITS * len(limbs), zeros)


def trailing_zeros(limbs: Any) -> Any:
    """Number of zero bits after the last one that is set, int64; 32 L for a magnitude of zero."""
    xp = library(limbs)
    last = xp.argmax(limbs[::-1] != 0, axis=0)
    tail = xp.take_along_axis(limbs[::-1], last[None], 0)[0].astype(np.int64)
    zeros = LIMB_BITS * last + xp.frexp((tail & -tail).astype(np.float64))[1] - 1
    return xp.where(tail == 0, LIMB_BITS * len(limbs), zeros)


def window(limbs: Any, start: Any, count: int, width: int = LIMB_BITS) -> Any:
    """The bits from `start` on as `count` numbers of `width` bits, the highest first; uint64, shape (count, n).

    Parameters
    ----------
    limbs : uint32 array, shape (L, n)
    start : int64 array, shape (n,)
        The first bit wanted of each magnitude, in the numbering of this module. Bits before bit 0, and after the last
        one, count as zeros: a negative start divides by a power of two, a positive one multiplies.
    count, width : int
        `width` is at most 32.
    """
    xp = library(limbs)
    size, n = limbs.shape
    rows = xp.zeros((size + 2, n), np.uint32)  # zeros before and after
    rows[1:-1] = limbs
    found = xp.empty((count, n), np.uint64)
    mask = np.uint64(2**width - 1)
    for j in range(count):
        at = start + width * j
        row, bit = at >> 5, (at & 31).astype(np.uint64)
        pair = (_row(rows, row).astype(np.uint64) << np.uint64(32)) | _row(rows, row + 1)
        pair >>= np.uint64(64 - width) - bit
        xp.bitwise_and(pair, mask, out=found[j])
    return found


def _row(rows: Any, wanted: Any) -> Any:
    """For each element the limb `wanted` of it, shape (n,), where `rows` are its limbs between two rows of zeros."""
    xp = library(rows)
    if xp is np and wanted.size and (lowest := int(wanted.min())) == int(wanted.max()):
        return rows[min(max(lowest + 1, 0), len(rows) - 1)]
    index = xp.clip(wanted + 1, 0, len(rows) - 1)
    return xp.take_along_axis(rows, index[None], 0)[0]


def normalised(limbs: Any, count: int) -> tuple[Any, Any]:
    """The first `count` limbs of the magnitudes without their leading zeros, and the number of these zeros.

    No bit is lost where a magnitude has at most 32 `count` bits from its first set bit to its last.
    """
    zeros = leading_zeros(limbs)
    return window(limbs, zeros, count).astype(np.uint32), zeros


def rounded(limbs: Any, bits: int) -> tuple[Any, Any]:
    """Normalised magnitudes rounded to nearest at their first `bits` bits, ties to even.

    Returns
    -------
    limbs : uint32 array, shape (limbs_of(bits), n), normalised
    carry : bool array, shape (n,)
        Where the magnitude was rounded up to a power of two, of which `limbs` hold the half.
    """
    xp = library(limbs)
    size, n = limbs.shape
    count = limbs_of(bits)
    if size < count:
        return xp.concatenate([limbs, xp.zeros((count - size, n), np.uint32)]), xp.zeros(n, bool)
    spare = np.uint64(LIMB_BITS * count - bits)
    last = limbs[count - 1].astype(np.uint64)
    rest = last & np.uint64(2 ** int(spare) - 1)
    below = limbs[count:]
    if spare:
        half: Any = np.uint64(2 ** (int(spare) - 1))
    else:
        rest, below, half = (
            (below[0].astype(np.uint64), below[1:], np.uint64(2**31)) if len(below) else (rest, below, np.uint64(1))
        )
    sticky = (below != 0).any(axis=0)
    odd = ((last >> spare) & np.uint64(1)) != 0
    up = (rest > half) | ((rest == half) & (sticky | odd))
    kept = limbs[:count].copy()
    kept[-1] &= np.uint32(2**32 - 2 ** int(spare))
    carry = up.astype(np.uint64) << spare
    for limb in kept[::-1]:
        total = limb + carry
        limb[...] = total.astype(np.uint32)  # the lowest 32 bits
        carry = total >> np.uint64(32)
    over = carry != 0
    kept[0][over] = np.uint32(2**31)
    return kept, over


def settled(sums: Any) -> tuple[Any, Any]:
    """Signs and magnitudes of sums of limbs.

    Parameters
    ----------
    sums : int64 array, shape (L, n), overwritten
        Each number is the sum of sums[l] 2**(32 (L - 1 - l)), every sums[l] below 2**62 in magnitude, and the number
        below 2**(32 L) in magnitude.

    Returns
    -------
    signs : int8 array, shape (n,): -1, 0 or 1
    limbs : uint32 array, shape (L, n)
    """
    xp = library(sums)
    carry(sums)
    negative = sums[0] < 0
    if bool(negative.any()):
        sums *= xp.where(negative, -1, 1)
        carry(sums)
    limbs = sums.astype(np.uint32)
    signs = xp.where(negative, -1, (limbs != 0).any(axis=0)).astype(np.int8)
    return signs, limbs


def carry(sums: Any) -> None:
    """Bring every limb but the highest into [0, 2**32)."""
    for low, high in zip(sums[:0:-1], sums[-2::-1], strict=True):
        high += low >> 32
        low &= 2**32 - 1
