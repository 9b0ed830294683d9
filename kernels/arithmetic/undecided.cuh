// Whether an entry whose exact value lies within `error` of an integer is undecided when the integer, times a power of
// two, is rounded (docs/bounds.md, B14): whether the ends of that interval may round to two numbers. `error`, at least 0
// or Inf, is in units of the integer.
#pragma once
#include "arithmetic/rounding.cuh"

// By the additions of `round_by_addition`, where this rounds a number to T: v = RN(H 2^32 + L), and what is left,
// H 2^32 + L - v, is a double, too. In units of the last bit of L, which is odd where less than 1 is cut off below it: so
// the sum is off by less than 1. 1/4 covers the roundings here, but for those of a large reach, which the terms of errors
// cover (each is 2^-30 larger than it need be).
template <typename T, int BITS, int LENGTH> HD bool undecided_by_addition(const uint32_t (&limbs)[LENGTH], double error) {
  if constexpr (sizeof(T) == 4) {
    // Of float32: v = RN(H 2^23 + L) likewise. Here sums of what is left, at most 2^23, are wrong by 1/2, and by 2^-24 of
    // a larger reach, of which 2^-22 more than covers that it is rounded.
    const Summands32 sum = summands_32_of<BITS>(limbs);
    const float value = fused(sum.high, 8388608.0f, sum.low);
    const float rest = fused(sum.high, 8388608.0f, -value) + sum.low;
    const double unit = double_of(static_cast<uint64_t>(1023 + 47 - BITS) << 52);
    const float reach = static_cast<float>(fused(error * (1.0 + 0x1p-22), unit, 2.0));
    return error != 0.0 && (value + (rest + reach) != value || value + (rest - reach) != value);
  } else {
    constexpr int UNIT = 32 * (LENGTH > 3 ? LENGTH - 3 : 0);
    if (LENGTH < 3) return error != 0.0;
    const Summands sum = summands_of(limbs);
    const double value = fused(sum.high, 4294967296.0, sum.low);
    const double rest = fused(sum.high, 4294967296.0, -value) + sum.low;
    const double reach = fused(error, double_of(static_cast<uint64_t>(1023 - UNIT) << 52), 1.25);
    return error != 0.0 && (value + (rest + reach) != value || value + (rest - reach) != value);
  }
}

// By rounding both ends, for any number; `error` is rounded up to an integer.
template <typename T, int LENGTH>
HD bool undecided_by_ends(const uint32_t (&limbs)[LENGTH], int exponent, double error) {
  if (error == 0.0) return false;
  // 1. The error as whole 2^place, at most 2^(32 LENGTH - 2).
  const uint64_t bits = bits_of(error);
  const int field = static_cast<int>(bits >> 52);
  if (field >= 1021 + 32 * LENGTH) return true;
  uint64_t whole = 1;
  int place = field - 1075;
  if (place >= -53) whole = (bits & ((1ull << 52) - 1)) | 1ull << 52;
  if (place < 0) {
    if (place >= -53) whole = (whole + ((1ull << -place) - 1)) >> -place;
    place = 0;
  }
  // 2. Its limbs, added and subtracted.
  const int first = place >> 5, shift = place & 31;
  const uint64_t low = whole << shift, high = (whole >> 1) >> (63 - shift);
  uint32_t above[LENGTH], below[LENGTH];
  uint64_t carry = 0, borrow = 1;
#pragma unroll
  for (int i = 0; i < LENGTH; ++i) {
    const uint32_t limb = i == first ? low_limb(low) : i == first + 1 ? high_limb(low) : i == first + 2 ? low_limb(high) : 0;
    carry += static_cast<uint64_t>(limbs[i]) + limb;
    above[i] = low_limb(carry);
    carry >>= 32;
    borrow += static_cast<uint64_t>(limbs[i]) + static_cast<uint32_t>(~limb);
    below[i] = low_limb(borrow);
    borrow >>= 32;
  }
  // 3. An end that has no room has another sign.
  const uint32_t sign = limbs[LENGTH - 1] >> 31;
  const bool beyond = sign != 0 ? below[LENGTH - 1] >> 31 == 0 : above[LENGTH - 1] >> 31 != 0;
  return beyond || Rounding<T>::bits(above, exponent) != Rounding<T>::bits(below, exponent);
}
