// The exact sum of products of two floating-point numbers, in fixed point from 2^-2148 on, rounded once.
//
// A product of two float64 numbers is an integer of at most 106 bits times 2^e, e from -2148 (both are subnormal) to
// 1942. Digits of 32 bits are added up as signed 64-bit integers, so that carries wait: an addition changes five digits
// by less than 2^32 each, whatever their signs.
#pragma once
#include "arithmetic/fixed_point.cuh"
#include "arithmetic/rounding.cuh"

struct Superaccumulator {
  static constexpr int UNIT = -2148;   // exponent of the lowest bit
  static constexpr int LENGTH = 134;   // 4196 bits of the largest product, 63 for as many as 2^63 of them, and the sign
  static constexpr int64_t AT_ONCE = 1ll << 30;  // products between two carries: digits stay below 2^63

  int64_t digits[LENGTH];  // the sum is that of digits[i] 2^(32 i + UNIT)

  HD void clear() {
    for (int i = 0; i < LENGTH; ++i) digits[i] = 0;
  }

  // The digits of x y, of which the first is a part of digits[the result].
  static HD int product_digits(const Parts& x, const Parts& y, int64_t (&of_product)[5]) {
    // 1. The product of the mantissas: high 2^64 + low.
    const uint64_t x0 = low_limb(x.mantissa), x1 = high_limb(x.mantissa);
    const uint64_t y0 = low_limb(y.mantissa), y1 = high_limb(y.mantissa);
    const uint64_t lowest = x0 * y0, middle = x0 * y1 + x1 * y0;  // below 2^64, 2^54
    const uint64_t low = lowest + (middle << 32);
    const uint64_t high = x1 * y1 + (middle >> 32) + (low < lowest ? 1 : 0);

    // 2. Its five digits.
    const int place = x.exponent + y.exponent - UNIT, shift = place & 31;
    const uint64_t first = low << shift;
    const uint64_t second = high << shift | (low >> 1) >> (63 - shift);
    const uint64_t last = (high >> 1) >> (63 - shift);

    // 3. (d ^ sign) - sign is d or -d.
    const int64_t sign = x.negative != y.negative ? -1 : 0;
    of_product[0] = (static_cast<int64_t>(low_limb(first)) ^ sign) - sign;
    of_product[1] = (static_cast<int64_t>(high_limb(first)) ^ sign) - sign;
    of_product[2] = (static_cast<int64_t>(low_limb(second)) ^ sign) - sign;
    of_product[3] = (static_cast<int64_t>(high_limb(second)) ^ sign) - sign;
    of_product[4] = (static_cast<int64_t>(last) ^ sign) - sign;
    return place >> 5;
  }

  // Add x y, exactly. Not more than AT_ONCE times without `carry`.
  HD void add(const Parts& x, const Parts& y) {
    int64_t of_product[5];
    int64_t* const to = digits + product_digits(x, y, of_product);
    for (int i = 0; i < 5; ++i) to[i] += of_product[i];
  }

  // Bring all digits but the last one, which has the sign, into [0, 2^32).
  HD void carry() {
    int64_t over = 0;
    for (int i = 0; i < LENGTH - 1; ++i) {
      const int64_t digit = digits[i] + over;
      over = digit >> 32;
      digits[i] = static_cast<int64_t>(low_limb(static_cast<uint64_t>(digit)));
    }
    digits[LENGTH - 1] += over;
  }

  // RN of the sum, ties to even, as the bits of a double or float. An exact zero is +0. Carries.
  template <typename T> HD typename BitsOf<T>::type rounded() {
    carry();
    const uint32_t sign = digits[LENGTH - 1] < 0 ? ALL : 0u;
    // The highest limb that is no copy of the sign, the two below it, and whether anything is below these, as an odd
    // lowest limb: the magnitude is 2^64 units of the third limb or more, so that no rounding sees the difference.
    int top = LENGTH - 1;
    while (top > 2 && low_limb(static_cast<uint64_t>(digits[top])) == sign) --top;
    int64_t rest = 0;
    for (int i = 0; i < top - 2; ++i) rest |= digits[i];
    const uint32_t limbs[5] = {rest != 0 ? 1u : 0u, low_limb(static_cast<uint64_t>(digits[top - 2])),
                               low_limb(static_cast<uint64_t>(digits[top - 1])),
                               low_limb(static_cast<uint64_t>(digits[top])), sign};
    return Rounding<T>::bits(limbs, UNIT + 32 * (top - 3));
  }
};
