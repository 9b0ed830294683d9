"""Which entries are undecided when they are rounded: kernels/arithmetic/undecided.cuh against Python's integers."""

import numpy as np
import pytest
from cases import FORMATS
from shim import call, compiled, rounded_bits, to_words

BITS = (15, 31, 47, 63, 71, 95, 111, 135, 159, 167, 191, 351)

SOURCE = """
#include <cmath>
#include "arithmetic/undecided.cuh"

template <int W, int BITS, typename T>
void undecided(const uint32_t* x, const int* e, const double* error, uint8_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t words[W];
    for (int w = 0; w < W; ++w) words[w] = x[i * W + w];
    T fast;
    out[i] = undecided_by_ends<T>(words, e[i], error[i]) ? 1 : 0;
    const auto by_addition = [&](const Summands<T>& summands, int unit) {
      return error[i] != 0 && undecided_by_addition(summands, std::ldexp(error[i], -unit) + OFF_BY);
    };
    if (round_by_addition<BITS>(words, e[i], fast))
      out[i] |= by_addition(Summands<T>::template window<BITS>(words), Summands<T>::template unit<BITS, W>()) ? 6 : 2;
    if (!round_by_leading_bits(words, e[i], fast)) continue;
    int unit;
    const auto leading = Summands<T>::leading(words, unit);
    out[i] |= by_addition(leading, unit) ? 24 : 8;
  }
}

extern "C" {
"""
OF_BITS = """
void undecided_64_{b}(const uint32_t* x, const int* e, const double* error, uint8_t* out, int64_t n) {{
  undecided<{w}, {b}, double>(x, e, error, out, n);
}}
void undecided_32_{b}(const uint32_t* x, const int* e, const double* error, uint8_t* out, int64_t n) {{
  undecided<{w}, {b}, float>(x, e, error, out, n);
}}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE + "".join(OF_BITS.format(w=b // 32 + 1, b=b) for b in BITS) + "}\n"
    return compiled(source, tmp_path_factory.mktemp("undecided"))


def near_boundaries(rng, limit, size):
    """Integers, exponents and errors, which lie about as far from a boundary of rounding as their errors reach."""
    precision, smallest, top = FORMATS[f"float{size}"]
    found = [(0, 0, 0.0), (0, 0, 1.0), (1, 0, 1.0), (-1, 0, 1.0), (2, 0, 1.5), (0, -5000, 1.0), (5, -5000, 1.0)]
    found += [(sign * (2**limit - 1), 0, 2.0**at) for sign in (1, -1) for at in (-9, 0, limit - 2, limit - 1, limit)]
    found += [(2, 0, 1e300), (2, 0, np.inf), (3, 0, 5e-324), (0, 0, 5e-324), (3 << limit // 2, 0, 2.0**-53)]
    for _ in range(4000):
        length = rng.randrange(1, limit + 1)
        x = rng.getrandbits(length) | 1 << length - 1
        error = rng.random() * 2.0 ** rng.randrange(-3, max(length - precision + 3, 1))
        kind = rng.randrange(8)
        drop = length - precision
        if kind < 4 and drop > 1:  # beside a tie, or beside a power of two, half as far apart below it
            x = 1 << length - 1 if kind == 3 else x >> drop << drop | 1 << drop - 1
            away = round(error * rng.choice((0.25, 0.999, 1.0, 1.001, 2.0, 4.0)))
            x += rng.choice((-1, 1)) * (away + rng.choice((-2, -1, 0, 1, 2)))
            if kind == 3:
                x -= rng.choice((0, 1 << drop - 2))
        elif kind == 4:
            error = 0.0
        e = rng.randrange(-80, 40)
        where = rng.randrange(4)
        if where == 0:  # into or through the subnormals
            e = smallest - length + rng.randrange(-2, precision + 3)
        elif where == 1:  # about the largest number
            e = top - length + rng.randrange(-2, 2)
        x = min(max(x, -(2**limit) + 1), 2**limit - 1)
        found.append((rng.choice((x, -x)), e, error))
    return found


def differ(x, exponent, error, size):
    """Whether integers that far from x round to other numbers; the error is a ratio of integers."""
    numerator, denominator = error
    shift = denominator.bit_length() - 1
    ends = ((x << shift) - numerator, (x << shift) + numerator)
    below, above = (rounded_bits(end, exponent - shift, size) for end in ends)
    return below != above


def unit_of_window(bits, limbs, size):
    """The largest exponent that the unit of `Summands::window` may have."""
    return bits - 47 if size == 32 else max(bits - 95, 32 * (limbs - 3))


def unit_of_leading(x, size):
    """The same of `Summands::leading`."""
    return max(x.bit_length(), (-x).bit_length()) - (46 if size == 32 else 63)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [64, 32])
def test_undecided(shim, prng, size, bits):
    cases = near_boundaries(prng, bits, size)
    integers, exponents, errors = zip(*cases, strict=True)
    limbs, out = bits // 32 + 1, np.empty(len(cases), np.uint8)
    function = getattr(shim, f"undecided_{size}_{bits}")
    arguments = to_words(integers, limbs), np.array(exponents, np.int32), np.array(errors)
    call(function, *arguments, out, len(cases))
    undecided = 0
    for (x, e, error), found in zip(cases, out.tolist(), strict=True):
        case = x, e, error, found
        if np.isinf(error):
            assert found & 1 and found & 6 != 2 and found & 24 != 8, case
            continue
        numerator, denominator = error.as_integer_ratio()
        needed = differ(x, e, (numerator, denominator), size)
        undecided += needed
        assert found & 1 or not needed, case
        whole, room = -(-numerator // denominator), 2 ** (32 * limbs - 1)
        fits = error < room // 2 and -room <= x - whole <= x + whole < room
        assert found & 1 == (not fits or differ(x, e, (whole, 1), size)), case
        for ran, unit in ((2, unit_of_window(bits, limbs, size)), (8, unit_of_leading(x, size))):
            if not found & ran:
                continue
            assert found & 2 * ran or not needed, case
            # The integer is off by a unit, to which the error and 1.25 are added. Beside a power of two more may be
            # asked for than is needed.
            reach = whole + (5 << max(unit, 0)) + whole // 2**20
            mantissa = rounded_bits(x, -x.bit_length(), size) << (12 if size == 64 else 9) & (1 << size) - 1
            assert not found & 2 * ran or mantissa == 0 or (error and differ(x, e, (reach, 1), size)), case
    assert undecided > len(cases) // 20
