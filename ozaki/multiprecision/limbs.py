"""Integers of many bits as planes of limbs, for all elements of an array at once.

Limbs are uint32 arrays of shape (L, n), the highest limb first: n magnitudes, each the sum of
limbs[l] 2**(32 (L - 1 - l)). Bit 0 of a magnitude is the highest bit of its highest limb, bit 32 L - 1 the lowest. A
magnitude is *normalised* if its bit 0 is set, or if it is zero. Every function takes NumPy or CuPy arrays and returns
arrays of the same library; on a GPU the most used ones are kernels (`backends/cupy/limbs.py`), with the same bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ozaki.multiprecision import provided

LIMB_BITS = 32


def library(x: Any) -> Any:
    """The module, numpy or cupy, whose array x is."""
    return sys.modules["cupy"] if type(x).__module__.split(".")[0] == "cupy" else np


def _kernels(x: Any) -> Any:
    """The module of kernels that stand for functions of this one, if x lies on a GPU; else None."""
    return None if library(x) is np else provided.limb_kernels()


HOST_TILE = 2**14
"""Elements that `tile_of` gives for arrays of NumPy."""


def tile_of(x: Any) -> int:
    """Elements to process at a time: on a CPU a few arrays of this size stay in its cache, on a GPU memory is saved."""
    return HOST_TILE if library(x) is np else 2**22


def largest(x: Any, least: int) -> int:
    """The largest element, if it is above `least`; CuPy's max takes no `initial`."""
    return max(int(x.max()), least) if x.size else least


def limbs_of(bits: int) -> int:
    """Number of limbs that hold so many bits."""
    return -(-bits // LIMB_BITS)


def leading_zeros(limbs: Any) -> Any:
    """Number of zero bits before the first one that is set, int64; 32 L for a magnitude of zero."""
    if kernels := _kernels(limbs):
        return kernels.leading_zeros(limbs)
    first, head = _first_nonzero(limbs)
    return LIMB_BITS * (first + (head != 0)) - np.frexp(head.astype(np.float64))[1]


def trailing_zeros(limbs: Any) -> Any:
    """Number of zero bits after the last one that is set, int64; 32 L for a magnitude of zero."""
    if kernels := _kernels(limbs):
        return kernels.trailing_zeros(limbs)
    last, tail = _first_nonzero(limbs[::-1])
    tail &= -tail  # its lowest bit
    return LIMB_BITS * last + np.frexp(tail.astype(np.float64))[1] - (tail != 0)


def _first_nonzero(limbs: Any) -> tuple[Any, Any]:
    """The number of zero limbs before the first one that is not, int64, and that limb, int64; L and 0 if all are."""
    found = limbs[0].astype(np.int64)
    zeros = (found == 0).astype(np.int64)
    for limb in limbs[1:]:
        missing = found == 0
        if not bool(missing.any()):
            break
        found = np.where(missing, limb, found)
        zeros += found == 0
    return zeros, found


def window(limbs: Any, start: Any, count: int) -> Any:
    """The bits from `start` on as `count` limbs, the highest first; uint32, shape (count, n).

    Parameters
    ----------
    limbs : uint32 array, shape (L, n)
    start : int64 array, shape (n,)
        The first bit wanted of each magnitude, in the numbering of this module. Bits before bit 0, and after the last
        one, count as zeros: a negative start divides by a power of two, a positive one multiplies.
    """
    if kernels := _kernels(limbs):
        return kernels.window(limbs, start, count)
    size, n = limbs.shape
    rows = np.zeros((size + 2, n), np.uint32)  # zeros before and after
    rows[1:-1] = limbs
    first, shift = (start >> 5) + 1, (32 - (start & 31)).astype(np.uint64)
    found = np.empty((count, n), np.uint32)
    above = _row(rows, first).astype(np.uint64)
    for j in range(count):
        below = _row(rows, first + (j + 1)).astype(np.uint64)
        above <<= np.uint64(32)
        above |= below
        above >>= shift
        found[j] = above  # the lowest 32 bits
        above = below
    return found


def _row(rows: Any, wanted: Any) -> Any:
    """For each element the limb rows[wanted], shape (n,); the first and the last row, of zeros, stand for the rest."""
    last = len(rows) - 1
    if wanted.size:
        lowest, highest = int(wanted.min()), int(wanted.max())
        if highest - lowest < _FEW:
            found = rows[min(max(lowest, 0), last)]
            if lowest < highest:
                found = found.copy()
            for row in range(lowest + 1, highest + 1):
                np.copyto(found, rows[min(max(row, 0), last)], where=wanted == row)
            return found
    return np.take_along_axis(rows, np.clip(wanted, 0, last)[None], 0)[0]


_FEW = 4
"""Rows from which limbs are copied one row after the other, which then takes less time than gathering each limb."""


def add_window(sums: Any, signs: Any, limbs: Any, start: Any, sticky: bool = False) -> None:
    """Add the windows of magnitudes, with their signs, to sums of limbs.

    Parameters
    ----------
    sums : int64 array, shape (count, n), contiguous, the highest limb first; overwritten
    signs : int8 array, shape (n,)
    limbs, start : as of `window`
    sticky : whether the last bit of a window is set where a bit after it is (rounding to odd)
    """
    if kernels := _kernels(limbs):
        kernels.add_window(sums, signs, limbs, start, sticky)
        return
    count = len(sums)
    found = window(limbs, start, count)
    if sticky:
        found[-1] |= LIMB_BITS * len(limbs) - trailing_zeros(limbs) > start + LIMB_BITS * count
    wide = found.astype(np.int64)
    wide *= signs
    sums += wide


def narrowed(limbs: Any, width: int, count: int) -> Any:
    """The first `count` numbers of `width` bits, at most 32, of the bits of magnitudes, the highest first; uint64."""
    xp = library(limbs)
    numbers = xp.empty((count, limbs.shape[1]), np.uint64)
    for j in range(count):
        i, bit = divmod(width * j, LIMB_BITS)
        pair = limbs[i].astype(np.uint64) << np.uint64(32)
        if bit + width > LIMB_BITS:
            pair |= limbs[i + 1]
        pair >>= np.uint64(64 - width - bit)
        xp.bitwise_and(pair, np.uint64(2**width - 1), out=numbers[j])
    return numbers


def normalised(limbs: Any, count: int) -> tuple[Any, Any]:
    """The first `count` limbs of the magnitudes without their leading zeros, and the number of these zeros.

    No bit is lost where a magnitude has at most 32 `count` bits from its first set bit to its last.
    """
    zeros = leading_zeros(limbs)
    return window(limbs, zeros, count), zeros


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
    if kernels := _kernels(limbs):
        found: tuple[Any, Any] = kernels.rounded(limbs, bits)
        return found
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


def to_double(signs: Any, exponents: Any, limbs: Any, precision: int, least: int) -> Any:
    """Numbers rounded to nearest, ties to even, at `precision` bits, at most 53, and to multiples of 2**least.

    Parameters
    ----------
    signs, exponents, limbs : planes of `Numbers`, shapes (n,), (n,) and (L, n)

    Returns
    -------
    float64 array, shape (n,); inf of what float64 cannot hold
    """
    if kernels := _kernels(limbs):
        return kernels.to_double(signs, exponents, limbs, precision, least)
    head = limbs[0].astype(np.uint64) << np.uint64(32)
    if len(limbs) > 1:
        head |= limbs[1]
    if len(limbs) > 2:
        head |= (limbs[2:] != 0).any(axis=0)  # what is cut off: only whether it is zero matters
    keep = np.minimum(exponents - least, precision)
    units = _rounded_to(head, keep)
    return np.ldexp(units * signs, np.clip(exponents - keep, least, 2000).astype(np.int32))


def _rounded_to(head: Any, keep: Any) -> Any:
    """The first `keep` bits of 64, rounded to nearest with ties to even, as float64; keep is at most 53."""
    shift = np.clip(64 - keep, 0, 63).astype(np.uint64)
    units = head >> shift
    rest = head & ((np.uint64(1) << shift) - np.uint64(1))
    half = np.uint64(1) << (shift - np.uint64(1))
    up = (rest > half) | ((rest == half) & ((units & np.uint64(1)) != 0))
    normal = (units + up).astype(np.float64)
    # With no bit to keep, the number is at least half the smallest positive one if its first bit is worth that half.
    return np.where(keep > 0, normal, ((keep == 0) & (head > np.uint64(2**63))).astype(np.float64))


def settled(sums: Any, width: int = LIMB_BITS) -> tuple[Any, Any]:
    """Signs and magnitudes of sums of limbs of `width` bits, at most 32.

    Parameters
    ----------
    sums : int64 array, shape (L, n), overwritten
        Each number is the sum of sums[l] 2**(width (L - 1 - l)), every sums[l] below 2**62 in magnitude, and the number
        below 2**(width L) in magnitude.

    Returns
    -------
    signs : int8 array, shape (n,): -1, 0 or 1
    limbs : uint32 array, shape (L, n), of `width` bits each
    """
    if kernels := _kernels(sums):
        found: tuple[Any, Any] = kernels.settled(sums, width)
        return found
    carry(sums, width)
    negative = sums[0] < 0
    if bool(negative.any()):
        sums *= np.where(negative, -1, 1)
        carry(sums, width)
    limbs = sums.astype(np.uint32)
    signs = np.where(negative, -1, (limbs != 0).any(axis=0)).astype(np.int8)
    return signs, limbs


def carry(sums: Any, width: int = LIMB_BITS) -> None:
    """Bring every limb but the highest into [0, 2**width)."""
    for low, high in zip(sums[:0:-1], sums[-2::-1], strict=True):
        high += low >> width
        low &= 2**width - 1


def widened(limbs: Any, width: int) -> Any:
    """The same magnitudes, given by limbs of `width` bits, 16 to 32, as limbs of 32 bits."""
    xp = library(limbs)
    size, n = limbs.shape
    count = limbs_of(width * size)
    wide = xp.zeros((count, n), np.uint32)
    for j in range(count):
        first, offset = divmod(32 * j, width)  # of the lowest limb, which is limbs[-1]
        total = xp.zeros(n, np.uint64)
        for i in range(first, min(size, -(-32 * (j + 1) // width))):
            limb, shift = limbs[size - 1 - i].astype(np.uint64), width * (i - first) - offset
            total |= limb << np.uint64(shift) if shift >= 0 else limb >> np.uint64(-shift)
        wide[count - 1 - j] = total.astype(np.uint32)
    return wide


def shortened(limbs: Any, bits: int) -> tuple[Any, Any, Any]:
    """Magnitudes normalised, and rounded to nearest at their first `bits` bits, ties to even.

    Returns
    -------
    limbs : uint32 array, shape (limbs_of(bits), n), normalised
    zeros : int64 array, shape (n,)
        Zero bits before the first one of each magnitude that is set.
    carry : bool array, shape (n,)
        Where the magnitude was rounded up to a power of two, of which `limbs` hold the half.
    """
    xp = library(limbs)
    count = limbs_of(bits) + 1
    kept, zeros = normalised(limbs, count)
    if len(limbs) > count:
        # What is cut off matters only where it might decide between a tie and more than half.
        doubtful = xp.nonzero((kept[-1] & np.uint32(2**31 - 1)) == 0)[0]
        last_bit = LIMB_BITS * len(limbs) - trailing_zeros(limbs[:, doubtful])
        kept[-1, doubtful] |= (last_bit > zeros[doubtful] + LIMB_BITS * count).astype(np.uint32)
    short, carried = rounded(kept, bits)
    return short, zeros, carried
