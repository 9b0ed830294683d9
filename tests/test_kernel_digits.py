"""Digits, and diagonals of their products: arithmetic/digits.cuh and diagonals.cuh against Python's integers."""

import numpy as np
import pytest
from shim import call, compiled, from_words, rounded_bits, to_words

DIGITS = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (7, 2), (8, 2), (9, 3), (12, 3), (16, 4)]  # p, words
WIDE_DIGITS = [(2, 20, 2), (3, 2, 1), (5, 6, 1), (6, 11, 3), (11, 6, 3), (12, 1, 1), (12, 6, 3)]  # bits, p, words
DIAGONALS = [(p, r) for p in range(1, 8) for r in (8, 7)]

SOURCE = """
#include "arithmetic/diagonals.cuh"
#include "arithmetic/digits.cuh"

template <int P, int W> void digits(const uint32_t* x, int bits, int8_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t words[W];
    for (int w = 0; w < W; ++w) words[w] = x[i * W + w];
    if (bits == 8) balanced_bytes(words);
    else add_halves<7, P>(words);
    for (int j = 0; j < P; ++j) {  // digit j from the lowest
      const uint32_t digit = bits == 8 ? byte_of(words[j / 4], j % 4)
                                       : lower_digits_7(gather_bytes(0, 0, raised_digit<7>(words, j), 0, 0)) >> 16;
      out[i * P + j] = static_cast<int8_t>(digit & 255);
    }
  }
}

template <int R, int P, int W> void wide_digits(const uint32_t* x, int16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t words[W];
    for (int w = 0; w < W; ++w) words[w] = x[i * W + w];
    add_halves<R, P>(words);
    for (int j = 0; j < P; ++j)
      out[i * P + j] = static_cast<int16_t>((raised_digit<R>(words, j) & ((1u << R) - 1)) - (1u << (R - 1)));
  }
}

// Sums of diagonals, the least significant first, one of four entries: the exact words, and both ways to round.
template <int P, int R>
void diagonals(const int32_t* sums, const int* e, uint32_t* exact, uint64_t* to_64, uint32_t* to_32, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t low[low_limbs(P)] = {}, words[DIAGONAL_LIMBS];
    int32_t top = 0;
    for (int d = 0; d < P; ++d) {
      top = (top >> R) + sums[i * P + d];
      const uint32_t digit = static_cast<uint32_t>(top) & ((1u << R) - 1);
      if (d < P - 1) low[d] = (digit * 0x01010101u) ^ ~(0xffu << (i % 4 * 8));
    }
    join_diagonals<P, R>(top, low, i % 4, words);
    for (int w = 0; w < DIAGONAL_LIMBS; ++w) exact[i * DIAGONAL_LIMBS + w] = words[w];
    const double power = double_of_limbs(static_cast<uint32_t>(e[i] + 1023) << 20, 0);
    double rounded_64;
    float rounded_32;
    if constexpr (P <= 3) {
      int32_t most_first[P];
      for (int d = 0; d < P; ++d) most_first[P - 1 - d] = sums[i * P + d];
      round_few_diagonals<P, R>(most_first, power, rounded_64);
      round_few_diagonals<P, R>(most_first, power, rounded_32);
    } else {
      round_diagonals<P, R>(top, low, i % 4, power, rounded_64);
      round_diagonals<P, R>(top, low, i % 4, power, rounded_32);
    }
    to_64[i] = bits_of(rounded_64), to_32[i] = bits_of(rounded_32);
  }
}

extern "C" {
"""
OF_DIGITS = """
void digits_{p}_{w}(const uint32_t* x, int bits, int8_t* out, int64_t n) {{ digits<{p}, {w}>(x, bits, out, n); }}
"""
OF_WIDE_DIGITS = """
void wide_digits_{r}_{p}_{w}(const uint32_t* x, int16_t* out, int64_t n) {{ wide_digits<{r}, {p}, {w}>(x, out, n); }}
"""
OF_DIAGONALS = """
void diagonals_{p}_{r}(const int32_t* sums, const int* e, uint32_t* exact, uint64_t* to_64, uint32_t* to_32,
                       int64_t n) {{
  diagonals<{p}, {r}>(sums, e, exact, to_64, to_32, n);
}}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE
    source += "".join(OF_DIGITS.format(p=p, w=w) for p, w in DIGITS)
    source += "".join(OF_WIDE_DIGITS.format(r=r, p=p, w=w) for r, p, w in WIDE_DIGITS)
    source += "".join(OF_DIAGONALS.format(p=p, r=r) for p, r in DIAGONALS)
    return compiled(source + "}\n", tmp_path_factory.mktemp("digits"))


# Digits -------------------------------------------------------------------------------------------------------------


def check_digits(shim, integers, radix_bits, p, words):
    out = np.empty((len(integers), p), np.int8)
    call(getattr(shim, f"digits_{p}_{words}"), to_words(integers, words), radix_bits, out, len(integers))
    check_balanced(integers, radix_bits, out)


def check_balanced(integers, radix_bits, out):
    half = 1 << radix_bits - 1
    assert out.min() >= -half and out.max() < half
    for x, digits in zip(integers, out.tolist(), strict=True):
        assert x == sum(d << radix_bits * j for j, d in enumerate(digits)), (x, digits)


@pytest.mark.parametrize("radix_bits", [8, 7])
def test_digits(shim, prng, radix_bits):
    for p, words in DIGITS:
        half = 1 << radix_bits - 1
        largest = (half - 1) * ((1 << radix_bits * p) - 1) // ((1 << radix_bits) - 1)
        smallest = -half * ((1 << radix_bits * p) - 1) // ((1 << radix_bits) - 1)
        smallest = max(smallest, -(1 << 32 * words - 1))
        if p <= 2:
            check_digits(shim, list(range(smallest, largest + 1)), radix_bits, p, words)
            continue
        check_digits(shim, some_integers(prng, smallest, largest, radix_bits, p), radix_bits, p, words)


def some_integers(rng, smallest, largest, radix_bits, p):
    integers = [largest, largest - 1, smallest, smallest + 1, -largest, 0, 1, -1]
    integers += [rng.randrange(-largest, largest + 1) for _ in range(5000)]
    integers += [rng.randrange(-largest, largest + 1) >> rng.randrange(radix_bits * p) for _ in range(5000)]
    for j in range(p):
        for offset in (-1, 0, 1):
            integers += [s * ((1 << radix_bits * (j + 1) - 1) + offset) for s in (1, -1)]
    return [x for x in integers if smallest <= x <= largest]


@pytest.mark.parametrize(("radix_bits", "p", "words"), WIDE_DIGITS)
def test_digits_of_other_bits(shim, prng, radix_bits, p, words):
    largest = ((1 << radix_bits - 1) - 1) * ((1 << radix_bits * p) - 1) // ((1 << radix_bits) - 1)
    integers = some_integers(prng, -largest, largest, radix_bits, p)
    out = np.empty((len(integers), p), np.int16)
    call(getattr(shim, f"wide_digits_{radix_bits}_{p}_{words}"), to_words(integers, words), out, len(integers))
    check_balanced(integers, radix_bits, out)


# Diagonals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "r"), DIAGONALS)
def test_diagonals(shim, prng, p, r):
    """Sums of diagonals, carried from one to the next or of few at once, are exact and rounded once."""
    most = 2**31 - 2 ** (31 - r) - 4
    sums, exponents = [], []
    for _ in range(4000):
        size = prng.choice([4, 12, 24, 30, 31])
        row = [max(-most, min(most, prng.randrange(-(2**size), 2**size))) for _ in range(p)]
        if prng.random() < 0.2:  # near a tie: few bits at the top, almost nothing below
            row = [prng.choice([0, 0, 1, -1, 1 << r - 1]) for _ in range(p - 1)] + [
                prng.randrange(-(2**31), 2**31) >> 1
            ]
        sums.append(row)
        exponents.append(prng.choice([0, prng.randrange(-300, 100), prng.randrange(-149 - 60, -80)]))
    exact = np.empty((len(sums), 3), np.uint32)
    to_64, to_32 = np.empty(len(sums), np.uint64), np.empty(len(sums), np.uint32)
    scales = np.array(exponents, np.int32)
    call(getattr(shim, f"diagonals_{p}_{r}"), np.array(sums, np.int32), scales, exact, to_64, to_32, len(sums))
    for row, e, words, bits_64, bits_32 in zip(sums, exponents, exact, to_64.tolist(), to_32.tolist(), strict=True):
        value = sum(x << r * d for d, x in enumerate(row))
        assert from_words(words[None]) == [value], row
        assert bits_64 == rounded_bits(value, e, 64), (row, e)
        assert bits_32 == rounded_bits(value, e, 32), (row, e)
