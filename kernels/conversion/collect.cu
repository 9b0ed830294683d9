// Sums of digit products of cuBLAS as integers: sums = products or, with `accumulate`, sums += products.
//
// Macros: PRODUCT (int32_t, or float that holds integers); SUM (int32_t or int64_t).
//
// `count` entries, a multiple of four; both addresses are aligned to four entries. 256 threads; grid ceil(count /
// 1024). A thread owns 4 neighbouring entries.
#include "arithmetic/common.cuh"
#include "hardware/launch.cuh"

template <typename T> struct alignas(4 * sizeof(T)) Four {
  T of[4];
};

extern "C" __global__ void __launch_bounds__(256)
collect(const Four<PRODUCT>* __restrict__ products, Four<SUM>* __restrict__ sums, int64_t count, int accumulate) {
  after_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (4 * i >= count) return;
  const Four<PRODUCT> product = products[i];
  Four<SUM> sum = {};
  if (accumulate) sum = sums[i];
#pragma unroll
  for (int j = 0; j < 4; ++j) sum.of[j] += static_cast<SUM>(product.of[j]);
  sums[i] = sum;
}
