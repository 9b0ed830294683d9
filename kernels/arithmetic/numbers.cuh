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

  HD Number() : sign(0), exponent(0), limbs(nullptr), stride(0), count(0) {}
  HD Number(const NumbersView& x, int64_t at)
      : sign(x.signs[at]), exponent(x.exponents[at]), limbs(x.limbs + at), stride(x.limb),
        count(static_cast<int>(x.count)) {}
  HD uint32_t limb(int i) const { return is_inside(i, count) ? limbs[i * stride] : 0u; }
  // N limbs from limb i on.
  template <int N> HD void run(int i, uint32_t (&found)[N]) const {
    const uint32_t* at = limbs + i * stride;
#pragma unroll
    for (int n = 0; n < N; ++n, at += stride) found[n] = is_inside(i + n, count) ? *at : 0u;
  }
  static HD bool is_inside(int i, int count) { return static_cast<uint32_t>(i) < static_cast<uint32_t>(count); }
};

// The same of a floating-point number; NaN and Inf count as zero.
struct FloatNumber {
  int sign;
  int64_t exponent;
  uint32_t high, low;
  static constexpr int count = 2;

  HD FloatNumber() : sign(0), exponent(0), high(0), low(0) {}
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
  template <int N> HD void run(int i, uint32_t (&found)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) found[n] = limb(i + n);
  }
};

// The 32 bits of two limbs that begin `shift` bits, 0 to 31, after the beginning of the upper one.
HD uint32_t window(uint32_t upper, uint32_t lower, int shift) {
  return high_limb((static_cast<uint64_t>(upper) << 32 | lower) << shift);
}

// Of N numbers floor(2^s 0.f) as `words` limbs, 2^s 0.f < 2^(32 words); to(n, i, limb) takes those of number n from the
// highest, i = words - 1, on. more[n]: whether RN(2^s 0.f), ties to even, is one more. AT_ONCE limbs of all numbers are
// loaded at a time, so that loads wait together.
template <int AT_ONCE, int N, typename Element, typename To>
HD void round_fractions(const Element (&x)[N], const int64_t (&s)[N], int words, To to, uint32_t (&more)[N]) {
  bool below_half[N];
  int at[N], shift[N];
  uint32_t upper[N], last[N];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    below_half[n] = x[n].sign == 0 || s[n] < 0;
    const int first = (below_half[n] ? 0 : static_cast<int>(s[n])) - 32 * words;  // bit of the fraction
    shift[n] = first & 31;
    at[n] = first >> 5;  // rounds down
    upper[n] = x[n].limb(at[n]);
    last[n] = 0;
  }
  for (int top = words - 1; top >= 0; top -= AT_ONCE) {
    uint32_t lower[N][AT_ONCE];
#pragma unroll
    for (int n = 0; n < N; ++n) x[n].run(at[n] + 1, lower[n]);
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        if (i <= top) {
          last[n] = below_half[n] ? 0u : window(upper[n], lower[n][i], shift[n]);
          to(n, top - i, last[n]);
          upper[n] = lower[n][i];
        }
      at[n] += smaller(AT_ONCE, top + 1);
    }
  }
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const uint32_t after = below_half[n] ? 0u : upper[n] << shift[n];  // from bit s on, the first one after the point
    bool up = after >> 31 != 0 && ((after << 1) != 0 || (last[n] & 1) != 0);
    if (after == 0x80000000u && !up)  // a tie, unless a limb further on is not zero
      for (int i = at[n] + 1; i < x[n].count; ++i) up = up || x[n].limb(i) != 0;
    more[n] = up ? 1 : 0;
  }
}
