"""The arithmetic of kernels/*.cuh, compiled by the system's C++ compiler, against Python integers and fractions."""

import ctypes
import itertools
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
from fractions import Fraction

import numpy as np
import pytest

from ozaki.schemes import Residues
from ozaki.schemes import constants as library

KERNELS = pathlib.Path(__file__).parents[1] / "kernels"
EMPTY_TOP = -4096
CRT_COUNTS = [*range(2, 21), 30, 49]
WORD_COUNTS = (1, 2, 3, 4, 6)
ROUNDED_BITS = (7, 15, 31, 39, 47, 55, 63, 71, 79, 95, 111, 127, 191, 351)


def greedy_moduli(count):
    moduli = []
    candidate = 256
    while len(moduli) < count:
        if all(math.gcd(candidate, m) == 1 for m in moduli):
            moduli.append(candidate)
        candidate -= 1
    return moduli


MODULI = greedy_moduli(49)


def crt_words(n):
    """The least number of words for abs(Cbar) < M / 2 with its sign."""
    return -(-math.prod(MODULI[:n]).bit_length() // 32)


# ---- The shim: loops over arrays around the headers' functions ------------------------------------------------------

SHIM = """
#include "crt.cuh"
#include "diagonals.cuh"
#include "digits.cuh"
#include "fixed_point.cuh"
#include "residues.cuh"
#include "rounding.cuh"
#include "tiles.cuh"
#include "winograd.cuh"

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

template <int W, int BITS, typename T, typename Bits>
void rounded(const uint32_t* x, const int* e, Bits* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t words[W];
    for (int w = 0; w < W; ++w) words[w] = x[i * W + w];
    T fast;
    const Bits bits = Rounding<T>::bits(words, e[i]);
    const bool differs = round_by_addition<BITS>(words, e[i], fast) && bits_of(fast) != bits;
    out[i] = differs ? 0x7f812345 : bits;  // a NaN
  }
}

// Sums of diagonals, the least significant first, one of four entries: the exact words, and both ways to round.
template <int P, int R>
void diagonals(const int32_t* sums, const int* e, uint32_t* exact, uint64_t* to_64, uint32_t* to_32, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t low[low_words(P)] = {}, words[DIAGONAL_WORDS];
    int32_t top = 0;
    for (int d = 0; d < P; ++d) {
      top = (top >> R) + sums[i * P + d];
      const uint32_t digit = static_cast<uint32_t>(top) & ((1u << R) - 1);
      if (d < P - 1) low[d] = (digit * 0x01010101u) ^ ~(0xffu << (i % 4 * 8));
    }
    join_diagonals<P, R>(top, low, i % 4, words);
    for (int w = 0; w < DIAGONAL_WORDS; ++w) exact[i * DIAGONAL_WORDS + w] = words[w];
    const double power = double_of_words(static_cast<uint32_t>(e[i] + 1023) << 20, 0);
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
// Four blocks and four sums of bytes, n bytes each, n a multiple of 4.
void slice_sums_all(const uint32_t* blocks, int left, uint32_t m, uint32_t* out, int64_t n) {
  for (int64_t i = 0, words = n / 4; i < words; ++i) {
    const uint32_t p = blocks[i], q = blocks[words + i], r = blocks[2 * words + i], s = blocks[3 * words + i];
    uint32_t sum[4];
    if (left) slice_sums<true>(p, q, r, s, Modulus(m), sum);
    else slice_sums<false>(p, q, r, s, Modulus(m), sum);
    for (int j = 0; j < 4; ++j) out[j * words + i] = sum[j];
  }
}
void product_sums_all(const uint32_t* products, uint32_t m, uint32_t* out, int64_t n) {
  for (int64_t i = 0, words = n / 4; i < words; ++i) {
    uint32_t p[7], sum[4];
    for (int j = 0; j < 7; ++j) p[j] = products[j * words + i];
    product_sums(p, Modulus(m), sum);
    for (int j = 0; j < 4; ++j) out[j * words + i] = sum[j];
  }
}
int offset_in_tile(int row, int piece) { return tile_offset(row, piece); }
int permuted_16(int j) { return permuted_column<16>(j); }
int permuted_4(int j) { return permuted_column<4>(j); }
"""
SHIM_WORDS = """
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
void residues_{w}(const uint32_t* x, const void* c, int32_t* out, int64_t n) {{
  residues<{w}>(x, static_cast<const ResidueConstants<49, {w}>*>(c), out, n);
}}
"""
SHIM_ROUNDING = """
void rounded_64_{b}(const uint32_t* x, const int* e, uint64_t* out, int64_t n) {{
  rounded<{w}, {b}, double>(x, e, out, n);
}}
void rounded_32_{b}(const uint32_t* x, const int* e, uint32_t* out, int64_t n) {{
  rounded<{w}, {b}, float>(x, e, out, n);
}}
"""
SHIM_CRT = """
void remainders_{n}(const uint8_t* y, const void* c, uint32_t* out, int64_t n) {{
  remainders<{n}, {w}>(y, static_cast<const CrtConstants<{n}, {w}>*>(c), out, n);
}}
int remainders_{n}_size() {{ return sizeof(CrtConstants<{n}, {w}>); }}
"""
SHIM_DIGITS = """
void digits_{p}_{w}(const uint32_t* x, int bits, int8_t* out, int64_t n) {{ digits<{p}, {w}>(x, bits, out, n); }}
"""
SHIM_DIAGONALS = """
void diagonals_{p}_{r}(const int32_t* sums, const int* e, uint32_t* exact, uint64_t* to_64, uint32_t* to_32,
                       int64_t n) {{
  diagonals<{p}, {r}>(sums, e, exact, to_64, to_32, n);
}}
"""
DIAGONALS = [(p, r) for p in range(1, 8) for r in (8, 7)]
SHIM_WIDE_DIGITS = """
void wide_digits_{r}_{p}_{w}(const uint32_t* x, int16_t* out, int64_t n) {{ wide_digits<{r}, {p}, {w}>(x, out, n); }}
"""
WIDE_DIGITS = [(2, 20, 2), (3, 2, 1), (5, 6, 1), (6, 11, 3), (11, 6, 3), (12, 1, 1), (12, 6, 3)]  # bits, p, words

DIGITS = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (7, 2), (8, 2), (9, 3), (12, 3), (16, 4)]  # p, words


def compiled(source, folder):
    """C++ functions out of the kernels' headers, as a library."""
    candidates = [os.environ.get("CXX"), "c++", "g++", "clang++"]
    compiler = next((path for name in candidates if name and (path := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("no C++ compiler (CXX, c++, g++, clang++): the headers' arithmetic needs one to be tested")
    (folder / "shim.cpp").write_text(source)
    library = folder / "shim.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    options += os.environ.get("OZAKI_SHIM_FLAGS", "").split()  # such as -fsanitize=undefined
    command = [compiler, *options, f"-I{KERNELS}", str(folder / "shim.cpp"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    source = SHIM
    source += "".join(SHIM_WORDS.format(w=w) for w in (*WORD_COUNTS, 11))
    source += "".join(SHIM_ROUNDING.format(w=b // 32 + 1, b=b) for b in ROUNDED_BITS)
    source += "".join(SHIM_CRT.format(n=n, w=crt_words(n)) for n in CRT_COUNTS)
    source += "".join(SHIM_DIGITS.format(p=p, w=w) for p, w in DIGITS)
    source += "".join(SHIM_WIDE_DIGITS.format(r=r, p=p, w=w) for r, p, w in WIDE_DIGITS)
    source += "".join(SHIM_DIAGONALS.format(p=p, r=r) for p, r in DIAGONALS)
    return compiled(source + "}\n", tmp_path_factory.mktemp("shim"))


def call(function, *arguments):
    """Call with arrays as pointers and the last argument, the count, as int64."""
    values = [a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else a for a in arguments[:-1]]
    function(*values, ctypes.c_int64(arguments[-1]))


@pytest.fixture
def rng(request):
    seed = int(os.environ.get("OZAKI_SEED", random.SystemRandom().getrandbits(32)))
    print(f"OZAKI_SEED={seed}")  # shown when a test fails
    return random.Random(seed)


# ---- Numbers as words and bits ---------------------------------------------------------------------------------------


def to_words(integers, words):
    mask = (1 << 32 * words) - 1
    raw = b"".join((x & mask).to_bytes(4 * words, "little") for x in integers)
    return np.frombuffer(raw, np.uint32).reshape(len(integers), words).copy()


def from_words(array):
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in np.ascontiguousarray(array)]


def bits_of(x, size):
    return struct.unpack("<Q", struct.pack("<d", x))[0] if size == 64 else struct.unpack("<I", struct.pack("<f", x))[0]


def value_of(bits, size):
    if size == 64:
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits))[0]


FORMATS = {64: (53, -1074, 1024), 32: (24, -149, 128)}  # precision, exponent of the smallest subnormal, top


def round_to_even(x):
    """An exact fraction to the nearest integer."""
    whole, rest = divmod(x.numerator, x.denominator)
    if 2 * rest > x.denominator or (2 * rest == x.denominator and whole % 2 == 1):
        whole += 1
    return whole


def rounded_bits(integer, exponent, size):
    """Bits of integer * 2^exponent, rounded once: the definition, in integers."""
    precision, smallest, top = FORMATS[size]
    if integer == 0:
        return 0
    sign = 1 << size - 1 if integer < 0 else 0
    magnitude = abs(integer)
    unit = max(magnitude.bit_length() + exponent - precision, smallest)
    count = round_to_even(Fraction(magnitude) * Fraction(2) ** (exponent - unit))
    if count * Fraction(2) ** unit >= Fraction(2) ** top:
        return sign | bits_of(math.inf, size)
    return sign | bits_of(math.ldexp(count, unit), size)


def random_finite_bits(rng, size):
    kind = rng.randrange(8)
    sign = rng.getrandbits(1) << size - 1
    mantissa_bits = FORMATS[size][0] - 1
    mantissa = rng.getrandbits(mantissa_bits)
    if kind == 0:
        mantissa = rng.choice([0, 1, (1 << mantissa_bits) - 1, 1 << rng.randrange(mantissa_bits)])
    if kind == 1:
        return sign | mantissa >> rng.randrange(mantissa_bits)  # subnormal or zero
    fields = (1 << size - 1 - mantissa_bits) - 1
    return sign | rng.choice([rng.randrange(fields), fields // 2, fields - 1, 1, 0]) << mantissa_bits | mantissa


# ---- Parts, magnitudes, exponents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 32])
def test_magnitudes_of_a_row(shim, rng, size):
    _precision, smallest, highest = FORMATS[size]
    special = [math.inf, -math.inf, math.nan, 0.0, -0.0]
    bits = [bits_of(x, size) for x in special] + [random_finite_bits(rng, size) for _ in range(20000)]
    width = [rng.choice([20, 20, 19, 10]) for _ in bits]
    tops = []
    for b in bits:
        x = value_of(b, size)
        own = math.frexp(x)[1] if math.isfinite(x) and x != 0 else smallest + 1 if x == 0 else 0
        tops.append(min(highest, own + rng.choice([0, 0, 1, 2, rng.randrange(60), rng.randrange(2200)])))
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
def test_row_exponent(shim, rng, step):
    for _ in range(300):
        base = rng.randrange(-20, 200)
        threshold = rng.choice([rng.getrandbits(62) | 1 << 61, rng.getrandbits(61) | 1 << 60, (1 << 62) - 1, 1 << 60])
        statistics = [1, 2, 3, threshold, 1 << 60, (1 << 60) - 1]
        for g in range(31):
            edge = threshold // step**g
            statistics += [edge, edge + 1, edge - 1]
        statistics += [rng.getrandbits(rng.randrange(1, 61)) for _ in range(20)]
        statistics = [s for s in statistics if 0 < s <= threshold]
        top = [rng.randrange(-1073, 1025) for _ in statistics]
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


# ---- Images ----------------------------------------------------------------------------------------------------------


IMAGES = [("images", words) for words in WORD_COUNTS] + [("images_by_doubles", words) for words in (1, 2)]


@pytest.mark.parametrize(("function", "words"), IMAGES)
@pytest.mark.parametrize("size", [64, 32])
def test_image(shim, rng, size, function, words):
    limit = 32 * words - 1
    bits, mu = [], []
    for _ in range(20000):
        b = random_finite_bits(rng, size)
        x = value_of(b, size)
        top = math.frexp(x)[1] if x else 0
        largest = limit - top  # abs(x) 2^mu < 2^limit
        kind = rng.randrange(5)
        if x == 0:
            m = rng.choice([0, 2000, -2000])
        elif kind == 0:
            m = largest
        elif kind == 1:
            m = largest - rng.randrange(32 * words + 70)
        elif kind == 2:
            m = -top + rng.randrange(-3, 4)  # about one, where halves lie
        elif kind == 3:
            m = largest - rng.choice([31, 32, 33, 52, 53, 54, 63, 64, 65, 3000])
        else:  # an odd number of halves: a tie
            b = bits_of(float(rng.randrange(1, 1 << 20, 2) * rng.choice([1, -1])), size)
            m = -1
        bits.append(b)
        mu.append(m)
    for special in (math.inf, -math.inf, math.nan):
        bits.append(bits_of(special, size))
        mu.append(rng.randrange(-1000, 1000))
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
        expected = round_to_even(exact)
        if abs(expected) < 2**limit:  # else outside the promise
            assert got == expected, (hex(b), m)
            checked += 1
    assert checked > len(bits) // 2


@pytest.mark.parametrize("size", [64, 32])
def test_image_of_halves(shim, size):
    """All multiples of 1/4 up to 64, both signs: every tie is there, in one and in two words."""
    values = [sign * n / 4 for n in range(257) for sign in (1, -1)]
    for shift in (0, 40, -40):
        x = np.array([bits_of(v * 2.0**shift, size) for v in values], np.uint64 if size == 64 else np.uint32)
        mu = np.full(len(values), -shift, np.int32)
        for function, words in IMAGES:
            out = np.empty((len(values), words), np.uint32)
            call(getattr(shim, f"{function}_{size}_{words}"), x, mu, out, len(values))
            assert from_words(out) == [round(v) for v in values]


def test_image_beside_multiples_of_words(shim):
    """Images about multiples of 2^31 and 2^32, with every kind of fraction: what image_by_doubles takes apart."""
    values = [n * 2.0**31 + d / 4 for n in range(-9, 10) for d in range(-40, 41)]
    values += [s * (2.0**e + d * 2.0 ** max(0, e - 52)) for s in (1, -1) for e in range(33, 63) for d in range(-3, 4)]
    values = [v for v in values if abs(v) < 2**63]
    x = np.array([bits_of(v, 64) for v in values], np.uint64)
    out = np.empty((len(values), 2), np.uint32)
    call(shim.images_by_doubles_64_2, x, np.zeros(len(values), np.int32), out, len(values))
    assert from_words(out) == [round(v) for v in values]


# ---- Digits ----------------------------------------------------------------------------------------------------------


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
def test_digits(shim, rng, radix_bits):
    for p, words in DIGITS:
        half = 1 << radix_bits - 1
        largest = (half - 1) * ((1 << radix_bits * p) - 1) // ((1 << radix_bits) - 1)
        smallest = -half * ((1 << radix_bits * p) - 1) // ((1 << radix_bits) - 1)
        smallest = max(smallest, -(1 << 32 * words - 1))
        if p <= 2:
            check_digits(shim, list(range(smallest, largest + 1)), radix_bits, p, words)
            continue
        check_digits(shim, some_integers(rng, smallest, largest, radix_bits, p), radix_bits, p, words)


def some_integers(rng, smallest, largest, radix_bits, p):
    integers = [largest, largest - 1, smallest, smallest + 1, -largest, 0, 1, -1]
    integers += [rng.randrange(-largest, largest + 1) for _ in range(5000)]
    integers += [rng.randrange(-largest, largest + 1) >> rng.randrange(radix_bits * p) for _ in range(5000)]
    for j in range(p):
        for offset in (-1, 0, 1):
            integers += [s * ((1 << radix_bits * (j + 1) - 1) + offset) for s in (1, -1)]
    return [x for x in integers if smallest <= x <= largest]


@pytest.mark.parametrize(("radix_bits", "p", "words"), WIDE_DIGITS)
def test_digits_of_other_bits(shim, rng, radix_bits, p, words):
    largest = ((1 << radix_bits - 1) - 1) * ((1 << radix_bits * p) - 1) // ((1 << radix_bits) - 1)
    integers = some_integers(rng, -largest, largest, radix_bits, p)
    out = np.empty((len(integers), p), np.int16)
    call(getattr(shim, f"wide_digits_{radix_bits}_{p}_{words}"), to_words(integers, words), out, len(integers))
    check_balanced(integers, radix_bits, out)


# ---- Residues --------------------------------------------------------------------------------------------------------


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
    """ResidueConstants<len(moduli), words>, as kernels/residues.cuh describes it."""
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
def test_residues(shim, rng, words, side, symmetric):
    limit = 2 ** (32 * words - 1)
    product = math.prod(MODULI)
    inverses = [pow(product // m, -1, m) if side == "left" else 1 for m in MODULI]
    integers = [limit - 1, -limit, 1 - limit, 0, 1, -1, *range(-300, 300)]
    integers += [rng.randrange(-limit, limit) for _ in range(3000)]
    integers += [rng.randrange(-limit, limit) >> rng.randrange(32 * words) for _ in range(3000)]
    # Those with the largest and smallest sum over bytes.
    integers += [int.from_bytes(bytes(rng.choice([0, 255]) for _ in range(4 * words)), "little") - limit]
    out = np.empty((len(integers), len(MODULI)), np.int32)
    constants = residue_constants(MODULI, inverses, words, symmetric)
    assert constants.nbytes == 4 * 49 * (words + 4)
    call(getattr(shim, f"residues_{words}"), to_words(integers, words), constants, out, len(integers))
    for t, (m, inv) in enumerate(zip(MODULI, inverses, strict=True)):
        half = (m - 1) // 2 if symmetric else 0
        assert out[:, t].tolist() == [((x * inv + half) % m - half) % 256 for x in integers], m


def test_residues_of_sums(shim):
    """Every sum f < 2^22 and every modulus; and the claim of the header about the quotient."""
    f = np.arange(2**22)
    out = np.empty(len(f), np.uint32)
    for m in MODULI:
        inverse = scaled_inverse(m)
        assert abs(Fraction(float(inverse)) / 2**132 * m - 1) <= Fraction(1, 2**24)
        for shift in (0, 77):
            constants = np.array([(shift, inverse, 96, m)], QUOTIENT)
            call(shim.residues_of_sums, constants, out, len(f))
            half = 128 if m == 256 else (m - 1) // 2
            assert np.array_equal(out, ((f + half) % m - half - shift * m) & 255), m


def test_accumulator_residue(shim, rng):
    edges = [-(2**31), -(2**31) + 1, 2**31 - 1, 2**31 - 2, 0, 1, -1]
    edges += [sign * (2**e + d) for e in range(31) for d in (-1, 0, 1) for sign in (1, -1)]
    corners = itertools.product([0, 1, 127, 128, 255], repeat=4)
    edges += [int.from_bytes(bytes(b), "little", signed=True) for b in corners]
    stride = np.arange(-(2**31), 2**31, 65521 + rng.randrange(0, 1000), dtype=np.int64)
    table, unsigned = (accumulator_moduli(MODULI, lowest) for lowest in (-(2**31), 0))
    assert table.nbytes == 64 * 20
    for i, m in enumerate(MODULI):
        multiples = [e * m + d for e in range(-3, 4) for d in range(m)]
        near = (2**31 // m - 1) * m
        multiples += [sign * (near + d) for d in range(-m, m + 1) for sign in (1, -1)]
        x = np.concatenate([np.array(edges + multiples, np.int64), stride])
        x = x[(x >= -(2**31)) & (x < 2**31)]
        x = np.append(x, x[: -len(x) % 4])  # four at a time
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


# ---- Sums of blocks and of products: Winograd's form ---------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 0])
def test_sums_of_slices(shim, left):
    """Every pair of residues that a sum adds, every modulus; and all corners."""
    for m in MODULI:
        one, other = (x.ravel() for x in np.meshgrid(np.arange(m), np.arange(m)))
        zero = np.zeros_like(one)
        fill = -np.arange(len(one)) * 7 % m
        corners = itertools.product([0, 1, m // 2, m // 2 + 1, m - 2, m - 1], repeat=4)
        rows = [np.array(list(corners)).T]
        rows += [np.array(x) for x in itertools.permutations([one, other, zero, fill])]
        p, q, r, s = blocks = np.concatenate(rows, axis=1)[:, : sum(x.shape[1] for x in rows) // 4 * 4]
        if left:
            sums = np.array([r + s, r + s - p, p - r, q - (r + s - p)])
        else:
            sums = np.array([r - p, s - (r - p), s - r, q - (s - (r - p))])
        out = np.empty(blocks.shape, np.uint8)
        call(shim.slice_sums_all, blocks.astype(np.uint8), left, ctypes.c_uint32(m), out, blocks.shape[1])
        assert np.array_equal(out, sums % m), m


def test_sums_of_products(shim):
    """Every pair of bytes, every modulus, beside others, in every place; and every sum of four."""
    for m in MODULI:
        one, other = (x.ravel() for x in np.meshgrid(np.arange(m), np.arange(m)))
        total = np.arange(4 * (m - 1) + 1)
        parts = np.array([total // 4 + (total % 4 > i) for i in range(4)])
        pairs = np.array([one, other, m - 1 - one, one * 5 % m, 0 * one, other * 3 % m, m - 1 - other])
        rows = [np.roll(pairs, i, axis=0) for i in range(7)] + [parts[[0, 1, 3, 3, 2, 1, 2]], np.zeros((7, 3), int)]
        p = np.concatenate(rows, axis=1)
        p = p[:, : p.shape[1] // 4 * 4]
        out = np.empty((4, p.shape[1]), np.uint8)
        call(shim.product_sums_all, p.astype(np.uint8), ctypes.c_uint32(m), out, p.shape[1])
        sums = [p[list(places)].sum(axis=0) % m for places in ((0, 1), (0, 5, 4, 2), (0, 5, 6, 3), (0, 5, 6, 4))]
        assert np.array_equal(out, sums), m


# ---- Tiles ---------------------------------------------------------------------------------------------------------


def test_tiles(shim):
    for r in range(256):
        assert [shim.offset_in_tile(r, p) for p in range(8)] == [128 * r + 16 * (p ^ r % 8) for p in range(8)]
    for permuted, n in ((shim.permuted_16, 16), (shim.permuted_4, 4)):
        columns = [4 * n * g + 8 * (o // 2) + 2 * x + o % 2 for g in range(48 // n) for x in range(4) for o in range(n)]
        assert [permuted(j) for j in range(192)] == columns
        assert sorted(columns) == list(range(192))


# ---- Chinese remainders ----------------------------------------------------------------------------------------------


def crt_groups(n):
    count = -(-n // 3)
    pairs = 0 if n == 1 else -n % 3
    sizes = [3] * (count - pairs) + [2] * pairs
    assert sum(sizes) == n
    starts = np.cumsum([0, *sizes]).tolist()
    return [MODULI[a:b] for a, b in itertools.pairwise(starts)]


def crt_constants(n):
    """CrtConstants<n, words>, as kernels/crt.cuh describes it."""
    words = crt_words(n)
    groups = crt_groups(n)
    product = math.prod(MODULI[:n])
    products = [math.prod(g) for g in groups]
    bits = 31 + min(products).bit_length() - 1
    factor = [([p // m for m in g] + [0, 0])[:3] for g, p in zip(groups, products, strict=True)]
    fraction = [round_to_even(Fraction(2**bits, p)) for p in products]
    # The claim of the header: an error below 2^-10 - 1/M rounds the same.
    error = sum(Fraction(len(g) * p, 2) for g, p in zip(groups, products, strict=True)) / 2**bits
    assert error < Fraction(1, 1024) - Fraction(1, product)
    assert error < (Fraction(1, 2**18) if n <= 20 else Fraction(1, 2**14))
    pieces = [
        np.array([f[0] + 2**16 * f[1] for f in factor] + [f[2] for f in factor], np.uint32),
        to_words([product // p for p in products], words).ravel(),
        np.array(fraction, np.uint32),
        to_words([-product], words).ravel(),
        np.array([bits - 32], np.uint32),
    ]
    return np.concatenate(pieces)


@pytest.mark.parametrize("n", CRT_COUNTS)
def test_chinese_remainder(shim, rng, n):
    words = crt_words(n)
    moduli = MODULI[:n]
    product = math.prod(moduli)
    reach = product // 2 - product // 2**10
    inverses = [pow(product // m, -1, m) for m in moduli]
    integers = [reach, -reach, reach - 1, 1 - reach, 0, 1, -1, 255, -256]
    integers += [rng.randrange(-reach, reach + 1) for _ in range(2000)]
    integers += [rng.randrange(-reach, reach + 1) >> rng.randrange(product.bit_length()) for _ in range(2000)]
    for p in moduli:  # neighbours of multiples of M / m, where many y vanish
        integers += [c for s in range(-(p // 2), p // 2) for c in [s * (product // p) + rng.randrange(-1, 2)]]
    integers = [c for c in integers if abs(c) <= reach]
    if product <= 2**16:
        integers = list(range(-reach, reach + 1))
    y = np.array([[c * inv % m for m, inv in zip(moduli, inverses, strict=True)] for c in integers], np.uint8)
    constants = crt_constants(n)
    assert constants.nbytes == getattr(shim, f"remainders_{n}_size")()
    out = np.empty((len(integers), words), np.uint32)
    call(getattr(shim, f"remainders_{n}"), y, constants, out, len(integers))
    assert from_words(out) == integers


@pytest.mark.parametrize("n", CRT_COUNTS)
def test_the_library_has_these_constants(n):
    scheme, moduli, product = Residues(n), MODULI[:n], math.prod(MODULI[:n])
    inverses = {"left": [pow(product // m, -1, m) for m in moduli], "right": [1] * n}
    for side, unsigned in itertools.product(inverses, (True, False)):
        expected = residue_constants(moduli, inverses[side], library.image_words(scheme), not unsigned)
        assert library.residue_constants(scheme, side, unsigned) == tuple(expected.tolist())
    for unsigned, lowest in ((True, 0), (False, -(2**31))):
        expected = accumulator_moduli(moduli, lowest).view(np.uint32)
        assert library.accumulator_moduli(scheme, unsigned) == tuple(expected.tolist())
    assert library.product_words(scheme) == crt_words(n)
    assert library.crt_constants(scheme) == tuple(crt_constants(n).tolist())


# ---- Rounding --------------------------------------------------------------------------------------------------------


def rounding_cases(rng, limit, size):
    precision, smallest, top = FORMATS[size]
    cases = [(0, 0), (0, 5000), (0, -5000), (1, 0), (-1, 0), (-(2**limit), 0), (2**limit - 1, 0)]
    cases += [(sign, e) for sign in (1, -1) for e in (10**6, -(10**6))]
    cases += [(sign, e) for sign in (1, -1) for e in range(smallest - 3, smallest + precision + 3)]
    cases += [(sign, e) for sign in (1, -1) for e in range(top - 3, top + 3)]
    for _ in range(12000):
        length = rng.randrange(1, limit + 1)
        x = rng.getrandbits(length) | 1 << length - 1
        kind = rng.randrange(6)
        if kind == 0 and length > precision:  # a tie, or next to one
            drop = length - precision
            x = x >> drop << drop | 1 << drop - 1
            x += rng.choice([0, 0, 1, -1])
        elif kind == 1:  # carries
            x = (1 << length) - 1 - rng.choice([0, 1, rng.getrandbits(max(length - precision, 1))])
        elif kind == 2:  # sparse
            x = 1 << length - 1 | 1 << rng.randrange(length)
        e = rng.randrange(-80, 40)
        where = rng.randrange(4)
        if where == 0:  # into or through the subnormals
            e = smallest - length + rng.randrange(-2, precision + 3)
        elif where == 1:  # about the largest number
            e = top - length + rng.randrange(-2, 2)
        if rng.randrange(8) == 0 and smallest - e > 0 and length > 1:  # a tie among the subnormals
            cut = min(rng.randrange(1, length + 1), length)
            x = (x >> cut << cut) | 1 << cut - 1
            e = smallest - cut
        x = min(max(x, 1), 2**limit - 1)
        cases.append((rng.choice([x, -x]), e))
    return cases


@pytest.mark.parametrize("bits", ROUNDED_BITS)
@pytest.mark.parametrize("size", [64, 32])
def test_rounding(shim, rng, size, bits):
    cases = rounding_cases(rng, bits, size)
    integers, exponents = zip(*cases, strict=True)
    out = np.empty(len(cases), np.uint64 if size == 64 else np.uint32)
    function = getattr(shim, f"rounded_{size}_{bits}")
    call(function, to_words(integers, bits // 32 + 1), np.array(exponents, np.int32), out, len(cases))
    for (x, e), got in zip(cases, out.tolist(), strict=True):
        clamped = max(min(e, 20000), -20000)  # the same answer, with small fractions
        assert got == rounded_bits(x, clamped, size), (x, e, hex(got))


@pytest.mark.parametrize("size", [64, 32])
def test_rounding_of_small_integers(shim, size):
    """Every integer of 13 bits at every subnormal position of its last bit: all ties and all carries."""
    smallest = FORMATS[size][1]
    integers = list(range(-4096, 4097))
    for e in range(smallest - 14, smallest + 2):
        out = np.empty(len(integers), np.uint64 if size == 64 else np.uint32)
        function = getattr(shim, f"rounded_{size}_15")
        call(function, to_words(integers, 1), np.full(len(integers), e, np.int32), out, len(integers))
        assert out.tolist() == [rounded_bits(x, e, size) for x in integers], e


# ---- Diagonals of digit products -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "r"), DIAGONALS)
def test_diagonals(shim, rng, p, r):
    """Carried from diagonal to diagonal, or of few diagonals at once, the sum is exact, and rounded once."""
    most = 2**31 - 2 ** (31 - r) - 4
    sums, exponents = [], []
    for _ in range(4000):
        size = rng.choice([4, 12, 24, 30, 31])
        row = [max(-most, min(most, rng.randrange(-(2**size), 2**size))) for _ in range(p)]
        if rng.random() < 0.2:  # near a tie: few bits at the top, almost nothing below
            row = [rng.choice([0, 0, 1, -1, 1 << r - 1]) for _ in range(p - 1)] + [rng.randrange(-(2**31), 2**31) >> 1]
        sums.append(row)
        exponents.append(rng.choice([0, rng.randrange(-300, 100), rng.randrange(-149 - 60, -80)]))
    exact = np.empty((len(sums), 3), np.uint32)
    to_64, to_32 = np.empty(len(sums), np.uint64), np.empty(len(sums), np.uint32)
    scales = np.array(exponents, np.int32)
    call(getattr(shim, f"diagonals_{p}_{r}"), np.array(sums, np.int32), scales, exact, to_64, to_32, len(sums))
    for row, e, words, bits_64, bits_32 in zip(sums, exponents, exact, to_64.tolist(), to_32.tolist(), strict=True):
        value = sum(x << r * d for d, x in enumerate(row))
        assert from_words(words[None]) == [value], row
        assert bits_64 == rounded_bits(value, e, 64), (row, e)
        assert bits_32 == rounded_bits(value, e, 32), (row, e)
