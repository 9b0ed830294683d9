"""Exact products through float64 BLAS: how wide residues and blocks of digits are, and what recombines them."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.schemes import Digits, Residues, Scheme
from ozaki.schemes.digits import Rectangle, rectangles
from ozaki.schemes.residues import Remainders, exact_moduli, remainders

LIMB_BITS = 26
"""Of a limb: products of limbs by small numbers, and their sums, are exact in float64."""

PIECE_BITS = 27
"""An image is cut into pieces of this many bits before it is reduced."""

DEPTH = 2048
"""Inner indices of a slab at most, which bounds the workspace."""

_LEAST_DEPTH = 1024
"""Residues are at most as wide as this many inner indices allow: a sum of residues times pieces stays below 2**51,
where the least residue is found by one quotient. (An image of 171 bits, the widest, is 7 pieces: 8 2**26 2**21.5 <
2**51.)"""


@dataclass(frozen=True)
class Engine:
    """How a scheme's exact product goes through float64 BLAS."""

    scheme: Scheme
    k: int
    slab: int
    remainders: Remainders | None
    rectangles: tuple[Rectangle, ...]

    @property
    def planes(self) -> int:
        """Matrix products for each slab of k."""
        return len(self.remainders.moduli) if self.remainders else len(self.rectangles)

    @property
    def limbs(self) -> int:
        """Limbs of a sum of digit products, in units of the last digit kept."""
        assert isinstance(self.scheme, Digits)
        return -(-(self.scheme.bits * (self.scheme.count + 1) + self.k.bit_length() + 1) // LIMB_BITS)

    @property
    def split_copies(self) -> int:
        """Arrays as large as a tile of an operand that are held while it is split, at most, beside its slices."""
        if self.remainders is None:
            return self.scheme.count + 6  # leading digits of every count, and what they are made of
        return 5 + -(-(self.remainders.product.bit_length() // 2 + 1) // PIECE_BITS)  # an image's pieces

    @property
    def rounding_copies(self) -> int:
        """Arrays as large as a tile of the result that are held while it is rounded, at most, beside its sums."""
        if self.remainders is None:
            return 2 * self.limbs + 12
        return 2 * self.planes + len(weight_limbs(self.remainders)) + 12

    @property
    def sums(self) -> int:
        """Matrices that hold sums over slabs, beside the products of a slab."""
        return (self.planes if self.k > self.slab else 0) if self.remainders else self.limbs


def engine_of(scheme: Scheme, k: int, int8: bool = False) -> Engine:
    """The widest residues, or blocks of digits, whose products are exact; with `int8` those of an int8 machine."""
    slab = max(1, min(k, DEPTH))
    if isinstance(scheme, Residues):
        at_least = scheme.range * 2 + scheme.range // 128
        moduli = scheme.moduli if int8 else exact_moduli(max(slab, _LEAST_DEPTH), 53, at_least)
        return Engine(scheme, k, slab, remainders(moduli), ())
    room = 52 - (slab - 1).bit_length()
    span = 2 if int8 else max(2, (room + 2) // scheme.bits)
    return Engine(scheme, k, slab, None, rectangles(scheme.count, span))


def piece_residues(crt: Remainders, pieces: int, with_inverses: bool) -> tuple[tuple[int, ...], ...]:
    """For each modulus the residues of 2**(PIECE_BITS j), times the CRT inverse or not."""
    factors = crt.inverses if with_inverses else (1,) * len(crt.moduli)
    return tuple(
        tuple(_symmetric(f << (PIECE_BITS * j), m) for j in range(pieces))
        for f, m in zip(factors, crt.moduli, strict=True)
    )


def _symmetric(x: int, m: int) -> int:
    """The residue of x of least absolute value."""
    return (x + m // 2) % m - m // 2


def weight_limbs(crt: Remainders) -> tuple[tuple[int, ...], ...]:
    """Limbs of the weights and of -product, a row for each limb, the lowest first."""
    count = -(-(crt.product.bit_length() + 1) // LIMB_BITS)
    return tuple(zip(*(_limbs_of(weight, count) for weight in (*crt.weights, -crt.product)), strict=True))


def _limbs_of(x: int, count: int) -> list[int]:
    """Balanced, but the last one, which holds what is left."""
    half, base = 2 ** (LIMB_BITS - 1), 2**LIMB_BITS
    limbs = []
    for _ in range(count - 1):
        limbs.append((x + half) % base - half)
        x = (x - limbs[-1]) // base
    return [*limbs, x]
