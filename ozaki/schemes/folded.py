"""Constants of the kernel that recombines and rounds products with few inner indices (kernels/arithmetic/folded.cuh).

Groups of three moduli are reduced together, as in `grouped`. Residues of the left operand have the inverses of M / m_t
in them, so an entry is sum_g z_g M / P_g - Q M, and z of the last group takes Q P_g: weights are then no longer than M
/ P_g, and have a digit less than those of whole residues.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ldexp, prod
from typing import NamedTuple

from ozaki.caches import cached
from ozaki.schemes.grouped import digits_at
from ozaki.schemes.residues import Residues

_EXACT = 2**53
"""Integers below are float64 numbers."""

_SMALL = 2**24
"""The bits of integers below, as a float32, are these numbers times 2**-149."""


class Folded(NamedTuple):
    """How entries follow from accumulators of products with at most `longest` inner indices.

    Attributes
    ----------
    places : of the digits of weights
    small : whether all z, as they are held, are below 2**24
    constants : the struct FoldedConstants, in 32-bit numbers
    """

    places: tuple[int, ...]
    small: bool
    constants: tuple[int, ...]


def order(groups: int) -> tuple[int, ...]:
    """In which order groups are added: the last one, which Q is in, stands in the middle."""
    first = groups // 2
    return (*range(first), groups - 1, *range(first, groups - 1))


@cached(64)
def folded(scheme: Residues, longest: int) -> Folded:
    """The constants for these residues."""
    moduli, whole = scheme.moduli, prod(scheme.moduli)
    groups = [moduli[first : first + 3] for first in range(0, len(moduli), 3)]
    products = [prod(group) for group in groups]
    largest = [p * (Fraction(1, 2) + _off(group, longest)) for p, group in zip(products, groups, strict=True)]
    held = [int(z) + 1 for z in largest]  # z_g are held with as much more
    small = all(2 * z + 1 < _SMALL for z in held)
    # Q = RN(sum_g z_g / P_g), which is off from its sum by Cbar / M < 1/2 - 2**-10, is found from float32 sums below
    # 2**22: z and 1 / P_g are off by 2**-24 of themselves each, and so is each sum.
    sums = [Fraction(2 * z, p) for z, p in zip(held, products, strict=True)]
    wrong = (2 * sum(sums) + sum(sum(sums[: i + 1]) + 1 for i in range(len(sums)))) / 2**24
    assert wrong + Fraction(scheme.range, whole) < Fraction(1, 2) - Fraction(1, 2**16)
    quotient = int(sum(largest[g] / products[g] for g in range(len(groups))) + 1)
    largest[-1] += quotient * products[-1]

    weights = [whole // p for p in products]
    places = _places(largest, weights, scheme.range)
    before = sum(Fraction(z, p) for z, p in zip(held, products, strict=True))
    shift = int(before)  # Q is found with as much more
    # What is left of z in the last group when Q is taken: it may not wrap around 2**32.
    taken = (_BITS_OF_THREE + shift) * products[-1]
    offsets = [*held[:-1], (held[-1] - taken) % 2**32]
    assert largest[-1] < offsets[-1] < 2**32 - largest[-1], "it would wrap around"
    ratios = [float(Fraction(1, p)) for p in products]
    scale = 127 if small else -22
    start = -ldexp(float(before - shift), -22)
    doubles = [float(d) for w in weights for d in digits_at(w, places)] + [2.0**52 + x for x in offsets]
    factors = [products[t // 3] // m for t, m in enumerate(moduli)]
    fractions = [ldexp(1 / m, 127) for m in moduli]
    minus = [-p % 2**32 for p in products]
    starts = [(p * _BITS_OF_THREE + x) % 2**32 for p, x in zip(products, held, strict=True)]
    of = f"<{len(doubles)}d{len(factors)}I{len(fractions)}f{len(minus)}I{len(starts)}I{len(ratios)}ff"
    data = struct.pack(
        of, *doubles, *factors, *fractions, *minus, *starts, *(ldexp(r, scale) for r in ratios), start
    )  # fmt: skip
    data += bytes(-len(data) % 8)
    return Folded(places, small, struct.unpack(f"<{len(data) // 4}I", data))


_BITS_OF_THREE = 0x40400000
"""Those of the float32 number 3."""


def _off(group: tuple[int, ...], longest: int) -> Fraction:
    """By how much the float32 quotient of a sum of accumulators is off.

    By what float32 reciprocals of moduli are off, and by 2**-24 of each sum, of which the one that is nothing but an
    accumulator divided by a power of two is exact.
    """
    parts = [Fraction(longest * (m - 1) ** 2, m) for m in group]
    assert sum(parts) < 2**22 and longest * 255**2 < _SMALL
    inverses = sum(part * abs(_float32(1 / m) * m - 1) for part, m in zip(parts, group, strict=True))
    exact = parts[0] if group[0] & (group[0] - 1) == 0 else 0
    sums = sum(sum(parts[: i + 1]) for i in range(len(parts))) - exact
    return inverses + sums * Fraction(1001, 1000) / 2**24


def _float32(x: float) -> Fraction:
    return Fraction(struct.unpack("<f", struct.pack("<f", x))[0])


def _places(largest: Sequence[Fraction], weights: Sequence[int], most: int) -> tuple[int, ...]:
    """As few places as let every sum of digits be an exact float64 all along, for entries up to `most`.

    Of four, the upper two make a float64, too, and lie so high that a rounded sum of the lower two does not reach below
    them.
    """
    walk = order(len(weights))
    for places in _candidates():
        digits = [digits_at(w, places) for w in weights]
        terms = [[abs(digits[g][i]) * largest[g] for g in walk] for i in range(len(places))]
        sums = [sum(of) for of in terms]
        below = sum((s * 2**p for s, p in zip(sums[:-1], places[:-1], strict=True)), Fraction(0))
        whole = (most + below) / 2 ** places[-1]  # the sum of the highest digits
        of_highest = [min(sum(terms[-1][: i + 1]), whole + sum(terms[-1][i + 1 :])) for i in range(len(walk))]
        exact = all(s < _EXACT for s in sums[:-1]) and max(of_highest) < _EXACT
        if exact and len(places) == 4:
            upper = most + sums[0] + sums[1] * 2 ** places[1]
            exact = upper < 2 ** (53 + places[2])
        if exact:
            return places
    raise AssertionError("no places for these moduli")


def _candidates() -> Iterator[tuple[int, ...]]:
    for count in range(2, 8):
        widths = product(range(30, 25, -1), repeat=count - 1) if count <= 4 else ((w,) * (count - 1) for w in (28, 27))
        for each in widths:
            yield tuple(sum(each[:i]) for i in range(count))
