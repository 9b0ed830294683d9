// The largest elements of the rows of a float32 operand, and its NaN and Inf: all that the split into words asks for.
//
// Macros: ALONG_K: 1 if neighbouring threads walk along k, 0 if along the rows (whichever is contiguous in memory).
//
// x is a view (batch, rows, k) with element strides sb, sr, sk of any sign. out is int64 [6][batch * rows], zero before:
// field 0 becomes the bits of the largest finite magnitude, field 5 the number of elements that are NaN or Inf, as in a
// description.
//
// 256 threads, each with HELD elements of a row; grid batch * ceil(rows / R) * ceil(k / D), all on x, R = 8 and
// D = 32 HELD along k, R = 32 and D = 8 HELD along the rows.
#include "common.cuh"
#include "launch.cuh"

constexpr int HELD = 32, WARPS = 8, NONFINITE = 5;
constexpr uint32_t SPECIAL = 0xffu << 23;

extern "C" __global__ void __launch_bounds__(256, 3)
tops(const float* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k,
     unsigned long long* __restrict__ out) {
  after_previous();
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  constexpr uint32_t ROWS = ALONG_K ? WARPS : 32, DEPTH = (ALONG_K ? 32 : WARPS) * HELD;
  const uint32_t groups = static_cast<uint32_t>((rows + ROWS - 1) / ROWS);
  const uint32_t depths = static_cast<uint32_t>((k + DEPTH - 1) / DEPTH);
#if ALONG_K  // neighbouring blocks are neighbours in memory
  const uint32_t depth = blockIdx.x % depths, rest = blockIdx.x / depths, group = rest % groups, b = rest / groups;
#else
  const uint32_t group = blockIdx.x % groups, rest = blockIdx.x / groups, depth = rest % depths, b = rest / depths;
#endif
  const int64_t row = static_cast<int64_t>(group) * ROWS + (ALONG_K ? warp : lane);
  const int64_t first = static_cast<int64_t>(depth) * DEPTH;
  x += b * sb;

  uint32_t bits[HELD];
  const uint32_t* const at = reinterpret_cast<const uint32_t*>(x + row * sr);
#if ALONG_K
  if (row < rows && first + DEPTH <= k && aligned_along_k(x, sb, sr, sk)) {
#pragma unroll
    for (int i = 0; i < HELD; i += 4) load_16_bytes(x + row * sr + first + 32 * i + 4 * lane, bits + i);
  } else {
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int64_t h = first + 32 * i + lane;
      bits[i] = row < rows && h < k ? at[h * sk] : 0;
    }
  }
#else
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const int64_t h = first + WARPS * i + warp;
    bits[i] = row < rows && h < k ? at[h * sk] : 0;
  }
#endif

  uint32_t largest = 0, special = 0;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const uint32_t magnitude = bits[i] & ~(1u << 31);
    if (magnitude < SPECIAL) largest = larger(largest, magnitude);
    else ++special;
  }
  const int64_t stride = batch * rows, index = b * rows + row;
#if ALONG_K
  largest = __reduce_max_sync(0xffffffffu, largest);
  special = __reduce_add_sync(0xffffffffu, special);
  if (lane != 0) return;
#else
  __shared__ uint32_t of_warp[WARPS][32], special_of_warp[WARPS][32];
  of_warp[warp][lane] = largest;
  special_of_warp[warp][lane] = special;
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int w = 1; w < WARPS; ++w) {
    largest = larger(largest, of_warp[w][lane]);
    special += special_of_warp[w][lane];
  }
#endif
  if (row >= rows) return;
  if (largest != 0) atomicMax(out + index, static_cast<unsigned long long>(largest));
  if (special != 0) atomicAdd(out + NONFINITE * stride + index, static_cast<unsigned long long>(special));
}
