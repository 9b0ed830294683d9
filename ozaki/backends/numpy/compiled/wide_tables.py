"""Constants of moduli of one byte and of two digits, as the compiled library reads them for numbers of many bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.compiled.tables import MODULUS
from ozaki.caches import cached_within
from ozaki.schemes.moduli import balanced
from ozaki.schemes.residues import MOST_BYTES, Remainders, remainders

_PANEL = 8
"""Rows of a panel (kernels/cpu/words.h)."""

_BYTE_MODULUS = np.dtype([("modulus", "i4"), ("inverse", "f4"), ("fold", "i4"), ("offset", "i4")])
_DIGIT_MODULUS = np.dtype([("modulus", "i4"), ("inverse", "f4"), ("offset", "i4")])
_DIGIT_PRODUCT = np.dtype([("modulus", "i4"), ("inverse", "f4"), ("weights", "i4", (3, 2))])

_SLACK = 128
"""What right residues of two digits exceed the least ones by at most, that they are not negative (wide_split.h)."""

_QUOTIENT_BITS, _QUOTIENT_ROWS = 32, 5
_QUOTIENT_SHIFT = 2**20
"""The quotients of the Chinese remainder theorem, in units of 2**-32, and what makes them positive (limbs.h)."""

Bytes = npt.NDArray[np.int8]
Starts = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class SideTables:
    """Constants of the residues of one operand (`WideSplit` of wide_split.h).

    Attributes
    ----------
    rows, starts : bytes of the powers of 256 modulo each number, [panels][words][8][4]; and [panels][8]
    bytes, digits : the moduli
    """

    rows: Bytes
    starts: Starts
    bytes: npt.NDArray[Any]
    digits: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class WideTables:
    """Constants of moduli of at most 256, and then of others below 2**14.

    Attributes
    ----------
    crt : their Chinese remainder theorem
    words : of 32 bits of an image
    sides : of residues of images; the left ones are multiplied by the inverses of the theorem
    moduli, products : of products of one byte, and of two digits
    planes, limbs : bytes of the residues of an entry; limbs of Cbar
    quotient, quotient_starts, weights, starts : see `Remainders` of limbs.h
    """

    crt: Remainders
    words: int
    sides: dict[str, SideTables]
    moduli: npt.NDArray[Any]
    products: npt.NDArray[Any]
    planes: int
    limbs: int
    quotient: Bytes
    quotient_starts: Starts
    weights: Bytes
    starts: Starts

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        sides = sum(side.rows.nbytes + side.starts.nbytes for side in self.sides.values())
        return sides + self.quotient.nbytes + self.weights.nbytes + self.starts.nbytes


@cached_within(64, MOST_BYTES, lambda tables: tables.nbytes)
def wide_tables_of(moduli: tuple[int, ...], words: int) -> WideTables:
    """The constants of these moduli, for images of so many words."""
    crt = remainders(moduli)
    sides = {
        side: _side(moduli, factors, words, right)
        for side, factors, right in (("left", crt.inverses, False), ("right", (1,) * len(moduli), True))
    }
    ones, several = [m for m in moduli if m <= 256], [m for m in moduli if m > 256]
    of_bytes = np.array([(m, 1.0 / m, balanced(2**16, m)) for m in ones], MODULUS)
    # 2**14 h + 2**7 (s - h - l) + l, of the products of upper digits, lower ones and sums.
    factors = 2**14 - 2**7, 1 - 2**7, 2**7
    products = np.array([(m, 1.0 / m, tuple(_pair(x, m) for x in factors)) for m in several], _DIGIT_PRODUCT)
    return WideTables(crt, words, sides, of_bytes, products, len(ones) + 2 * len(several), *_to_limbs(crt))


def _side(moduli: tuple[int, ...], factors: tuple[int, ...], words: int, right: bool) -> SideTables:
    """The constants of residues of images, times a factor for each modulus."""
    ones = sum(m <= 256 for m in moduli)
    offsets = [0 if m == 256 or not right else (m - 1) // 2 + _SLACK * (m > 256) for m in moduli]
    m, residue = np.array(moduli, np.int64), np.array([f % m for f, m in zip(factors, moduli, strict=True)], np.int64)
    powers = np.empty((4 * words, len(m)), np.int64)
    for power in powers:
        power[...] = (residue + m // 2) % m - m // 2
        residue = residue * 256 % m
    # Images are 2**(32 words - 1) more than they are, and residues of right ones less by their offsets.
    starts = [
        balanced(-(f << 32 * words - 1) - offset, m) for f, m, offset in zip(factors, moduli, offsets, strict=True)
    ]
    lower = (powers[:, ones:] + 64) % 128 - 64
    digits = np.stack((lower, (powers[:, ones:] - lower) >> 7), axis=-1).reshape(4 * words, -1)
    of_bytes, of_digits = _in_panels(powers[:, :ones].T), _in_panels(digits.T)
    # A start is a row's; that of two digits is the lower row's.
    first = np.zeros((len(of_bytes) + len(of_digits)) * _PANEL, np.int32)
    first[:ones] = starts[:ones]
    first[len(of_bytes) * _PANEL :: 2][: len(m) - ones] = starts[ones:]
    byte_moduli = np.array(
        [(m, 1.0 / m, balanced(2**16, m), offset) for m, offset in zip(moduli[:ones], offsets[:ones], strict=True)],
        _BYTE_MODULUS,
    )
    digit_moduli = np.array(
        [(m, 1.0 / m, offset) for m, offset in zip(moduli[ones:], offsets[ones:], strict=True)], _DIGIT_MODULUS
    )
    return SideTables(np.concatenate((of_bytes, of_digits)), first, byte_moduli, digit_moduli)


def _in_panels(rows: npt.NDArray[Any]) -> Bytes:
    """Rows of bytes, shape (rows, multiple of 4), as panels [panels][words][8][4]."""
    count, width = rows.shape
    padded = np.zeros((-(-count // _PANEL) * _PANEL, width), np.int8)
    padded[:count] = rows
    return np.ascontiguousarray(padded.reshape(-1, _PANEL, width // 4, 4).swapaxes(1, 2))


def _pair(weight: int, m: int) -> tuple[int, int]:
    """A weight, and 2**16 times it, modulo m (digit_products.h)."""
    return balanced(weight, m), balanced(weight << 16, m)


def _to_limbs(crt: Remainders) -> tuple[int, Bytes, Starts, Bytes, Starts]:
    """The limbs, and the constants that make them of residues (limbs.h)."""
    product, moduli = crt.product, crt.moduli
    limbs = -(-product.bit_length() // 64) * 2  # Cbar is below half the product; an even number
    # A residue is 256 times its upper byte, if it has one, plus the lower one, both signed.
    of_bytes = [[balanced(product // m << 8 * byte, product) for byte in range(1 if m <= 256 else 2)] for m in moduli]
    weights = [weight for each in of_bytes for weight in each]
    weights += [0] * (-len(weights) % 4)
    constant = -128 * sum(weights)
    shares = [((weight << _QUOTIENT_BITS + 1) // product + 1) // 2 for weight in weights]
    quotient = _in_panels(_bytes_of(shares, _QUOTIENT_ROWS).T)
    # The fifth row has what four bytes do not hold.
    share = (constant << _QUOTIENT_BITS) // product
    first = _bytes_of([share], 4)[0].astype(np.int64)
    rest = (share - sum(int(byte) << 8 * i for i, byte in enumerate(first))) >> 32
    quotient_starts = np.zeros(_PANEL, np.int32)
    quotient_starts[:_QUOTIENT_ROWS] = [*first, rest]
    columns = [*weights, *(-product << 8 * i for i in range(4))]
    rows = _in_panels(_bytes_of(columns, 4 * limbs).T)
    starts = _bytes_of([constant + _QUOTIENT_SHIFT * product], 4 * limbs)[0].astype(np.int32)
    return limbs, quotient, quotient_starts, rows, starts


def _bytes_of(integers: list[int], count: int) -> Bytes:
    """The balanced bytes of integers modulo 256**count, the lowest first: shape (integers, count)."""
    whole, bias = 256**count, 0x80 * (256**count // 255)
    found = b"".join(((x + bias) % whole).to_bytes(count, "little") for x in integers)
    return (np.frombuffer(found, np.uint8) ^ 128).view(np.int8).reshape(len(integers), count)
