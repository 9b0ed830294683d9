// The largest elements of the rows of an operand, and its NaN and Inf: all that the splits into digits and words ask for.
//
// Macros: INPUT (double or float); ALONG_K: 1 if neighbouring threads walk along k, 0 if along the rows (whichever is
// contiguous in memory).
//
// x is a view (batch, rows, k) with element strides sb, sr, sk of any sign. out is int64 [6][batch * rows], zero before:
// field 0 becomes the bits of the largest finite magnitude, field 5 the number of elements that are NaN or Inf, as in a
// description.
//
// 256 threads, each with HELD elements of a row; grid batch * ceil(rows / R) * ceil(k / D), all on x, R = 8 and
// D = 32 HELD along k, R = 32 and D = 8 HELD along the rows.
#include "fixed_point.cuh"
#include "launch.cuh"

typedef BitsOf<INPUT>::type Bits;

constexpr int HELD = 128 / sizeof(INPUT), WARPS = 8, NONFINITE = 5;
constexpr Bits SIGN = Bits(1) << (8 * sizeof(INPUT) - 1);
constexpr Bits SPECIAL = sizeof(INPUT) == 8 ? Bits(0x7ff) << (sizeof(INPUT) == 8 ? 52 : 0) : Bits(0xff) << 23;

extern "C" __global__ void __launch_bounds__(256, 3)
tops(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k,
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

  Bits bits[HELD];
  const Bits* const at = reinterpret_cast<const Bits*>(x + row * sr);
#if ALONG_K
  constexpr int PACK = 16 / sizeof(INPUT);
  if (row < rows && first + DEPTH <= k && aligned_along_k(x, sb, sr, sk)) {
#pragma unroll
    for (int i = 0; i < HELD; i += PACK) load_16_bytes(x + row * sr + first + 32 * i + PACK * lane, bits + i);
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

  Bits largest = 0;
  uint32_t special = 0;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const Bits magnitude = bits[i] & ~SIGN;
    if (magnitude < SPECIAL) largest = larger(largest, magnitude);
    else ++special;
  }
  const int64_t stride = batch * rows, index = b * rows + row;
#if ALONG_K
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    special += __shfl_xor_sync(0xffffffffu, special, offset);
  }
  if (lane != 0) return;
#else
  __shared__ Bits of_warp[WARPS][32];
  __shared__ uint32_t special_of_warp[WARPS][32];
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
