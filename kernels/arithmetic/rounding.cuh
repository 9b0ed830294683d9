// An integer (two's complement, LENGTH limbs, lowest first) times a power of two, rounded once to floating-point bits.
#pragma once
#include "arithmetic/common.cuh"

// RN(limbs * 2^exponent), ties to even, without its sign, as the bits of a format with PRECISION bits whose values are
// below 2^TOP. Larger results are Inf; results below the normal numbers are rounded once into the subnormals. An exact
// zero is +0.
template <int PRECISION, int TOP, int LENGTH>
HD uint64_t round_to_format(const uint32_t (&limbs)[LENGTH], int exponent, bool& negative) {
  constexpr int BOTTOM = 3 - TOP;  // the smallest normal number lies in [2^(BOTTOM - 1), 2^BOTTOM)

  // 1. Sign and magnitude.
  negative = limbs[LENGTH - 1] >> 31 != 0;
  const uint32_t sign = negative ? ~0u : 0u;
  uint32_t magnitude[LENGTH], below[LENGTH];  // below[i]: bitwise or of limbs 0 .. i - 1
  uint64_t carry = negative ? 1 : 0;
  uint32_t seen = 0;
#pragma unroll
  for (int i = 0; i < LENGTH; ++i) {
    carry += limbs[i] ^ sign;
    magnitude[i] = low_limb(carry);
    carry >>= 32;
    below[i] = seen;
    seen |= magnitude[i];
  }

  // 2. The three highest limbs, from the first nonzero one on, and the bitwise or of all limbs below them.
  uint32_t high = magnitude[LENGTH - 1];
  uint32_t middle = LENGTH > 1 ? magnitude[LENGTH > 1 ? LENGTH - 2 : 0] : 0;
  uint32_t low = LENGTH > 2 ? magnitude[LENGTH > 2 ? LENGTH - 3 : 0] : 0;
  uint32_t rest = LENGTH > 3 ? below[LENGTH > 3 ? LENGTH - 3 : 0] : 0;
  int length = 32 * LENGTH;
#pragma unroll
  for (int i = 1; i < LENGTH; ++i) {
    if (high == 0) {
      high = middle;
      middle = low;
      low = LENGTH - 3 - i >= 0 ? magnitude[LENGTH - 3 - i >= 0 ? LENGTH - 3 - i : 0] : 0;
      rest = LENGTH - 3 - i > 0 ? below[LENGTH - 3 - i > 0 ? LENGTH - 3 - i : 0] : 0;
      length -= 32;
    }
  }
  if (high == 0) {
    negative = false;
    return 0;
  }

  // 3. Normalise: leading in [2^63, 2^64), the value in [2^(e - 1), 2^e).
  const int zeros = leading_zeros(high);
  const uint64_t lower = static_cast<uint64_t>(low) << zeros;
  const uint64_t leading = (static_cast<uint64_t>(high) << 32 | middle) << zeros | high_limb(lower);
  const bool sticky = (low_limb(lower) | rest) != 0;
  const int e = length - zeros + exponent;

  // 4. Round.
  if (e > TOP) return static_cast<uint64_t>(2 * TOP - 1) << (PRECISION - 1);  // Inf
  const int drop = 64 - PRECISION + larger(BOTTOM - e, 0);
  if (drop > 64) return 0;  // less than half the smallest subnormal
  const uint64_t kept = (leading >> 1) >> (drop - 1);
  const uint64_t dropped = leading << (64 - drop);  // 2^63 is one half
  const bool up = (dropped | (sticky ? 1u : 0u) | (kept & 1)) > 1ull << 63;
  // The implicit bit adds one to the exponent field, and so does a carry out of the mantissa, up to Inf.
  return (static_cast<uint64_t>(larger(e - BOTTOM, 0)) << (PRECISION - 1)) + kept + (up ? 1 : 0);
}

// Bits [FIRST, FIRST + 32) of a two's complement number: its sign is repeated above it, zeros are below it; FIRST >=
// -96.
template <int FIRST, int LENGTH> HD uint32_t bits_from(const uint32_t (&limbs)[LENGTH]) {
  constexpr int W = (FIRST + 96) / 32 - 3, SHIFT = FIRST - 32 * W;
  const auto limb = [&](int w) {
    if (w >= LENGTH) return limbs[LENGTH - 1] >> 31 != 0 ? ~0u : 0u;
    return w < 0 ? 0u : limbs[w];
  };
  return SHIFT == 0 ? limb(W) : limb(W) >> SHIFT | limb(W + 1) << ((32 - SHIFT) & 31);
}
// 1 if any bit below FIRST is set, else 0.
template <int FIRST, int LENGTH> HD uint32_t any_below(const uint32_t (&limbs)[LENGTH]) {
  uint32_t below = 0;
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) {
    if (32 * w + 32 <= FIRST) below |= limbs[w];
    else if (32 * w < FIRST) below |= limbs[w] << (32 * w + 32 - FIRST);
  }
  return smaller(below, 1u);
}

// The limbs of an integer from the highest one on that is more than the sign of the next: w, v and u, of which u is in
// units of 2^unit, and odd where anything lies below. Zeros are below the lowest limb.
struct Head {
  uint32_t w, v, u;
  int unit;
};
template <int LENGTH> HD Head head_of(const uint32_t (&limbs)[LENGTH]) {
  const auto limb = [&](int w) { return w < 0 ? 0u : limbs[w < 0 ? 0 : w]; };
  uint32_t below[LENGTH];  // below[w]: bitwise or of limbs 0 .. w - 1
  below[0] = 0;
#pragma unroll
  for (int w = 1; w < LENGTH; ++w) below[w] = below[w - 1] | limbs[w - 1];
  const auto rest = [&](int w) { return w < 0 ? 0u : below[w < 0 ? 0 : w]; };
  Head head = {limb(LENGTH - 1), limb(LENGTH - 2), limb(LENGTH - 3), 32 * (LENGTH - 3)};
  uint32_t of_rest = rest(LENGTH - 3);
#pragma unroll
  for (int i = 1; i < LENGTH; ++i) {
    if (head.w == (head.v >> 31 != 0 ? ~0u : 0u)) {
      head = {head.v, head.u, limb(LENGTH - 3 - i), head.unit - 32};
      of_rest = rest(LENGTH - 3 - i);
    }
  }
  head.u |= smaller(of_rest, 1u);
  return head;
}

// An integer as a sum that one floating-point addition rounds to T as it would be rounded itself: H RADIX + L, exact
// numbers of type T, in units of 2^unit. Where anything lies below these units, L is odd, and the sum is off by less than
// one of them; it rounds the same where half an ulp of it is a multiple of 2 (`is_wide`). `window` takes the leading bits
// that an integer below 2^BITS in magnitude may have, `leading` those that it has, which are always wide.
template <typename T> struct Summands;

// With the limbs w, v, u of 96 bits, in units of u:
//
//   H 2^32 = w 2^64 + v 2^32 without the low 11 bits of v,   L = those 11 bits and u
//
// 2^84 + 2^63 + 2^32 w, 2^52 + v and 2^52 are written as bits.
template <> struct Summands<double> {
  static constexpr double RADIX = 4294967296.0;
  double high, low;

  static HD Summands of(uint32_t w, uint32_t v, uint32_t u) {
    const double upper = double_of_limbs(0x45300000u, w ^ 0x80000000u) - double_of_limbs(0x45300000u, 0x80100000u);
    return {upper + double_of_limbs(0x43300000u, v & ~0x7ffu),
            double_of_limbs(0x43300000u | (v & 0x7ffu), u) - double_of_limbs(0x43300000u, 0)};
  }
  // The three highest limbs, or, where the highest one has few bits, the 96 highest bits: entries are about 2^10 below
  // what the moduli hold, which for many residues is far below 2^BITS, and have to be above 2^56.
  template <int BITS, int LENGTH> static HD constexpr int unit() {
    constexpr int MOST = smaller(BITS, 32 * LENGTH - 1), OF_HIGHEST = (MOST + 1) % 32;
    return OF_HIGHEST == 0 || OF_HIGHEST > 8 + MOST / 16 ? 32 * (LENGTH - 3) : MOST - 95;
  }
  template <int BITS, int LENGTH> static HD Summands window(const uint32_t (&limbs)[LENGTH]) {
    constexpr int FIRST = unit<BITS, LENGTH>();
    return of(bits_from<FIRST + 64>(limbs), bits_from<FIRST + 32>(limbs),
              bits_from<FIRST>(limbs) | any_below<FIRST>(limbs));
  }
  template <int LENGTH> static HD Summands leading(const uint32_t (&limbs)[LENGTH], int& unit) {
    const Head head = head_of(limbs);
    unit = head.unit;
    return of(head.w, head.v, head.u);
  }
  // Whether abs(H) >= 2^24, which puts the sum at 2^56 - 2^43 or beyond: half an ulp is a multiple of 4.
  HD bool is_wide() const { return (high_limb(bits_of(high)) & 0x7fffffffu) >= 0x41700000u; }
  // Whether abs(H) >= 2^40: an ulp is 2^19 or more, which one unit hardly matters to.
  HD bool is_long() const { return (high_limb(bits_of(high)) & 0x7fffffffu) >= 0x42700000u; }

  HD double sum() const { return fused(high, RADIX, low); }
  // What is left of this when the sum is rounded, exactly.
  HD double rest(double rounded) const { return fused(high, RADIX, -rounded) + low; }

  // Whether x 2^scale, for x = 0 or x from 2^55 to 2^96, is in range of normal numbers; if so, it.
  static HD bool times_power(double x, int scale, double& product) {
    product = x * double_of_limbs(static_cast<uint32_t>(scale + 1023) << 20, 0);
    return static_cast<uint32_t>(scale + 1000) <= 1900u;
  }
  // Half an ulp of a number that is not 0, half of that below a power of two; of 0 a negative number.
  static HD double half_ulp(double x) {
    const uint32_t high = high_limb(bits_of(x)), less = ((high & 0xfffffu) | low_limb(bits_of(x))) == 0 ? 54 : 53;
    return double_of_limbs((high & 0x7ff00000u) - (less << 20), 0);
  }
  static HD double magnitude(double x) { return double_of_limbs(high_limb(bits_of(x)) & 0x7fffffffu, low_limb(bits_of(x))); }
};

// H are the 24 leading bits, L the 23 bits below.
template <> struct Summands<float> {
  static constexpr float RADIX = 8388608.0f;
  float high, low;
  uint32_t whole_high;  // H as an integer

  static HD Summands of(uint32_t high, uint32_t low) {
    return {static_cast<float>(static_cast<int32_t>(high)), float_of_bits(0x4b000000u | low) - 8388608.0f, high};
  }
  template <int BITS, int LENGTH> static HD constexpr int unit() { return smaller(BITS, 32 * LENGTH - 1) - 47; }
  template <int BITS, int LENGTH> static HD Summands window(const uint32_t (&limbs)[LENGTH]) {
    constexpr int FIRST = unit<BITS, LENGTH>();
    return of(bits_from<FIRST + 23>(limbs), (bits_from<FIRST>(limbs) & 0x7fffffu) | any_below<FIRST>(limbs));
  }
  template <int LENGTH> static HD Summands leading(const uint32_t (&limbs)[LENGTH], int& unit) {
    const Head head = head_of(limbs);
    const int repeated = leading_zeros(head.w ^ (head.w >> 31 != 0 ? ~0u : 0u)) - 1;  // signs
    const uint32_t first = high_limb((static_cast<uint64_t>(head.w) << 32 | head.v) << repeated);
    const uint32_t second = high_limb((static_cast<uint64_t>(head.v) << 32 | head.u) << repeated);
    unit = head.unit + 49 - repeated;
    return of(static_cast<uint32_t>(static_cast<int32_t>(first) >> 8),
              (first & 0xffu) << 15 | second >> 17 | smaller(second << 15 | head.u << repeated, 1u));
  }
  // Whether H < -4 or H >= 4, which puts the sum beyond 2^25: half an ulp is even.
  HD bool is_wide() const { return whole_high + 4u > 7u; }
  // Whether H < -2^16 or H >= 2^16: an ulp is 2^15 or more.
  HD bool is_long() const { return whole_high + 65536u > 131071u; }

  HD float sum() const { return fused(high, RADIX, low); }
  HD float rest(float rounded) const { return fused(high, RADIX, -rounded) + low; }

  // For x = 0 or x from 2^25 to 2^47: 2^-120 to 2^70.
  static HD bool times_power(float x, int scale, float& product) {
    const float power = float_of_bits(static_cast<uint32_t>(scale + 127) << 23);
#ifdef __CUDA_ARCH__
    product = __fmul_rn(x, power);
#else
    product = x * power;
#endif
    return static_cast<uint32_t>(scale + 120) <= 190u;
  }
  static HD float half_ulp(float x) {
    const uint32_t bits = bits_of(x), less = (bits & 0x7fffffu) == 0 ? 25 : 24;
    return float_of_bits((bits & 0x7f800000u) - (less << 23));
  }
  static HD float magnitude(float x) { return float_of_bits(bits_of(x) & 0x7fffffffu); }
};

// RN(limbs * 2^exponent) by adding these, for integers below 2^BITS in magnitude that are large enough and far from over-
// and underflow; returns false for others (`rounded` is then meaningless).
template <int BITS, int LENGTH, typename T>
HD bool round_by_addition(const uint32_t (&limbs)[LENGTH], int exponent, T& rounded) {
  const auto summands = Summands<T>::template window<BITS>(limbs);
  const bool in_range =
      Summands<T>::times_power(summands.sum(), exponent + Summands<T>::template unit<BITS, LENGTH>(), rounded);
  return summands.is_wide() && in_range;
}
// The same for integers of any size that are far from over- and underflow.
template <int LENGTH, typename T>
HD bool round_by_leading_bits(const uint32_t (&limbs)[LENGTH], int exponent, T& rounded) {
  int unit;
  const auto summands = Summands<T>::leading(limbs, unit);
  return Summands<T>::times_power(summands.sum(), exponent + unit, rounded);
}

// RN(limbs * 2^exponent) as bits of a double or float, with its sign.
template <typename T> struct Rounding;
template <> struct Rounding<double> {
  template <int LENGTH> static HD uint64_t bits(const uint32_t (&limbs)[LENGTH], int exponent) {
    bool negative;
    const uint64_t magnitude = round_to_format<53, 1024>(limbs, exponent, negative);
    return magnitude | (negative ? 1ull << 63 : 0);
  }
};
template <> struct Rounding<float> {
  template <int LENGTH> static HD uint32_t bits(const uint32_t (&limbs)[LENGTH], int exponent) {
    bool negative;
    const uint32_t magnitude = low_limb(round_to_format<24, 128>(limbs, exponent, negative));
    return magnitude | (negative ? 1u << 31 : 0);
  }
};
