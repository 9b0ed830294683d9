// A sample of both operands for the proof of low-precision words (docs/bounds.md, B9): measures of the first k elements
// of each row, k <= MOST, and their least values over all rows. The parts of complex numbers are elements here.
//
// With the description of the sampled elements (docs/definitions.md, section 1) and s = max((magnitudes - k) unit,
// 1/2), a lower bound of the row's sum of abs(x) 2^-top, each block writes over its rows that have nonzero sampled
// elements
//   least[side][block] = {elements, sums, steps, all_seen}
//     elements  least s^2 / squares             (Inf without such rows)
//     sums      least s                         (Inf without such rows)
//     steps     least top - top of the whole row, at most 0 (WHOLE = 0: 0)
//     all_seen  1 if every row that is not all zeros has nonzero sampled elements, else 0
// `least` is host memory that the device can write.
//
// Macros: INPUT (float); REALS: 1, or 2 if pairs of elements are the parts of complex numbers; LEFT_ALONG_K,
// RIGHT_ALONG_K: 1 if neighbours in memory belong to one row, 0 if they belong to neighbouring rows; WHOLE: 1 if the
// largest elements of whole rows are known, in the form that tops_split_words_sm90.cu writes them, else 0; MOST, a
// multiple of 32. With WHOLE and `beside` the kernel before this one is tops_split_words, and this one runs at the same
// time: it waits for it only where it reads what that one writes.
//
// 256 threads; grid 2 * blocks, the first half for the left operand. A block goes through groups of 32 rows, each time
// in three phases:
// 1. Load the sampled elements into registers; find each row's top (NaN and Inf count as zeros).
// 2. Sum magnitudes and squares relative to that top.
// 3. Warp 0, a row for each lane: fold the row's measures into the least values so far.
#include "conversion/describing.cuh"
#include "hardware/launch.cuh"

constexpr int WARPS = 8, ROWS = 32;
constexpr int HELD = MOST / WARPS;  // elements in the registers of a thread, for each group of rows
constexpr int OF_ROW = MOST / 32;   // elements of one row among them, along k: a warp then takes four whole rows

struct Operand {  // a view (batch, rows, k) with strides of any sign, in real numbers; sk leads to the next number
  const INPUT* x;
  int64_t sb, sr, sk, batch, rows;
  const int64_t* whole;  // description of whole rows, [6][batch * rows]
};

// Least values over rows, in the layout that the host reads.
struct Least {
  double elements, sums, steps, all_seen;

  __device__ __forceinline__ void include(const Least& other) {
    elements = smaller(elements, other.elements);
    sums = smaller(sums, other.sums);
    steps = smaller(steps, other.steps);
    all_seen = smaller(all_seen, other.all_seen);
  }
};
__device__ __forceinline__ void merge(Least& least, const Least& other) { least.include(other); }
__device__ __forceinline__ Least across(const Least& least, int offset) {
  return {__shfl_xor_sync(ALL, least.elements, offset), __shfl_xor_sync(ALL, least.sums, offset),
          __shfl_xor_sync(ALL, least.steps, offset), __shfl_xor_sync(ALL, least.all_seen, offset)};
}

struct Found {  // sums over sampled elements of a row
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

// The top of COUNT elements of one row in a thread's registers; replaces NaN and Inf by zero.
template <int COUNT> __device__ __forceinline__ int top_of(Bits* held) {
  Extremes extremes;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) extremes.include(held[i]);
  if (extremes.sufficient()) return extremes.tops().top;
  int top = EMPTY_TOP;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Parts p = parts(held[i]);
    if (!p.finite) held[i] = 0;
    top = larger(top, top_exponent(p));
  }
  return top;
}
// Their magnitudes and squares relative to the row's top; exact integers.
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

// Phases 1 and 2 for rows first .. first + 31, by all threads of the block. In warp 0, lane i returns the sums of row
// first + i and sets `top` to its top; what other warps return means nothing. The caller synchronises the block before
// `shared` is used for other rows.
template <bool ALONG_K>
__device__ __forceinline__ Found sample_rows(const Operand& of, int64_t first, int64_t k, int width, Shared& shared,
                                         int& top) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t all = of.batch * of.rows;
  Bits held[HELD];
  if (ALONG_K) {  // a warp takes four rows, a row for all its lanes
#pragma unroll
    for (int j = 0; j < HELD / OF_ROW; ++j) {
      const int64_t index = first + warp + WARPS * j;
      const Bits* row = reinterpret_cast<const Bits*>(of.x) + index / of.rows * of.sb + index % of.rows * of.sr;
#pragma unroll
      for (int i = 0; i < OF_ROW; ++i) {
        const int h = lane + 32 * i;
        held[OF_ROW * j + i] = h < k && index < all ? row[h / REALS * of.sk + h % REALS] : Bits(0);
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
  // A lane takes a row, and the warps share its elements.
  const int64_t index = first + lane;
  const Bits* row = reinterpret_cast<const Bits*>(of.x) + index / of.rows * of.sb + index % of.rows * of.sr;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const int h = warp + WARPS * i;
    held[i] = h < k && index < all ? row[h / REALS * of.sk + h % REALS] : Bits(0);
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

// The least values over all groups of 32 rows of one operand that belong to this block. In warp 0, each lane returns
// those of its rows; the caller merges the lanes.
template <bool ALONG_K>
__device__ __forceinline__ Least least_of(const Operand& of, uint32_t block, uint32_t blocks, int64_t k, int width,
                                          double unit, Shared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t all = of.batch * of.rows;
  Least least = {double_of_limbs(0x7ff00000u, 0), double_of_limbs(0x7ff00000u, 0), 0.0, 1.0};
#pragma unroll 1
  for (int64_t first = static_cast<int64_t>(block) * ROWS; first < all; first += static_cast<int64_t>(blocks) * ROWS) {
    int top;
    const Found found = sample_rows<ALONG_K>(of, first, k, width, shared, top);
    const int64_t row = first + lane;
    if (warp == 0 && row < all) {
      int whole = top;  // 3.
#if WHOLE
      wait_for_previous();
      whole = described_top<Bits, true>(of.whole[row]);
#endif
      if (top == EMPTY_TOP) {
        least.all_seen = whole == EMPTY_TOP ? least.all_seen : 0.0;
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
sample(const Operand left, const Operand right, Least* __restrict__ least, int64_t k, int width, double unit,
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
