// What the descriptions of both operands, of some elements of their rows, tell of all rows: the least numbers that the
// proof of words asks for (docs/bounds.md, B9).
//
// least[side][block] = {least s^2 / squares, least s, least top - top of the whole row (at most 0), 1 if each row with
// elements shows some, else 0, 1 if words keep all elements whole, 0 if not or if nobody knows}, s = max((magnitudes -
// k) unit, 1/2), over rows that are not empty; without such the first two are infinite. Each block takes a share of the
// rows.
//
// Macro: WORDS, 1 if whole rows are described as tops_split_words_sm90.cu does, 0 if in full.
//
// 512 threads; grid 2 * blocks, the first half for the left operand.
#include "common.cuh"
#include "fixed_point.cuh"
#include "launch.cuh"

constexpr int THREADS = 512;

struct Rows {
  const int64_t *some, *whole;  // [6][count] of some elements, and of whole rows
  int64_t count;
};

struct Least {
  double elements, sums, steps, told, kept;

  __device__ __forceinline__ void include(const Least& other) {
    elements = smaller(elements, other.elements);
    sums = smaller(sums, other.sums);
    steps = smaller(steps, other.steps);
    told = smaller(told, other.told);
    kept = smaller(kept, other.kept);
  }
};

__device__ __forceinline__ Least of_lanes(Least least) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    least.include({__shfl_xor_sync(0xffffffffu, least.elements, mask), __shfl_xor_sync(0xffffffffu, least.sums, mask),
                   __shfl_xor_sync(0xffffffffu, least.steps, mask), __shfl_xor_sync(0xffffffffu, least.told, mask),
                   __shfl_xor_sync(0xffffffffu, least.kept, mask)});
  return least;
}

extern "C" __global__ void __launch_bounds__(THREADS)
least_of_rows(const Rows left, const Rows right, Least* __restrict__ least, int64_t k, double unit) {
  after_previous();
  __shared__ Least of_warp[THREADS / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t blocks = gridDim.x / 2;
  const Rows rows = blockIdx.x < blocks ? left : right;
  Least found = {double_of_words(0x7ff00000u, 0), double_of_words(0x7ff00000u, 0), 0.0, 1.0, WORDS ? 1.0 : 0.0};
#pragma unroll 1
  for (int64_t row = blockIdx.x % blocks * THREADS + threadIdx.x; row < rows.count; row += blocks * THREADS) {
    const uint32_t field = low_word(static_cast<uint64_t>(rows.whole[row]));
    const int whole = WORDS ? top_exponent(parts(field)) : static_cast<int>(field);
    if (WORDS && rows.whole[4 * rows.count + row] != 0) found.kept = 0.0;
    const int64_t top = rows.some[row], peak = rows.some[rows.count + row];
    if (peak == 0) {
      found.told = whole == EMPTY_TOP ? found.told : 0.0;
      continue;
    }
    const double magnitudes = static_cast<double>(rows.some[2 * rows.count + row] - k);
    const double squares = static_cast<double>(rows.some[3 * rows.count + row]);
    const double sum = larger(__dmul_rn(magnitudes, unit), 0.5), elements = __ddiv_rn(__dmul_rn(sum, sum), squares);
    found.include({elements, sum, static_cast<double>(top - whole), 1.0, 1.0});
  }
  found = of_lanes(found);
  if (lane == 0) of_warp[warp] = found;
  __syncthreads();
  if (warp == 0) found = of_lanes(of_warp[lane % (THREADS / 32)]);
  if (threadIdx.x == 0) least[blockIdx.x] = found;
}
