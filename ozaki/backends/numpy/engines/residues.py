"""Residues through float64 BLAS: fewer and larger moduli than on int8 machines, for the same exact integer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ozaki.backends.numpy._describe import TILE
from ozaki.backends.numpy._limbs import Floats
from ozaki.schemes import Residues, blas
from ozaki.schemes.blas import LEAST_DEPTH, PIECE_BITS, piece_residues, weight_limbs
from ozaki.schemes.residues import Remainders, exact_moduli, remainders


@dataclass(frozen=True)
class ResidueEngine:
    """The engine of residues.

    Attributes
    ----------
    scheme, k, slab : see `Engine`
    crt : moduli for which float64 sums products of residues over a slab exactly, and their constants
    """

    scheme: Residues
    k: int
    slab: int
    crt: Remainders

    @classmethod
    def of(cls, scheme: Residues, k: int, int8: bool) -> ResidueEngine:
        """The engine with the largest moduli that are exact over a slab or, with `int8`, with those of the scheme."""
        slab = max(1, min(k, blas.DEPTH))
        at_least = scheme.range * 2 + scheme.range // 128
        moduli = scheme.moduli if int8 else exact_moduli(max(slab, LEAST_DEPTH), 53, at_least)
        return cls(scheme, k, slab, remainders(moduli))

    @property
    def planes(self) -> int:
        """Number of matrix products for each slab: one for each modulus."""
        return len(self.crt.moduli)

    @property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"residues modulo {self.planes} numbers"

    @property
    def sums(self) -> int:
        """Number of matrices of sums over slabs: one for each modulus; none if one slab is all of k."""
        return self.planes if self.k > self.slab else 0

    @property
    def split_copies(self) -> int:
        """Arrays held while a tile is split: the pieces of an image, and scratch."""
        return 5 + -(-(self.crt.product.bit_length() // 2 + 1) // PIECE_BITS)

    @property
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded: residues, limbs, and scratch."""
        return 2 * self.planes + len(weight_limbs(self.crt)) + 12

    @property
    def shift(self) -> int:
        """Return 0: the limbs are those of Cbar itself."""
        return 0

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the symmetric residues of the image modulo moduli[t] into out[t], on the left times the CRT inverse."""
        bits = int(np.frexp(np.abs(image).max(initial=0.0))[1])
        count = max(-(-bits // PIECE_BITS), 1)
        pieces = np.empty((count, image.size))
        pieces[0] = image.reshape(-1)
        for below, above in pairwise(pieces):
            np.rint(below * 2.0**-PIECE_BITS, out=above)
            below -= above * 2.0**PIECE_BITS
        totals = out.reshape(len(out), -1)
        np.matmul(_table(self.crt, count, side == "left"), pieces, out=totals)  # exact (schemes/blas.py)
        for total, m in zip(totals, self.crt.moduli, strict=True):
            _reduce(total, m, pieces[0], total)

    def add(self, product: Floats, sums: Floats | None) -> Floats:
        """Add the product of a slab to the sums, and return these.

        With several slabs, each product is reduced by its modulus first; with one, `limbs` reduces it.
        """
        if self.k > self.slab:
            planes = product.reshape(len(product), -1)
            scratch = np.empty(min(TILE, planes.shape[1]))
            for plane, m in zip(planes, self.crt.moduli, strict=True):
                for i in range(0, plane.size, TILE):
                    tile = plane[i : i + TILE]
                    _reduce(tile, m, scratch[: tile.size], tile)
        return product if sums is None else np.add(sums, product, out=sums)

    def limbs(self, sums: Floats) -> Floats:
        """The limbs of Cbar = sum_t y_t weights[t] - q product (Chinese remainders), by one small matrix product."""
        count = self.planes
        y = np.empty((count + 1, sums.shape[1]))
        for t, m in enumerate(self.crt.moduli):
            _reduce(sums[t], m, y[count], y[t])
        np.matmul(np.array([1.0 / m for m in self.crt.moduli]), y[:count], out=y[count])
        np.rint(y[count], out=y[count])
        limbs: Floats = np.matmul(_weights(self.crt), y)
        return limbs


@lru_cache(maxsize=1024)
def _table(crt: Remainders, pieces: int, with_inverses: bool) -> Floats:
    return np.array(piece_residues(crt, pieces, with_inverses), np.float64)


@lru_cache(maxsize=1024)
def _weights(crt: Remainders) -> Floats:
    return np.array(weight_limbs(crt), np.float64)


def _reduce(x: Floats, m: int, scratch: Floats, out: Floats) -> None:
    """Write x mod m into out, which may be x: abs(out) <= m/2 (1 + 2**-20), if x holds integers up to 2**53."""
    np.multiply(x, 1.0 / m, out=scratch)
    np.rint(scratch, out=scratch)
    scratch *= m
    np.subtract(x, scratch, out=out)
