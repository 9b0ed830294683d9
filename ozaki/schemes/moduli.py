"""Pairwise coprime moduli: those of a scheme of residues, and those of an accumulator."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from math import gcd, isqrt

from ozaki.caches import cached
from ozaki.schemes.image import ceil_log2

LARGEST = (256, 2**14 - 1, 2**21 - 1)
"""The largest modulus whose residues are one, two and three digits of seven bits (one: eight bits).

A symmetric residue r modulo m < 2**14 is 128 r1 + r0, one modulo m < 2**21 is 2**14 r2 + 128 r1 + r0, each digit
nearest to what is left, in [-64, 64]. The sum of two of them is in [-128, 127], so that int8 holds it.
"""

_LEAST = 17
"""Least modulus that is taken. The kernels accept 256 and odd moduli from 17 to 255 (kernels/arithmetic/residues.cuh).

With another even modulus m, f / m could lie halfway between two integers, and the kernels' quotient relies on there
being no such ties.
"""


def digits_of(m: int) -> int:
    """Digits of a residue modulo m: 1, 2 or 3."""
    return next(i for i, largest in enumerate(LARGEST, 1) if m <= largest)


def products_of(m: int) -> int:
    """Slice products for a modulus: 1, 3 or 6, those of all digits and of all sums of two digits (Karatsuba, Ofman)."""
    digits = digits_of(m)
    return digits * (digits + 1) // 2


def first_moduli(count: int) -> tuple[int, ...]:
    """The first `count` moduli of a scheme of residues.

    256, then downwards each integer that is coprime to all before it, as long as there are such from 17 on (49 of
    them); then in the same way from 2**14 - 1 on, and then from 2**21 - 1 on.
    """
    return _first(2 ** max(6, ceil_log2(count)))[:count]


@cached(32)
def _first(count: int) -> tuple[int, ...]:
    one, two, three = LARGEST
    return tuple(islice(_coprime(range(one, _LEAST - 1, -1), range(two, one, -1), range(three, two, -1)), count))


@cached(256)
def exact_moduli(depth: int, accumulator_bits: int, at_least: int) -> tuple[int, ...]:
    """Coprime moduli m with depth * (m/2)**2 <= 2**accumulator_bits and a product of at least `at_least`.

    They are taken from the largest odd one downwards, so that they are few.

    Raises
    ------
    ValueError
        If there are not enough.
    """
    return _enough(depth, accumulator_bits, at_least, bool)


def _enough(depth: int, accumulator_bits: int, at_least: int, suits: Callable[[int], object]) -> tuple[int, ...]:
    """The moduli of `exact_moduli` among the numbers that suit."""
    largest = 2 * isqrt(2**accumulator_bits // max(depth, 1))
    largest -= 1 - largest % 2  # odd moduli have symmetric residues
    found, product = [], 1
    for m in _coprime(filter(suits, range(largest, 2, -1))):
        found.append(m)
        product *= m
        if product >= at_least:
            return tuple(found)
    raise ValueError(f"the product of all coprime moduli up to {largest} is less than {at_least}")


def _coprime(*ranges: Iterable[int]) -> Iterator[int]:
    """Each number of the ranges that is coprime to all numbers before it."""
    product = 1
    for m in chain(*ranges):
        if gcd(m, product) == 1:
            yield m
            product *= m


def complex_moduli(count: int) -> tuple[int, ...]:
    """The first `count` moduli of a scheme of complex residues, those with the most bits for a slice product first.

    Downwards from 255 the odd numbers with a root of -1 (`root_of_minus_one`), which take two products, as long as the
    others, which take three, have fewer bits for each (53 is the last one); downwards from 253 to 17 all other odd
    numbers; then from 2**14 - 1 on those with a root. Each is coprime to all before it.
    """
    return _first_complex(2 ** max(6, ceil_log2(count)))[:count]


@cached(32)
def _first_complex(count: int) -> tuple[int, ...]:
    rooted, longer = (filter(root_of_minus_one, range(*ends, -2)) for ends in ((255, 51), (LARGEST[1], 256)))
    return tuple(islice(_coprime(rooted, range(255, _LEAST - 1, -2), longer), count))


@cached(4096)
def root_of_minus_one(m: int) -> int:
    """A number s with s**2 = -1 modulo m, for odd m whose prime factors are all 1 modulo 4; 0 for any other m > 1.

    Of p**e it is the one that a root modulo p leads to by Hensel's lemma; of m, the one that the Chinese remainder
    theorem gives.
    """
    root, product, rest, p = 0, 1, m, 3
    while rest > 1 and rest % 4 == 1:
        p = rest if p * p > rest else p
        power = 1
        while rest % p == 0:
            rest, power = rest // p, power * p
        if power > 1:
            if p % 4 != 1:
                return 0
            root, product = _joined(root, product, _root_of_power(p, power), power)
        p += 2
    return root if rest == 1 else 0


def _root_of_power(p: int, power: int) -> int:
    """A root of -1 modulo a power of the prime p, which is 1 modulo 4."""
    root = next(r for a in range(2, p) if (r := pow(a, (p - 1) // 4, p)) ** 2 % p == p - 1)
    modulus = p
    while modulus < power:
        modulus = min(modulus * modulus, power)
        root = (root - (root * root + 1) * pow(2 * root, -1, modulus)) % modulus
    return root


def _joined(x: int, m: int, y: int, n: int) -> tuple[int, int]:
    """The number that is x modulo m and y modulo n, and m n; m and n are coprime."""
    return (x + m * ((y - x) * pow(m, -1, n) % n)) % (m * n), m * n


@cached(256)
def exact_complex_moduli(depth: int, accumulator_bits: int, at_least: int) -> tuple[int, ...]:
    """What `exact_moduli` returns, of moduli with a root of -1 alone."""
    return _enough(depth, accumulator_bits, at_least, root_of_minus_one)


def balanced(x: int, m: int) -> int:
    """The residue of x modulo m in [-m/2, m/2)."""
    x %= m
    return x if 2 * x < m else x - m
