"""Residues of any number of moduli, and numbers of any length: arithmetic/modulus.cuh and numbers.cuh, and the tables.

Functions are compared with Python's integers; tables are read as the comments of the kernels say that these read them.
"""

import ctypes
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from definition import moduli_of
from shim import call, compiled

from chosen import THREES, TWOS, Chosen
from ozaki.backends.cupy.steps import tables
from ozaki.schemes import Residues, constants

MODULI = moduli_of(2000)
ONES = MODULI[:49]
OF_TWO_DIGITS = [m for m in MODULI if 256 < m < 2**14]
OF_THREE_DIGITS = MODULI[49 + len(OF_TWO_DIGITS) :]

MODULUS = np.dtype([("modulus", "u4"), ("inverse", "u4"), ("start", "u4"), ("unused", "u4")])
QUOTIENT = np.dtype([("start", "u4"), ("inverse", "f4"), ("addend", "f4"), ("modulus", "u4")])
PAIR = np.dtype([("fold_02", "u4"), ("fold_13", "u4"), ("inverse", "f4"), ("modulus", "u4")])

SOURCE = """
#include "arithmetic/modulus.cuh"
#include "arithmetic/numbers.cuh"

template <int N, bool NONNEGATIVE>
void digits(const uint32_t* r, const uint32_t* modulus, int32_t* out, int64_t n) {
  constexpr int SLICES = slices_of_digits(N);
  for (int64_t i = 0; i < n; ++i) {
    int digit[N];
    digits_of<N, NONNEGATIVE>(r[i], *modulus, digit);
    for (int s = 0; s < SLICES; ++s) out[i * SLICES + s] = slice_of_digits<N>(digit, s);
  }
}

// Numbers first, first + N ... at a time; `out` [words][n].
template <int AT_ONCE, int N, typename Element, typename View>
void rounded(const View& x, const int64_t* shifts, int words, uint32_t* out, uint32_t* more, int64_t n) {
  for (int64_t first = 0; first < n; first += N) {
    Element element[N];
    int64_t s[N];
    uint32_t up[N];
    for (int i = 0; i < N; ++i) element[i] = Element(x, first + i), s[i] = shifts[first + i];
    const auto to = [&](int i, int w, uint32_t limb) { out[w * n + first + i] = limb; };
    round_fractions<AT_ONCE>(element, s, words, to, up);
    for (int i = 0; i < N; ++i) more[first + i] = up[i];
  }
}
template <typename T> void floats(const T* x, int64_t* signs, int64_t* exponents, uint32_t* limbs, int64_t n) {
  const FloatsView<T> view = {x, 0, 0, 0};
  for (int64_t i = 0; i < n; ++i) {
    const FloatNumber number(view, i);
    signs[i] = number.sign, exponents[i] = number.exponent;
    for (int j = -1; j < 4; ++j) limbs[i * 5 + j + 1] = number.limb(j);
  }
}

extern "C" {
void residues(const uint32_t* x, const Modulus* m, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = residue(x[i], m->modulus, m->inverse);
}
void residues_64(const uint64_t* x, const uint64_t* m, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = residue_64(x[i], static_cast<uint32_t>(m[0]), m[1]);
}
void residues_below_24(const uint32_t* x, const PairModulus* m, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = residue_below_24(x[i], m->modulus, m->inverse);
}
void pair_residues(const uint32_t* x, const uint32_t* old, const PairModulus* m, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = pair_residue(x[i], old[i], *m);
}
void floats_32(const float* x, int64_t* s, int64_t* e, uint32_t* limbs, int64_t n) { floats(x, s, e, limbs, n); }
void floats_64(const double* x, int64_t* s, int64_t* e, uint32_t* limbs, int64_t n) { floats(x, s, e, limbs, n); }
void rounded_floats(const double* x, const int64_t* s, int words, uint32_t* out, uint32_t* more, int64_t n) {
  const FloatsView<double> view = {x, 0, 0, 0};
  rounded<4, 2, FloatNumber>(view, s, words, out, more, n);
}
"""
OF_DIGITS = """
void digits_{n}_{u}(const uint32_t* r, const uint32_t* modulus, int32_t* out, int64_t n) {{
  digits<{n}, {u}>(r, modulus, out, n);
}}
"""
OF_NUMBERS = """
void rounded_{n}_{a}(const int8_t* signs, const int64_t* exponents, const uint32_t* limbs, int64_t count,
                 const int64_t* s, int words, uint32_t* out, uint32_t* more, int64_t n) {{
  const NumbersView view = {{signs, exponents, limbs, n, count, 0, 0, 0}};
  rounded<{a}, {n}, Number>(view, s, words, out, more, n);
}}
"""


TOGETHER = [(1, 8), (2, 8), (4, 4)]
"""Numbers, and limbs of each, that are loaded at a time."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE + "".join(OF_DIGITS.format(n=n, u=u) for n in (1, 2, 3) for u in (0, 1))
    source += "".join(OF_NUMBERS.format(n=n, a=a) for n, a in TOGETHER)
    return compiled(source + "}\n", tmp_path_factory.mktemp("numbers"))


# Residues -----------------------------------------------------------------------------------------------------------


def reciprocal_above(m):
    """1 / m rounded up to float32: for 2^e < m <= 2^(e+1) a multiple of 2^(-e-24)."""
    e = (m - 1).bit_length() - 1
    return np.float32(-(-(2 ** (e + 24)) // m) * 2.0 ** -(e + 24))


def modulus(m):
    """The struct Modulus, as kernels/arithmetic/modulus.cuh describes it."""
    return np.array([(m, 2**32 // m, 0, 0)], MODULUS)


def test_residues(shim, rng):
    """Of random numbers, of all powers of two and their neighbours, and of neighbours of multiples of the modulus."""
    around = np.arange(-2, 3)
    edges = [0, 1, 2, 2**32 - 1, 2**32 - 2, *(2**e + d for e in range(2, 32) for d in (-1, 0, 1))]
    some = np.array([*edges, *rng.integers(0, 2**32, 500).tolist()])
    for m in MODULI:
        multiples = m * np.append(rng.integers(0, 2**32 // m, 50), 2**32 // m)
        x = np.concatenate([some, (multiples[:, None] + around).ravel()])
        x = x[(x >= 0) & (x < 2**32)]
        out = np.empty(len(x), np.uint32)
        call(shim.residues, x.astype(np.uint32), modulus(m), out, len(x))
        assert np.array_equal(out, x % m), m


def test_residues_of_64_bits(shim, prng):
    some = [0, 1, 2**64 - 1, 2**64 - 2, *(2**e + d for e in range(2, 64) for d in (-1, 0, 1))]
    some += [prng.getrandbits(prng.randint(1, 64)) for _ in range(300)]
    for m in MODULI:
        near = [min(prng.randint(0, 2**64 // m) * m + d, 2**64 - 1) for d in (-2, -1, 0, 1, 2) for _ in range(9)]
        top = 2**64 // m * m
        x = np.array([*some, *(max(each, 0) for each in near), top - 1, min(top, 2**64 - 1)], np.uint64)
        out = np.empty(len(x), np.uint32)
        call(shim.residues_64, x, np.array([m, 2**64 // m], np.uint64), out, len(x))
        assert np.array_equal(out, x % np.uint64(m)), m


def near_multiples(m, below):
    """All f below that bound at most 2 away from a multiple of m, and half of one."""
    f = (np.arange(0, below + m, m)[:, None] + [-2, -1, 0, 1, 2, m // 2]).ravel()
    return f[(f >= 0) & (f < below)]


def test_quotients_below_24_bits_rounded_down():
    """What the header claims of RU(1 / m), whose function the device alone has, and of the residue that follows."""
    for m in [*ONES, *OF_TWO_DIGITS]:
        inverse = reciprocal_above(m)
        below = np.nextafter(inverse, np.float32(0))
        assert Fraction(float(inverse)) * m >= 1 > Fraction(float(below)) * m
        assert constants.reciprocal_above(m) == int(inverse.view(np.uint32))
        bits, power = np.frexp(float(inverse))
        f = near_multiples(m, 2**24)
        quotient = f * int(bits * 2**24) >> 24 - int(power)  # of f 2^-149 and RU(1 / m), rounded down to that unit
        assert (quotient - f // m).min() == 0 and (quotient - f // m).max() <= 1
        rest = (f - quotient * m) % 2**32
        assert np.array_equal(np.minimum(rest, (rest + m) % 2**32), f % m), m


def test_residues_below_24_bits(shim):
    for m in [*ONES, *OF_TWO_DIGITS[::7]]:
        f = near_multiples(m, 2**24)
        out = np.empty(len(f), np.uint32)
        call(shim.residues_below_24, f.astype(np.uint32), np.array([(0, 0, reciprocal_above(m), m)], PAIR), out, len(f))
        assert np.array_equal(out, f % m), m


def test_pair_residues(shim, rng):
    """x c + old modulo m, c one of the coefficients of the three products, for the structs that the library fills."""
    bytes_ = list(itertools.product([0, 1, 127, 255], repeat=4))
    some = [int.from_bytes(bytes(b), "little") for b in bytes_] + rng.integers(0, 2**32, 300).tolist()
    x = np.array(some, np.int64)
    groups = [tuple(OF_TWO_DIGITS[i : i + 64]) for i in range(0, len(OF_TWO_DIGITS), 64)]
    assert len(groups[-1]) < 64 == len(groups[0])
    for moduli in groups:
        of_products = [np.array(constants.pair_moduli(moduli, p), np.uint32).view(PAIR) for p in range(3)]
        for i in range(0, len(moduli), 5):
            m = moduli[i]
            coefficients = 1 - 2**7, 2**14 - 2**7, 2**7
            for table, coefficient in zip(of_products, coefficients, strict=True):
                assert len(table) == 64
                for old in (np.zeros_like(x), np.full_like(x, m - 1), rng.integers(0, m, len(x))):
                    out = np.empty(len(x), np.uint32)
                    given = x.astype(np.uint32), old.astype(np.uint32), table[i : i + 1].copy()
                    call(shim.pair_residues, *given, out, len(x))
                    assert np.array_equal(out, (x * coefficient + old) % m), m
                fold = [table[i]["fold_02"] & 0xFFFF, table[i]["fold_02"] >> 16]
                fold += [table[i]["fold_13"] & 0xFFFF, table[i]["fold_13"] >> 16]
                assert 255 * sum(map(int, fold)) + m - 1 < 2**24  # what residue_below_24 relies on


# Digits -------------------------------------------------------------------------------------------------------------


def slices_of(shim, r, m, digits, unsigned):
    out = np.empty((len(r), digits * (digits + 1) // 2), np.int32)
    function = getattr(shim, f"digits_{digits}_{unsigned}")
    call(function, r.astype(np.uint32), np.array([m], np.uint32), out, len(r))
    return out.astype(np.int64)


@pytest.mark.parametrize("unsigned", [0, 1])
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_digits(shim, rng, digits, unsigned):
    """Digits and their sums fit a byte and are those of the residue; products of slices are those of residues."""
    of_kind = (ONES, OF_TWO_DIGITS, OF_THREE_DIGITS)[digits - 1]
    for m in {of_kind[0], of_kind[1], of_kind[-1], *rng.choice(of_kind, 5).tolist()}:
        every = np.arange(m)
        if m > 2**14:
            edges = np.array([0, m // 2, m])[:, None] + np.arange(-300, 301)
            every = np.append(edges[(edges >= 0) & (edges < m)], rng.integers(0, m, 20000))
        slices = slices_of(shim, every, m, digits, unsigned)
        own = slices[:, :digits]
        value = sum(own[:, i] << 7 * i for i in range(digits))
        if unsigned:
            assert np.array_equal(value, every) and slices.min() >= 0 and slices.max() <= 255
            assert digits == 1 or own.max() <= 127
        else:
            balanced = np.where(2 * every < m, every, every - m)
            assert np.array_equal(value, balanced) and slices.min() >= -128 and slices.max() <= 127
            assert digits == 1 or abs(own).max() <= 64
        pairs = [(i, j) for i in range(digits) for j in range(i + 1, digits)]
        for s, (i, j) in enumerate(pairs, digits):
            assert np.array_equal(slices[:, s], own[:, i] + own[:, j])
        other = rng.permutation(len(every))
        products = slices * slices[other]
        coefficients = constants.product_coefficients(digits)
        combined = sum(products[:, s] % m * (c % m) for s, c in enumerate(coefficients))
        assert np.array_equal(combined % m, every * every[other] % m), m


# Numbers ------------------------------------------------------------------------------------------------------------


def rounding(fraction, bits, s):
    """floor(2^s F / 2^bits), and whether RN of it, ties to even, is one more."""
    exact = Fraction(fraction) * Fraction(2) ** (s - bits)
    floor = math.floor(exact)
    return floor, round(exact) - floor


def some_number(prng, count, s):
    """A fraction of `count` limbs whose first bit is set, often a tie where bit s is the first one after the point."""
    bits = 32 * count
    fraction = prng.getrandbits(bits) | 1 << bits - 1
    kind, kept = prng.randrange(7), bits - s  # kept: bits after the point
    if kind == 0:
        fraction = fraction >> prng.randrange(bits) << prng.randrange(bits)
    elif kind == 1:
        fraction = 2**bits - 1
    elif kind == 2:
        fraction = 1 << bits - 1
    elif kind <= 5 and 0 < kept <= bits:  # a tie, or next to one
        fraction = fraction >> kept << kept | 1 << kept - 1
        fraction += (0, 1, -1, 1 << kept >> 1, 1 << prng.randrange(kept))[prng.randrange(5)]
    fraction %= 2**bits
    return fraction << bits - fraction.bit_length() if fraction else 1 << bits - 1


def some_shift(prng, words, count):
    """A shift by at most as many bits as `words` limbs have, of a fraction of `count` limbs."""
    most = 32 * words
    kind = prng.randrange(5)
    if kind == 0:
        return min(32 * prng.randint(0, words) + prng.choice((0, 0, 1, 31)), most)
    if kind == 1:
        return prng.choice((0, -1, -40, -(2**31), -(2**33), -(2**61), most))
    return prng.randint(0, min(most, 32 * count) if kind == 2 else most)


@pytest.mark.parametrize("together", TOGETHER)
@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 17, 70])
def test_rounded_fractions(shim, prng, together, count):
    """Images of 1 to 70 limbs of numbers of 1 to 70: shifts of all sorts, ties to even, zeros."""
    n, ties = 240, 0
    for words in (1, 2, 7, 8, 9, 16, 23, 70):
        shifts = [some_shift(prng, words, count) for _ in range(n)]
        fractions = [some_number(prng, count, s) for s in shifts]
        signs = [prng.choice((1, -1, -1, 1, 0)) for _ in range(n)]
        fractions = [f if sign else 0 for f, sign in zip(fractions, signs, strict=True)]
        limbs = np.array([[f >> 32 * (count - 1 - i) & 0xFFFFFFFF for f in fractions] for i in range(count)], np.uint32)
        out, more = np.full((words, n), 0xA5A5A5A5, np.uint32), np.empty(n, np.uint32)
        planes = np.array(signs, np.int8), np.zeros(n, np.int64), limbs
        arguments = ctypes.c_int64(count), np.array(shifts, np.int64), ctypes.c_int(words), out, more
        call(getattr(shim, "rounded_{}_{}".format(*together)), *planes, *arguments, n)
        for i, (f, s) in enumerate(zip(fractions, shifts, strict=True)):
            got = sum(int(limb) << 32 * w for w, limb in enumerate(out[:, i]))
            # So far below 1/2 every shift is the same.
            expected = rounding(f, 32 * count, max(s, -100))
            assert (got, int(more[i])) == expected, (hex(f), s, words)
            ties += f != 0 and 0 <= s < 32 * count and (f << s) % 2 ** (32 * count) == 2 ** (32 * count - 1)
    assert ties > 30


def some_floats(prng, dtype, n):
    info = np.finfo(dtype)
    size = 8 * info.dtype.itemsize
    bits = [prng.getrandbits(size) for _ in range(n)]
    bits += [prng.getrandbits(size - info.nexp - 1) >> prng.randrange(info.nmant) for _ in range(n)]  # subnormals
    x = np.array(bits, f"u{size // 8}").view(dtype)
    special = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, info.max, info.tiny, info.smallest_subnormal]
    return np.concatenate([np.array(special, dtype), x, -x])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_of_floats(shim, prng, dtype):
    x = some_floats(prng, dtype, 2000)
    n = len(x)
    signs, exponents, limbs = np.empty(n, np.int64), np.empty(n, np.int64), np.empty((n, 5), np.uint32)
    call(getattr(shim, f"floats_{dtype[5:]}"), x, signs, exponents, limbs, n)
    assert not limbs[:, [0, 3, 4]].any()  # outside of the fraction
    for value, sign, exponent, (high, low) in zip(x, signs.tolist(), exponents.tolist(), limbs[:, 1:3], strict=True):
        fraction = Fraction(int(high) << 32 | int(low), 2**64)
        if not np.isfinite(value) or value == 0:
            assert sign == 0 == fraction
        else:
            assert fraction >= Fraction(1, 2) and sign * fraction * Fraction(2) ** exponent == Fraction(float(value))


def test_rounded_floats(shim, prng):
    """Images of floats, NaN and Inf counting as zeros."""
    x = some_floats(prng, "float64", 500)
    x = np.append(x, np.ldexp([3.0, 5.0, -7.0, 2.0**52 + 1, 2.0**53 - 1], [0, -1000, 1000, 3, 4]))
    x = x[: len(x) // 2 * 2]
    for words in (1, 3, 8, 12):
        shifts = [prng.randint(-2, min(32 * words, 70)) for _ in x]
        out, more = np.empty((words, len(x)), np.uint32), np.empty(len(x), np.uint32)
        call(shim.rounded_floats, x, np.array(shifts, np.int64), ctypes.c_int(words), out, more, len(x))
        for i, (value, s) in enumerate(zip(x.tolist(), shifts, strict=True)):
            fraction = Fraction(abs(math.frexp(value)[0])) if math.isfinite(value) else Fraction(0)
            got = sum(int(limb) << 32 * w for w, limb in enumerate(out[:, i]))
            assert (got, int(more[i])) == rounding(fraction, 0, s), (value, s)


# Tables -------------------------------------------------------------------------------------------------------------

SCHEMES = [Residues(9), Residues(60), Chosen.of(3, 9, 10), Chosen.of(17, 0, 1)]


def test_chosen_moduli_are_of_every_kind():
    everything = [*ONES, *TWOS, *THREES]
    assert all(math.gcd(m, n) == 1 for m, n in itertools.combinations(everything, 2))
    assert [Chosen.of(3, 9, 10).by_digits, Residues(60).by_digits] == [(3, 9, 10), (49, 11, 0)]


def rows_of_lanes(lanes):
    """16 rows of `limbs` limbs from what lanes read: shape (limbs / 8, 32 lanes, 4).

    Lane 4 g + c reads of row g the limbs c and, third, c + 4 of eight; of row g + 8 the second and the fourth.
    """
    steps = len(lanes)
    rows = np.zeros((16, 8 * steps), np.uint32)
    for step, g, c in itertools.product(range(steps), range(8), range(4)):
        at = lanes[step, 4 * g + c]
        rows[g, 8 * step + c], rows[g + 8, 8 * step + c] = at[0], at[1]
        rows[g, 8 * step + c + 4], rows[g + 8, 8 * step + c + 4] = at[2], at[3]
    return rows


def folds_of(scheme, side, limbs, words):
    """fold_p of each modulus, from the pieces that the comment of kernels/conversion/split_numbers.cu describes."""
    lanes = np.frombuffer(tables.folds(scheme, side, limbs, words), np.uint32).reshape(-1, words // 8, 32, 4)
    pieces = [np.ascontiguousarray(rows_of_lanes(each)).view(np.uint8).astype(np.int64) for each in lanes]
    ones, twos, threes = scheme.by_digits
    found = []
    for t in range(ones):
        found.append(pieces[t // 16][t % 16])
    first = -(-ones // 16)
    for t in range(twos):
        piece, g = pieces[first + t // 8], t % 8
        found.append(piece[g] + (piece[g + 8] << 8))
    first += -(-twos // 8)
    for t in range(threes):
        (high, others), g = pieces[first + 2 * (t // 8) :][:2], t % 8
        found.append(others[g] + (others[g + 8] << 8) + (high[g] << 16))
    assert len(pieces) == first + 2 * -(-threes // 8)
    return found


def residue_of_sum(f, quotient):
    """The residue that a Quotient gives a sum, a byte (kernels/arithmetic/residues.cuh)."""
    m, s = int(quotient["modulus"]), int((float(quotient["addend"]) - 96) * 2**17)
    assert quotient["inverse"] == np.ldexp(np.float32(1 / m), 132)
    return (f - (round(Fraction(f, m)) + s) * m) % 256


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: str(scheme.by_digits))
def test_folds_and_moduli(prng, scheme, side, unsigned):
    """With the bytes of an image, raised, they give its residues, or those of its products by the left factors."""
    product, ones = math.prod(scheme.moduli), scheme.by_digits[0]
    for limbs, words in ((3, 8), (7, 8), (8, 16), (9, 16), (20, 24)):
        moduli = np.frombuffer(tables.moduli(scheme, side, limbs, unsigned), MODULUS)
        folds = folds_of(scheme, side, limbs, words)
        images = [0, 1, -1, 2 ** (32 * limbs - 1) - 1, -(2 ** (32 * limbs - 1))]
        images += [prng.getrandbits(32 * limbs) - 2 ** (32 * limbs - 1) for _ in range(20)]
        assert len(moduli) == len(folds) == len(scheme.moduli)
        for t, (m, of_struct, fold) in enumerate(zip(scheme.moduli, moduli, folds, strict=True)):
            short = limbs <= 8 and t < ones
            of_struct = of_struct[None].view(QUOTIENT)[0] if short else of_struct
            start = int(of_struct["start"])
            assert of_struct["modulus"] == m and (short or of_struct["inverse"] == 2**32 // m) and start < m
            assert fold.max() < m and not fold[4 * limbs + 1 :].any()
            factor = pow(product // m, -1, m) if side == "left" else 1
            for image, one_more in itertools.product(images, (0, 1)):
                raised = (image + 2 ** (32 * limbs - 1)).to_bytes(4 * limbs, "little") + bytes([one_more])
                f = start + sum(b * each for b, each in zip(raised, fold.tolist(), strict=False))
                expected = factor * (image + one_more) % m
                if not short:
                    assert f % m == expected
                    continue
                expected -= m if not unsigned and 2 * expected >= m else 0
                assert residue_of_sum(f, of_struct) == expected % 256


COMBINATION = np.dtype(
    [("modulus", "u4"), ("inverse", "u4"), ("inverse_64", "u8"), ("start", "u4"), ("coefficient", "u4", 6), ("_", "u4")]
)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: str(scheme.by_digits))
def test_combinations(shim, prng, scheme):
    """With the int32 products of slices, raised by 2**31, they give products of residues."""
    for digits, number in enumerate(scheme.by_digits[1:], 2):
        moduli = [m for m in scheme.moduli if (m > 256) + (m >= 2**14) + 1 == digits]
        table = np.frombuffer(tables.combinations(scheme, digits), COMBINATION)
        assert len(table) == number == len(moduli) and COMBINATION.itemsize == 48
        for m, of in zip(moduli, table, strict=True):
            assert (of["modulus"], of["inverse"], int(of["inverse_64"])) == (m, 2**32 // m, 2**64 // m)
            r, s = (np.array([prng.randrange(m) for _ in range(50)]) for _ in range(2))
            products = slices_of(shim, r, m, digits, 0) * slices_of(shim, s, m, digits, 0)
            raised = (products + 2**31) % m
            combined = int(of["start"]) + raised @ of["coefficient"][: products.shape[1]].astype(np.int64)
            assert np.array_equal(combined % m, r * s % m), m
            assert not of["coefficient"][products.shape[1] :].any() and of["coefficient"].max() < m


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: str(scheme.by_digits))
def test_weights(prng, scheme):
    """V_p and the fraction of each plane of bytes; with them the integers of the Chinese remainders."""
    product = math.prod(scheme.moduli)
    limbs = -(-product.bit_length() // 32)
    assert constants.product_limbs(scheme) == limbs
    planes = [(m, 8 * j) for m in scheme.moduli for j in range((m > 256) + (m >= 2**14) + 1)]
    steps, eights = -(-len(planes) // 32), -(-(limbs + 1) // 8)
    table, minus = tables.weights(scheme)
    halves = np.frombuffer(table, np.uint32).reshape(eights, steps, 2, 32, 4)
    wanted = [round(Fraction(2 ** (32 + shift), m)) | product // m << shift + 32 for m, shift in planes]
    wanted += [0] * (32 * steps - len(planes))
    found = [0] * len(wanted)
    for eight, half in itertools.product(range(eights), range(2)):
        rows = rows_of_lanes(halves[eight, :, half]).view(np.uint8).reshape(2, 8, 32 * steps)
        for byte, limb, p in zip(*(index.tolist() for index in np.nonzero(rows)), strict=True):
            place = 4 * (8 * eight + limb) + 2 * half + byte
            found[p] += int(rows[byte, limb, p]) << 8 * place
    assert found == wanted
    assert int.from_bytes(minus, "little") == 2 ** (32 * limbs) - product and len(minus) == 4 * limbs
    reach = product // 2 - product // 2**10
    for integer in (0, 1, -1, reach, -reach, *(prng.randrange(-reach, reach + 1) for _ in range(30))):
        residues = [integer * pow(product // m, -1, m) % m for m in scheme.moduli]
        bytes_ = [residues[scheme.moduli.index(m)] >> shift & 255 for m, shift in planes]
        fraction = sum(b * (v % 2**32) for b, v in zip(bytes_, found, strict=False))
        whole = sum(b * (v >> 32) for b, v in zip(bytes_, found, strict=False))
        assert whole - (fraction + 2**31 >> 32) * product == integer
