// Correctly rounded inner products for entries of a product that are listed (docs/bounds.md, B14).
//
// Entry (b, i, j) becomes RN(sum_t x[b, i, t] y[b, j, t]), where NaN and Inf count as 0; an exact zero is +0. First in
// twice the working precision, with a measured bound of the error (Dot2; T. Ogita, S. M. Rump, S. Oishi, Accurate sum
// and dot product, 2005): the entry is that to which both ends of the interval round. Where they round to two, or where
// the error of a product underflows or something overflows, the sum is computed exactly.
//
// Macros: INPUT_A, INPUT_B, OUTPUT (double or float); or WHOLE_ROWS, with all three BFloat16 or Float16: list[] then has numbers
// b m + i of rows, counts[0] of them, and all entries of these are computed; with ADDEND (double or float) alpha times
// each inner product plus beta c, rounded once.
//
// x[b, i, t] = x[b * x_batch + i * x_row + t * x_k], y likewise, out[b, i, j] = out[b * out_batch + i * out_row + j *
// out_col]; any strides, in elements; k < 2^31. counts[0] entries are wanted, of which list[] has the numbers
// (b m + i) n + j. If they are more than `capacity`, not all are listed, and all `entries` are computed. `mirrored`: of a
// product that equals its transpose, of which each also replaces its mirror image.
//
// 256 threads; any grid. Blocks take parts of the list in turn, as many entries for each as there are for all: however
// close together entries lie, all warps have as many. Phases for each part: 1. sort its entries by their columns (or
// rows, where columns of y are contiguous and rows of x are not), so that the warps read the same sectors of 32 bytes at
// the same time, which are then in the first-level cache: neighbours in the list lie in few columns, in any order; 2.
// each warp takes one entry after the other, whose products its lanes share.
#include "arithmetic/superaccumulator.cuh"
#ifdef WHOLE_ROWS
#include "arithmetic/sixteen.cuh"
#else
#define COMBINATION
#endif
#include "hardware/launch.cuh"

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

constexpr int PART = 256;   // the most entries of a part of the list
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

extern "C" __global__ void __launch_bounds__(256, 3)
inner_products(const int64_t* __restrict__ list, const unsigned long long* __restrict__ counts, int64_t capacity,
               const INPUT_A* __restrict__ x, int64_t x_batch, int64_t x_row, int64_t x_k,
               const INPUT_B* __restrict__ y, int64_t y_batch, int64_t y_row, int64_t y_k, int64_t k,
               OUTPUT* __restrict__ out, int64_t out_batch, int64_t out_row, int64_t out_col, int64_t m, int64_t n,
               int64_t entries, int64_t mirrored COMBINATION) {
  after_previous();
  __shared__ Superaccumulator exact[8];
  __shared__ int64_t numbers[PART], keys[PART];
  const int lane = threadIdx.x & 31, thread = threadIdx.x;
#ifdef WHOLE_ROWS
  const bool listed = true;
  const int64_t count = static_cast<int64_t>(counts[0]) * n;
  const auto wanted = [&](int64_t i) { return list[i / n] * n + i % n; };
#else
  const bool listed = counts[0] <= static_cast<unsigned long long>(capacity);
  const int64_t count = listed ? static_cast<int64_t>(counts[0]) : entries;
  const auto wanted = [&](int64_t i) { return listed ? list[i] : i; };
#endif
  const int64_t each = (count + 8 * gridDim.x - 1) / (8 * gridDim.x) * 8;
  const int part = static_cast<int>(smaller<int64_t>(each, PART));
  const int64_t step = static_cast<int64_t>(gridDim.x) * part;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * part; first < count; first += step) {
    const int size = static_cast<int>(smaller<int64_t>(part, count - first));
    // 1. Sort.
    __syncthreads();  // all are through with those before
    const int64_t own = thread < size ? wanted(first + thread) : 0;
    const int64_t key = y_k == 1 && x_k != 1 ? own / n * sizeof(INPUT_A) / 32
                                             : own / n / m * n + own % n * sizeof(INPUT_B) / 32;
    if (thread < size) keys[thread] = key;
    __syncthreads();
    int rank = 0;
    for (int i = 0; i < size; ++i) rank += keys[i] < key || (keys[i] == key && i < thread) ? 1 : 0;
    if (thread < size) numbers[rank] = own;
    __syncthreads();
    // 2. Entry after entry.
    for (int i = thread >> 5; i < size; i += 8) {
      const int64_t entry = numbers[i], col = entry % n, rest = entry / n, row = rest % m, b = rest / m;
      if (!listed && mirrored != 0 && col > row) continue;
      const INPUT_A* const of_x = x + b * x_batch + row * x_row;
      const INPUT_B* const of_y = y + b * y_batch + col * y_row;
      BitsOf<OUTPUT>::type bits;
#ifdef ADDEND
      exact_sum(of_x, x_k, of_y, y_k, k, lane, exact[thread >> 5]);
      if (lane == 0) {
        const ADDEND* const of_c = combination.c + b * combination.batch + row * combination.row_stride;
        const ADDEND addend = combination.beta != 0.0 ? of_c[col * combination.col_stride] : ADDEND(0);
        bits = rounded_with(exact[thread >> 5], combination.alpha, combination.beta, addend);
      }
#else
      const InnerSum sum = sum_of_products(of_x, x_k, of_y, y_k, k, lane);
      if (!sum.decides<OUTPUT>((k + 31) / 32, bits))
        bits = exact_sum(of_x, x_k, of_y, y_k, k, lane, exact[thread >> 5]);
#endif
      if (lane == 0) {
        BitsOf<OUTPUT>::type* const of_out = reinterpret_cast<BitsOf<OUTPUT>::type*>(out) + b * out_batch;
        of_out[row * out_row + col * out_col] = bits;
        if (mirrored != 0) of_out[col * out_row + row * out_col] = bits;
      }
    }
  }
}
