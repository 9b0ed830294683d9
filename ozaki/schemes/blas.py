"""Numbers for exact products through float64 BLAS: widths of limbs, pieces and slabs; what recombines residues."""

from __future__ import annotations

from ozaki.schemes.residues import Remainders

LIMB_BITS = 26
"""Of a limb: products of limbs by small numbers, and their sums, are exact in float64."""

PIECE_BITS = 27
"""An image is cut into pieces of this many bits before it is reduced."""

DEPTH = 2048
"""Inner indices of a slab at most, which bounds the workspace."""

LEAST_DEPTH = 1024
"""Residues are at most as wide as this many inner indices allow: a sum of residues times pieces stays below 2**51,
where the least residue is found by one quotient. (An image of 171 bits, the widest, is 7 pieces: 8 2**26 2**21.5 <
2**51.)"""


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
