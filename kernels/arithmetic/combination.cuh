// alpha V 2^exponent + beta c, V an integer in limbs, rounded once (docs/definitions.md, section 5).
#pragma once
#include "arithmetic/rounding.cuh"

// What kernels for alpha A B + beta C get: addend(b, row, col) = c[b * batch + row * row_stride + col * col_stride].
// With beta = 0 it is not read. alpha and beta are finite.
template <typename T> struct Combination {
  double alpha, beta;
  const T* c;
  int64_t batch, row_stride, col_stride;
};

// COMBINATION, a parameter of kernels, after others: for the dtype ADDEND of c; without that macro there is none.
#ifdef ADDEND
#define COMBINATION , const Combination<ADDEND> combination
#else
#define COMBINATION
#endif

// A finite number as (-1)^negative whole 2^exponent, whole < 2^53; taken from its bits, so that subnormals count.
struct Whole {
  uint64_t whole;
  int exponent;
  bool negative;
};
HD Whole whole_of(double x) {
  const uint64_t bits = bits_of(x);
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  return {(bits & ((1ull << 52) - 1)) | (field > 0 ? 1ull << 52 : 0), larger(field, 1) - 1075, bits >> 63 != 0};
}
HD Whole whole_of(float x) {
  const uint32_t bits = bits_of(x);
  const int field = static_cast<int>(bits >> 23 & 0xff);
  return {(bits & ((1u << 23) - 1)) | (field > 0 ? 1u << 23 : 0u), larger(field, 1) - 150, bits >> 31 != 0};
}

HD bool is_finite(double x) { return (bits_of(x) >> 52 & 0x7ff) != 0x7ff; }
HD bool is_finite(float x) { return (bits_of(x) >> 23 & 0xff) != 0xff; }

// x times a whole number below 2^53; x has room for the product.
template <int N> HD void multiply_by(uint32_t (&x)[N], uint64_t factor) {
  const uint64_t low = low_limb(factor), high = high_limb(factor);
  uint64_t carry = 0, before = 0;  // the carry is below 2^33, the limb before x[i] counts for `high`
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint64_t upper = high * before + carry, lower = low * x[i] + low_limb(upper);
    before = x[i];
    x[i] = low_limb(lower);
    carry = static_cast<uint64_t>(high_limb(lower)) + high_limb(upper);
  }
}

// Bits of a magnitude, 0 for zero.
template <int N> HD int length_of(const uint32_t (&x)[N]) {
  int length = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (x[i] != 0) length = 32 * (i + 1) - leading_zeros(x[i]);
  return length;
}

// Moves a magnitude by `by` bits, up if that is positive, where it has room; else down, and then sets bit 0 if a bit
// that falls out is set (rounding to odd). It moves whole limbs by powers of two, so that no index is a variable.
template <int N> HD void move_bits(uint32_t (&x)[N], int by) {
  const bool up = by >= 0;
  const int distance = up ? by : smaller(-by, 32 * N), limbs = distance / 32, bits = distance % 32;
  uint32_t lost = 0;
#pragma unroll
  for (int step = 1; step <= N; step *= 2) {
    if ((limbs & step) == 0) continue;
    if (up) {
#pragma unroll
      for (int i = N - 1; i >= 0; --i) x[i] = i >= step ? x[i >= step ? i - step : 0] : 0u;
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i < step) lost |= x[i];
        x[i] = i + step < N ? x[i + step < N ? i + step : 0] : 0u;
      }
    }
  }
  if (bits != 0) {
    if (up) {
#pragma unroll
      for (int i = N - 1; i >= 0; --i) x[i] = x[i] << bits | (i > 0 ? x[i > 0 ? i - 1 : 0] >> (32 - bits) : 0u);
    } else {
      lost |= x[0] << (32 - bits);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = x[i] >> bits | (i + 1 < N ? x[i + 1 < N ? i + 1 : 0] << (32 - bits) : 0u);
    }
  }
  if (lost != 0) x[0] |= 1u;
}

// x + or - y in two's complement, each a magnitude with a sign.
template <int N> HD void add_signed(uint32_t (&x)[N], bool x_negative, const uint32_t (&y)[N], bool y_negative) {
  const uint32_t of_x = x_negative ? ~0u : 0u, of_y = y_negative ? ~0u : 0u;
  uint64_t carry = (x_negative ? 1u : 0u) + (y_negative ? 1u : 0u);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    carry += static_cast<uint64_t>(x[i] ^ of_x) + (y[i] ^ of_y);
    x[i] = low_limb(carry);
    carry >>= 32;
  }
}

// RN(alpha V 2^exponent + beta c) as bits, ties to even, rounded once; V in two's complement, all three numbers finite.
// An exact zero is +0.
//
// The sum is taken in LENGTH + 6 limbs whose upper two bits are left for a carry and the sign. Below them the larger
// term, of 32 (LENGTH + 2) or 106 bits, leaves at least 53 + 8 bits: so where the smaller one does not fit, it lies so
// far below that the sum begins at most a bit below the larger one, and rounding to odd where it is cut off changes
// neither the rounding nor its ties.
template <typename Output, int LENGTH, typename Addend>
HD typename BitsOf<Output>::type combined(const uint32_t (&v)[LENGTH], int exponent, double alpha, double beta,
                                          Addend c) {
  constexpr int N = LENGTH + 6;
  const Whole a = whole_of(alpha), b = whole_of(beta), addend = whole_of(c);
  // 1. Both terms: magnitude, exponent of bit 0, sign.
  const bool v_negative = v[LENGTH - 1] >> 31 != 0;
  const uint32_t sign = v_negative ? ~0u : 0u;
  uint32_t x[N], y[N];
  uint64_t carry = v_negative ? 1 : 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < LENGTH) carry += v[i < LENGTH ? i : 0] ^ sign;
    x[i] = i < LENGTH ? low_limb(carry) : 0u;
    carry >>= 32;
    y[i] = i == 0 ? low_limb(addend.whole) : i == 1 ? high_limb(addend.whole) : 0u;
  }
  multiply_by(x, a.whole);
  multiply_by(y, b.whole);
  const int x_exponent = exponent + a.exponent, y_exponent = addend.exponent + b.exponent;
  // 2. Bit 0 of the sum.
  const int x_length = length_of(x), y_length = length_of(y);
  const int x_top = x_length > 0 ? x_exponent + x_length : -(1 << 20);
  const int y_top = y_length > 0 ? y_exponent + y_length : -(1 << 20);
  const int bottom = larger(x_top, y_top) + 2 - 32 * N;
  // 3. Add, round.
  move_bits(x, x_length > 0 ? x_exponent - bottom : 0);
  move_bits(y, y_length > 0 ? y_exponent - bottom : 0);
  add_signed(x, v_negative != a.negative, y, addend.negative != b.negative);
  return Rounding<Output>::bits(x, bottom);
}

// The quiet NaN and the infinities of a format, as bits.
template <typename T> struct Special;
template <> struct Special<double> {
  static HD uint64_t nan() { return 0xfffull << 51; }
  static HD uint64_t infinite(bool negative) { return (negative ? 0xfffull : 0x7ffull) << 52; }
};
template <> struct Special<float> {
  static HD uint32_t nan() { return 0x7fc00000u; }
  static HD uint32_t infinite(bool negative) { return negative ? 0xff800000u : 0x7f800000u; }
};

// beta c for a c that is NaN or Inf, as bits.
template <typename Output, typename Addend> HD typename BitsOf<Output>::type special_addend(double beta, Addend c) {
  const Whole of_c = whole_of(c);
  const bool nan = (of_c.whole & (of_c.whole - 1)) != 0;  // the bits of Inf below the implicit one are zeros
  return nan ? Special<Output>::nan() : Special<Output>::infinite(of_c.negative != (bits_of(beta) >> 63 != 0));
}

// The entry of the result: `combined`, or what beta c is if c is NaN or Inf. Without an addend (beta = 0), c is 0.
template <typename Output, int LENGTH, typename Addend>
HD typename BitsOf<Output>::type combined_or_special(const uint32_t (&v)[LENGTH], int exponent, double alpha,
                                                     double beta, Addend c) {
  return is_finite(c) ? combined<Output>(v, exponent, alpha, beta, c) : special_addend<Output>(beta, c);
}
