"""The one rounding of results: kernels/arithmetic/rounding.cuh against Python's fractions."""

import numpy as np
import pytest
from cases import FORMATS
from shim import call, compiled, rounded_bits, to_words

ROUNDED_BITS = (7, 15, 31, 39, 47, 55, 63, 71, 79, 95, 111, 127, 167, 175, 191, 351)

SOURCE = """
#include "arithmetic/rounding.cuh"

template <int W, int BITS, typename T, typename Bits>
void rounded(const uint32_t* x, const int* e, Bits* out, uint8_t* ways, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t words[W];
    for (int w = 0; w < W; ++w) words[w] = x[i * W + w];
    T fast, of_leading;
    const Bits bits = Rounding<T>::bits(words, e[i]);
    const bool by_leading = round_by_leading_bits(words, e[i], of_leading);
    const bool differs = (round_by_addition<BITS>(words, e[i], fast) && bits_of(fast) != bits) ||
                         (by_leading && bits_of(of_leading) != bits);
    out[i] = differs ? ~Bits{0} : bits;  // a NaN
    if (ways != nullptr) ways[i] = by_leading;
  }
}

extern "C" {
"""
OF_BITS = """
void rounded_64_{b}(const uint32_t* x, const int* e, uint64_t* out, uint8_t* ways, int64_t n) {{
  rounded<{w}, {b}, double>(x, e, out, ways, n);
}}
void rounded_32_{b}(const uint32_t* x, const int* e, uint32_t* out, uint8_t* ways, int64_t n) {{
  rounded<{w}, {b}, float>(x, e, out, ways, n);
}}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE + "".join(OF_BITS.format(w=b // 32 + 1, b=b) for b in ROUNDED_BITS) + "}\n"
    return compiled(source, tmp_path_factory.mktemp("rounding"))


def rounding_cases(rng, limit, size):
    precision, smallest, top = FORMATS[f"float{size}"]
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
def test_rounding(shim, prng, size, bits):
    cases = rounding_cases(prng, bits, size)
    integers, exponents = zip(*cases, strict=True)
    out = np.empty(len(cases), np.uint64 if size == 64 else np.uint32)
    function = getattr(shim, f"rounded_{size}_{bits}")
    ways = np.empty(len(cases), np.uint8)
    call(function, to_words(integers, bits // 32 + 1), np.array(exponents, np.int32), out, ways, len(cases))
    for (x, e), got, by_leading in zip(cases, out.tolist(), ways.tolist(), strict=True):
        clamped = max(min(e, 20000), -20000)  # same result, with smaller fractions
        assert got == rounded_bits(x, clamped, size), (x, e, hex(got))
        # The leading bits are all that is needed, but near over- and underflow.
        near = e + x.bit_length() not in (range(-860, 860) if size == 64 else range(-70, 70))
        assert by_leading or near, (x, e)


@pytest.mark.parametrize("size", [64, 32])
def test_rounding_of_small_integers(shim, size):
    """Round every integer of 13 bits, its last bit at every subnormal position: all ties and all carries."""
    smallest = FORMATS[f"float{size}"][1]
    integers = list(range(-4096, 4097))
    for e in range(smallest - 14, smallest + 2):
        out = np.empty(len(integers), np.uint64 if size == 64 else np.uint32)
        function = getattr(shim, f"rounded_{size}_15")
        call(function, to_words(integers, 1), np.full(len(integers), e, np.int32), out, None, len(integers))
        assert out.tolist() == [rounded_bits(x, e, size) for x in integers], e
