// Makes square matrices symmetric, or Hermitian: copies the entries below the diagonal, or their conjugates, above it.
//
// Macros: ENTRY (double or float, or of complex numbers double2 or float2); CONJUGATE: 1 for conjugates, else 0.
//
// Entry (i, j) of matrix b is c[b * batch_stride + i * row_stride + j], strides in entries; the matrices are size x
// size.
//
// Block (32, 8); grid (ceil(size / 32), ceil(size / 32), matrices). A block owns a tile of 32 x 32 entries on or below
// the diagonal; the others exit. Phases: 1. read the tile into shared memory, row by row; 2. write its columns as rows.
#include "arithmetic/common.cuh"
#include "hardware/launch.cuh"

extern "C" __global__ void __launch_bounds__(256)
mirror(ENTRY* __restrict__ c, int64_t batch_stride, int64_t row_stride, int64_t size) {
  after_previous();
  if (blockIdx.y > blockIdx.x) return;
  __shared__ ENTRY tile[32][33];
  c += blockIdx.z * batch_stride;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * 32, col0 = static_cast<int64_t>(blockIdx.y) * 32;
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += 8)
    if (row0 + i < size && col0 + threadIdx.x < size)
      tile[i][threadIdx.x] = c[(row0 + i) * row_stride + col0 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int64_t row = row0 + threadIdx.x, col = col0 + i;
    ENTRY entry = tile[threadIdx.x][i];
#if CONJUGATE
    entry.y = 0 - entry.y;  // an exact zero stays +0
#endif
    if (row < size && col < row) c[col * row_stride + row] = entry;
  }
}
