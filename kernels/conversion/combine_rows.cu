// Diagonals of digit products to 16-bit results, row by row as many as its digits ask for (docs/definitions.md, 11).
//
// Macros: FORMAT (BFloat16 or Float16); SUM: int32_t or int64_t; OF_COLUMNS: digits of a column of B.
//
// Diagonal d of entry (row, col) is sums[d plane + row ld + col]; the first is the product of the most significant
// digits. A row with `digits[row]` digits has max(digits, OF_COLUMNS) of them; one with 0 is left alone. The result is
//
//   C = RN(sum_d D_d 2^(8 (number - 1 - d)) 2^(8 (min(digits, OF_COLUMNS) - 1) - mu - nu)).
//
// The sum is below 2^62: of at most four diagonals, of rows that are proven, whose k is at most 2^24.
//
// With the macro ADDEND (double or float) it is alpha times that number plus beta c, rounded once; with `nothing` beta c
// of every entry, and neither the sums nor what is known of rows is read.
//
// 256 threads; grid rows * ceil(cols / 1024), all on x.
#include "arithmetic/combination.cuh"
#include "arithmetic/sixteen.cuh"
#include "hardware/launch.cuh"

extern "C" __global__ void __launch_bounds__(256)
combine_rows(const SUM* __restrict__ sums, int64_t plane, int64_t ld, const int32_t* __restrict__ digits,
             const int32_t* __restrict__ mu, const int32_t* __restrict__ nu, uint16_t* __restrict__ c,
             int64_t row_stride, int64_t cols, int nothing COMBINATION) {
  after_previous();
  const uint32_t over = static_cast<uint32_t>((cols + 1023) / 1024);
  const int64_t row = blockIdx.x / over, first = static_cast<int64_t>(blockIdx.x % over) * 1024;
  const int of_row = nothing ? 0 : digits[row];
  if (of_row == 0 && !nothing) return;
  const int number = nothing ? 0 : larger(of_row, OF_COLUMNS);
  const int exponent = nothing ? 0 : 8 * (smaller(of_row, OF_COLUMNS) - 1) - mu[row];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t col = first + 256 * i + threadIdx.x;
    if (col >= cols) return;
    const SUM* const from = sums + row * ld + col;
    int64_t v = 0;
    for (int d = 0; d < number; ++d) v = v * 256 + from[d * plane];
    const int scale = nothing ? 0 : exponent - nu[col];
#ifdef ADDEND
    const ADDEND addend = combination.beta != 0.0
                              ? combination.c[row * combination.row_stride + col * combination.col_stride]
                              : ADDEND(0);
    const uint32_t limbs[2] = {low_limb(static_cast<uint64_t>(v)), high_limb(static_cast<uint64_t>(v))};
    c[row * row_stride + col] = is_finite(addend)
                                    ? combined<FORMAT>(limbs, scale, combination.alpha, combination.beta, addend)
                                    : special_addend<FORMAT>(combination.beta, addend);
#else
    c[row * row_stride + col] = round_joined<FORMAT>(v, scale);
#endif
  }
}
