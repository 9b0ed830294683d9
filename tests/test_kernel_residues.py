"""Residues and Chinese remainders: arithmetic/residues.cuh and crt.cuh against Python's integers."""

import ctypes
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from definition import moduli_of
from shim import call, compiled, from_words, to_words

from ozaki.schemes import Residues
from ozaki.schemes import constants as library

MODULI = moduli_of(49)
WORD_COUNTS = (1, 2, 3, 4, 6)
CRT_COUNTS = [*range(2, 21), 30, 49]


def crt_limbs(n):
    """The least number of 32-bit words that hold Cbar with its sign, abs(Cbar) < M / 2, for n moduli."""
    return -(-math.prod(MODULI[:n]).bit_length() // 32)


SOURCE = """
#include "arithmetic/crt.cuh"
#include "arithmetic/residues.cuh"

template <int W> void residues(const uint32_t* x, const ResidueConstants<49, W>* c, int32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int t = 0; t < 49; ++t) {
      const Quotient& m = c->quotient[t];
      uint32_t sum = m.start;
      for (int w = 0; w < W; ++w)
        sum = dot_bytes(x[i * W + w] ^ (w == W - 1 ? 0x80000000u : 0u), c->fold[t][w], sum);
      out[i * 49 + t] = residue_of_sum(sum, m.inverse, m.addend, m.modulus) & 255;
    }
}

template <int N, int W> void remainders(const uint8_t* y, const CrtConstants<N, W>* c, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t four[N], words[W];  // y at byte i % 4, beside others
    for (int t = 0; t < N; ++t) four[t] = (y[i * N + t] * 0x01010101u) ^ ~(0xffu << (i % 4 * 8));
    chinese_remainder<N, W>(four, i % 4, *c, words);
    for (int w = 0; w < W; ++w) out[i * W + w] = words[w];
  }
}

extern "C" {
void reduce_all(const uint32_t* x, const AccumulatorModulus* m, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = byte_of(four_residues(x[i & ~3], x[(i & ~3) + 1], x[(i & ~3) + 2], x[i | 3], *m), i & 3);
}
// The residues of the sums f = 0 .. n - 1, moved by `start` moduli.
void residues_of_sums(const Quotient* m, uint32_t* out, int64_t n) {
  const float addend = m->addend + m->start * 0x1p-17f;
  for (int64_t f = 0; f < n; ++f) out[f] = residue_of_sum(f, m->inverse, addend, m->modulus) & 255;
}
void add_all(const uint32_t* x, const uint32_t* y, uint32_t m, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = add_residues(x[i], y[i], m);
}
"""
OF_WORDS = """
void residues_{w}(const uint32_t* x, const void* c, int32_t* out, int64_t n) {{
  residues<{w}>(x, static_cast<const ResidueConstants<49, {w}>*>(c), out, n);
}}
"""
OF_MODULI = """
void remainders_{n}(const uint8_t* y, const void* c, uint32_t* out, int64_t n) {{
  remainders<{n}, {w}>(y, static_cast<const CrtConstants<{n}, {w}>*>(c), out, n);
}}
int remainders_{n}_size() {{ return sizeof(CrtConstants<{n}, {w}>); }}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE
    source += "".join(OF_WORDS.format(w=w) for w in WORD_COUNTS)
    source += "".join(OF_MODULI.format(n=n, w=crt_limbs(n)) for n in CRT_COUNTS)
    return compiled(source + "}\n", tmp_path_factory.mktemp("residues"))


# Residues -----------------------------------------------------------------------------------------------------------


QUOTIENT = np.dtype([("start", "u4"), ("inverse", "f4"), ("addend", "f4"), ("modulus", "u4")])
ACCUMULATOR = np.dtype([("fold", "u4"), ("start", "u4"), ("inverse", "f4"), ("modulus", "u4"), ("negative", "u4")])


def scaled_inverse(m):
    return np.ldexp(np.float32(1 / m), 132)


def quotient(m, start, symmetric):
    start, shift = start % m, 0
    if m % 2 and not symmetric:
        start = (start + (m + 1) // 2) % m
        shift = -(m - 1) // 2 * pow(m, -1, 256) % 256
    return start, scaled_inverse(m), 96 + shift * 2.0**-17, m


def residue_constants(moduli, inverses, words, symmetric):
    """ResidueConstants<len(moduli), words>, as kernels/arithmetic/residues.cuh describes it."""
    pairs = list(zip(moduli, inverses, strict=True))
    fold = np.array([[inv * pow(256, b, m) % m for b in range(4 * words)] for m, inv in pairs], np.uint8)
    table = np.array([quotient(m, -inv * 2 ** (32 * words - 1), symmetric) for m, inv in pairs], QUOTIENT)
    return np.concatenate([fold.view(np.uint32).ravel(), table.view(np.uint32)])


def accumulator_moduli(moduli, lowest):
    """AccumulatorModuli, for sums from `lowest` on."""
    table = np.zeros(64, ACCUMULATOR)
    for i, m in enumerate(moduli):
        table[i] = sum(pow(256, j, m) << 8 * j for j in range(4)), lowest % m, inverse_above(m), m, 2**32 - m
    return table


def inverse_above(m):
    """1 / m rounded up to float32: for 2^e < m <= 2^(e+1) a multiple of 2^(-e-24)."""
    e = (m - 1).bit_length() - 1
    return np.float32(-(-(2 ** (e + 24)) // m) * 2.0 ** -(e + 24))


@pytest.mark.parametrize("words", WORD_COUNTS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_residues(shim, prng, words, side, symmetric):
    limit = 2 ** (32 * words - 1)
    product = math.prod(MODULI)
    inverses = [pow(product // m, -1, m) if side == "left" else 1 for m in MODULI]
    integers = [limit - 1, -limit, 1 - limit, 0, 1, -1, *range(-300, 300)]
    integers += [prng.randrange(-limit, limit) for _ in range(3000)]
    integers += [prng.randrange(-limit, limit) >> prng.randrange(32 * words) for _ in range(3000)]
    # Integers with the largest and smallest sums over bytes.
    integers += [int.from_bytes(bytes(prng.choice([0, 255]) for _ in range(4 * words)), "little") - limit]
    out = np.empty((len(integers), len(MODULI)), np.int32)
    constants = residue_constants(MODULI, inverses, words, symmetric)
    assert constants.nbytes == 4 * 49 * (words + 4)
    call(getattr(shim, f"residues_{words}"), to_words(integers, words), constants, out, len(integers))
    for t, (m, inv) in enumerate(zip(MODULI, inverses, strict=True)):
        half = (m - 1) // 2 if symmetric else 0
        assert out[:, t].tolist() == [((x * inv + half) % m - half) % 256 for x in integers], m


@pytest.mark.full
def test_residues_of_sums(shim):
    """Residues of every sum f < 2^22 for every modulus; and what the header claims about the quotient."""
    for m in MODULI:
        inverse = scaled_inverse(m)
        assert abs(Fraction(float(inverse)) / 2**132 * m - 1) <= Fraction(1, 2**24)
        for shift, f in ((0, np.arange(2**22)), (77, np.arange(2**17))):
            out = np.empty(len(f), np.uint32)
            constants = np.array([(shift, inverse, 96, m)], QUOTIENT)
            call(shim.residues_of_sums, constants, out, len(f))
            half = 128 if m == 256 else (m - 1) // 2
            assert np.array_equal(out, ((f + half) % m - half - shift * m) & 255), m


def test_accumulator_residue(shim, prng):
    edges = [-(2**31), -(2**31) + 1, 2**31 - 1, 2**31 - 2, 0, 1, -1]
    edges += [sign * (2**e + d) for e in range(31) for d in (-1, 0, 1) for sign in (1, -1)]
    corners = itertools.product([0, 1, 127, 128, 255], repeat=4)
    edges += [int.from_bytes(bytes(b), "little", signed=True) for b in corners]
    stride = np.arange(-(2**31), 2**31, 65521 + prng.randrange(0, 1000), dtype=np.int64)
    table, unsigned = (accumulator_moduli(MODULI, lowest) for lowest in (-(2**31), 0))
    assert table.nbytes == 64 * 20
    for i, m in enumerate(MODULI):
        multiples = [e * m + d for e in range(-3, 4) for d in range(m)]
        near = (2**31 // m - 1) * m
        multiples += [sign * (near + d) for d in range(-m, m + 1) for sign in (1, -1)]
        x = np.concatenate([np.array(edges + multiples, np.int64), stride])
        x = x[(x >= -(2**31)) & (x < 2**31)]
        x = np.append(x, x[: -len(x) % 4])  # the function takes four at a time
        out = np.empty(len(x), np.uint32)
        above = (x + 2**31).astype(np.uint32)
        for constants, expected in ((table, x % m), (unsigned, (x + 2**31) % m)):
            call(shim.reduce_all, above, constants[i : i + 1].copy(), out, len(x))
            assert np.array_equal(out.astype(np.int64), expected), m


def test_quotients_rounded_down():
    """What the header claims of RU(1 / m), for every sum f < 2^18 and every modulus."""
    f = np.arange(2**18, dtype=np.int64)
    for m in MODULI:
        inverse = inverse_above(m)
        below = np.nextafter(inverse, np.float32(0))
        assert Fraction(float(inverse)) * m >= 1 > Fraction(float(below)) * m
        bits, power = np.frexp(float(inverse))
        assert np.array_equal(f * int(bits * 2**24) >> 24 - int(power), f // m), m


def test_add_residues(shim):
    for m in MODULI:
        x, y = (a.ravel().astype(np.uint32) for a in np.meshgrid(np.arange(m), np.arange(m)))
        out = np.empty(len(x), np.uint32)
        call(shim.add_all, x, y, ctypes.c_uint32(m), out, len(x))
        assert np.array_equal(out, (x + y) % m), m


# Chinese remainders -------------------------------------------------------------------------------------------------


def crt_groups(n):
    count = -(-n // 3)
    pairs = 0 if n == 1 else -n % 3
    sizes = [3] * (count - pairs) + [2] * pairs
    assert sum(sizes) == n
    starts = np.cumsum([0, *sizes]).tolist()
    return [MODULI[a:b] for a, b in itertools.pairwise(starts)]


def crt_constants(n):
    """CrtConstants<n, limbs>, as kernels/arithmetic/crt.cuh describes it."""
    limbs = crt_limbs(n)
    groups = crt_groups(n)
    product = math.prod(MODULI[:n])
    products = [math.prod(g) for g in groups]
    bits = 31 + min(products).bit_length() - 1
    factor = [([p // m for m in g] + [0, 0])[:3] for g, p in zip(groups, products, strict=True)]
    fraction = [round(Fraction(2**bits, p)) for p in products]
    # The claim of the header: an error below 2^-10 - 1/M rounds the same.
    error = sum(Fraction(len(g) * p, 2) for g, p in zip(groups, products, strict=True)) / 2**bits
    assert error < Fraction(1, 1024) - Fraction(1, product)
    assert error < (Fraction(1, 2**18) if n <= 20 else Fraction(1, 2**14))
    pieces = [
        np.array([f[0] + 2**16 * f[1] for f in factor] + [f[2] for f in factor], np.uint32),
        to_words([product // p for p in products], limbs).ravel(),
        np.array(fraction, np.uint32),
        to_words([-product], limbs).ravel(),
        np.array([bits - 32], np.uint32),
    ]
    return np.concatenate(pieces)


@pytest.mark.parametrize("n", CRT_COUNTS)
def test_chinese_remainder(shim, prng, n):
    limbs = crt_limbs(n)
    moduli = MODULI[:n]
    product = math.prod(moduli)
    reach = product // 2 - product // 2**10
    inverses = [pow(product // m, -1, m) for m in moduli]
    integers = [reach, -reach, reach - 1, 1 - reach, 0, 1, -1, 255, -256]
    integers += [prng.randrange(-reach, reach + 1) for _ in range(2000)]
    integers += [prng.randrange(-reach, reach + 1) >> prng.randrange(product.bit_length()) for _ in range(2000)]
    for p in moduli:  # neighbours of multiples of M / m, where many y vanish
        integers += [c for s in range(-(p // 2), p // 2) for c in [s * (product // p) + prng.randrange(-1, 2)]]
    integers = [c for c in integers if abs(c) <= reach]
    if product <= 2**16:
        integers = list(range(-reach, reach + 1))
    y = np.array([[c * inv % m for m, inv in zip(moduli, inverses, strict=True)] for c in integers], np.uint8)
    constants = crt_constants(n)
    assert constants.nbytes == getattr(shim, f"remainders_{n}_size")()
    out = np.empty((len(integers), limbs), np.uint32)
    call(getattr(shim, f"remainders_{n}"), y, constants, out, len(integers))
    assert from_words(out) == integers


@pytest.mark.parametrize("n", CRT_COUNTS)
def test_the_library_has_these_constants(n):
    scheme, moduli, product = Residues(n), MODULI[:n], math.prod(MODULI[:n])
    inverses = {"left": [pow(product // m, -1, m) for m in moduli], "right": [1] * n}
    for side, unsigned in itertools.product(inverses, (True, False)):
        limbs = library.image_limbs(scheme)
        for more in (0, 3):
            repeated = [*moduli, *[moduli[-1]] * more], [*inverses[side], *[inverses[side][-1]] * more]
            expected = residue_constants(*repeated, limbs, not unsigned)
            assert library.residue_constants(scheme, side, unsigned, n + more) == tuple(expected.tolist())
    for unsigned, lowest in ((True, 0), (False, -(2**31))):
        expected = accumulator_moduli(moduli, lowest).view(np.uint32)
        assert library.accumulator_moduli(scheme.moduli, unsigned) == tuple(expected.tolist())
    assert library.product_limbs(scheme) == crt_limbs(n)
    assert library.crt_constants(scheme) == tuple(crt_constants(n).tolist())
