"""Tables of the Chinese remainder theorem, as matrices that float64 BLAS multiplies exactly (schemes/blas.py)."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.limbs import narrowed, window
from ozaki.schemes.blas import LIMB_BITS, PIECE_BITS
from ozaki.schemes.residues import Remainders

Floats = npt.NDArray[np.float64]


@lru_cache(maxsize=16)
def piece_residues(crt: Remainders, pieces: int, with_inverses: bool) -> Floats:
    """The residue of 2**(PIECE_BITS j) modulo moduli[t], on request times the inverse of t: shape (moduli, pieces).

    Residues are symmetric. Moduli are below 2**23.
    """
    moduli = np.array(crt.moduli, np.int64)
    table = np.empty((len(moduli), pieces))
    residue = np.array(crt.inverses, np.int64) if with_inverses else np.ones_like(moduli)
    for j in range(pieces):
        residue = (residue + moduli // 2) % moduli - moduli // 2
        table[:, j] = residue
        residue = residue << PIECE_BITS
    return table


@lru_cache(maxsize=16)
def weight_limbs(crt: Remainders) -> Floats:
    """Limbs of the CRT weights and of -product, the lowest first: shape (limbs, moduli + 1).

    All limbs are balanced but the highest, which holds the rest of its number.
    """
    count = limbs_of_product(crt)
    size = -(-LIMB_BITS * count // 32)
    numbers = np.array(
        [np.frombuffer(x.to_bytes(4 * size, "big"), ">u4") for x in (*crt.weights, crt.product)], np.uint32
    ).T
    start = np.full(numbers.shape[1], 32 * size - LIMB_BITS * count)
    limbs: Floats = narrowed(window(numbers, start, size), LIMB_BITS, count)[::-1].astype(np.float64)
    limbs[:, -1] *= -1
    for low, high in pairwise(limbs):
        above = np.floor((low + 2.0 ** (LIMB_BITS - 1)) * 2.0**-LIMB_BITS)
        low -= above * 2.0**LIMB_BITS
        high += above
    return limbs


def limbs_of_product(crt: Remainders) -> int:
    """Number of limbs that hold an integer between -product and product."""
    return -(-(crt.product.bit_length() + 1) // LIMB_BITS)
