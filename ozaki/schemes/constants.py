"""Constants of the kernels for slices, as tuples of 32-bit numbers (kernels/arithmetic: residues.cuh, crt.cuh)."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from math import ldexp, prod
from struct import pack, unpack

from ozaki.caches import cached
from ozaki.schemes import ComplexSlices, Digits, Residues
from ozaki.schemes.residues import Form, parts_of_products, remainders

KernelScheme = Digits | Residues
"""The schemes whose slices the kernels make, and whose products they round."""


@cached(1024)
def image_limbs(scheme: KernelScheme) -> int:
    """Number of 32-bit limbs that hold an element of an image with its sign."""
    if isinstance(scheme, Digits):
        return -(-scheme.bits * scheme.count // 32)
    return -(-(scheme.range.bit_length() // 2 + 2) // 32)


@cached(1024)
def product_limbs(scheme: KernelScheme) -> int:
    """Number of 32-bit limbs that hold an entry of Cbar or, of digits at any k < 2**40, of V (definitions.md, 3)."""
    if isinstance(scheme, Digits):
        return -(-(scheme.bits * (scheme.count + 1) + 41) // 32)
    return -(-prod(scheme_of(scheme).moduli).bit_length() // 32)


def scheme_of(scheme: Residues) -> Residues:
    """The scheme whose moduli hold an entry, or a part of one."""
    return scheme.of if isinstance(scheme, ComplexSlices) else scheme


def forms_of(scheme: Residues) -> tuple[Form, ...]:
    """What each slice is; the slices of real elements count these as real parts."""
    return scheme.forms if isinstance(scheme, ComplexSlices) else tuple(Form(m, 1, 0) for m in scheme.moduli)


def residue_constants(scheme: Residues, side: str, unsigned: bool, room: int) -> tuple[int, ...]:
    """The 32-bit numbers of the struct ResidueConstants (kernels/arithmetic/residues.cuh) for images of one side.

    With `unsigned`, residues lie in [0, m); else they are symmetric. A complex element has two images, one after the
    other. The last slice is repeated until there are `room`.
    """
    limbs, parts, crt = image_limbs(scheme), 1 + isinstance(scheme, ComplexSlices), remainders(scheme_of(scheme).moduli)
    inverses = dict(zip(crt.moduli, crt.inverses if side == "left" else [1] * len(crt.moduli), strict=True))
    slices = [(m, [each * inverses[m] % m for each in of_parts[:parts]]) for m, *of_parts in forms_of(scheme)]
    slices += slices[-1:] * (room - len(slices))
    fold = [
        sum(f * pow(2, 8 * (4 * w + j), m) % m << (8 * j) for j in range(4))
        for m, factors in slices
        for f in factors
        for w in range(limbs)
    ]
    quotients = [quotient(m, -sum(factors) * 2 ** (32 * limbs - 1), unsigned) for m, factors in slices]
    return (*fold, *chain(*quotients))


def quotient(m: int, start: int, unsigned: bool) -> tuple[int, int, int, int]:
    """The struct Quotient (residues.cuh) of modulus m, for sums that begin with `start` modulo m."""
    start, shift = start % m, 0
    if m % 2 and unsigned:
        start, shift = (start + (m + 1) // 2) % m, -(m - 1) // 2 * pow(m, -1, 256) % 256
    return start, _float32(ldexp(_number(_float32(1 / m)), 132)), _float32(96 + shift * 2.0**-17), m


def accumulator_moduli(moduli: tuple[int, ...], unsigned: bool) -> tuple[int, ...]:
    """The struct AccumulatorModuli (residues.cuh), for sums of products of unsigned or of signed bytes."""
    numbers: list[int] = []
    for m in moduli:
        fold = sum(pow(256, j, m) << (8 * j) for j in range(4))
        numbers += [fold, 0 if unsigned else -(2**31) % m, reciprocal_above(m), m, 2**32 - m]
    return (*numbers, *[0] * (5 * MOST_AT_ONCE - len(numbers)))


MOST_AT_ONCE = 64
"""Moduli of the structs AccumulatorModuli and PairModuli: MAX_MODULI of kernels/arithmetic/residues.cuh."""


def pair_moduli(moduli: tuple[int, ...], product: int) -> tuple[int, ...]:
    """The struct PairModuli (residues.cuh) for moduli with residues of two digits, and one of their three products."""
    numbers: list[int] = []
    for m in moduli:
        c = product_coefficients(2)[product] % m
        fold = [(c << 8 * j) % m for j in range(4)]
        numbers += [fold[0] | fold[1] << 16, fold[2] | fold[3] << 16, reciprocal_above(m), m]
    return (*numbers, *[0] * (4 * (MOST_AT_ONCE - len(moduli))))


def complex_moduli_constants(scheme: ComplexSlices) -> tuple[int, ...]:
    """The structs ComplexModulus (residues.cuh) of all moduli."""
    numbers: list[int] = []
    for m in scheme.of.moduli:
        of_parts = [(*c, 0)[:3] for c in parts_of_products(m)]
        pairs, thirds = [c[0] | c[1] << 8 for c in of_parts], [c[2] for c in of_parts]
        numbers += [*pairs, *thirds, reciprocal_above(m), m, 2**32 - m]
    return tuple(numbers)


def product_coefficients(digits: int) -> tuple[int, ...]:
    """What the slice products of a modulus count in the product of two residues of so many digits.

    With B = 2**7, r s = sum_i B**(2 i) r_i s_i + sum_(i<j) B**(i+j) ((r_i + r_j) (s_i + s_j) - r_i s_i - r_j s_j)
    (Karatsuba, Ofman). First come the products of digits, then those of sums of two digits, as slices do.
    """
    every = range(digits)
    of_digits = [2 ** (14 * i) - sum(2 ** (7 * (i + j)) for j in every if j != i) for i in every]
    return (*of_digits, *(2 ** (7 * (i + j)) for i in every for j in every if i < j))


def reciprocal_above(m: int) -> int:
    """The bits of 1 / m, rounded up to float32."""
    nearest = _float32(1 / m)
    return nearest if Fraction(_number(nearest)) * m >= 1 else nearest + 1


def crt_constants(scheme: Residues) -> tuple[int, ...]:
    """The 32-bit numbers of the struct CrtConstants (kernels/arithmetic/crt.cuh).

    Moduli are in groups of three, the last groups of two where their number is no multiple of three.
    """
    moduli, limbs, members = scheme.moduli, product_limbs(scheme), _groups(scheme)
    product = prod(moduli)
    factor = [([prod(group) // m for m in group] + [0, 0])[:3] for group in members]
    pair, third = [f[0] | f[1] << 16 for f in factor], [f[2] for f in factor]
    weight = [product // prod(group) >> (32 * w) & 0xFFFFFFFF for group in members for w in range(limbs)]
    shift = min(prod(group) for group in members).bit_length() - 1 + 31
    fraction = [((2 << shift) // prod(group) + 1) // 2 for group in members]
    minus = [(2 ** (32 * limbs) - product) >> (32 * w) & 0xFFFFFFFF for w in range(limbs)]
    return (*pair, *third, *weight, *fraction, *minus, shift - 32)


def _groups(scheme: Residues) -> list[tuple[int, ...]]:
    """The moduli of each group of kernels/arithmetic/crt.cuh."""
    moduli = scheme.moduli
    count = len(moduli)
    groups = -(-count // 3)
    pairs = 0 if count == 1 else (3 - count % 3) % 3
    sizes = [3] * (groups - pairs) + [2] * pairs if count > 1 else [1]
    members, first = [], 0
    for size in sizes:
        members.append(moduli[first : first + size])
        first += size
    return members


def _float32(x: float) -> int:
    """The bits of x, rounded to nearest in float32."""
    return int(unpack("<I", pack("<f", x))[0])


def _number(bits: int) -> float:
    """The float32 number with these bits."""
    return float(unpack("<f", pack("<I", bits))[0])
