"""Residues through float64 BLAS: fewer and larger moduli than on int8 machines, for the same exact integer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import image_pieces
from ozaki.backends.numpy._scaled import ScaledRows, plain
from ozaki.backends.numpy._tiles import FEW, TILE
from ozaki.backends.numpy.engines.by_blas import BlasEngine, Ints
from ozaki.caches import cached_within
from ozaki.multiprecision.floats import of_floats
from ozaki.multiprecision.limbs import narrowed, window
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes import Residues, blas
from ozaki.schemes.blas import LEAST_DEPTH, LIMB_BITS, MOST_PIECES, MOST_WEIGHTS, PIECE_BITS
from ozaki.schemes.moduli import balanced, exact_moduli
from ozaki.schemes.residues import MOST_BYTES, Remainders, remainders

WIDEST_OF_FLOATS = 900
"""Most bits of an image that is a float64 array: a wider one may leave the range of float64."""


@dataclass(frozen=True)
class ResidueEngine(BlasEngine):
    """The engine of residues.

    Attributes
    ----------
    scheme, k, slab : see `Engine`
    crt : moduli for which float64 sums products of residues over a slab exactly, and their constants
    folded : whether slices on the left are multiplied by the inverses of the Chinese remainder theorem, else sums are
    of_int8 : see `BlasEngine`
    """

    scheme: Residues
    crt: Remainders
    folded: bool = True
    of_int8: bool = False

    sums: ClassVar[int] = 0
    shift: ClassVar[int] = 0
    """The limbs are those of Cbar itself."""

    @classmethod
    def of(cls, scheme: Residues, k: int, name: str) -> ResidueEngine:
        """The engine with the largest moduli exact over a slab or, named "int8-simulated", with those of the scheme."""
        slab, of_int8 = max(1, min(k, blas.DEPTH)), name == "int8-simulated"
        moduli = scheme.moduli if of_int8 else exact_moduli(max(slab, LEAST_DEPTH), 53, least_product(scheme))
        return cls(scheme, k, slab, remainders(moduli), of_int8=of_int8)

    def symmetric(self) -> Self | None:
        """The engine that multiplies by the inverses of the Chinese remainder theorem afterwards, not on the left."""
        return replace(self, folded=False)

    @cached_property
    def planes(self) -> int:
        """Number of matrix products for each slab: one for each modulus."""
        return len(self.crt.moduli)

    @cached_property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"residues modulo {self.planes} numbers, as float64"

    @cached_property
    def moduli_of_products(self) -> tuple[int, ...]:
        """The modulus of each matrix product."""
        return self.crt.moduli

    @cached_property
    def pieces(self) -> int:
        """Number of pieces that hold an element of an image without its sign."""
        return -(-self.scheme.largest.bit_length() // PIECE_BITS)

    @cached_property
    def split_copies(self) -> int:
        """Arrays held while a tile is split: the pieces of an image, and scratch."""
        return 5 + self.pieces

    @cached_property
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded: residues, limbs, and scratch."""
        return 2 * self.planes + 2 * limbs_of_product(self.crt) + 12

    def split_real_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool, out: Floats) -> bool:
        """Split real rows as `BlasEngine` does, those of images beyond the range of float64 as multiprecision ones."""
        if self.pieces * PIECE_BITS <= WIDEST_OF_FLOATS:
            return super().split_real_rows(x, mu, side, finite, out)
        x = plain(x)
        numbers = of_floats(x if finite else np.where(np.isfinite(x), x, 0))
        self._split_numbers_into(numbers, mu, side, out.reshape(len(out), *x.shape))
        return False

    def split_numbers(self, x: Numbers, mu: Ints, side: str) -> Floats:
        """The slices of rows of multiprecision numbers, as `Engine` says."""
        planes = np.empty((self.planes, *x.shape))
        self._split_numbers_into(x, mu, side, planes)
        return planes

    def _split_numbers_into(self, x: Numbers, mu: Ints, side: str, planes: Floats) -> None:
        """Split rows of multiprecision numbers into contiguous planes."""
        batch, rows, k = x.shape
        for at in tiles_of_rows(batch, rows, k, TILE // 4):
            tile = x[at]
            of_elements = np.broadcast_to(mu[at][..., None], tile.shape).reshape(-1)
            pieces = image_pieces(tile.reshape(-1), of_elements, self.pieces)
            self.split_pieces(pieces, side, planes[(slice(None), *at)])

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the symmetric residues of the image modulo moduli[t] into out[t], on the left times the CRT inverse."""
        if image.size <= FEW:  # all pieces at once
            pieces = np.rint(image.reshape(-1) * tables_of(self.crt.moduli, self.pieces).units)
            pieces[:-1] -= pieces[1:] * 2.0**PIECE_BITS
        else:
            bits = int(np.frexp(np.abs(image).max())[1])
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
        tables = tables_of(self.crt.moduli, self.pieces)
        table = tables.left if side == "left" else tables.right
        totals = out.reshape(len(out), -1)
        for first in range(0, len(pieces), MOST_PIECES):
            part = slice(first, min(first + MOST_PIECES, len(pieces)))
            if first == 0:
                np.matmul(table[:, part], pieces[part], out=totals)  # exact (schemes/blas.py)
            else:
                totals += np.matmul(table[:, part], pieces[part])
            reduce_planes(totals, self.crt.moduli, tables.moduli, totals)

    def sums_of(self, products: Floats) -> Floats:
        """The products of a slab, reduced by their moduli if there are several slabs; else `limbs` reduces them."""
        if self.k > self.slab:
            planes = products.reshape(len(products), -1)
            scratch = np.empty(min(TILE, planes.shape[1]))
            for plane, m in zip(planes, self.moduli_of_products, strict=True):
                for i in range(0, plane.size, TILE):
                    tile = plane[i : i + TILE]
                    reduce(tile, m, scratch[: tile.size], tile)
        return products

    def limbs(self, sums: Floats) -> Floats:
        """The limbs of Cbar = sum_t y_t weights[t] - q product (Chinese remainders), by small matrix products."""
        count, moduli = len(self.crt.moduli), self.crt.moduli
        tables = tables_of(self.crt.moduli, self.pieces)
        y = np.empty((count + 1, sums.shape[1]))
        residues = y[:count]
        reduce_planes(sums, moduli, tables.moduli, residues)
        if not self.folded:
            residues *= tables.inverses
            reduce_planes(residues, moduli, tables.moduli, residues)
        return self.limbs_of_residues(y)

    def limbs_of_residues(self, y: Floats) -> Floats:
        """Do as `limbs` does, from the residues y_t of each entry; y has a row more, which is overwritten."""
        count, tables = len(self.crt.moduli), tables_of(self.crt.moduli, self.pieces)
        np.matmul(tables.moduli[1, :, 0], y[:count], out=y[count])
        np.rint(y[count], out=y[count])
        weights = tables.weights
        if count < MOST_WEIGHTS:
            limbs: Floats = np.matmul(weights, y)
            return limbs
        limbs = np.zeros((len(weights), y.shape[1]))
        for first in range(0, count + 1, MOST_WEIGHTS):
            part = slice(first, first + MOST_WEIGHTS)
            limbs += np.matmul(weights[:, part], y[part])
            if limbs.shape[1] < _FEW_COLUMNS:  # all limbs together take less time than one after the other
                _limbs.carry_once(limbs)
            else:
                _limbs.carry(limbs)
        return limbs


_FEW_COLUMNS = 256
"""Fewest entries for which limbs are carried one after the other."""


def least_product(scheme: Residues) -> int:
    """The least product of moduli that hold all integers of a scheme, so that the quotient of their CRT is right."""
    return scheme.range * 2 + scheme.range // 128


def reduce(x: Floats, m: int, scratch: Floats, out: Floats) -> None:
    """Write x mod m into out, which may be x: abs(out) <= m/2 (1 + 2**-20), if x holds integers up to 2**53."""
    np.multiply(x, 1.0 / m, out=scratch)
    np.rint(scratch, out=scratch)
    scratch *= m
    np.subtract(x, scratch, out=out)


def reduce_planes(x: Floats, moduli: tuple[int, ...], columns: Floats, out: Floats) -> None:
    """Do as `reduce` does for each row of x, shape (moduli, elements); few elements all at once.

    `columns` are the moduli, and their reciprocals, shape (2, moduli, 1).
    """
    if x.size <= FEW:
        quotients = np.rint(x * columns[1])
        quotients *= columns[0]
        np.subtract(x, quotients, out=out)
        return
    scratch = np.empty(x.shape[1])
    for row, m, reduced in zip(x, moduli, out, strict=True):
        reduce(row, m, scratch, reduced)


class Tables(NamedTuple):
    """Constants of the Chinese remainder theorem, as matrices that float64 BLAS multiplies exactly (schemes/blas.py).

    Attributes
    ----------
    right : the symmetric residue of 2**(PIECE_BITS j) modulo moduli[t], shape (moduli, pieces)
    left : that of the same times the inverse of t
    units : 2**-(PIECE_BITS j), shape (pieces, 1)
    weights : limbs of the weights and of -product, the lowest first, shape (limbs, moduli + 1); all are balanced but
        the highest, which holds the rest of its number
    moduli : the moduli and their reciprocals, shape (2, moduli, 1)
    inverses : the symmetric inverses, shape (moduli, 1)
    """

    right: Floats
    left: Floats
    units: Floats
    weights: Floats
    moduli: Floats
    inverses: Floats


@cached_within(16, MOST_BYTES, lambda tables: sum(table.nbytes for table in tables))
def tables_of(moduli: tuple[int, ...], pieces: int) -> Tables:
    """The tables of moduli, which are below 2**23, for images of so many pieces."""
    crt = remainders(moduli)
    right, left = _piece_residues(crt, pieces, 1), _piece_residues(crt, pieces, crt.inverses)
    columns = np.array([moduli, [1.0 / m for m in moduli]])[..., None]
    inverses = np.array([balanced(x, m) for x, m in zip(crt.inverses, moduli, strict=True)], np.float64)[:, None]
    units = np.ldexp(1.0, -PIECE_BITS * np.arange(pieces))[:, None]
    return Tables(right, left, units, _weight_limbs(crt), columns, inverses)


def _piece_residues(crt: Remainders, pieces: int, factors: int | tuple[int, ...]) -> Floats:
    """The symmetric residue of 2**(PIECE_BITS j) times a factor modulo each modulus: shape (moduli, pieces)."""
    moduli = np.array(crt.moduli, np.int64)
    table = np.empty((len(moduli), pieces))
    residue = np.broadcast_to(np.array(factors, np.int64), moduli.shape)
    for j in range(pieces):
        residue = (residue + moduli // 2) % moduli - moduli // 2
        table[:, j] = residue
        residue = residue << PIECE_BITS
    return table


def _weight_limbs(crt: Remainders) -> Floats:
    """The `weights` of tables."""
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
