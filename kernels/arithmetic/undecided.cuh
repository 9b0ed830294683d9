// Whether an entry whose exact value lies within `error` of an integer is undecided when the integer, times a power of
// two, is rounded (docs/bounds.md, B14): whether the ends of that interval may round to two numbers. `error` is at least
// 0, Inf or NaN.
#pragma once
#include "arithmetic/rounding.cuh"

// What is added to an error in units of summands (rounding.cuh): that the integer is off by less than 1, and 1/4 that
// covers the roundings of an error of few units. The terms of errors cover others, each 2^-30 larger than it need be.
constexpr double OFF_BY = 1.25;

// By the summands that are rounded, for an error that is not 0; `reach`: the error in units of these, and OFF_BY. The
// nearest boundary is half an ulp from the rounded sum, less what was rounded off; both are exact. Beside a power of two
// the boundary on its other side is taken for as near as that below it.
template <typename T> HD bool undecided_by_addition(const Summands<T>& summands, double reach) {
  const T rounded = summands.sum();
  const T near = Summands<T>::half_ulp(rounded) - Summands<T>::magnitude(summands.rest(rounded));
  return !(static_cast<double>(near) > reach);
}

// By rounding both ends, for any number; `error`, in units of the integer and not NaN, is rounded up to an integer.
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
