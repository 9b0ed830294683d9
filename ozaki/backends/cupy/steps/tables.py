"""Tables for residues of any number of moduli, in the order in which kernels read them.

Kernels multiply bytes by `mma.sync`: 16 rows of a table at a time, 32 bytes a step. Lane 4 g + c of a warp reads four
limbs of a step at once: of row g the limbs c and, third, c + 4; of row g + 8 the second and the fourth.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ozaki.caches import cached_within
from ozaki.schemes import Residues
from ozaki.schemes.constants import product_coefficients, product_limbs, quotient
from ozaki.schemes.moduli import digits_of
from ozaki.schemes.residues import MOST_BYTES, remainders

Limbs = npt.NDArray[np.uint32]

STEP = 32
"""Bytes of a row that one `mma.sync` multiplies."""


@cached_within(8, MOST_BYTES, len)
def folds(scheme: Residues, side: str, limbs: int, words: int) -> bytes:
    """The argument `folds` of kernels/conversion/split_numbers.cu for images of so many limbs and words."""
    moduli = np.array(scheme.moduli, np.int64)
    residue = np.array(_factors(scheme, side), np.int64) % moduli
    of_bytes = np.zeros((len(moduli), 4 * words), np.uint32)
    of_bytes[:, 4 * limbs] = residue
    for p in range(4 * limbs):
        of_bytes[:, p] = residue
        residue = (residue << 8) % moduli
    ones, twos, threes = np.split(of_bytes, np.cumsum(scheme.by_digits)[:2])
    rows = [_whole(ones, 16), *_interleaved(twos, (0, 1)), *_interleaved(threes, (2, None), (0, 1))]
    table = np.concatenate([(x & 255).astype(np.uint8) for x in rows])
    return _for_lanes(table.view(np.uint32).reshape(-1, 16, words)).tobytes()


def _factors(scheme: Residues, side: str) -> tuple[int, ...]:
    """What residues of this side are multiplied by: the inverses of the Chinese remainders on the left."""
    moduli = scheme.moduli
    return remainders(moduli).inverses if side == "left" else (1,) * len(moduli)


def _whole(x: Limbs, rows: int) -> Limbs:
    """x, shape (n, p), with rows of zeros up to a multiple of `rows`."""
    return np.pad(x, ((0, -len(x) % rows), (0, 0)))


def _interleaved(x: Limbs, *pieces: tuple[int, int | None]) -> list[Limbs]:
    """Pieces of 16 rows for each eight rows of x: a digit of eight bits of these, then another one, or none."""
    eights = _whole(x, 8).reshape(-1, 8, x.shape[1])
    return [
        np.concatenate([np.zeros_like(eight) if digit is None else eight >> 8 * digit for digit in piece])
        for eight in eights
        for piece in pieces
    ]


def _for_lanes(limbs: Limbs) -> Limbs:
    """Pieces of limbs, shape (pieces, 16 rows, limbs), in the order in which lanes read them."""
    pieces, _, count = limbs.shape
    x = limbs.reshape(pieces, 2, 8, count // 8, 2, 4)  # piece, half of rows, g, step, half of the step, c
    return np.ascontiguousarray(x.transpose(0, 3, 2, 5, 4, 1))


@cached_within(8, MOST_BYTES, len)
def moduli(scheme: Residues, side: str, limbs: int, unsigned: bool) -> bytes:
    """The argument `moduli` of kernels/conversion/split_numbers.cu for images of so many limbs.

    `unsigned`: whether residues are in [0, m).
    """
    short, ones = limbs <= SHORT, scheme.by_digits[0]
    numbers: list[int] = []
    for t, (m, factor) in enumerate(zip(scheme.moduli, _factors(scheme, side), strict=True)):
        start = -factor * pow(2, 32 * limbs - 1, m)
        numbers += quotient(m, start, unsigned) if short and t < ones else (m, 2**32 // m, start % m, 0)
    return np.array(numbers, np.uint32).tobytes()


SHORT = 8
"""Most limbs of images that are short for kernels/conversion/split_numbers.cu: all their limbs are computed at once."""


@cached_within(8, MOST_BYTES, len)
def combinations(scheme: Residues, digits: int) -> bytes:
    """The structs Combination of kernels/conversion/combine_digits.cu for all moduli with so many digits."""
    return np.array([_combination(m, digits) for m in scheme.moduli if digits_of(m) == digits], np.uint32).tobytes()


def _combination(m: int, digits: int) -> list[int]:
    coefficients = [c % m for c in product_coefficients(digits)]
    start = -(2**31) * sum(coefficients) % m
    inverse = 2**64 // m
    of_struct = [m, 2**32 // m, inverse % 2**32, inverse >> 32, start, *coefficients]
    return of_struct + [0] * (12 - len(of_struct))


@cached_within(8, MOST_BYTES, lambda tables: sum(map(len, tables)))
def weights(scheme: Residues) -> tuple[bytes, bytes]:
    """The arguments `weights` and `minus_modulus` of kernels/conversion/recombine_numbers.cu."""
    crt, limbs = remainders(scheme.moduli), product_limbs(scheme)
    planes = [(m, weight, j) for m, weight in zip(crt.moduli, crt.weights, strict=True) for j in range(digits_of(m))]
    rows = 4 * 8 * (-(-(limbs + 1) // 8))
    table = np.zeros((len(planes) + -len(planes) % STEP, rows), np.uint8)
    for p, (m, weight, j) in enumerate(planes):
        fraction = (2 ** (33 + 8 * j) // m + 1) // 2  # to nearest
        whole = fraction | weight << (32 + 8 * j)
        table[p, : 4 * (limbs + 1)] = np.frombuffer(whole.to_bytes(4 * (limbs + 1), "little"), np.uint8)
    of_bytes = np.ascontiguousarray(table.T)  # a row for each byte of limbs, a column for each plane
    eights = of_bytes.reshape(-1, 8, 4, table.shape[0]).transpose(0, 2, 1, 3)  # limb of eight, byte: to byte, limb
    pieces = np.ascontiguousarray(eights).view(np.uint32).reshape(-1, 2, 16, len(table) // 4)
    lanes = [_for_lanes(pieces[:, half]) for half in range(2)]  # each (eights, steps, g, c, ...)
    both = np.stack(lanes, axis=2)
    minus = (2 ** (32 * limbs) - crt.product) % 2 ** (32 * limbs)
    return both.tobytes(), minus.to_bytes(4 * limbs, "little")
