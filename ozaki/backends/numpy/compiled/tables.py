"""Constants of moduli, as the compiled library reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.compiled.structures import Recombination
from ozaki.caches import cached
from ozaki.schemes.moduli import balanced, root_of_minus_one
from ozaki.schemes.residues import Remainders, remainders

MOST_LIMBS = 3
"""Most limbs of a product of moduli whose entries the library rounds: of 16 moduli of real elements."""

_RESIDUE = np.dtype(
    [("modulus", "i4"), ("inverse", "f4"), ("start", "i4"), ("low", "i4"), ("high", "i4"), ("offset", "i4")]
)
_OfResidue = tuple[int, float, int, int, int, int]
"""The fields of a `_RESIDUE`."""

MODULUS = np.dtype([("modulus", "i4"), ("inverse", "f4"), ("fold", "i4")])


@dataclass(frozen=True, eq=False)
class Tables:
    """Constants of moduli of at most 256, as the library reads them.

    Attributes
    ----------
    parts : numbers of an element: 2 of a complex one, which has two residues modulo each number
    crt : the Chinese remainder theorem of the moduli
    residues : of images of parts, for each side; the left ones are multiplied by the inverses of the theorem
    moduli : of products, as many as there are residues of an element
    weights, product : limbs of the weights, [parts][moduli][limbs], and of the product, the highest first, in float64,
        each times its power of two
    """

    parts: int
    crt: Remainders
    residues: dict[str, npt.NDArray[Any]]
    moduli: npt.NDArray[Any]
    weights: npt.NDArray[np.float64]
    product: npt.NDArray[np.float64]

    @property
    def limbs(self) -> int:
        """Limbs of a number below the product."""
        return len(self.product)

    @cached_property
    def recombination(self) -> Recombination:
        """The theorem, as the library reads it; it holds the addresses of these arrays."""
        addresses = self.weights.ctypes.data, self.product.ctypes.data
        return Recombination(len(self.crt.moduli), self.limbs, *addresses, 1.0 / self.crt.product)


@cached(256)
def tables_of(moduli: tuple[int, ...]) -> Tables:
    """The constants of these moduli for residues of real elements."""
    crt = remainders(moduli)
    residues = {
        "left": [_residue(m, factor) for m, factor in zip(moduli, crt.inverses, strict=True)],
        "right": [_residue(m, 1, offset_of(m)) for m in moduli],
    }
    return _tables(1, crt, residues, moduli, (crt.weights,))


@cached(256)
def complex_tables_of(moduli: tuple[int, ...]) -> Tables:
    """Those for residues of complex elements, modulo numbers m with a root s of -1 (kernels/cpu/complex.h).

    Of a left element, whose inverse of the theorem is c, the residues are c (x + s y) / 2 and c (x - s y) / 2.
    """
    crt, roots = remainders(moduli), [root_of_minus_one(m) for m in moduli]
    halves = [inverse * (m + 1) // 2 for m, inverse in zip(moduli, crt.inverses, strict=True)]
    residues = {}
    for side, factors, offsets in (
        ("left", halves, [0] * len(moduli)),
        ("right", [1] * len(moduli), [offset_of(m) for m in moduli]),
    ):
        of_x = [_residue(m, factor, offset) for m, factor, offset in zip(moduli, factors, offsets, strict=True)]
        of_y = [_residue(m, factor * root) for m, factor, root in zip(moduli, factors, roots, strict=True)]
        residues[side] = of_x + of_y
    turned = tuple((m - root) * weight for m, root, weight in zip(moduli, roots, crt.weights, strict=True))
    return _tables(2, crt, residues, 2 * moduli, (crt.weights, turned))


def _tables(
    parts: int,
    crt: Remainders,
    residues: dict[str, list[_OfResidue]],
    products: tuple[int, ...],
    weights: tuple[tuple[int, ...], ...],
) -> Tables:
    """Tables of these numbers: of parts, of the moduli of products and of the weights of each part."""
    arrays = {side: np.array(each, _RESIDUE) for side, each in residues.items()}
    of_products = np.array([(m, 1.0 / m, balanced(2**16, m)) for m in products], MODULUS)
    bits = _limb_bits(crt, products, [weight for of_part in weights for weight in of_part])
    limbs = -(-crt.product.bit_length() // bits)
    of_weights = np.array([[_limbs(weight, limbs, bits) for weight in of_part] for of_part in weights])
    return Tables(parts, crt, arrays, of_products, of_weights, np.array(_limbs(crt.product, limbs, bits)))


def _limb_bits(crt: Remainders, moduli: tuple[int, ...], weights: list[int]) -> int:
    """Bits of a limb: the most for which float64 adds up exactly what the library adds up of limbs.

    These are residues, at most m/2 in absolute value, times limbs of their weights, and a quotient times a limb of the
    product, by which the sum is taken back into the range of the theorem (kernels/cpu/recombine.h).
    """
    residues = sum(m // 2 for m in moduli)
    quotient = sum(m // 2 * weight for m, weight in zip(moduli, weights, strict=True)) // crt.product + 1
    return 53 - (residues + quotient).bit_length()


def offset_of(m: int) -> int:
    """What is added to the symmetric residues of right operands, which are uint8 in [0, m)."""
    return 0 if m == 256 else (m - 1) // 2


def _residue(m: int, factor: int, offset: int = 0) -> _OfResidue:
    """How images, times a factor, become residues modulo m, to which an offset is added."""
    words = [
        int.from_bytes(bytes(balanced(factor << 8 * j, m) & 255 for j in range(first, first + 4)), "little")
        for first in (0, 4)
    ]
    low, high = (word - 2**32 if word >= 2**31 else word for word in words)
    return m, 1.0 / m, -(factor << 63) % m - offset, low, high, offset


def _limbs(x: int, limbs: int, bits: int) -> list[float]:
    """Limbs of x >= 0, the highest first, each times its power of two."""
    parts = [x >> bits * i & (1 << bits) - 1 for i in reversed(range(limbs))]
    return [float(part << bits * i) for i, part in zip(reversed(range(limbs)), parts, strict=True)]
