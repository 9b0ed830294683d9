"""The rules of the integer schemes, by brute force on Python integers."""

import itertools
from fractions import Fraction
from math import gcd, isqrt, prod

import pytest
from cases import MOST_BYTES, power

from ozaki.schemes import Digits, Residues, Scaling, magnitude_bits
from ozaki.schemes.digits import MAX_DIGITS, rectangles
from ozaki.schemes.moduli import exact_moduli, first_moduli, products_of
from ozaki.schemes.residues import ACCUMULATOR_DEPTH, UNSIGNED_DEPTH, remainders

DEPTHS = [1, 2, 3, 4, 5, 15, 16, 17, 1000, 4096, 2**17, 300000, 2**20, 2**20 + 1, 2**31, 2**40]


def bits_of(scaling: Scaling, statistic):
    """The bits of an image, by the rule of docs/definitions.md, section 2."""
    g = 0
    while statistic * scaling.step ** (g + 1) <= scaling.threshold:
        g += 1
    return scaling.base + g


# Magnitudes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, *DEPTHS])
def test_sums_of_squares_stay_below_2_61(k):
    width = magnitude_bits(k)
    assert 1 <= width <= 20
    assert k * 4**width <= 2**60
    assert width == 20 or k * 4 ** (width + 1) > 2**58  # as wide as k allows


# Residues -----------------------------------------------------------------------------------------------------------


def test_the_moduli():
    moduli = first_moduli(20)
    assert moduli[:14] == (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199)
    assert moduli[14:] == (197, 193, 191, 181, 179, 173)


def test_the_moduli_are_pairwise_coprime_and_none_is_left_out():
    moduli = first_moduli(MOST_BYTES)
    assert all(gcd(x, y) == 1 for x, y in itertools.combinations(moduli, 2))
    between = [x for x in range(moduli[-1], 257) if all(gcd(x, m) == 1 for m in moduli if m > x)]
    assert between == list(moduli[::-1])
    assert prod(moduli).bit_length() == 342


def test_there_is_no_fiftieth_modulus_of_some_use_up_to_256():
    moduli = first_moduli(MOST_BYTES + 1)
    assert moduli[-2:] == (29, 16381)
    assert all(any(gcd(m, other) > 1 for other in moduli) for m in range(17, 29))


@pytest.mark.parametrize("count", [50, 64, 65, 200, 1300, 1800])
def test_larger_moduli_are_coprime_to_all_others(count):
    moduli = first_moduli(count)
    assert moduli[:49] == first_moduli(49)
    for i, m in enumerate(moduli):
        assert gcd(m, prod(moduli[:i])) == 1


@pytest.mark.parametrize("m", [29, 256, 257, 16383, 16384, 2**21 - 1])
def test_digits_of_residues_and_their_sums_fit_a_byte(m):
    count = {1: 1, 3: 2, 6: 3}[products_of(m)]
    low, high = (-128, 127) if m == 256 else (-(m - 1) // 2, m // 2)
    for r in {
        low,
        high,
        *range(low, high + 1, max(1, m // 20011)),
        *(128 * j + 64 for j in range(low // 128, high // 128)),
    }:
        digits, rest = [], r
        for place in reversed(range(1, count)):
            digits.append((rest + 128**place // 2) // 128**place)
            rest -= digits[-1] * 128**place
        digits.append(rest)
        assert sum(d * 128**i for i, d in enumerate(reversed(digits))) == r
        assert all(-128 <= d <= 127 for d in digits)
        assert all(-128 <= x + y <= 127 for x, y in itertools.combinations(digits, 2))


@pytest.mark.parametrize("count", range(1, MOST_BYTES + 1))
def test_remainders_bring_back_every_integer(count):
    moduli = first_moduli(count)
    crt = remainders(moduli)
    reach = isqrt(Residues(count).range) ** 2
    integers = [0, 1, -1, reach, -reach, reach - 1, 1 - reach, *(reach * j // 97 for j in range(-96, 97))]
    for x in integers:
        y = [x * inverse % m for inverse, m in zip(crt.inverses, moduli, strict=True)]
        q = round(sum((Fraction(v, m) for v, m in zip(y, moduli, strict=True)), Fraction(0)))
        assert sum(v * w for v, w in zip(y, crt.weights, strict=True)) - q * crt.product == x


@pytest.mark.parametrize("count", range(2, MOST_BYTES + 1))
def test_the_integer_part_of_the_remainder_theorem_needs_ten_bits(count):
    product, reach = prod(first_moduli(count)), Residues(count).range
    assert Fraction(1, 2) - Fraction(reach, product) >= Fraction(1, 2**10) - Fraction(1, product)


def test_one_residue_holds_what_its_scaling_allows():
    scheme = Residues(1)
    assert scheme.moduli == (256,)
    assert isqrt(scheme.range) ** 2 < 128 * (1 - 2.0**-10)


def test_32_bits_hold_the_products_of_residues_up_to_the_accumulator_depth():
    assert ACCUMULATOR_DEPTH * 128 * 128 < 2**31
    assert UNSIGNED_DEPTH * 255 * 255 < 2**32
    assert ACCUMULATOR_DEPTH % 128 == UNSIGNED_DEPTH % 128 == 0


@pytest.mark.parametrize("depth", [1, 7, 1024, 2048, 10**6])
@pytest.mark.parametrize("count", [1, 2, 14, 15, MOST_BYTES])
def test_exact_moduli_fit_the_accumulator_and_hold_the_range(depth, count):
    least = 2 * Residues(count).range + 1
    moduli = exact_moduli(depth, 53, least)
    assert all(depth * m * m <= 4 * 2**53 for m in moduli)
    assert prod(moduli) >= least
    assert len(moduli) == 1 or prod(moduli[:-1]) < least


# Digits -------------------------------------------------------------------------------------------------------------


def balanced_digits(x, count, bits):
    """The digits of an integer by their definition, found from the least significant on."""
    digits = []
    for _ in range(count):
        d = (x + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
        digits.append(d)
        x = (x - d) >> bits
    assert x == 0, "has no such digits"
    return digits[::-1]


@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 7, MAX_DIGITS])
def test_the_largest_image_has_digits_and_the_next_one_none(bits, count):
    largest = Digits(count, bits).largest
    assert balanced_digits(largest, count, bits) == [2 ** (bits - 1) - 1] * count
    balanced_digits(-largest, count, bits)
    with pytest.raises(AssertionError, match="no such digits"):
        balanced_digits(largest + 1, count, bits)


def dropped(a, b, bits):
    """The sum of the dropped pairs of digits of two elements, which are given by their digits."""
    p = len(a)
    pairs = itertools.product(range(1, p + 1), repeat=2)
    return sum(2 ** (bits * (2 * p - s - t)) * a[s - 1] * b[t - 1] for s, t in pairs if s + t > p + 1)


@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 16])
def test_what_is_dropped_is_never_more_than_the_bound(bits, count):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    bound = Digits(count, bits).drop
    worst = abs(dropped([low] * count, [low] * count, bits))
    assert worst <= bound
    assert worst >= 0.98 * bound
    if count <= 3:  # the largest of all sums of products lies in a corner
        corners = [list(c) for c in itertools.product((low, high), repeat=count)]
        assert max(abs(dropped(a, b, bits)) for a in corners for b in corners) == worst


@pytest.mark.parametrize("bits", [7, 8])
def test_an_int32_holds_a_diagonal_up_to_its_depth(bits):
    for count in range(1, MAX_DIGITS + 1):
        depth = Digits(count, bits).depth()
        assert count * depth * 4 ** (bits - 1) < 2**31 <= count * (depth + 1) * 4 ** (bits - 1)


@pytest.mark.parametrize("span", [2, 3, 4, 5, 6])
def test_rectangles_tile_the_pairs(span):
    for count in range(1, 25):
        tiles = rectangles(count, span)
        pairs = [(r.s0 + i, r.t0 + j) for r in tiles for i in range(1, r.rows + 1) for j in range(1, r.cols + 1)]
        assert sorted(pairs) == [(s, t) for s in range(1, count + 1) for t in range(1, count + 2 - s)]
        assert all(r.rows + r.cols <= span for r in tiles)
        if span == 2:
            assert len(tiles) == Digits(count).products


# Scaling ------------------------------------------------------------------------------------------------------------


def at_the_thresholds(scaling: Scaling, smallest, largest):
    """Statistics next to those at which the bits change, and the ends of the range."""
    edges = {smallest, largest}
    for g in range(63):
        edge = scaling.threshold // scaling.step**g
        edges |= {edge - 1, edge, edge + 1}
    return sorted(x for x in edges if smallest <= x <= largest)


@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 14, 15, 30, MOST_BYTES])
def test_norm_scaling_keeps_rows_below_the_largest_norm(k, count):
    scheme = Residues(count)
    scaling = scheme.scaling(k)
    largest = isqrt(scheme.range)
    room = largest - (isqrt(k - 1) // 2 + 1)
    assert 4 * (isqrt(k - 1) // 2 + 1) ** 2 >= k  # no less than sqrt(k)/2
    if scaling is None:
        assert room <= 0
        return
    width = magnitude_bits(k)
    assert scaling.threshold.bit_length() in (61, 62)
    for squares in at_the_thresholds(scaling, 4 ** (width - 1), 2**60):
        bits = bits_of(scaling, squares)
        # norm(2**mu x)**2 <= squares 4**(bits - W); the rounding adds sqrt(k)/2 to the norm.
        assert squares * power(2 * (bits - width)) <= room**2
        assert squares * power(2 * (bits + 1 - width)) > room**2, "a bit is given away"


@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize("scheme", [Digits(p, r) for p in (1, 2, 3, 7, 8, MAX_DIGITS) for r in (7, 8)], ids=str)
def test_max_scaling_keeps_elements_below_the_largest(k, scheme):
    scaling = scheme.scaling(k)
    width = magnitude_bits(k)
    for peak in at_the_thresholds(scaling, 2 ** (width - 1), 2**width):
        bits = bits_of(scaling, peak)
        assert peak * power(bits - width) <= scheme.largest - Fraction(1, 2)
        # The threshold is a whole number: a bit is given away only where the next one would miss by less than one.
        assert (peak + 1) * power(bits + 1 - width) > scheme.largest - Fraction(1, 2)


@pytest.mark.parametrize(
    ("count", "k"),
    [
        (count, k)
        for count in range(2, MOST_BYTES + 1)
        for k in (1, 5, 1000, 2**20, 2**31)
        if Residues(count - 1).scaling(k)
    ],
)
def test_a_modulus_less_costs_the_bits_that_the_search_relies_on(k, count):
    more, less = Residues(count).scaling(k), Residues(count - 1).scaling(k)
    smallest = 4 ** (magnitude_bits(k) - 1)
    statistics = at_the_thresholds(more, smallest, 2**60) + at_the_thresholds(less, smallest, 2**60)
    lost = min(bits_of(more, x) - bits_of(less, x) for x in statistics)
    assert lost >= (3 if Residues(count).moduli[-1] >= 64 else 2)


@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize("k", [1, 1000, 2**31])
def test_a_digit_less_costs_its_bits(k, bits):
    for count in range(2, MAX_DIGITS + 1):
        more, less = Digits(count, bits).scaling(k), Digits(count - 1, bits).scaling(k)
        width = magnitude_bits(k)
        ends = 2 ** (width - 1), 2**width
        statistics = at_the_thresholds(more, *ends) + at_the_thresholds(less, *ends)
        assert min(bits_of(more, x) - bits_of(less, x) for x in statistics) >= bits
