// Balanced digits of a two's complement integer of LENGTH limbs, lowest limb first: radix 2^R, each digit in [-2^(R -
// 1), 2^(R - 1)). Digit 0 is the least significant one here.
#pragma once
#include "arithmetic/common.cuh"

// x + sum_i 2^(R - 1) 2^(R i) makes every digit nonnegative, without borrows between digits; taking 2^(R - 1) from each
// digit by itself then leaves the balanced digits. For radix 2^8 the second step is an exclusive or. The caller chooses
// x so that its digits exist (abs(x) <= D, docs/definitions.md, section 2).
template <int LENGTH> HD void balanced_bytes(uint32_t (&limbs)[LENGTH]) {
  uint64_t carry = 0;
#pragma unroll
  for (int i = 0; i < LENGTH; ++i) {
    carry += static_cast<uint64_t>(limbs[i]) + 0x80808080u;
    limbs[i] = low_limb(carry) ^ 0x80808080u;
    carry >>= 32;
  }
}

// Limb i of sum_j 2^(R - 1) 2^(R j), j = 0 .. DIGITS - 1.
template <int R, int DIGITS> HD constexpr uint32_t halves(int i) {
  uint32_t limb = 0;
  for (int j = 0; j < DIGITS; ++j) {
    const int bit = R * j + R - 1 - 32 * i;
    if (bit >= 0 && bit < 32) limb |= 1u << bit;
  }
  return limb;
}
// Adds that sum to a number.
template <int R, int DIGITS, int LENGTH> HD void add_halves(uint32_t (&limbs)[LENGTH]) {
  uint64_t carry = 0;
#pragma unroll
  for (int i = 0; i < LENGTH; ++i) {
    carry += static_cast<uint64_t>(limbs[i]) + halves<R, DIGITS>(i);
    limbs[i] = low_limb(carry);
    carry >>= 32;
  }
}
// After add_halves: digit j plus 2^(R - 1), in the low R bits; the higher bits belong to other digits.
template <int R, int LENGTH> HD uint32_t raised_digit(const uint32_t (&limbs)[LENGTH], int j) {
  const int i = R * j / 32, bit = R * j % 32;
  const uint32_t next = i + 1 < LENGTH ? limbs[i + 1 < LENGTH ? i + 1 : 0] : 0u;
  return low_limb((static_cast<uint64_t>(next) << 32 | limbs[i]) >> bit);
}
// Takes 64 from each of four 7-bit fields, one in each byte (bit 7 is ignored): four int8 digits.
HD uint32_t lower_digits_7(uint32_t fields) {
  const uint32_t low = fields & 0x3f3f3f3fu, negative = ~fields & 0x40404040u;  // bit 6 is clear: the digit is negative
  return low | negative | negative << 1;
}
