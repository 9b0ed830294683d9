// What some elements of the rows of both operands tell of all their rows: the least numbers that the proof of words
// asks for (docs/bounds.md, B9).
//
// least[side][block] = {least s^2 / squares, least s, least top - top of the whole row (at most 0), 1 if each row with
// elements shows some, else 0}, s = max((magnitudes - k) unit, 1/2), over rows that are not empty, as the description
// of those elements has them (docs/design.md, section 3); without such the first two are infinite. least is memory of
// the host.
//
// Macros: INPUT (float); LEFT_ALONG_K, RIGHT_ALONG_K: 1 if neighbours in memory are of one row, else 0; WHOLE: 1 if the
// largest elements of whole rows are known, as tops_split_words_sm90.cu writes them, else 0. With `beside` that is the
// kernel ahead, and this one begins beside it. MOST: elements of a row, at most, a multiple of 32.
//
// 256 threads; grid 2 * blocks, the first half for the left operand. Blocks take turns at 32 rows.
#include "conversion/describing.cuh"
#include "hardware/launch.cuh"

constexpr int WARPS = 8, ROWS = 32;
constexpr int HELD = MOST / WARPS;  // of a thread
constexpr int OF_ROW = MOST / 32;   // of these in a row, where a warp takes four rows along k

struct Operand {  // a view (batch, rows, k) with element strides of any sign, of which k elements are looked at
  const INPUT* x;
  int64_t sb, sr, sk, batch, rows;
  const int64_t* whole;  // [6][batch * rows]
};

struct Least {
  double elements, sums, steps, told;

  __device__ __forceinline__ void include(const Least& other) {
    elements = smaller(elements, other.elements);
    sums = smaller(sums, other.sums);
    steps = smaller(steps, other.steps);
    told = smaller(told, other.told);
  }
};
__device__ __forceinline__ void merge(Least& least, const Least& other) { least.include(other); }
__device__ __forceinline__ Least across(const Least& least, int offset) {
  return {__shfl_xor_sync(ALL, least.elements, offset), __shfl_xor_sync(ALL, least.sums, offset),
          __shfl_xor_sync(ALL, least.steps, offset), __shfl_xor_sync(ALL, least.told, offset)};
}

struct Found {  // of elements of a row
  uint32_t magnitudes;
  uint64_t squares;
};
__device__ __forceinline__ void merge(Found& found, const Found& other) {
  found.magnitudes += other.magnitudes;
  found.squares += other.squares;
}
__device__ __forceinline__ Found across(const Found& found, int offset) {
  return {__shfl_xor_sync(ALL, found.magnitudes, offset), __shfl_xor_sync(ALL, found.squares, offset)};
}

// Those of a thread, by row; NaN and Inf are zero from then on.
template <int COUNT> __device__ __forceinline__ int top_of(Bits* held) {
  Extremes extremes;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) extremes.see(held[i]);
  if (extremes.tell()) return extremes.tops().top;
  int top = EMPTY_TOP;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Parts p = parts(held[i]);
    if (!p.finite) held[i] = 0;
    top = larger(top, top_exponent(p));
  }
  return top;
}
template <int COUNT> __device__ __forceinline__ Found sums_of(const Bits* held, int width, int top) {
  Found found = {0, 0};
  if (top == EMPTY_TOP) return found;
  const bool fast = top > FastTop<Bits>::value;
  const FastCeiling<Bits> ceiling(width, fast ? top : 0);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const uint32_t y = fast ? ceiling(held[i]) : ceil_magnitude(parts(held[i]), width, top).value;
    merge(found, {y, static_cast<uint64_t>(y) * y});
  }
  return found;
}

struct Shared {
  int tops[WARPS][ROWS];
  Found found[WARPS][ROWS];
};

// Rows first to first + 31: each lane of the first warp is told of one of them; the others are told nothing.
template <bool ALONG_K>
__device__ __forceinline__ Found look_at(const Operand& of, int64_t first, int64_t k, int width, Shared& shared,
                                         int& top) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t all = of.batch * of.rows;
  Bits held[HELD];
  if (ALONG_K) {
#pragma unroll
    for (int j = 0; j < HELD / OF_ROW; ++j) {
      const int64_t index = first + warp + WARPS * j;
      const Bits* row = reinterpret_cast<const Bits*>(of.x) + index / of.rows * of.sb + index % of.rows * of.sr;
#pragma unroll
      for (int i = 0; i < OF_ROW; ++i) {
        const int h = lane + 32 * i;
        held[OF_ROW * j + i] = h < k && index < all ? row[h * of.sk] : Bits(0);
      }
    }
#pragma unroll
    for (int j = 0; j < HELD / OF_ROW; ++j) {
      int t = top_of<OF_ROW>(held + OF_ROW * j);
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) t = larger(t, __shfl_xor_sync(ALL, t, offset));
      Found found = sums_of<OF_ROW>(held + OF_ROW * j, width, t);
      merge_warp(found);
      if (lane == 0) shared.tops[0][warp + WARPS * j] = t, shared.found[0][warp + WARPS * j] = found;
    }
    __syncthreads();
    top = shared.tops[0][lane];
    return shared.found[0][lane];
  }
  const int64_t index = first + lane;
  const Bits* row = reinterpret_cast<const Bits*>(of.x) + index / of.rows * of.sb + index % of.rows * of.sr;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const int h = warp + WARPS * i;
    held[i] = h < k && index < all ? row[h * of.sk] : Bits(0);
  }
  shared.tops[warp][lane] = top_of<HELD>(held);
  __syncthreads();
  top = EMPTY_TOP;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) top = larger(top, shared.tops[i][lane]);
  shared.found[warp][lane] = sums_of<HELD>(held, width, top);
  __syncthreads();
  Found found = {0, 0};
  if (warp == 0)
#pragma unroll
    for (int i = 0; i < WARPS; ++i) merge(found, shared.found[i][lane]);
  return found;
}

template <bool ALONG_K>
__device__ __forceinline__ Least least_of(const Operand& of, uint32_t block, uint32_t blocks, int64_t k, int width,
                                          double unit, Shared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t all = of.batch * of.rows;
  Least least = {double_of_words(0x7ff00000u, 0), double_of_words(0x7ff00000u, 0), 0.0, 1.0};
#pragma unroll 1
  for (int64_t first = static_cast<int64_t>(block) * ROWS; first < all; first += static_cast<int64_t>(blocks) * ROWS) {
    int top;
    const Found found = look_at<ALONG_K>(of, first, k, width, shared, top);
    const int64_t row = first + lane;
    if (warp == 0 && row < all) {
      int whole = top;
#if WHOLE
      wait_for_previous();
      whole = described_top<Bits, true>(of.whole[row]);
#endif
      if (top == EMPTY_TOP) {
        least.told = whole == EMPTY_TOP ? least.told : 0.0;
      } else {
        const double magnitudes = static_cast<double>(static_cast<int64_t>(found.magnitudes) - k);
        const double sum = larger(__dmul_rn(magnitudes, unit), 0.5);
        const double elements = __ddiv_rn(__dmul_rn(sum, sum), static_cast<double>(found.squares));
        least.include({elements, sum, static_cast<double>(top - whole), 1.0});
      }
    }
    __syncthreads();
  }
  return least;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
look(const Operand left, const Operand right, Least* __restrict__ least, int64_t k, int width, double unit,
     int beside) {
  beside_previous(beside != 0);
  __shared__ Shared shared;
  const uint32_t blocks = gridDim.x / 2, block = blockIdx.x % blocks;
  Least found = blockIdx.x < blocks ? least_of<LEFT_ALONG_K>(left, block, blocks, k, width, unit, shared)
                                    : least_of<RIGHT_ALONG_K>(right, block, blocks, k, width, unit, shared);
  if (threadIdx.x < 32) merge_warp(found);
  if (threadIdx.x == 0) least[blockIdx.x] = found;
  after_both();
}
