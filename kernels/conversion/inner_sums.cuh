// Inner products of two rows, each by a warp, rounded once: in twice the working precision where that decides it, else
// exactly (inner_products.cu, which says how; few_rows_sm90.cu).
//
// Macros: INPUT_A, INPUT_B, OUTPUT (double or float); or WHOLE_ROWS, with all three BFloat16 or Float16, and then, if alpha
// times each inner product plus beta c is wanted, ADDEND (double or float).
#pragma once
#include "arithmetic/superaccumulator.cuh"
#ifdef WHOLE_ROWS
#include "arithmetic/sixteen.cuh"
#endif

// The bits of an element, of 16 bits those of the float32 that it is.
template <typename T> __device__ __forceinline__ auto bits_at(const T* x) {
#ifdef WHOLE_ROWS
  return widened<T>(x->bits);
#else
  return *reinterpret_cast<const typename BitsOf<T>::type*>(x);
#endif
}

// An element as a double, 0 for NaN and Inf; no option of a compiler flushes the subnormal numbers here.
__device__ __forceinline__ double element(uint64_t bits) {
  return (bits >> 52 & 0x7ff) == 0x7ff ? 0.0 : double_of(bits);
}
__device__ __forceinline__ double element(uint32_t bits) {
  return (bits >> 23 & 0xff) == 0xff ? 0.0 : double_of(bits);
}

__device__ __forceinline__ double magnitude_of(double x) { return double_of(bits_of(x) & ~uint64_t(0) >> 1); }

struct Sum {
  double high, low;
};

// a + b, exactly; the same for b + a.
__device__ __forceinline__ Sum two_sum(double a, double b) {
  const double sum = __dadd_rn(a, b), added = __dadd_rn(sum, -a);
  return {sum, __dadd_rn(__dadd_rn(a, -__dadd_rn(sum, -added)), __dadd_rn(b, -added))};
}

// RN(a + b) as bits of either format, for sums of LEAST or more: compilers may flush subnormal numbers of float32.
template <typename T> struct RoundedSum;
template <> struct RoundedSum<double> {
  static constexpr double LEAST = 0.0;
  static __device__ __forceinline__ uint64_t bits(double a, double b) { return bits_of(__dadd_rn(a, b)); }
};
template <> struct RoundedSum<float> {
  static constexpr double LEAST = 0x1p-124;
  static __device__ __forceinline__ uint32_t bits(double a, double b) {
    // A sum that is not exact is made odd: its neighbour towards what is left, or it itself. Then float32, of less than
    // half as many bits, rounds it as it would round the exact sum.
    const Sum sum = two_sum(a, b);
    uint64_t bits = bits_of(sum.high);
    if (sum.low != 0.0 && bits % 2 == 0) bits += (sum.low < 0.0) == (sum.high < 0.0) ? 1 : -1;
    return bits_of(static_cast<float>(double_of(bits)));
  }
};
#ifdef WHOLE_ROWS
template <> struct RoundedSum<OUTPUT> {
  static constexpr double LEAST = 0.0;  // sums are multiples of 2^-266
  static __device__ __forceinline__ uint16_t bits(double a, double b) {
    const Sum sum = two_sum(a, b);
    uint64_t bits = bits_of(sum.high);
    if (sum.low != 0.0 && bits % 2 == 0) bits += (sum.low < 0.0) == (sum.high < 0.0) ? 1 : -1;
    const Parts p = parts(bits);
    const uint32_t limbs[2] = {low_limb(p.mantissa), high_limb(p.mantissa)};
    const uint16_t magnitude = Rounding<OUTPUT>::bits(limbs, p.exponent);
    return static_cast<uint16_t>(magnitude | (p.negative && p.mantissa != 0 ? 0x8000u : 0u));
  }
};
#endif

// The sum of products of an entry, or a lane's share of it: sum + the errors of all products and additions.
struct InnerSum {
  double sum, errors, sizes;  // `sizes`: the absolute values of the errors, summed
  bool tiny;                  // whether the error of a product may have underflowed

  // x y is a multiple of the product of units of both, which is above 2^-106 abs(x y): from 2^-968 on, what is rounded
  // off is a multiple of 2^-1074.
  static constexpr double LEAST_PRODUCT = 0x1p-967;

  __device__ __forceinline__ void add(double x, double y) {
    const double product = __dmul_rn(x, y), of_product = fused(x, y, -product);
    tiny = tiny || (magnitude_of(product) < LEAST_PRODUCT && x != 0.0 && y != 0.0);
    const Sum next = two_sum(sum, product);
    const double error = __dadd_rn(next.low, of_product);
    sum = next.high;
    errors = __dadd_rn(errors, error);
    sizes = __dadd_rn(sizes, magnitude_of(error));
  }

  // Add that of another lane; both get the same.
  __device__ __forceinline__ void add_lane(int mask) {
    const Sum next = two_sum(sum, __shfl_xor_sync(ALL, sum, mask));
    const double other_errors = __shfl_xor_sync(ALL, errors, mask), other_sizes = __shfl_xor_sync(ALL, sizes, mask);
    sum = next.high;
    errors = __dadd_rn(__dadd_rn(errors, other_errors), next.low);
    sizes = __dadd_rn(__dadd_rn(sizes, other_sizes), magnitude_of(next.low));
  }

  // Whether this says what the whole sum is rounded to; `each`: products of a lane.
  template <typename T> __device__ __forceinline__ bool decides(int64_t each, typename BitsOf<T>::type& bits) const {
    if (tiny || !(sizes < 0x1p1000)) return false;  // Inf or NaN: something has overflowed
    // Additions of errors, each of which is wrong by 2^-53 of its result at most: in a lane one for a product, and one
    // for the sum; then those of lanes. The factor covers that `sizes` is rounded, 2^-1073 that the product may
    // underflow, 2^-51 that `errors` -+ it is rounded.
    const double factor = __dmul_rn(static_cast<double>(each + 32), 0x1.01p-53);
    double radius = 0.0;
    if (sizes != 0.0)
      radius = __dadd_rn(__dadd_rn(__dmul_rn(sizes, factor), __dmul_rn(magnitude_of(errors), 0x1p-51)), 0x1p-1073);
    const double below = __dadd_rn(errors, -radius), above = __dadd_rn(errors, radius);
    const bool zero = sum == 0.0 && sizes == 0.0;
    if (!zero && magnitude_of(__dadd_rn(sum, below)) < RoundedSum<T>::LEAST) return false;
    if (!zero && magnitude_of(__dadd_rn(sum, above)) < RoundedSum<T>::LEAST) return false;
    bits = RoundedSum<T>::bits(sum, below);
    return bits == RoundedSum<T>::bits(sum, above);
  }
};

constexpr int WINDOW = 8;  // digits that are summed at a time: all of ordinary rows

// The whole sum, exactly, rounded once; in lane 0 alone. The lanes have `exact` for themselves. They sum a window of
// digits after the other, each those of its products, so that no lane needs memory: k < 2^31 leaves them below 2^63.
__device__ __forceinline__ BitsOf<OUTPUT>::type exact_sum(const INPUT_A* x, int64_t x_k, const INPUT_B* y, int64_t y_k,
                                                          int64_t k, int lane, Superaccumulator& exact) {
  const auto digits_at = [&](int64_t t, int64_t (&digits)[5]) {
    return Superaccumulator::product_digits(parts(bits_at(x + t * x_k)), parts(bits_at(y + t * y_k)), digits);
  };
  // 1. Which digits there are.
  int least = Superaccumulator::LENGTH, most = 0;
#pragma unroll 1
  for (int64_t t = lane; t < k; t += 32) {
    int64_t digits[5];
    const int at = digits_at(t, digits);
    if ((digits[0] | digits[1] | digits[2] | digits[3] | digits[4]) == 0) continue;
    least = smaller(least, at);
    most = larger(most, at + 4);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    least = smaller(least, __shfl_xor_sync(ALL, least, mask));
    most = larger(most, __shfl_xor_sync(ALL, most, mask));
  }
  __syncwarp();
  for (int i = lane; i < Superaccumulator::LENGTH; i += 32) exact.digits[i] = 0;
  __syncwarp();
  // 2. Their sums.
#pragma unroll 1
  for (int first = least; first <= most; first += WINDOW) {
    int64_t sums[WINDOW];
#pragma unroll
    for (int i = 0; i < WINDOW; ++i) sums[i] = 0;
#pragma unroll 1
    for (int64_t t = lane; t < k; t += 32) {
      int64_t digits[5];
      const int at = digits_at(t, digits) - first;
#pragma unroll
      for (int i = 0; i < WINDOW; ++i) {
#pragma unroll
        for (int j = 0; j < 5; ++j)
          if (at + j == i) sums[i] += digits[j];
      }
    }
#pragma unroll
    for (int i = 0; i < WINDOW; ++i) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sums[i] += __shfl_xor_sync(ALL, sums[i], mask);
      if (lane == 0 && first + i < Superaccumulator::LENGTH) exact.digits[first + i] = sums[i];
    }
  }
#ifdef ADDEND
  if (lane == 0) exact.carry();  // what is left to the caller
  return 0;
#else
  return lane == 0 ? exact.rounded<OUTPUT>() : 0;
#endif
}

#ifdef ADDEND
// RN(alpha sum + beta c) of a sum of products of 16-bit floats, after `exact_sum`: they are multiples of 2^-266, and k <
// 2^31 of them are below 2^287.
__device__ __forceinline__ BitsOf<OUTPUT>::type rounded_with(const Superaccumulator& exact, double alpha, double beta,
                                                             ADDEND c) {
  constexpr int FIRST = 58, LIMBS = 20;  // 2^-292, up to 2^348
  if (!is_finite(c)) return special_addend<OUTPUT>(beta, c);
  uint32_t limbs[LIMBS];
#pragma unroll
  for (int i = 0; i < LIMBS; ++i) limbs[i] = low_limb(static_cast<uint64_t>(exact.digits[FIRST + i]));
  return combined<OUTPUT>(limbs, Superaccumulator::UNIT + 32 * FIRST, alpha, beta, c);
}
#endif

// The first sums of products of an entry, of lanes that share them; `sum` is the whole one afterwards, in all lanes.
__device__ __forceinline__ InnerSum sum_of_products(const INPUT_A* x, int64_t x_k, const INPUT_B* y, int64_t y_k,
                                                    int64_t k, int lane) {
  constexpr int AT_ONCE = 8;
  InnerSum sum = {0.0, 0.0, 0.0, false};
  x += lane * x_k, y += lane * y_k;
  // All are loaded before the first is used: what is waited for is memory. Zeros behind the last add nothing.
#pragma unroll 1
  for (int64_t left = k - lane; left > 0; left -= 32 * AT_ONCE) {
    decltype(bits_at(x)) of_x[AT_ONCE];
    decltype(bits_at(y)) of_y[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i, x += 32 * x_k, y += 32 * y_k) {
      of_x[i] = 32 * i < left ? bits_at(x) : 0;
      of_y[i] = 32 * i < left ? bits_at(y) : 0;
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) sum.add(element(of_x[i]), element(of_y[i]));
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum.add_lane(mask);
  sum.tiny = __any_sync(ALL, sum.tiny);
  return sum;
}
