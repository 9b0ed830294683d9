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

// The summands of RN(limbs * 2^exponent) by one floating-point addition, for three limbs or more. With the limbs w, v, u
// from the highest one on, and `rest` for all below u, in units of u:
//
//   H 2^32 = w 2^64 + v 2^32 without the low 11 bits of v,   L = those 11 bits and u, u made odd where rest != 0
//
// are both exact float64 numbers: 2^84 + 2^63 + 2^32 w, 2^52 + v and 2^52 are written as bits.
struct Summands {
  double high, low;  // H, L
};
template <int LENGTH> HD Summands summands_of(const uint32_t (&limbs)[LENGTH]) {
  const uint32_t w = limbs[LENGTH - 1], v = limbs[LENGTH > 1 ? LENGTH - 2 : 0];
  uint32_t u = limbs[LENGTH > 2 ? LENGTH - 3 : 0], rest = 0;
#pragma unroll
  for (int i = 0; i < LENGTH - 3; ++i) rest |= limbs[i];
  if (rest != 0) u |= 1;
  const double high = double_of_limbs(0x45300000u, w ^ 0x80000000u) - double_of_limbs(0x45300000u, 0x80100000u);
  return {high + double_of_limbs(0x43300000u, v & ~0x7ffu),
          double_of_limbs(0x43300000u | (v & 0x7ffu), u) - double_of_limbs(0x43300000u, 0)};
}

// RN(limbs * 2^exponent) by adding these, for numbers that are large enough and far from over- and underflow; returns
// false for others (`rounded` is then meaningless). abs(H) >= 2^24 puts the sum beyond 2^56, where half an ulp is a
// multiple of 4: there an odd last bit of u rounds like everything below u.
template <int BITS, int LENGTH>
HD bool round_by_addition(const uint32_t (&limbs)[LENGTH], int exponent, double& rounded) {
  if (LENGTH < 3) return false;
  const int scale = exponent + 32 * (LENGTH - 3);
  const double power = double_of_limbs(static_cast<uint32_t>(scale + 1023) << 20, 0);
  const Summands sum = summands_of(limbs);
  rounded = fused(sum.high, 4294967296.0, sum.low) * power;
  return (sum.high < 0.0 ? -sum.high : sum.high) >= 16777216.0 && static_cast<uint32_t>(scale + 1000) <= 1900u;
}

// Bits [FIRST, FIRST + 32) of a two's complement number: its sign is repeated above it, zeros are below it; FIRST >=
// -64.
template <int FIRST, int LENGTH> HD uint32_t bits_from(const uint32_t (&limbs)[LENGTH]) {
  constexpr int W = (FIRST + 64) / 32 - 2, SHIFT = FIRST - 32 * W;
  const auto limb = [&](int w) {
    if (w >= LENGTH) return limbs[LENGTH - 1] >> 31 != 0 ? ~0u : 0u;
    return w < 0 ? 0u : limbs[w];
  };
  return SHIFT == 0 ? limb(W) : limb(W) >> SHIFT | limb(W + 1) << ((32 - SHIFT) & 31);
}

// The summands for a float32, of integers below 2^BITS in magnitude: H, the 24 leading bits, and L, the 23 bits below, made
// odd where anything lies below those, are exact, in units of 2^(BITS - 47).
struct Summands32 {
  float high, low;
  uint32_t leading;  // H as an integer
};
template <int BITS, int LENGTH> HD Summands32 summands_32_of(const uint32_t (&limbs)[LENGTH]) {
  constexpr int FIRST = BITS - 47;  // of L
  uint32_t below = 0;
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) {
    if (32 * w + 32 <= FIRST) below |= limbs[w];
    else if (32 * w < FIRST) below |= limbs[w] << (32 * w + 32 - FIRST);
  }
  const uint32_t leading = bits_from<BITS - 24>(limbs), next = bits_from<FIRST>(limbs) & 0x7fffffu;
  return {static_cast<float>(static_cast<int32_t>(leading)),
          float_of_bits(0x4b000000u | next | smaller(below, 1u)) - 8388608.0f, leading};
}

// The same into a float32: RN(2^23 H + L) is one fused multiply-add. H < -4 or H >= 4 puts the sum beyond 2^25, where half
// an ulp is even: there an odd last bit rounds like everything below it.
template <int BITS, int LENGTH>
HD bool round_by_addition(const uint32_t (&limbs)[LENGTH], int exponent, float& rounded) {
  const Summands32 sum = summands_32_of<BITS>(limbs);
  const int scale = exponent + BITS - 47;
  const float power = float_of_bits(static_cast<uint32_t>(scale + 127) << 23);
#ifdef __CUDA_ARCH__
  rounded = __fmul_rn(fused(sum.high, 8388608.0f, sum.low), power);
#else
  rounded = fused(sum.high, 8388608.0f, sum.low) * power;
#endif
  return sum.leading + 4u > 7u && static_cast<uint32_t>(scale + 120) <= 190u;  // 2^25 to 2^47, times 2^-120 to 2^70
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
