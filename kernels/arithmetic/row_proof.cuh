// What is known of a row of 16-bit floats, and whether digits of it are proven to be enough (docs/definitions.md, 11).
//
// Integers, which no order of summation changes, and float64 operations in a fixed order, none of them contracted: the
// kind of a row decides its bits.
#pragma once
#include "arithmetic/sixteen.cuh"

// The longest rows for which the proof is made: longer ones are exact.
constexpr int64_t LONGEST_PROVEN = 1 << 24;

// Elements are counted against th_b = (1 - (b % 4 + 1) / 8) 2^-(b / 4) 2^top, b = 0 .. THRESHOLDS - 1, in units of
// 2^-THRESHOLD_BITS.
constexpr int THRESHOLDS = 64, THRESHOLD_BITS = 19;
HD constexpr uint32_t threshold(int b) { return (7u - b % 4) << (THRESHOLD_BITS - 3) >> (b / 4); }
// th_b - th_(b + 1), or the last threshold.
HD constexpr uint32_t threshold_step(int b) { return threshold(b) - (b + 1 < THRESHOLDS ? threshold(b + 1) : 0u); }

// Rows are ordinary whose elements are all finite, and so large that float32 holds 2^mu, 2^-mu, and the measures of all
// elements that count; almost all rows are, and need no branch for an element.
HD bool is_ordinary(int top, int mu) { return top > FastTop<uint32_t>::value && mu >= -126 && mu <= 126; }

// The first threshold that an element, the bits of a float32, is no less than; THRESHOLDS if there is none. With e the
// exponent of frexp and q the two bits after the leading one, 4 (top - e) + 3 - q.
template <bool ORDINARY> HD int first_threshold(uint32_t bits, int top) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  int place = static_cast<int>(magnitude >> 21);  // 4 (e + 126) + q; of a subnormal number and zero 0 .. 3
  if (!ORDINARY && magnitude < 0x800000u) {
    if (magnitude == 0) return THRESHOLDS;
    const int zeros = leading_zeros(magnitude) - 8;
    place = 4 * (1 - zeros) + static_cast<int>(magnitude << zeros >> 21 & 3u);
  }
  return smaller(4 * (top + 126) + 3 - place, THRESHOLDS);
}

// RN(2^mu x) of an element, the bits of a float32, below 2^(8 DIGITS - 1) in magnitude; and whether it is not 2^mu x.
// Of ordinary rows by `power` and `inverse`, 2^mu and 2^-mu, which are not read of others.
struct Image {
  int32_t value;
  bool inexact;
};
HD float power_of_two(int e) { return float_of_bits(static_cast<uint32_t>(e + 127) << 23); }
template <int DIGITS, bool ORDINARY> HD Image image_of(uint32_t bits, int mu, float power, float inverse) {
  if (ORDINARY) {
    const float x = float_of_bits(bits);
    if (DIGITS == 2) {  // float32 numbers near 1.5 2^23 are integers, whose low bits are those of the image
      const float raised = fused(x, power, 12582912.0f), whole = raised - 12582912.0f;
      return {static_cast<int32_t>(bits_of(raised) - 0x4b400000u), whole * inverse != x};
    }
#ifdef __CUDA_ARCH__
    const int32_t value = __float2int_rn(x * power);
#else
    const int32_t value = static_cast<int32_t>(std::lrint(x * power));
#endif
    return {value, static_cast<float>(value) * inverse != x};
  }
  uint32_t limbs[1];
  image(bits, mu, limbs);
  const Parts p = parts(bits);
  return {static_cast<int32_t>(limbs[0]), has_fraction(p.mantissa, p.exponent + mu)};
}
// The digits of an image, a byte each, the least significant one lowest; a fourth digit needs no bias.
HD uint32_t digit_bytes(int32_t image) { return (static_cast<uint32_t>(image) + 0x808080u) ^ 0x808080u; }

// c + the sum of the squares of four signed bytes.
HD uint32_t add_squares(uint32_t bytes, uint32_t c) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__dp4a(static_cast<int>(bytes), static_cast<int>(bytes), static_cast<int>(c)));
#else
  for (int j = 0; j < 4; ++j) {
    const int digit = static_cast<int8_t>(bytes >> (8 * j));
    c += static_cast<uint32_t>(digit * digit);
  }
  return c;
#endif
}

// Squares of digits are added up of the last Q - 1 digits of rows and of columns, Q those of a column: only these are
// in pairs that are left out.
constexpr int MOST_LOW = 2;

// Of all columns of a matrix that have a nonzero element: the largest of each number. Zero before the first.
struct Columns {
  uint64_t inexact, squares;
  uint64_t low[MOST_LOW];        // the most significant digit first
  uint32_t missing[THRESHOLDS];  // k less the elements that are no less than a threshold
};
// Of a row: elements whose image is inexact, times 4^h; the sums of squares of digits s, times 4^h 4^(8 (digits - s));
// h = 8 digits - 1 - bits, bits those of the image.
struct OfRow {
  uint64_t inexact, squares;
  uint64_t low[MOST_LOW];
};

// The part of L (least_products in bounds/row_digits.py) that threshold b of a row has: c elements are no less.
// missing[] descends, and beyond[p] = sum over b' >= p of threshold_step(b') missing[b']; the sum of these steps is
// threshold(p).
HD uint64_t least_terms(int b, uint32_t c, const uint32_t* missing, const uint64_t* beyond) {
  int place = 0;  // the first threshold of columns with missing < c
  for (int step = THRESHOLDS; step > 0; step /= 2)
    if (place + step <= THRESHOLDS && missing[place + step - 1] >= c) place += step;
  if (place == THRESHOLDS) return 0;
  return threshold_step(b) * (static_cast<uint64_t>(c) * threshold(place) - beyond[place]);
}

HD double rounded_product(double x, double y) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(x, y);
#else
  return x * y;
#endif
}
HD double rounded_sum(double x, double y) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(x, y);
#else
  return x + y;
#endif
}
HD double rounded_root(double x) {
#ifdef __CUDA_ARCH__
  return __dsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}
HD double double_power(int e) { return double_of(static_cast<uint64_t>(e + 1023) << 52); }

// The bound of the errors of a row is a sum of products of square roots. ROOTS<Q>: how many there are with Q digits of
// the columns; under_root: the number under root i: inexact elements and squares, of the row and of the columns, then
// for each pair of digits that is left out the product of their sums of squares. Of P digits of the row.
template <int Q> constexpr int ROOTS = 4 + Q * (Q - 1) / 2;
template <int P, int Q> HD double under_root(int i, const OfRow& row, const Columns& columns) {
  static_assert(P >= Q && Q - 1 <= MOST_LOW, "pairs of other digits would be left out");
  if (i < 4)
    return static_cast<double>(i < 2 ? (i == 0 ? row.inexact : columns.inexact)
                                     : (i == 2 ? row.squares : columns.squares));
  double found = 0.0;
  int place = 4;
#pragma unroll
  for (int s = 2; s <= P; ++s)
#pragma unroll
    for (int t = 2; t <= Q; ++t) {
      if (s + t <= P + 1) continue;
      if (place++ == i)
        found = rounded_product(static_cast<double>(row.low[s - 2 - (P - Q)]), static_cast<double>(columns.low[t - 2]));
    }
  return found;
}

// A bound of the errors of all entries of a row, before the rounding, in units of 2^(top of the row + top of the
// column): of P digits of it and Q of the columns, whose magnitudes have `width` bits; `roots` of the numbers above.
template <int P, int Q> HD double row_error(const double (&roots)[ROOTS<Q>], int width) {
  const double unit = double_power(-width);
  const double of_row = rounded_product(roots[0], double_power(-8 * P));
  const double of_columns = rounded_product(roots[1], double_power(-8 * Q));
  const double row_norm = rounded_product(roots[2], unit), column_norm = rounded_product(roots[3], unit);
  double dropped = 0.0;
#pragma unroll
  for (int i = 4; i < ROOTS<Q>; ++i)
    dropped = rounded_sum(dropped, rounded_product(roots[i], double_power(-(8 * P - 1) - (8 * Q - 1))));
  const double images = rounded_sum(rounded_product(of_row, column_norm),
                                    rounded_product(of_columns, rounded_sum(row_norm, of_row)));
  return rounded_product(rounded_sum(images, dropped), 1.0 + 0x1p-30);
}
// L in the same units.
HD double least_entry(uint64_t least) {
  return rounded_product(static_cast<double>(least), double_power(-2 * THRESHOLD_BITS));
}
