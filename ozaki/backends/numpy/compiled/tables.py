"""Constants of moduli, as the compiled library reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.caches import cached
from ozaki.schemes.moduli import balanced
from ozaki.schemes.residues import Remainders, remainders

LIMB_BITS = 40
"""Bits of a limb of the library."""

MOST_LIMBS = 3
"""Most limbs of a product of moduli whose entries the library rounds."""

_RESIDUE = np.dtype(
    [("modulus", "i4"), ("inverse", "f4"), ("start", "i4"), ("low", "i4"), ("high", "i4"), ("offset", "i4")]
)
MODULUS = np.dtype([("modulus", "i4"), ("inverse", "f4"), ("fold", "i4")])


@dataclass(frozen=True, eq=False)
class Tables:
    """Constants of moduli of at most 256, as the library reads them.

    Attributes
    ----------
    crt : their Chinese remainder theorem
    residues : of images, for each side; the left ones are multiplied by the inverses of the theorem
    moduli : of products
    weights, product : limbs of the weights, [moduli][limbs], and of the product, the highest first, in float64, each
        times its power of two
    """

    crt: Remainders
    residues: dict[str, npt.NDArray[Any]]
    moduli: npt.NDArray[Any]
    weights: npt.NDArray[np.float64]
    product: npt.NDArray[np.float64]

    @property
    def limbs(self) -> int:
        """Limbs of a number below the product."""
        return len(self.product)


@cached(256)
def tables_of(moduli: tuple[int, ...]) -> Tables:
    """The constants of these moduli."""
    crt = remainders(moduli)
    residues = {
        side: np.array([_residue(m, factor, side) for m, factor in zip(moduli, factors, strict=True)], _RESIDUE)
        for side, factors in (("left", crt.inverses), ("right", (1,) * len(moduli)))
    }
    of_products = np.array([(m, 1.0 / m, balanced(2**16, m)) for m in moduli], MODULUS)
    limbs = -(-crt.product.bit_length() // LIMB_BITS)
    weights = np.array([_limbs(weight, limbs) for weight in crt.weights])
    return Tables(crt, residues, of_products, weights, np.array(_limbs(crt.product, limbs)))


def _residue(m: int, factor: int, side: str) -> tuple[int, float, int, int, int, int]:
    """How images, times a factor, become residues modulo m: int8 on the left, uint8 in [0, m) on the right."""
    offset = 0 if side == "left" or m == 256 else (m - 1) // 2
    words = [
        int.from_bytes(bytes(balanced(factor << 8 * j, m) & 255 for j in range(first, first + 4)), "little")
        for first in (0, 4)
    ]
    low, high = (word - 2**32 if word >= 2**31 else word for word in words)
    return m, 1.0 / m, -(factor << 63) % m - offset, low, high, offset


def _limbs(x: int, limbs: int) -> list[float]:
    """Limbs of x >= 0, the highest first, each times its power of two."""
    parts = [x >> LIMB_BITS * i & (1 << LIMB_BITS) - 1 for i in reversed(range(limbs))]
    return [float(part << LIMB_BITS * i) for i, part in zip(reversed(range(limbs)), parts, strict=True)]
