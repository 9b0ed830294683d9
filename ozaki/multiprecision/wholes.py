"""Between Python's integers and `Numbers`: each element is a whole number times a power of two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.arithmetic import rounded_to
from ozaki.multiprecision.errors import UnfitError
from ozaki.multiprecision.floats import empty, trimmed
from ozaki.multiprecision.limbs import LIMB_BITS, trailing_zeros
from ozaki.multiprecision.numbers import FARTHEST, Numbers

_SHORT = 64
"""Most bits of a whole number whose trailing zeros are left to `trimmed`, which finds those of all numbers at once."""

_TILE_BYTES = 2**22
"""Bytes of limbs that are converted at a time: memory beside the result."""


def of_wholes(wholes: Iterable[int], exponents: Sequence[int], shape: tuple[int, ...], bits: int | None) -> Numbers:
    """The numbers wholes[i] 2**exponents[i] in row-major order, exactly, or rounded once at `bits` bits.

    A whole number of more than bits + 2 bits may stand for an inexact one whose lowest bit is set where digits were cut
    off: it is rounded as the exact one is. The `bits` of the result are the least that hold all elements, at least 2,
    and not more than those asked for.

    Raises
    ------
    UnfitError
        If a number is 2**FARTHEST or more, or smaller than 2**-FARTHEST.
    """
    magnitudes = list(wholes)
    count = len(magnitudes)
    signs = np.fromiter(((w > 0) - (w < 0) for w in magnitudes), np.int8, count)
    if bool((signs < 0).any()):
        magnitudes = [*map(abs, magnitudes)]
    lengths = np.fromiter(map(int.bit_length, magnitudes), np.int64, count)
    tops = _tops(exponents, lengths)
    for i in np.flatnonzero(lengths > _SHORT).tolist():
        whole = magnitudes[i]
        if bits is not None and (excess := int(lengths[i]) - bits - 2) > 0:
            head = whole >> excess
            whole = head << 1 | (head << excess != whole)  # what is cut off: only whether it is zero matters
        if not whole & 1:
            whole >>= (whole & -whole).bit_length() - 1
        magnitudes[i] = whole
        lengths[i] = whole.bit_length()
    out = empty((count,), max(int(lengths.max(initial=0)), 2), np)
    size = len(out.limbs)
    shifts = (LIMB_BITS * size - lengths).tolist()
    step = max(_TILE_BYTES // (4 * size), 1)
    for i in range(0, count, step):
        at = slice(i, i + step)
        shifted = zip(magnitudes[at], shifts[at], strict=True)
        block = b"".join([(whole << shift).to_bytes(4 * size, "big") for whole, shift in shifted])
        out.limbs[:, at] = np.frombuffer(block, ">u4").reshape(-1, size).T
    least = trimmed(Numbers(signs, np.where(signs != 0, tops, 0), out.limbs, out.bits))
    if bits is not None:
        least = rounded_to(least, bits)
    return Numbers(least.signs, least.exponents, least.limbs, max(least.bits, 2)).reshape(shape)


def _tops(exponents: Sequence[int], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The exponents of the fractions in [1/2, 1)."""
    far = np.int64(FARTHEST)
    try:
        tops = np.fromiter(exponents, np.int64, len(exponents))
    except OverflowError:
        bounded = (min(max(exponent, -2 * FARTHEST), 2 * FARTHEST) for exponent in exponents)
        tops = np.fromiter(bounded, np.int64, len(exponents))
    tops = np.clip(tops, -2 * far, 2 * far) + lengths
    beyond = (abs(tops) > far) & (lengths > 0)
    if bool(beyond.any()):
        size = "large" if tops[beyond][0] > 0 else "small"
        text = f"is too {size}; the exponent of a multiprecision number lies within -2**60 to 2**60"
        raise UnfitError(int(beyond.argmax()), ValueError(text))
    return tops


def to_wholes(x: Numbers) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Magnitudes as odd whole numbers, or 0, in row-major order, and the exponents of two to multiply them by.

    The signs are those of x, which lies in NumPy memory.
    """
    _, exponents, limbs = x.flat
    size = len(limbs)
    zeros = trailing_zeros(limbs)
    wholes: list[int] = []
    step = max(_TILE_BYTES // (4 * size), 1)
    for i in range(0, x.size, step):
        at = slice(i, i + step)
        block = np.ascontiguousarray(limbs[:, at].T, ">u4").view(f"V{4 * size}")[:, 0]
        each = zip(block.tolist(), zeros[at].tolist(), strict=True)
        wholes += [int.from_bytes(digits, "big") >> shift for digits, shift in each]
    return wholes, exponents - LIMB_BITS * size + zeros


def signed(wholes: list[int], signs: Any) -> list[int]:
    """Whole numbers with the signs of an int8 array of shape (n,)."""
    return [-whole if sign < 0 else whole for whole, sign in zip(wholes, signs.tolist(), strict=True)]
