// Elements of operands as a sign, an exponent and a fraction in 32-bit limbs, whatever they are in memory; and windows
// of bits of such fractions.
#pragma once
#include "arithmetic/fixed_point.cuh"

// Multiprecision numbers (ozaki/multiprecision/numbers.py): planes of signs (-1, 0, 1), of exponents and of `count`
// limbs, the highest one first. Element (b, row, h) has index b * sb + row * sr + h * sk in every plane; planes of limbs
// are `limb` elements apart.
struct NumbersView {
  const int8_t* signs;
  const int64_t* exponents;
  const uint32_t* limbs;
  int64_t limb, count;
  int64_t sb, sr, sk;
};

// Floating-point numbers, element (b, row, h) at x[b * sb + row * sr + h * sk].
template <typename T> struct FloatsView {
  const T* x;
  int64_t sb, sr, sk;
};

// sign 2^exponent 0.f, the fraction 0.f in [1/2, 1), or zero if the sign is 0: limb(i) has bits 32 i and up of the
// fraction, 0 for i outside of it.
struct Number {
  int sign;
  int64_t exponent;
  const uint32_t* limbs;
  int64_t stride;
  int count;

  HD Number(const NumbersView& x, int64_t at)
      : sign(x.signs[at]), exponent(x.exponents[at]), limbs(x.limbs + at), stride(x.limb),
        count(static_cast<int>(x.count)) {}
  HD uint32_t limb(int i) const { return i >= 0 && i < count ? limbs[i * stride] : 0u; }
};

// The same of a floating-point number; NaN and Inf count as zero.
struct FloatNumber {
  int sign;
  int64_t exponent;
  uint32_t high, low;
  static constexpr int count = 2;

  template <typename T> HD FloatNumber(const FloatsView<T>& x, int64_t at) {
    const Parts p = parts(reinterpret_cast<const typename BitsOf<T>::type*>(x.x)[at]);
    const int length = bit_length(p.mantissa);
    const uint64_t fraction = length == 0 ? 0 : p.mantissa << (64 - length);
    sign = p.mantissa == 0 ? 0 : p.negative ? -1 : 1;
    exponent = p.exponent + length;
    high = high_limb(fraction);
    low = low_limb(fraction);
  }
  HD uint32_t limb(int i) const { return i == 0 ? high : i == 1 ? low : 0u; }
};

HD NumbersView shifted(NumbersView x, int64_t at) {  // the view of what begins at that index
  x.signs += at, x.exponents += at, x.limbs += at;
  return x;
}

// The 32 bits of two limbs that begin `shift` bits, 0 to 31, after the beginning of the upper one.
HD uint32_t window(uint32_t upper, uint32_t lower, int shift) {
  return high_limb((static_cast<uint64_t>(upper) << 32 | lower) << shift);
}

// floor(2^s 0.f) as `words` limbs; to(i, limb) takes them from the highest, i = words - 1, on. Returns whether RN(2^s
// 0.f), ties to even, is one more. 2^s 0.f < 2^(32 words). Limbs are loaded eight at a time, so that loads wait together.
template <typename Element, typename To> HD bool round_fraction(const Element& x, int64_t s, int words, To to) {
  constexpr int AT_ONCE = 8;
  const bool below_half = x.sign == 0 || s < 0;
  const int before = below_half ? 0 : static_cast<int>(s);
  const int first = before - 32 * words, shift = first & 31;  // of the fraction's bit that the highest limb begins at
  int at = first >> 5;                                        // rounds down
  uint32_t upper = x.limb(at), last = 0;
  for (int top = words - 1; top >= 0; top -= AT_ONCE) {
    uint32_t lower[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) lower[i] = i <= top ? x.limb(at + 1 + i) : 0u;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
      if (i <= top) {
        last = below_half ? 0u : window(upper, lower[i], shift);
        to(top - i, last);
        upper = lower[i];
      }
    at += smaller(AT_ONCE, top + 1);
  }
  if (below_half) return false;
  const uint32_t after = upper << shift;  // from bit s of the fraction on, the first one after the point
  if (after >> 31 == 0) return false;
  if ((after << 1) != 0 || (last & 1) != 0) return true;
  for (int i = at + 1; i < x.count; ++i)
    if (x.limb(i) != 0) return true;
  return false;
}
