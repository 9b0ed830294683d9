// The worst of the ratios ((p0_i q0_j + p1_i q1_j) + p2_i q2_j) / L_ij, each operation rounded to nearest, in this
// order, Inf where L_ij = 0 and the numerator is not; and how float32 shows of most entries that theirs is no worse
// (docs/design.md, section 9).
#pragma once
#include "arithmetic/common.cuh"

typedef unsigned long long Atomic;

// At `address` what is larger, that or `value`; nonnegative doubles order as their bits do.
__device__ __forceinline__ void raise(Atomic* address, Atomic value) {
  if (value > *static_cast<volatile Atomic*>(address)) atomicMax(address, value);
}
__device__ __forceinline__ Atomic largest_of_warp(Atomic value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = larger(value, __shfl_xor_sync(ALL, value, offset));
  return value;
}

// The error terms of an operand, all >= 0 and far below 2^127: term s of row r of batch entry b at
// exact[s * stride + b * step + r] and, rounded up to float32, at rounded[b * rounded_step + place_of(r, s)], zero for
// what is left of four rows or a tile. Columns, whose term 0 is zero only where all are, have besides: its inverse,
// rounded down, at place_of(r, INVERSE), NaN where it is zero; and the largest quotients of terms 1 and 2 by it among
// 16 columns, rounded up, at place_of(4 (r / 4), QUOTIENTS) + {0, 1}.
struct Terms {
  const double* exact;
  const float* rounded;
  int64_t stride, step, rounded_step;
};

constexpr int INVERSE = 3, QUOTIENTS = 4, ROUNDED = 5;  // the last: floats of a row
HD int64_t place_of(int64_t row, int s) { return row / 4 * (4 * ROUNDED) + 4 * s + row % 4; }

// Row i of p and j of q.
__device__ __forceinline__ double numerator(const Terms& p, const Terms& q, int64_t b, int64_t i, int64_t j) {
  const double *const x = p.exact + b * p.step + i, *const y = q.exact + b * q.step + j;
  const double first = __dmul_rn(x[0], y[0]), second = __dmul_rn(x[p.stride], y[q.stride]);
  return __dadd_rn(__dadd_rn(first, second), __dmul_rn(x[2 * p.stride], y[2 * q.stride]));
}

// The worst ratio so far. Once it is Inf, float32 leaves no entry in doubt: none is above Inf, nor Inf times zero.
struct Worst {
  double best = 0;
  float below = 0;  // best, rounded down

  __device__ __forceinline__ void set(Atomic bits) {
    best = __longlong_as_double(static_cast<long long>(bits));
    below = __double2float_rd(best);
  }
  template <typename L> __device__ __forceinline__ void see(double above, L l) {
    // above <= RD(best l) <= best l: the quotient, rounded, is no larger than best. NaN, Inf times 0, tells the same.
    if (above > __dmul_rd(best, static_cast<double>(l))) best = __ddiv_rn(above, static_cast<double>(l));
  }
  // By all lanes of a warp: they go on with the best of them.
  __device__ __forceinline__ void share() {
    set(largest_of_warp(static_cast<Atomic>(__double_as_longlong(best))));
  }
  // By all lanes, which share: result[0] is the largest ratio, as the bits of a double.
  __device__ __forceinline__ void tell(Atomic* result) const {
    if ((threadIdx.x & 31) == 0) raise(result, static_cast<Atomic>(__double_as_longlong(best)));
  }
};
