// What kernels are told of the operands of a product and of its result.
#pragma once
#include "common.cuh"

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
#endif
