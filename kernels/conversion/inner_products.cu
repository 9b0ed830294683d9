// Correctly rounded inner products for entries of a product that are listed (docs/bounds.md, B14).
//
// Entry (b, i, j) becomes RN(sum_t x[b, i, t] y[b, j, t]), where NaN and Inf count as 0; an exact zero is +0. First in
// twice the working precision, with a measured bound of the error (Dot2; T. Ogita, S. M. Rump, S. Oishi, Accurate sum
// and dot product, 2005): the entry is that to which both ends of the interval round. Where they round to two, or where
// the error of a product underflows or something overflows, the sum is computed exactly.
//
// Macros: INPUT_A, INPUT_B, OUTPUT (double or float); or WHOLE_ROWS, with all three BFloat16 or Float16: list[] then has numbers
// b m + i of rows, counts[0] of them, and all entries of these are computed; with ADDEND (double or float) alpha times
// each inner product plus beta c, rounded once.
//
// x[b, i, t] = x[b * x_batch + i * x_row + t * x_k], y likewise, out[b, i, j] = out[b * out_batch + i * out_row + j *
// out_col]; any strides, in elements; k < 2^31. counts[0] entries are wanted, of which list[] has the numbers
// (b m + i) n + j. If they are more than `capacity`, not all are listed, and all `entries` are computed. `mirrored`: of a
// product that equals its transpose, of which each also replaces its mirror image.
//
// 256 threads; any grid. Blocks take parts of the list in turn, as many entries for each as there are for all: however
// close together entries lie, all warps have as many. Phases for each part: 1. sort its entries by their columns (or
// rows, where columns of y are contiguous and rows of x are not), so that the warps read the same sectors of 32 bytes at
// the same time, which are then in the first-level cache: neighbours in the list lie in few columns, in any order; 2.
// each warp takes one entry after the other, whose products its lanes share.
#include "conversion/inner_sums.cuh"
#ifndef WHOLE_ROWS
#define COMBINATION
#endif
#include "hardware/launch.cuh"

constexpr int PART = 256;   // the most entries of a part of the list

extern "C" __global__ void __launch_bounds__(256, 3)
inner_products(const int64_t* __restrict__ list, const unsigned long long* __restrict__ counts, int64_t capacity,
               const INPUT_A* __restrict__ x, int64_t x_batch, int64_t x_row, int64_t x_k,
               const INPUT_B* __restrict__ y, int64_t y_batch, int64_t y_row, int64_t y_k, int64_t k,
               OUTPUT* __restrict__ out, int64_t out_batch, int64_t out_row, int64_t out_col, int64_t m, int64_t n,
               int64_t entries, int64_t mirrored COMBINATION) {
  after_previous();
  __shared__ Superaccumulator exact[8];
  __shared__ int64_t numbers[PART], keys[PART];
  const int lane = threadIdx.x & 31, thread = threadIdx.x;
#ifdef WHOLE_ROWS
  const bool listed = true;
  const int64_t count = static_cast<int64_t>(counts[0]) * n;
  const auto wanted = [&](int64_t i) { return list[i / n] * n + i % n; };
#else
  const bool listed = counts[0] <= static_cast<unsigned long long>(capacity);
  const int64_t count = listed ? static_cast<int64_t>(counts[0]) : entries;
  const auto wanted = [&](int64_t i) { return listed ? list[i] : i; };
#endif
  const int64_t each = (count + 8 * gridDim.x - 1) / (8 * gridDim.x) * 8;
  const int part = static_cast<int>(smaller<int64_t>(each, PART));
  const int64_t step = static_cast<int64_t>(gridDim.x) * part;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * part; first < count; first += step) {
    const int size = static_cast<int>(smaller<int64_t>(part, count - first));
    // 1. Sort.
    __syncthreads();  // all are through with those before
    const int64_t own = thread < size ? wanted(first + thread) : 0;
    const int64_t key = y_k == 1 && x_k != 1 ? own / n * sizeof(INPUT_A) / 32
                                             : own / n / m * n + own % n * sizeof(INPUT_B) / 32;
    if (thread < size) keys[thread] = key;
    __syncthreads();
    int rank = 0;
    for (int i = 0; i < size; ++i) rank += keys[i] < key || (keys[i] == key && i < thread) ? 1 : 0;
    if (thread < size) numbers[rank] = own;
    __syncthreads();
    // 2. Entry after entry.
    for (int i = thread >> 5; i < size; i += 8) {
      const int64_t entry = numbers[i], col = entry % n, rest = entry / n, row = rest % m, b = rest / m;
      if (!listed && mirrored != 0 && col > row) continue;
      const INPUT_A* const of_x = x + b * x_batch + row * x_row;
      const INPUT_B* const of_y = y + b * y_batch + col * y_row;
      BitsOf<OUTPUT>::type bits;
#ifdef ADDEND
      exact_sum(of_x, x_k, of_y, y_k, k, lane, exact[thread >> 5]);
      if (lane == 0) {
        const ADDEND* const of_c = combination.c + b * combination.batch + row * combination.row_stride;
        const ADDEND addend = combination.beta != 0.0 ? of_c[col * combination.col_stride] : ADDEND(0);
        bits = rounded_with(exact[thread >> 5], combination.alpha, combination.beta, addend);
      }
#else
      const InnerSum sum = sum_of_products(of_x, x_k, of_y, y_k, k, lane);
      if (!sum.decides<OUTPUT>((k + 31) / 32, bits))
        bits = exact_sum(of_x, x_k, of_y, y_k, k, lane, exact[thread >> 5]);
#endif
      if (lane == 0) {
        BitsOf<OUTPUT>::type* const of_out = reinterpret_cast<BitsOf<OUTPUT>::type*>(out) + b * out_batch;
        of_out[row * out_row + col * out_col] = bits;
        if (mirrored != 0) of_out[col * out_row + row * out_col] = bits;
      }
    }
  }
}
