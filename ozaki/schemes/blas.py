"""Constants of exact products through float64 BLAS: widths of limbs, pieces and slabs; tables of residues."""

from __future__ import annotations

from ozaki.schemes.residues import Remainders

LIMB_BITS = 26
"""Bits of a limb: products of limbs by small numbers, and sums of such products, are exact in float64."""

PIECE_BITS = 27
"""Bits of the pieces that an image is cut into before it is reduced modulo the moduli."""

DEPTH = 2048
"""Most inner indices of a slab (the part of k that is multiplied at a time); bounds the workspace."""

LEAST_DEPTH = 1024
"""Least number of inner indices for which moduli are chosen, even if k is smaller: it limits them to 2**22.5.

Then a sum of residues times pieces stays below 2**51, where one quotient finds the residue of least absolute value.
(An image of 171 bits, the widest, is 7 pieces: 8 2**26 2**21.5 < 2**51.)
"""


def piece_residues(crt: Remainders, pieces: int, with_inverses: bool) -> tuple[tuple[int, ...], ...]:
    """For each modulus, the residue of 2**(PIECE_BITS j) for every piece j, times the CRT inverse if wanted."""
    factors = crt.inverses if with_inverses else (1,) * len(crt.moduli)
    return tuple(
        tuple(_symmetric(f << (PIECE_BITS * j), m) for j in range(pieces))
        for f, m in zip(factors, crt.moduli, strict=True)
    )


def _symmetric(x: int, m: int) -> int:
    """The residue of x modulo m that has the least absolute value."""
    return (x + m // 2) % m - m // 2


def weight_limbs(crt: Remainders) -> tuple[tuple[int, ...], ...]:
    """Limbs of the CRT weights and of -product: a row for each limb, the lowest first, a column for each number."""
    count = -(-(crt.product.bit_length() + 1) // LIMB_BITS)
    return tuple(zip(*(_limbs_of(weight, count) for weight in (*crt.weights, -crt.product)), strict=True))


def _limbs_of(x: int, count: int) -> list[int]:
    """x as `count` limbs, the lowest first: all balanced but the last, which holds the rest of x."""
    half, base = 2 ** (LIMB_BITS - 1), 2**LIMB_BITS
    limbs = []
    for _ in range(count - 1):
        limbs.append((x + half) % base - half)
        x = (x - limbs[-1]) // base
    return [*limbs, x]
