// Balanced digits of a two's complement number of LENGTH words: radix 2^R, digit 0 the least significant here.
#pragma once
#include "arithmetic/common.cuh"

// x + sum_i half * radix^i makes every digit nonnegative without a borrow from its neighbour; taking half away again
// from each digit on its own leaves the balanced digits. For radix 2^8 the second step is an exclusive or.
template <int LENGTH> HD void balanced_bytes(uint32_t (&words)[LENGTH]) {
  uint64_t carry = 0;
#pragma unroll
  for (int i = 0; i < LENGTH; ++i) {
    carry += static_cast<uint64_t>(words[i]) + 0x80808080u;
    words[i] = low_word(carry) ^ 0x80808080u;
    carry >>= 32;
  }
}

// Word i of sum_j 2^(R - 1) 2^(R j), j = 0 .. DIGITS - 1.
template <int R, int DIGITS> HD constexpr uint32_t halves(int i) {
  uint32_t word = 0;
  for (int j = 0; j < DIGITS; ++j) {
    const int bit = R * j + R - 1 - 32 * i;
    if (bit >= 0 && bit < 32) word |= 1u << bit;
  }
  return word;
}
template <int R, int DIGITS, int LENGTH> HD void add_halves(uint32_t (&words)[LENGTH]) {
  uint64_t carry = 0;
#pragma unroll
  for (int i = 0; i < LENGTH; ++i) {
    carry += static_cast<uint64_t>(words[i]) + halves<R, DIGITS>(i);
    words[i] = low_word(carry);
    carry >>= 32;
  }
}
// Digit j plus 2^(R - 1), in the low R bits, after add_halves; higher bits are other digits.
template <int R, int LENGTH> HD uint32_t raised_digit(const uint32_t (&words)[LENGTH], int j) {
  const int i = R * j / 32, bit = R * j % 32;
  const uint32_t next = i + 1 < LENGTH ? words[i + 1 < LENGTH ? i + 1 : 0] : 0u;
  return low_word((static_cast<uint64_t>(next) << 32 | words[i]) >> bit);
}
// Take 64 from each of four 7-bit fields, one per byte (bit 7 is ignored): four int8.
HD uint32_t lower_digits_7(uint32_t fields) {
  const uint32_t low = fields & 0x3f3f3f3fu, negative = ~fields & 0x40404040u;  // bit 6 clear: below zero
  return low | negative | negative << 1;
}
