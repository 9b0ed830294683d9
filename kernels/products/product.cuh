// What kernels are told of the operands of a product and of its result.
#pragma once
#include "arithmetic/common.cuh"

// Where an operand lies: slices or words, and batch entries (0: the same for all) so many bytes apart.
struct Operand {
  const uint8_t* slices;
  int64_t slice, batch;
};

// C(b, row, col) = c[b * batch + row * row_stride + col], m x n, and the exponents that scale it: int32 mu [m] and nu
// [n], batch entries mu_batch and nu_batch apart.
template <typename T> struct Output {
  T* c;
  int64_t batch, row_stride;
  const int32_t *mu, *nu;
  int64_t mu_batch, nu_batch;
  int m, n;
};

#ifdef __CUDACC__
// Four neighbouring entries of C, which nobody reads soon.
__device__ __forceinline__ void store_four(double* to, const double (&v)[4]) {
  __stcs(reinterpret_cast<double2*>(to), make_double2(v[0], v[1]));
  __stcs(reinterpret_cast<double2*>(to) + 1, make_double2(v[2], v[3]));
}
__device__ __forceinline__ void store_four(float* to, const float (&v)[4]) {
  __stcs(reinterpret_cast<float4*>(to), make_float4(v[0], v[1], v[2], v[3]));
}
// Groups of four entries, 16 columns apart, from c on, where so many columns are left: values(z, four) are those of
// group z. One branch for all of them, else each would wait for the one before.
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
