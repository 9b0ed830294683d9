// The worst of the ratios ((p0_i q0_j + p1_i q1_j) + p2_i q2_j) / L_ij of a componentwise proof (docs/bounds.md, B7).
// Each operation is rounded to nearest, in this order; a ratio is Inf where L_ij = 0 and the numerator is not zero.
// Kernels compute few ratios: float32 arithmetic, rounded in the safe direction, shows of most entries that theirs are
// no larger than the worst one known so far.
#pragma once
#include "arithmetic/common.cuh"

typedef unsigned long long Atomic;

// *address = max(*address, value), by an atomic only where that changes it. Nonnegative doubles order as their bits do.
__device__ __forceinline__ void raise(Atomic* address, Atomic value) {
  if (value > *static_cast<volatile Atomic*>(address)) atomicMax(address, value);
}
// The maximum over all lanes of the warp, in all lanes.
__device__ __forceinline__ Atomic largest_of_warp(Atomic value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = larger(value, __shfl_xor_sync(ALL, value, offset));
  return value;
}

// 2^e for a normal double.
__device__ __forceinline__ double double_power(int e) {
  return __longlong_as_double(static_cast<long long>(e + 1023) << 52);
}

// What a row contributes to the errors of entries (docs/bounds.md, B1), each operation rounded to nearest as NumPy does.
// With ulp = 2^-(mu + top) the unit of the image relative to the row's top, u = ulp / 2 for a row that is rounded (mu +
// bottom < 0), else 0, s = magnitudes 2^-width, and UP = 1 + 2^-30:
//
//   of a row of A     (p0, p1, p2) = (u, s + k u, dropped ulp) UP
//   of a column of B  (q0, q1, q2) = (s, u, ulp) UP
//
// and zeros for a row that is all zeros.
__device__ __forceinline__ void terms_of_row(bool left, int64_t top, int64_t bottom, int64_t magnitudes, int mu, int width,
                                             double k, double dropped, double (&term)[3]) {
  double s = 0, u = 0, ulp = 0;
  if (top != EMPTY_TOP) {
    s = __dmul_rn(static_cast<double>(magnitudes), double_power(-width));
    ulp = double_power(-(mu + static_cast<int>(top)));
    if (mu + bottom < 0) u = __dmul_rn(ulp, 0.5);
  }
  const double up = 1.0 + double_power(-30);
  term[0] = __dmul_rn(left ? u : s, up);
  term[1] = __dmul_rn(left ? __dadd_rn(s, __dmul_rn(k, u)) : u, up);
  term[2] = __dmul_rn(left ? __dmul_rn(dropped, ulp) : ulp, up);
}

// The error terms of an operand, all >= 0 and far below 2^127, as float64 and rounded up to float32:
// - term s of row r of batch entry b at exact[s * stride + b * step + r]
// - the same rounded up at rounded[b * rounded_step + place_of(r, s)], zero for rows that pad four rows or a tile
// Columns (whose term 0 is zero only if all their terms are) have two things more in `rounded`: at place_of(r, INVERSE)
// the inverse of term 0, rounded down, NaN where term 0 is zero; and at place_of(4 (r / 4), QUOTIENTS) + {0, 1} the
// largest quotients term 1 / term 0 and term 2 / term 0 among 16 columns, rounded up.
struct Terms {
  const double* exact;
  const float* rounded;
  int64_t stride, step, rounded_step;
};

constexpr int INVERSE = 3, QUOTIENTS = 4, ROUNDED = 5;  // ROUNDED: floats of a row in `rounded`
// Index of term s of row `row` in `rounded`: four rows side by side, so that 16 bytes hold one term of four columns.
HD int64_t place_of(int64_t row, int s) { return row / 4 * (4 * ROUNDED) + 4 * s + row % 4; }

// The numerator for row i of p and row j of q, batch entry b: the definition, to the bit.
__device__ __forceinline__ double numerator(const Terms& p, const Terms& q, int64_t b, int64_t i, int64_t j) {
  const double *const x = p.exact + b * p.step + i, *const y = q.exact + b * q.step + j;
  const double first = __dmul_rn(x[0], y[0]), second = __dmul_rn(x[p.stride], y[q.stride]);
  return __dadd_rn(__dadd_rn(first, second), __dmul_rn(x[2 * p.stride], y[2 * q.stride]));
}

// The worst ratio known so far. Once it is Inf no entry is in doubt any more: nothing exceeds Inf, and comparisons with
// Inf times zero (NaN) are false.
struct Worst {
  double best = 0;
  float below = 0;  // best, rounded down

  __device__ __forceinline__ void set(Atomic bits) {
    best = __longlong_as_double(static_cast<long long>(bits));
    below = __double2float_rd(best);
  }
  // Includes the ratio above / l, above >= 0, l >= 0.
  template <typename L> __device__ __forceinline__ void include(double above, L l) {
    // If above <= RD(best l), the quotient above / l is <= best, also after rounding. (Comparing with NaN, from Inf
    // times zero, is false: no division either.)
    if (above > __dmul_rd(best, static_cast<double>(l))) best = __ddiv_rn(above, static_cast<double>(l));
  }
  // Called by all lanes of a warp: all continue with the largest of their ratios.
  __device__ __forceinline__ void share() {
    set(largest_of_warp(static_cast<Atomic>(__double_as_longlong(best))));
  }
  // Called by all lanes of a warp after share(): result[0] becomes at least this ratio, as the bits of a double.
  __device__ __forceinline__ void publish(Atomic* result) const {
    if ((threadIdx.x & 31) == 0) raise(result, static_cast<Atomic>(__double_as_longlong(best)));
  }
};
