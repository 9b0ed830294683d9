"""Remainders and rounding of the kernel for few inner indices (arithmetic/folded.cuh), against Python's integers."""

import ctypes
import math

import numpy as np
import pytest
from shim import call, compiled, rounded_bits

from ozaki.schemes import Residues
from ozaki.schemes.folded import folded, order

COUNTS = range(4, 19)
LONGEST = (32, 64, 256)

SOURCE = """
#include "arithmetic/folded.cuh"
"""
OF_COUNT = """
struct Places{n}_{k} {{ static constexpr int at[] = {{{places}}}; }};
template <typename T>
void entries_{n}_{k}(const uint32_t* x, const int32_t* e, const void* c, void* out, uint32_t* z, int64_t count) {{
  typedef Places{n}_{k} Places;
  const auto& constants = *static_cast<const FoldedConstants<{n}, {d}>*>(c);
  for (int64_t i = 0; i < count; ++i) {{
    GroupSums<{n}> sums = {{}};
    for (int t = 0; t < {n}; ++t) sums.add(t, x[i * {n} + t], constants);
    for (int g = 0; g < groups_of({n}); ++g) z[i * groups_of({n}) + g] = sums.z[g];
    double s[1][{d}];
    folded_digit_sums<{small}, {n}>([&](int, int g) {{ return sums.z[g]; }}, constants, s);
    T rounded = round_digits<T, Places, 8 * {n} - 1>(s[0], e[i]);
    if constexpr ({d} <= 4)
      if (is_usual<T, 8 * {n} - 1>(e[i])) rounded = round_few_digits<T, Places>(s[0], power_of_two(e[i]));
    static_cast<T*>(out)[i] = rounded;
  }}
}}
extern "C" int size_{n}_{k}() {{ return sizeof(FoldedConstants<{n}, {d}>); }}
extern "C" void entries_{n}_{k}_64(const uint32_t* x, const int32_t* e, const void* c, void* o, uint32_t* z, int64_t m)
{{
  entries_{n}_{k}<double>(x, e, c, o, z, m);
}}
extern "C" void entries_{n}_{k}_32(const uint32_t* x, const int32_t* e, const void* c, void* o, uint32_t* z, int64_t m)
{{
  entries_{n}_{k}<float>(x, e, c, o, z, m);
}}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE
    for n in COUNTS:
        for k in LONGEST:
            of = folded(Residues(n), k)
            places = ", ".join(map(str, of.places))
            source += OF_COUNT.format(n=n, k=k, d=len(of.places), places=places, small=int(of.small))
    return compiled(source, tmp_path_factory.mktemp("folded"))


def integers(rng, scheme):
    """Integers Cbar that are allowed: of all lengths, ties of both formats, the ends, and near multiples of M / P_g."""
    most, whole = scheme.range, math.prod(scheme.moduli)
    found = [0, 1, -1, most, -most]
    for _ in range(150):
        x = int(rng.integers(2**63)) * 2**130 + int(rng.integers(2**63)) * 2**67 + int(rng.integers(2**63))
        found.append(x % (2 ** int(rng.integers(1, most.bit_length() + 1))) * int(rng.choice([-1, 1])))
        tie = (int(rng.integers(2**54)) | 1) << int(rng.integers(130))
        found += [tie, tie + 1, tie - 1, -tie, (int(rng.integers(2**25)) | 1) << int(rng.integers(130))]
        p = math.prod(scheme.moduli[3 * (g := int(rng.integers(-(-scheme.count // 3)))) : 3 * g + 3])
        found += [(p // 2 + int(rng.integers(-2, 3))) * (whole // p) + int(rng.integers(-1, 2))]
    return [x for x in found if abs(x) <= most]


@pytest.mark.parametrize("size", [64, 32])
@pytest.mark.parametrize("count", COUNTS)
def test_entries_are_rounded_once(shim, count, size):
    """From accumulators of all sizes up to the largest ones, for usual exponents and for any."""
    scheme, rng = Residues(count), np.random.default_rng(count)
    whole, exact = math.prod(scheme.moduli), integers(rng, scheme)
    for longest in LONGEST:
        usual = -scheme.range.bit_length() // 2 + rng.integers(-30, 30, len(exact))
        unusual = rng.integers(-1300, 1100, len(exact)) if size == 64 else rng.integers(-300, 150, len(exact))
        exponents = np.where(rng.random(len(exact)) < 0.7, usual, unusual).astype(np.int32)
        accumulators = []
        for i, x in enumerate(exact):
            residues = [x * pow(whole // m, -1, m) % m for m in scheme.moduli]
            times = [(longest * (m - 1) ** 2 - r) // m for r, m in zip(residues, scheme.moduli, strict=True)]
            times = [(0, most, int(rng.integers(most + 1)))[i % 3] for most in times]
            accumulators.append([r + m * q for r, m, q in zip(residues, scheme.moduli, times, strict=True)])
        of = folded(scheme, longest)
        out, z = np.zeros(len(exact), f"f{size // 8}"), np.zeros((len(exact), -(-count // 3)), np.uint32)
        function = getattr(shim, f"entries_{count}_{longest}_{size}")
        constants = np.array(of.constants, np.uint32)
        call(function, np.array(accumulators, np.uint32), exponents, constants, out, z, len(exact))
        expected = [rounded_bits(x, int(e), size) for x, e in zip(exact, exponents, strict=True)]
        assert out.view(f"u{size // 8}").tolist() == expected
        assert not of.small or z.max() < 2**24


@pytest.mark.parametrize("count", COUNTS)
def test_constants_are_as_long_as_their_struct(shim, count):
    for longest in LONGEST:
        size = getattr(shim, f"size_{count}_{longest}")
        size.restype = ctypes.c_int
        assert size() == 4 * len(folded(Residues(count), longest).constants)


def test_few_digits_for_the_shorthands():
    """What makes the kernel fast: three digits for float64 results, two for float32 ones, and numbers from bits."""
    assert len(folded(Residues(14), 64).places) == 3 and len(folded(Residues(7), 64).places) == 2
    assert folded(Residues(14), 64).small and not folded(Residues(14), 256).small
    assert order(5) == (0, 1, 4, 2, 3)
