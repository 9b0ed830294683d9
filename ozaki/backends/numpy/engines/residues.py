"""Residues through float64 BLAS: fewer and larger moduli than on int8 machines, for the same exact integer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy.engines.tables import limbs_of_product, piece_residues, weight_limbs
from ozaki.schemes import Residues, blas
from ozaki.schemes.blas import LEAST_DEPTH, MOST_PIECES, MOST_WEIGHTS, PIECE_BITS
from ozaki.schemes.moduli import exact_moduli
from ozaki.schemes.residues import Remainders, remainders


@dataclass(frozen=True)
class ResidueEngine:
    """The engine of residues.

    Attributes
    ----------
    scheme, k, slab : see `Engine`
    crt : moduli for which float64 sums products of residues over a slab exactly, and their constants
    folded : whether slices on the left are multiplied by the inverses of the Chinese remainder theorem, else sums are
    """

    scheme: Residues
    k: int
    slab: int
    crt: Remainders
    folded: bool = True

    @classmethod
    def of(cls, scheme: Residues, k: int, int8: bool) -> ResidueEngine:
        """The engine with the largest moduli that are exact over a slab or, with `int8`, with those of the scheme."""
        slab = max(1, min(k, blas.DEPTH))
        moduli = scheme.moduli if int8 else exact_moduli(max(slab, LEAST_DEPTH), 53, least_product(scheme))
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
    def moduli_of_products(self) -> tuple[int, ...]:
        """The modulus of each matrix product."""
        return self.crt.moduli

    @property
    def pieces(self) -> int:
        """Number of pieces that hold an element of an image without its sign."""
        return -(-self.scheme.largest.bit_length() // PIECE_BITS)

    @property
    def split_copies(self) -> int:
        """Arrays held while a tile is split: the pieces of an image, and scratch."""
        return 5 + self.pieces

    @property
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded: residues, limbs, and scratch."""
        return 2 * self.planes + 2 * limbs_of_product(self.crt) + 12

    @property
    def shift(self) -> int:
        """Return 0: the limbs are those of Cbar itself."""
        return 0

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the symmetric residues of the image modulo moduli[t] into out[t], on the left times the CRT inverse."""
        bits = int(np.frexp(np.abs(image).max(initial=0.0))[1])
        pieces = np.empty((max(-(-bits // PIECE_BITS), 1), image.size))
        pieces[0] = image.reshape(-1)
        for below, above in pairwise(pieces):
            np.rint(below * 2.0**-PIECE_BITS, out=above)
            below -= above * 2.0**PIECE_BITS
        self.split_pieces(pieces, side, out)

    def split_pieces(self, pieces: Floats, side: str, out: Floats) -> None:
        """Do as `split` does, of an image given as the sum of pieces[j] 2**(PIECE_BITS j), each at most 2**PIECE_BITS.

        The shape of `pieces` is (number, elements).
        """
        table = piece_residues(self.crt, len(pieces), side == "left")
        totals = out.reshape(len(out), -1)
        scratch = np.empty(pieces.shape[1])
        for first in range(0, len(pieces), MOST_PIECES):
            part = slice(first, first + MOST_PIECES)
            if first == 0:
                np.matmul(table[:, part], pieces[part], out=totals)  # exact (schemes/blas.py)
            else:
                totals += np.matmul(table[:, part], pieces[part])
            for total, m in zip(totals, self.crt.moduli, strict=True):
                reduce(total, m, scratch, total)

    def add(self, product: Floats, sums: Floats | None) -> Floats:
        """Add the product of a slab to the sums, and return these.

        With several slabs, each product is reduced by its modulus first; with one, `limbs` reduces it.
        """
        if self.k > self.slab:
            planes = product.reshape(len(product), -1)
            scratch = np.empty(min(TILE, planes.shape[1]))
            for plane, m in zip(planes, self.moduli_of_products, strict=True):
                for i in range(0, plane.size, TILE):
                    tile = plane[i : i + TILE]
                    reduce(tile, m, scratch[: tile.size], tile)
        return product if sums is None else np.add(sums, product, out=sums)

    def limbs(self, sums: Floats) -> Floats:
        """The limbs of Cbar = sum_t y_t weights[t] - q product (Chinese remainders), by small matrix products."""
        count = self.planes
        y = np.empty((count + 1, sums.shape[1]))
        for t, m in enumerate(self.crt.moduli):
            reduce(sums[t], m, y[count], y[t])
            if not self.folded:
                y[t] *= balanced(self.crt.inverses[t], m)
                reduce(y[t], m, y[count], y[t])
        return self.limbs_of_residues(y)

    def limbs_of_residues(self, y: Floats) -> Floats:
        """Do as `limbs` does, from the residues y_t of each entry; y has a row more, which is overwritten."""
        count = len(self.crt.moduli)
        np.matmul(np.array([1.0 / m for m in self.crt.moduli]), y[:count], out=y[count])
        np.rint(y[count], out=y[count])
        weights = weight_limbs(self.crt)
        if count < MOST_WEIGHTS:
            limbs: Floats = np.matmul(weights, y)
            return limbs
        limbs = np.zeros((len(weights), y.shape[1]))
        for first in range(0, count + 1, MOST_WEIGHTS):
            part = slice(first, first + MOST_WEIGHTS)
            limbs += np.matmul(weights[:, part], y[part])
            if limbs.shape[1] < _FEW:  # few long columns: all limbs together take less time than one after the other
                _limbs.carry_once(limbs)
            else:
                _limbs.carry(limbs)
        return limbs


_FEW = 256
"""Fewest entries for which limbs are carried one after the other."""


def least_product(scheme: Residues) -> int:
    """The least product of moduli that hold all integers of a scheme, so that the quotient of their CRT is right."""
    return scheme.range * 2 + scheme.range // 128


def balanced(x: int, m: int) -> int:
    """The number of least absolute value that is x modulo odd m, x in [0, m)."""
    return x if 2 * x < m else x - m


def reduce(x: Floats, m: int, scratch: Floats, out: Floats) -> None:
    """Write x mod m into out, which may be x: abs(out) <= m/2 (1 + 2**-20), if x holds integers up to 2**53."""
    np.multiply(x, 1.0 / m, out=scratch)
    np.rint(scratch, out=scratch)
    scratch *= m
    np.subtract(x, scratch, out=out)
