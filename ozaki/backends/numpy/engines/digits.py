"""Digits through float64 BLAS: several digits multiplied at once, as many as float64 sums exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy.engines.by_blas import BlasEngine
from ozaki.schemes import Digits, blas
from ozaki.schemes.blas import LIMB_BITS
from ozaki.schemes.digits import Rectangle, rectangles


@dataclass(frozen=True)
class DigitEngine(BlasEngine):
    """The engine of digits.

    Attributes
    ----------
    scheme, k, slab : see `Engine`
    rectangles : the blocks of digit pairs, each of which is one matrix product
    of_int8 : see `BlasEngine`
    """

    scheme: Digits
    rectangles: tuple[Rectangle, ...]
    of_int8: bool = False

    @classmethod
    def of(cls, scheme: Digits, k: int, name: str) -> DigitEngine | None:
        """The engine with the largest blocks that float64 sums exactly; named "int8-simulated", with pairs of digits.

        None named so if the digits are FP16.
        """
        int8 = name == "int8-simulated"
        if int8 and scheme.word != "int8":
            return None
        slab = max(1, min(k, blas.DEPTH))
        room = 52 - (slab - 1).bit_length()
        span = 2 if int8 else max(2, (room + 2) // scheme.bits)
        return cls(scheme, k, slab, rectangles(scheme.count, span), int8)

    @cached_property
    def planes(self) -> int:
        """Number of matrix products for each slab: one for each block of digit pairs."""
        return len(self.rectangles)

    @cached_property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"{self.planes} blocks of digits, as float64"

    @cached_property
    def sums(self) -> int:
        """Number of limbs that products become."""
        return self.limbs_of_sums

    @cached_property
    def limbs_of_sums(self) -> int:
        """Number of limbs of the sum of all planes, in units of 2**shift."""
        return -(-(self.scheme.bits * (self.scheme.count + 1) + self.k.bit_length() + 1) // LIMB_BITS)

    @cached_property
    def split_copies(self) -> int:
        """Arrays held while a tile is split: the leading s digits for every s, and scratch."""
        return self.scheme.count + 6

    @cached_property
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded: limbs, and scratch."""
        return 2 * self.limbs_of_sums + 12

    @cached_property
    def shift(self) -> int:
        """Exponent of the unit of limbs: the weight of the pairs s + t = count + 1, the least that are kept."""
        return self.scheme.bits * (self.scheme.count - 1)

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        """Exponents of the weights of the planes, in units of 2**shift."""
        last = (block.s0 + block.rows + block.t0 + block.cols for block in self.rectangles)
        return tuple(self.scheme.bits * (self.scheme.count + 1 - d) for d in last)

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the digits that rectangle r takes from this side, as one integer for each element, into out[r]."""
        p, bits = self.scheme.count, self.scheme.bits
        leading = [leading_digits(image, s, p, bits) for s in range(p + 1)]
        for r, block in enumerate(self.rectangles):
            first, count = (block.s0, block.rows) if side == "left" else (block.t0, block.cols)
            out[r] = leading[first + count] - leading[first] * 2.0 ** (bits * count)

    def sums_of(self, products: Floats) -> Floats:
        """The products of all blocks, each times its weight, as limbs."""
        return self.weighted(products)

    def weighted(self, products: Floats) -> Floats:
        """The sum of all planes, each times its weight, as limbs."""
        sums = np.zeros((self.limbs_of_sums, *products.shape[1:]))
        planes, limbs = products.reshape(len(products), -1), sums.reshape(len(sums), -1)
        for i in range(0, planes.shape[1], TILE // 4):
            for shift, plane in zip(self.shifts, planes[:, i : i + TILE // 4], strict=True):
                _limbs.add_shifted(limbs[:, i : i + TILE // 4], plane, shift)
        return sums

    def limbs(self, sums: Floats) -> Floats:
        """Return the sums, which are limbs already."""
        return sums


def leading_digits(image: Floats, s: int, p: int, bits: int) -> Floats:
    """The first s balanced digits of p as one integer: floor((image + B) / w), B = half of w - 1 in every digit."""
    if s == 0:
        return np.zeros_like(image)
    low = bits * (p - s)
    if low == 0:
        return image
    whole = np.floor(image * 2.0**-low)
    rest = image - whole * 2.0**low
    below = (2 ** (bits - 1)) * ((2**low - 1) // (2**bits - 1))
    whole += rest >= _at_least(2**low - below)
    return whole


def _at_least(x: int) -> float:
    """The smallest float64 that is not below x."""
    nearest = float(x)
    return nearest if int(nearest) >= x else float(np.nextafter(nearest, np.inf))
