// Rows of 16-bit floats, given in any order, side by side along k: out[(b rows + row) out_row + h].
//
// Macros: FORMAT (BFloat16 or Float16), of the result; INPUT: uint16_t, its bits, or float, the same values as float32
// numbers; ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows.
//
// Element (b, row, h) is x[b sb + row sr + h sk], strides in elements, of any sign.
//
// 256 threads; grid batch * ceil(rows / 64) * ceil(k / 64). A block owns 64 rows x 64 elements, which it transposes in
// shared memory where rows are neighbours.
#include "arithmetic/sixteen.cuh"
#include "hardware/launch.cuh"

constexpr int SIDE = 64;

__device__ __forceinline__ uint16_t element_of(const uint16_t* x) { return *x; }
__device__ __forceinline__ uint16_t element_of(const float* x) {
  return narrowed<FORMAT>(*reinterpret_cast<const uint32_t*>(x));
}

extern "C" __global__ void __launch_bounds__(256)
narrow(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
       uint16_t* __restrict__ out, int64_t out_row) {
  after_previous();
  const uint32_t over = static_cast<uint32_t>((k + SIDE - 1) / SIDE), down = static_cast<uint32_t>((rows + SIDE - 1) / SIDE);
  const int64_t h0 = static_cast<int64_t>(blockIdx.x % over) * SIDE;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x / over % down) * SIDE, b = blockIdx.x / over / down;
  const int across = threadIdx.x % SIDE, along = threadIdx.x / SIDE;
  x += b * sb;
#if ALONG_K
#pragma unroll 4
  for (int i = along; i < SIDE; i += 256 / SIDE) {
    const int64_t row = row0 + i, h = h0 + across;
    if (row < rows && h < k) out[(b * rows + row) * out_row + h] = element_of(x + row * sr + h * sk);
  }
#else
  __shared__ uint16_t tile[SIDE][SIDE + 2];
#pragma unroll 4
  for (int i = along; i < SIDE; i += 256 / SIDE) {
    const int64_t row = row0 + across, h = h0 + i;
    if (row < rows && h < k) tile[i][across] = element_of(x + row * sr + h * sk);
  }
  __syncthreads();
#pragma unroll 4
  for (int i = along; i < SIDE; i += 256 / SIDE) {
    const int64_t row = row0 + i, h = h0 + across;
    if (row < rows && h < k) out[(b * rows + row) * out_row + h] = tile[across][i];
  }
#endif
}
