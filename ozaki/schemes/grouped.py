"""Constants of the kernels for stacks of small products (kernels/stacks): what they cut residues and recombine by.

Of residues, groups of three moduli are reduced together, and the Chinese remainders are added in float64, in digits of
some 28 bits, each of whose sums is exact (kernels/arithmetic/grouped.cuh).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product
from math import isqrt, ldexp, log2, prod
from typing import NamedTuple

from ozaki.caches import cached
from ozaki.schemes.moduli import balanced
from ozaki.schemes.residues import Residues

FEWEST, MOST, MOST_COMPLEX = 4, 20, 15
"""The counts of residues that the kernels take. With fewer, the exponent of a row may be so small that it is no normal
number's; more do not leave room in shared memory, and take long. Images of more complex ones would have to be split."""

DEPTH = 256
"""The longest k, twice that of complex rows: a sum of so many products of bytes is below 2**24, so that its bits are a
float32."""

_ERROR_BITS = 22
"""A quotient of a sum of three is off by less than 2**-22 of its value: four roundings to float32 (grouped.cuh)."""


class Groups(NamedTuple):
    """Moduli in groups of three.

    Attributes
    ----------
    moduli : all, in order
    products : P_g of each group
    weights : W_g, of least magnitude
    largest : bounds of abs(z_g)
    quotient : a bound of abs(Q)
    """

    moduli: tuple[int, ...]
    products: tuple[int, ...]
    weights: tuple[int, ...]
    largest: tuple[Fraction, ...]
    quotient: Fraction

    @property
    def product(self) -> int:
        """M."""
        return prod(self.moduli)


@cached(64)
def groups_of(moduli: tuple[int, ...]) -> Groups:
    """The groups of some moduli of at most 256."""
    whole = prod(moduli)
    products, weights, largest = [], [], []
    for first in range(0, len(moduli), 3):
        group = moduli[first : first + 3]
        p = prod(group)
        weight = sum(pow(p // m, -1, m) * pow(whole // m, -1, m) * (whole // m) for m in group) % whole
        quotient = DEPTH * 255**2 * sum(Fraction(1, m) for m in group)
        assert quotient < 2**22  # in units of float32 numbers from 2 to 4
        products.append(p)
        weights.append(weight - whole if 2 * weight > whole else weight)
        largest.append(p * (Fraction(1, 2) + quotient / 2**_ERROR_BITS))
    most = sum((z * abs(Fraction(w, whole)) for z, w in zip(largest, weights, strict=True)), Fraction(1))
    return Groups(moduli, tuple(products), tuple(weights), tuple(largest), most)


def digits_at(x: int, places: tuple[int, ...]) -> tuple[int, ...]:
    """Balanced digits of an integer: it is the sum of digit i times 2**places[i]."""
    digits = []
    for place, above in pairwise(places):
        radix = 1 << (above - place)
        digit = (x + radix // 2) % radix - radix // 2
        digits.append(digit)
        x = (x - digit) // radix
    return (*digits, x)


@cached(64)
def places_of(scheme: Residues) -> tuple[int, ...]:
    """The places of the digits of weights: as few as let every sum of digits be an exact float64.

    Of at most four, the upper two make a float64, too, and lie so high that a rounded sum of the lower two does not
    reach below them. More are made digits of so many bits as the places have, and then any two of them make a float64.
    In all cases the upper two tell the quotient by the product of all moduli, rounded.
    """
    groups, bits = groups_of(scheme.moduli), prod(scheme.moduli).bit_length()
    for places in _candidates(bits):
        weights = [digits_at(w, places) for w in groups.weights]
        minus = digits_at(-groups.product, places)
        sums = [
            sum(z * abs(w[i]) for z, w in zip(groups.largest, weights, strict=True)) + groups.quotient * abs(minus[i])
            for i in range(len(places))
        ]
        exact = all(each < 2**53 - 2**_CARRIED for each in sums)
        if exact and len(places) == 4:
            upper = scheme.range + sums[0] + sums[1] * 2 ** places[1]
            exact = upper < 2 ** (53 + places[2])
        elif exact and len(places) > 4:
            exact = scheme.range < 2 ** (52 + places[4])
        # Q, which is off from its quotient by Cbar / M, comes from the upper two digits, in three roundings.
        below = sum((s * 2**p for s, p in zip(sums[:-2], places[:-2], strict=True)), Fraction(0))
        wrong = below / groups.product + 4 * groups.quotient / 2**53
        if exact and Fraction(scheme.range, groups.product) + wrong < Fraction(1, 2):
            return places
    raise AssertionError("no places for these moduli")


_CARRIED = 28
"""More bits than are carried from one digit to the next, of which there are more than four."""


def _candidates(bits: int) -> Iterator[tuple[int, ...]]:
    for count in range(2, 7):
        widths = product(range(26, 31), repeat=count - 1) if count <= 4 else [(26, 27, 26, 27, 26)[: count - 1]]
        for each in widths:
            places = tuple(sum(each[:i]) for i in range(count))
            if places[-1] <= bits:
                yield places


@cached(64)
def grouped_constants(scheme: Residues) -> tuple[int, ...]:
    """The struct GroupedConstants (grouped.cuh), in 32-bit numbers."""
    groups, places = groups_of(scheme.moduli), places_of(scheme)
    whole = groups.product
    doubles = [float(d) for w in groups.weights for d in digits_at(w, places)]
    doubles += [float(d) for d in digits_at(-whole, places)]
    doubles.append(2 ** places[-2] / whole)
    factors = [groups.products[t // 3] // m for t, m in enumerate(scheme.moduli)]
    fractions = [ldexp(1 / m, 127) for m in scheme.moduli]
    minus = [-p % 2**32 for p in groups.products]
    start = [(p * _BITS_OF_THREE + 2**31) % 2**32 for p in groups.products]
    of = f"<{len(doubles)}d{len(factors)}I{len(fractions)}f{len(minus)}I{len(start)}I"
    return _numbers(struct.pack(of, *doubles, *factors, *fractions, *minus, *start))


_BITS_OF_THREE = 0x40400000
"""Those of the float32 number 3."""


class Quotients(NamedTuple):
    """How residues follow from quotients in float64.

    Attributes
    ----------
    constants : the struct Cutting (kernels/stacks/residue_slices.cuh), in 32-bit numbers
    unsure : the number of the modulus for which the quotients of long elements may be off by one, or -1
    split : whether images are split
    sure : of split images, a bit for each modulus that has no need of it
    """

    constants: tuple[int, ...]
    unsure: int
    split: bool
    sure: int = 0


PLACE = 36
"""Images are split into H 2**PLACE + L (kernels/stacks/residue_slices.cuh)."""


@cached(64)
def quotients_of(scheme: Residues) -> Quotients:
    """How residues of images follow from quotients in float64.

    With w = X - 127.5, which is off by at most 1/2 (and 2**-44) since y - 127.5 is rounded and not y, q = RN(w / m)
    leaves abs(X - q m - 127.5) <= 1/2 + 2**-44 + m/2 + abs(w) d, d what RN(1 / m) m differs from 1 by. It has to be
    below 128.5, so that X - q m, an integer, is in [0, 255]. One modulus may be corrected; where several would need
    that, images are split, w is a number below 2**49, rounded by less than 2**-4, and q is right for all moduli.
    """
    largest = isqrt(scheme.range) + 128
    inverses = [1 / m for m in scheme.moduli]
    below, sure, unsure = largest < 51 * 2**50, float(2 * largest), []  # else quotients are below 2**51
    for t, (m, inverse) in enumerate(zip(scheme.moduli, inverses, strict=True)):
        room = 128 - Fraction(m, 2) - Fraction(1, 2**40)
        off = abs(Fraction(inverse) * m - 1)
        if m == 256 or (off * largest < room and largest < m * 2**51):
            continue
        unsure.append(t)
        sure, below = float(room / off) - 256, below and off * largest <= m
    minus = [-m % 2**32 for m in scheme.moduli]
    if not unsure or (below and len(unsure) == 1):
        doubles = struct.pack(f"<{len(inverses) + 1}d", *inverses, sure)
        return Quotients((*_numbers(doubles), *minus, *[0] * (len(inverses) % 2)), unsure[0] if unsure else -1, False)
    assert largest < 2 ** (PLACE + 42) and len(minus) <= MOST
    without = sum(1 << t for t in range(len(minus)) if t not in unsure) if largest < _HALVES else 0
    places = [balanced(2**PLACE, m) - (2**PLACE if without else 0) for m in scheme.moduli]
    doubles = struct.pack(f"<{2 * len(inverses)}d", *inverses, *map(float, places))
    return Quotients((*_numbers(doubles), *minus, *(x % 2**32 for x in places)), -1, True, without)


_HALVES = 2**60
"""Below this float64 y there is a float64 as near to y - 127.5 as 1/2: they are multiples of 128 at most."""


@cached(64)
def raising(scheme: Residues) -> tuple[int, ...]:
    """For each modulus a multiple that no sum of products of complex rows modulo it exceeds; to an even count, by 0."""
    most = DEPTH // 2 * 255**2
    return (*(-(-most // m) * m for m in scheme.moduli), *[0] * (scheme.count % 2))


def image_bits(scheme: Residues) -> int:
    """The least number of bits whose power of two no element of an image exceeds."""
    return int(log2(isqrt(scheme.range))) + 1


def _numbers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)
