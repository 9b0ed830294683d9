"""Digits through float64 BLAS: blocks of digits multiplied at once, as wide as float64 sums exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._describe import TILE
from ozaki.backends.numpy._limbs import Floats
from ozaki.schemes import Digits, blas
from ozaki.schemes.blas import LIMB_BITS
from ozaki.schemes.digits import Rectangle, rectangles


@dataclass(frozen=True)
class DigitEngine:
    """The driver of digits.

    Attributes
    ----------
    scheme, k, slab : as `Engine` has them
    rectangles : the blocks of digit pairs, one matrix product each
    """

    scheme: Digits
    k: int
    slab: int
    rectangles: tuple[Rectangle, ...]

    @classmethod
    def of(cls, scheme: Digits, k: int, int8: bool) -> DigitEngine:
        """With the largest blocks, or, with `int8`, with single pairs of digits."""
        slab = max(1, min(k, blas.DEPTH))
        room = 52 - (slab - 1).bit_length()
        span = 2 if int8 else max(2, (room + 2) // scheme.bits)
        return cls(scheme, k, slab, rectangles(scheme.count, span))

    @property
    def planes(self) -> int:
        """One for each block."""
        return len(self.rectangles)

    @property
    def what(self) -> str:
        """What the planes are."""
        return f"{self.planes} blocks of digits"

    @property
    def sums(self) -> int:
        """The limbs of the sum of all blocks, in units of the last digit kept."""
        return -(-(self.scheme.bits * (self.scheme.count + 1) + self.k.bit_length() + 1) // LIMB_BITS)

    @property
    def split_copies(self) -> int:
        """Leading digits of every count, and what they are made of."""
        return self.scheme.count + 6

    @property
    def rounding_copies(self) -> int:
        """Limbs, and what rounds them."""
        return 2 * self.sums + 12

    @property
    def shift(self) -> int:
        """Limbs are in units of the last digit kept."""
        return self.scheme.bits * (self.scheme.count - 1)

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """out[r] = the block of digits that rectangle r takes from this side, as one integer."""
        p, bits = self.scheme.count, self.scheme.bits
        leading = [_leading_digits(image, s, p, bits) for s in range(p + 1)]
        for r, block in enumerate(self.rectangles):
            first, count = (block.s0, block.rows) if side == "left" else (block.t0, block.cols)
            out[r] = leading[first + count] - leading[first] * 2.0 ** (bits * count)

    def add(self, product: Floats, sums: Floats | None) -> Floats:
        """The limbs, with the blocks' products added by their weights."""
        sums = np.zeros((self.sums, *product.shape[1:])) if sums is None else sums
        p, bits = self.scheme.count, self.scheme.bits
        planes, limbs = product.reshape(len(product), -1), sums.reshape(len(sums), -1)
        for i in range(0, planes.shape[1], TILE // 4):
            for block, plane in zip(self.rectangles, planes[:, i : i + TILE // 4], strict=True):
                last = block.s0 + block.rows + block.t0 + block.cols
                _limbs.add_shifted(limbs[:, i : i + TILE // 4], plane, bits * (p + 1 - last))
        return sums

    def limbs(self, sums: Floats) -> Floats:
        """The sums are limbs."""
        return sums


def _leading_digits(image: Floats, s: int, p: int, bits: int) -> Floats:
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
    """Smallest float64 >= x."""
    nearest = float(x)
    return nearest if int(nearest) >= x else float(np.nextafter(nearest, np.inf))
