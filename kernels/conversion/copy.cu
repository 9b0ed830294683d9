// Copies a stack of matrices into contiguous memory, row after row, for products of cuBLAS that cannot read them as
// they are: out[(b * rows + i) * cols + j] = x[b * x_batch + i * x_row + j * x_col].
//
// Macros: INPUT (double, float, or of complex numbers double2, float2), OUTPUT (double for double and float, or INPUT).
//
// Matrices are rows x cols; `entries` counts those of all matrices. Strides are in elements, of any sign.
//
// 256 threads; grid ceil(entries / 1024).
#include "arithmetic/common.cuh"
#include "hardware/launch.cuh"

extern "C" __global__ void __launch_bounds__(256)
copy(const INPUT* x, int64_t x_batch, int64_t x_row, int64_t x_col, int64_t rows, int64_t cols, OUTPUT* out,
     int64_t entries) {
  after_previous();
  const int64_t first = 1024 * static_cast<int64_t>(blockIdx.x), last = smaller<int64_t>(first + 1024, entries);
  for (int64_t at = first + threadIdx.x; at < last; at += 256) {
    const int64_t row = at / cols;
    out[at] = static_cast<OUTPUT>(x[row / rows * x_batch + row % rows * x_row + at % cols * x_col]);
  }
}
