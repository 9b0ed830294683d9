// Arguments that describe the operands of a product and its result, and the stores of the result.
#pragma once
#include "arithmetic/common.cuh"

// An operand in global memory: slices (or low-precision words) `slice` bytes apart, entries of the batch `batch` bytes
// apart; batch = 0 if all entries share one matrix.
struct Operand {
  const uint8_t* slices;
  int64_t slice, batch;
};

// The result C(b, row, col) = c[b * batch + row * row_stride + col], m x n for each batch entry, and the shared
// exponents that scale it: int32 mu[b * mu_batch + row] and nu[b * nu_batch + col]. All strides are in elements.
template <typename T> struct Output {
  T* c;
  int64_t batch, row_stride;
  const int32_t *mu, *nu;
  int64_t mu_batch, nu_batch;
  int m, n;
};

#ifdef __CUDACC__
// Stores four neighbouring entries of C at a 16-byte aligned address; streaming, since this kernel does not read them.
__device__ __forceinline__ void store_four(double* to, const double (&v)[4]) {
  __stcs(reinterpret_cast<double2*>(to), make_double2(v[0], v[1]));
  __stcs(reinterpret_cast<double2*>(to) + 1, make_double2(v[2], v[3]));
}
__device__ __forceinline__ void store_four(float* to, const float (&v)[4]) {
  __stcs(reinterpret_cast<float4*>(to), make_float4(v[0], v[1], v[2], v[3]));
}
// Stores GROUPS groups of four neighbouring entries, the groups 16 columns apart, beginning at c. `columns` is the
// number of columns of C from c on (may be <= 0); entries beyond are not stored. values(z, four) computes group z.
// There is one branch for all groups: with one branch per group, the computation of each would wait for the store
// before it.
template <int GROUPS, typename T, typename Values>
__device__ __forceinline__ void store_groups(T* c, int columns, Values values) {
  if (columns > 16 * (GROUPS - 1) + 3 && (reinterpret_cast<uint64_t>(c) & 15) == 0) {
#pragma unroll
    for (int z = 0; z < GROUPS; ++z) {
      T four[4];
      values(z, four);
      store_four(c + 16 * z, four);
    }
  } else {
#pragma unroll
    for (int z = 0; z < GROUPS; ++z) {
      T four[4];
      values(z, four);
#pragma unroll
      for (int x = 0; x < 4; ++x)
        if (16 * z + x < columns) c[16 * z + x] = four[x];
    }
  }
}
#endif
