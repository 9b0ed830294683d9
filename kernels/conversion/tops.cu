// The largest elements of the rows of an operand, and how many are NaN and Inf: all that the splits into digits and
// low-precision words need of a description.
//
// Macros: INPUT (double or float); ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows (whichever is
// contiguous in memory).
//
// x is a view (batch, rows, k) with element strides sb, sr, sk of any sign. out is int64 [6][batch * rows], zero before
// the kernel: field 0 becomes the bits of the largest finite magnitude (not its exponent, as in a full description),
// field 5 the number of elements that are NaN or Inf.
//
// 256 threads, each of which loads 16 bytes LOADS times; grid batch * ceil(rows / R) * ceil(k / D), all on x. A block
// owns R x D elements: along k R = 8, D = 32 PACK LOADS, a warp a row; along the rows R = 32 PACK, D = 8 LOADS, a lane
// PACK rows. Phases: 1. load; 2. maximum over each thread's elements, then over the threads that share a row; 3. atomic
// maximum over the blocks that share a row.
#include "conversion/largest.cuh"
#include "hardware/launch.cuh"

constexpr int PACK = 16 / sizeof(INPUT), LOADS = 8, WARPS = 8;
constexpr int OWN = ALONG_K ? 1 : PACK;  // rows of a lane

extern "C" __global__ void __launch_bounds__(256, 3)
tops(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k,
     unsigned long long* __restrict__ out) {
  after_previous();
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  constexpr uint32_t ROWS = ALONG_K ? WARPS : 32 * PACK, DEPTH = ALONG_K ? 32 * PACK * LOADS : WARPS * LOADS;
  const uint32_t groups = static_cast<uint32_t>((rows + ROWS - 1) / ROWS);
  const uint32_t depths = static_cast<uint32_t>((k + DEPTH - 1) / DEPTH);
#if ALONG_K  // neighbouring blocks are neighbours in memory
  const uint32_t depth = blockIdx.x % depths, rest = blockIdx.x / depths, group = rest % groups, b = rest / groups;
  constexpr int STEP = 32 * PACK;
  const int own = warp, first = lane * PACK;
#else
  const uint32_t group = blockIdx.x % groups, rest = blockIdx.x / groups, depth = rest % depths, b = rest / depths;
  constexpr int STEP = WARPS;
  const int own = lane * PACK, first = warp;
#endif
  const int64_t row = static_cast<int64_t>(group) * ROWS + own, h0 = static_cast<int64_t>(depth) * DEPTH + first;
  x += b * sb;

  // 1. Load.
  Bits bits[LOADS][PACK];
  const Bits* at = reinterpret_cast<const Bits*>(x) + (row * sr + h0 * sk);
  const int rows_left = static_cast<int>(smaller<int64_t>(rows - row, OWN));
  const int k_left = static_cast<int>(smaller<int64_t>(k - h0, DEPTH));
  const int64_t neighbour = ALONG_K ? sk : sr, next = STEP * sk;
  if (aligned_along<ALONG_K>(x, sb, sr, sk) && rows_left == OWN && STEP * (LOADS - 1) + PACK - OWN < k_left) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i, at += next) load_16_bytes(reinterpret_cast<const INPUT*>(at), bits[i]);
  } else {
#pragma unroll
    for (int i = 0; i < LOADS; ++i, at += next)
#pragma unroll
      for (int j = 0; j < PACK; ++j) {
        const bool inside = ALONG_K ? rows_left > 0 && STEP * i + j < k_left : j < rows_left && STEP * i < k_left;
        bits[i][j] = inside ? at[j * neighbour] : 0;
      }
  }

  // 2. Maximum.
  Largest top[OWN] = {};
#pragma unroll
  for (int i = 0; i < LOADS; ++i)
#pragma unroll
    for (int j = 0; j < PACK; ++j) {
      const Bits magnitude = bits[i][j] & ~SIGN;
      const bool finite = magnitude < SPECIAL;
      merge(top[j % OWN], {finite ? magnitude : 0, finite ? 0u : 1u});
    }
#if ALONG_K
  merge_warp(top[0]);
  if (lane != 0) return;
#else
  __shared__ Largest of_warp[WARPS][PACK][32];
#pragma unroll
  for (int j = 0; j < PACK; ++j) of_warp[warp][j][lane] = top[j];
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int w = 1; w < WARPS; ++w)
#pragma unroll
    for (int j = 0; j < PACK; ++j) merge(top[j], of_warp[w][j][lane]);
#endif
  // 3. Over all blocks.
  const int64_t stride = batch * rows, index = b * rows + row;
#pragma unroll
  for (int j = 0; j < OWN; ++j) {
    if (row + j >= rows) return;
    if (top[j].magnitude != 0) atomicMax(out + index + j, static_cast<unsigned long long>(top[j].magnitude));
    if (top[j].nonfinite != 0)
      atomicAdd(out + NONFINITE * stride + index + j, static_cast<unsigned long long>(top[j].nonfinite));
  }
}
