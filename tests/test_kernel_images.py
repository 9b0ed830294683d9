"""Magnitudes, exponents of rows and fixed-point images: arithmetic/fixed_point.cuh against Python's fractions."""

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest
from cases import FORMATS
from shim import bits_of, call, compiled, from_words, value_of

EMPTY_TOP = -4096
WORD_COUNTS = (1, 2, 3, 4, 6)
IMAGES = [("images", words) for words in WORD_COUNTS] + [("images_by_doubles", words) for words in (1, 2)]

SOURCE = """
#include "arithmetic/fixed_point.cuh"

template <int W, typename Bits> void images(const Bits* x, const int* mu, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t words[W];
    image<W>(x[i], mu[i], words);
    for (int w = 0; w < W; ++w) out[i * W + w] = words[w];
  }
}

template <int W, typename Bits> void images_by_doubles(const Bits* x, const int* mu, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t words[W];
    const int special = sizeof(Bits) == 8 ? 0x7ff : 0xff, mantissa = sizeof(Bits) == 8 ? 52 : 23;
    const bool unusual = (x[i] >> mantissa & special) == special || !usual_scale(mu[i]);
    const Bits bits = unusual ? tame(x[i], mu[i]) : x[i];
    uint32_t raised[W];
    image_by_doubles<true>(double_of(bits), factor_of(mu[i]), raised);
    image_by_doubles<false>(double_of(bits), factor_of(mu[i]), words);
    raised[W - 1] ^= 0x80000000u;
    for (int w = 0; w < W; ++w) words[w] = words[w] == raised[w] ? words[w] : 0xdeadu;
    for (int w = 0; w < W; ++w) out[i * W + w] = words[w];
  }
}

template <typename Bits> void measures(const Bits* x, const int* width, const int* top, int64_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i, out += 9) {
    const Parts p = parts(x[i]);
    const Rounded slow = ceil_magnitude(p, width[i], top[i]);
    Rounded fast = slow;
    if (top[i] > FastTop<Bits>::value && p.finite) {
      uint32_t inexact = 0;
      fast.value = FastCeiling<Bits>(width[i], top[i])(x[i], inexact);
      fast.inexact = inexact != 0;
    }
    out[0] = p.finite, out[1] = p.negative, out[2] = top_exponent(p);
    out[3] = slow.value, out[4] = slow.inexact, out[5] = fast.value, out[6] = fast.inexact;
    for (int j = 0; j < 2; ++j) {
      const int bits = j == 0 ? 7 : 22;
      const uint64_t floor = floor_scaled(p.mantissa, p.exponent + bits - top[i]);
      out[7 + j] = static_cast<int64_t>(top[i] > FastTop<Bits>::value ? FastFloor<Bits>(bits, top[i])(x[i]) : floor);
    }
  }
}

extern "C" {
void measures_64(const uint64_t* x, const int* w, const int* t, int64_t* out, int64_t n) { measures(x, w, t, out, n); }
void measures_32(const uint32_t* x, const int* w, const int* t, int64_t* out, int64_t n) { measures(x, w, t, out, n); }

void row_exponents(const int64_t* top, const int64_t* statistic, int step, int base, int64_t threshold, int* out,
                   int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = row_exponent(top[i], statistic[i], step, base, threshold);
}
"""
OF_WORDS = """
void images_64_{w}(const uint64_t* x, const int* mu, uint32_t* out, int64_t n) {{ images<{w}>(x, mu, out, n); }}
void images_32_{w}(const uint32_t* x, const int* mu, uint32_t* out, int64_t n) {{ images<{w}>(x, mu, out, n); }}
#if {w} <= 2
void images_by_doubles_64_{w}(const uint64_t* x, const int* mu, uint32_t* out, int64_t n) {{
  images_by_doubles<{w}>(x, mu, out, n);
}}
void images_by_doubles_32_{w}(const uint32_t* x, const int* mu, uint32_t* out, int64_t n) {{
  images_by_doubles<{w}>(x, mu, out, n);
}}
#endif
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE + "".join(OF_WORDS.format(w=w) for w in WORD_COUNTS) + "}\n"
    return compiled(source, tmp_path_factory.mktemp("images"))


def random_finite_bits(rng, size):
    kind = rng.randrange(8)
    sign = rng.getrandbits(1) << size - 1
    mantissa_bits = FORMATS[f"float{size}"][0] - 1
    mantissa = rng.getrandbits(mantissa_bits)
    if kind == 0:
        mantissa = rng.choice([0, 1, (1 << mantissa_bits) - 1, 1 << rng.randrange(mantissa_bits)])
    if kind == 1:
        return sign | mantissa >> rng.randrange(mantissa_bits)  # subnormal or zero
    fields = (1 << size - 1 - mantissa_bits) - 1
    return sign | rng.choice([rng.randrange(fields), fields // 2, fields - 1, 1, 0]) << mantissa_bits | mantissa


# Magnitudes and exponents -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 32])
def test_magnitudes_of_a_row(shim, prng, size):
    _precision, smallest, highest = FORMATS[f"float{size}"]
    special = [math.inf, -math.inf, math.nan, 0.0, -0.0]
    bits = [bits_of(x, size) for x in special] + [random_finite_bits(prng, size) for _ in range(20000)]
    width = [prng.choice([20, 20, 19, 10]) for _ in bits]
    tops = []
    for b in bits:
        x = value_of(b, size)
        own = math.frexp(x)[1] if math.isfinite(x) and x != 0 else smallest + 1 if x == 0 else 0
        tops.append(min(highest, own + prng.choice([0, 0, 1, 2, prng.randrange(60), prng.randrange(2200)])))
    out = np.empty((len(bits), 9), np.int64)
    x = np.array(bits, np.uint64 if size == 64 else np.uint32)
    call(getattr(shim, f"measures_{size}"), x, np.array(width, np.int32), np.array(tops, np.int32), out, len(bits))

    for b, w, top, got in zip(bits, width, tops, out.tolist(), strict=True):
        x = value_of(b, size)
        finite = math.isfinite(x)
        exact = abs(Fraction(x)) if finite else Fraction(0)
        scaled = exact * Fraction(2) ** (w - top)
        own_top = math.frexp(x)[1] if exact else EMPTY_TOP
        inexact = int(scaled.denominator != 1)
        expected = [int(finite), b >> size - 1, own_top, math.ceil(scaled), inexact, math.ceil(scaled), inexact]
        expected += [math.floor(exact * Fraction(2) ** (bits - top)) for bits in (7, 22)]
        assert got == expected, (hex(b), w, top)


@pytest.mark.parametrize("step", [2, 4])
def test_row_exponent(shim, prng, step):
    for _ in range(300):
        base = prng.randrange(-20, 200)
        threshold = prng.choice(
            [prng.getrandbits(62) | 1 << 61, prng.getrandbits(61) | 1 << 60, (1 << 62) - 1, 1 << 60]
        )
        statistics = [1, 2, 3, threshold, 1 << 60, (1 << 60) - 1]
        for g in range(31):
            edge = threshold // step**g
            statistics += [edge, edge + 1, edge - 1]
        statistics += [prng.getrandbits(prng.randrange(1, 61)) for _ in range(20)]
        statistics = [s for s in statistics if 0 < s <= threshold]
        top = [prng.randrange(-1073, 1025) for _ in statistics]
        out = np.empty(len(top) + 1, np.int32)
        tops = np.array([*top, EMPTY_TOP], np.int64)
        values = np.array([*statistics, 0], np.int64)
        call(shim.row_exponents, tops, values, step, base, ctypes.c_int64(threshold), out, len(out))
        assert out[-1] == 0
        for t, s, got in zip(top, statistics, out[:-1].tolist(), strict=True):
            g = 0
            while s * step ** (g + 1) <= threshold:
                g += 1
            assert got == base + g - t, (s, threshold, base, t)


# Images -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "words"), IMAGES)
@pytest.mark.parametrize("size", [64, 32])
def test_image(shim, prng, size, function, words):
    limit = 32 * words - 1
    bits, mu = [], []
    for _ in range(20000):
        b = random_finite_bits(prng, size)
        x = value_of(b, size)
        top = math.frexp(x)[1] if x else 0
        largest = limit - top  # abs(x) 2^mu < 2^limit
        kind = prng.randrange(5)
        if x == 0:
            m = prng.choice([0, 2000, -2000])
        elif kind == 0:
            m = largest
        elif kind == 1:
            m = largest - prng.randrange(32 * words + 70)
        elif kind == 2:
            m = -top + prng.randrange(-3, 4)  # values about one, near halves
        elif kind == 3:
            m = largest - prng.choice([31, 32, 33, 52, 53, 54, 63, 64, 65, 3000])
        else:  # an odd number of halves: a tie
            b = bits_of(float(prng.randrange(1, 1 << 20, 2) * prng.choice([1, -1])), size)
            m = -1
        bits.append(b)
        mu.append(m)
    for special in (math.inf, -math.inf, math.nan):
        bits.append(bits_of(special, size))
        mu.append(prng.randrange(-1000, 1000))
    x = np.array(bits, np.uint64 if size == 64 else np.uint32)
    out = np.empty((len(bits), words), np.uint32)
    call(getattr(shim, f"{function}_{size}_{words}"), x, np.array(mu, np.int32), out, len(bits))
    checked = 0
    for b, m, got in zip(bits, mu, from_words(out), strict=True):
        value = value_of(b, size)
        if not math.isfinite(value):
            assert got == 0
            continue
        exact = Fraction(value) * Fraction(2) ** m
        expected = round(exact)
        if abs(expected) < 2**limit:  # the header promises nothing for larger images
            assert got == expected, (hex(b), m)
            checked += 1
    assert checked > len(bits) // 2


@pytest.mark.parametrize("size", [64, 32])
def test_image_of_halves(shim, size):
    """Images of all multiples of 1/4 up to 64, both signs, so with every tie; in one and in two words."""
    values = [sign * n / 4 for n in range(257) for sign in (1, -1)]
    for shift in (0, 40, -40):
        x = np.array([bits_of(v * 2.0**shift, size) for v in values], np.uint64 if size == 64 else np.uint32)
        mu = np.full(len(values), -shift, np.int32)
        for function, words in IMAGES:
            out = np.empty((len(values), words), np.uint32)
            call(getattr(shim, f"{function}_{size}_{words}"), x, mu, out, len(values))
            assert from_words(out) == [round(v) for v in values]


def test_image_beside_multiples_of_words(shim):
    """Images about multiples of 2^31 and 2^32, where image_by_doubles splits them, with every kind of fraction."""
    values = [n * 2.0**31 + d / 4 for n in range(-9, 10) for d in range(-40, 41)]
    values += [s * (2.0**e + d * 2.0 ** max(0, e - 52)) for s in (1, -1) for e in range(33, 63) for d in range(-3, 4)]
    values = [v for v in values if abs(v) < 2**63]
    x = np.array([bits_of(v, 64) for v in values], np.uint64)
    out = np.empty((len(values), 2), np.uint32)
    call(shim.images_by_doubles_64_2, x, np.zeros(len(values), np.int32), out, len(values))
    assert from_words(out) == [round(v) for v in values]
