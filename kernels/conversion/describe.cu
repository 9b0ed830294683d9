// The description of the rows of an operand (docs/design.md, section 3). Each element is read once.
//
// Macros: INPUT (double or float); ALONG_K: 1 if neighbouring threads walk along k, 0 if along the rows (whichever is
// contiguous in memory).
//
// x is a view (batch, rows, k) with element strides sb, sr, sk of any sign. out is int64 [6][batch * rows].
//
// A row is cut into `segments` of `segment` elements, segment * segments >= k. Blocks have 256 threads, and a thread
// keeps HELD elements of a row in registers. ALONG_K = 1: `warps` warps (1, 2, 4 or 8) share a segment of a row, a
// block has 8 / warps rows, segment is a multiple of 32 * 8 * warps, up to 32 * HELD * warps. ALONG_K = 0: a lane owns
// a row, a block 32 rows, its warps take turns along k, segment is a multiple of 8 * 8, up to 8 * HELD.
//
//   describe         grid batch * ceil(rows / R) * segments,  R = 8 / warps or 32: with one segment all there is
//   describe_finish  grid batch * ceil(rows / R),  R = 8 or 32: the row out of its pieces, [segments][batch * rows];
//                    with ALONG_K = 0 by 768 threads
//
// The sums of a row are relative to its top, which a segment cannot know. So it notes them for its own top and for the
// next ones, since ceil(ceil(z) / 2) = ceil(z / 2); where the row's top is higher still, describe_finish reads the
// segment again. All sums are of integers: neither grid nor order matters.
#include "conversion/describing.cuh"
#include "hardware/launch.cuh"

constexpr int PACK = 16 / sizeof(INPUT);
constexpr int HELD = ALONG_K || sizeof(INPUT) == 8 ? 256 / sizeof(INPUT) : 48;  // more float32 would spill
constexpr int RUN = 8;                     // held elements that are looked at or left out together
constexpr int TOPS = 3;                    // that the sums of a segment are noted for
constexpr int BLOCK = 256, WARPS = BLOCK / 32;

struct Piece {
  Tops tops;
  Sums<TOPS> sums;
};

// Which elements of a row a thread sees: number i is h(i), in the row while below `end`.
struct Walk {
  const INPUT* row;
  int64_t sk, begin, end;
  bool packs;  // 16 bytes at a time

  __device__ __forceinline__ int64_t h(int i) const {
    if (!ALONG_K) return begin + WARPS * i;
    return packs ? begin + 32 * PACK * (i / PACK) + i % PACK : begin + 32 * i;
  }
  __device__ __forceinline__ Bits element(int i) const {
    return h(i) < end ? reinterpret_cast<const Bits*>(row)[h(i) * sk] : Bits(0);
  }
};

__device__ __forceinline__ void load(const Walk& w, int filled, Bits (&held)[HELD]) {
#pragma unroll
  for (int c = 0; c < HELD; c += RUN) {
    if (c >= filled) {
#pragma unroll
      for (int i = c; i < c + RUN; ++i) held[i] = 0;
    } else if (ALONG_K && w.packs && w.h(c + RUN - 1) < w.end) {
#pragma unroll
      for (int i = c; i < c + RUN; i += PACK) load_16_bytes(w.row + w.h(i), held + i);
    } else if (w.h(c + RUN - 1) < w.end) {
      const Bits* p = reinterpret_cast<const Bits*>(w.row) + w.h(c) * w.sk;
      const int64_t step = (ALONG_K ? 32 : WARPS) * w.sk;
#pragma unroll
      for (int i = c; i < c + RUN; ++i, p += step) held[i] = *p;
    } else {
#pragma unroll
      for (int i = c; i < c + RUN; ++i) held[i] = w.element(i);
    }
  }
}

// f(i) for every held element.
template <typename F> __device__ __forceinline__ void each(int filled, F f) {
#pragma unroll
  for (int c = 0; c < HELD; c += RUN) {
    if (c >= filled) break;
#pragma unroll
    for (int i = c; i < c + RUN; ++i) f(i);
  }
}

// NaN and Inf are zero from then on.
__device__ __forceinline__ Tops find_tops(const Walk& w, int filled, Bits (&held)[HELD]) {
  Extremes extremes;
  each(filled, [&](int i) { extremes.see(held[i]); });
  if (extremes.tell()) return extremes.tops();
  Tops t = NOTHING;
#pragma unroll 1
  for (int i = 0; i < filled; ++i) note(t, parts(w.element(i)));
  each(filled, [&](int i) {
    if (!parts(held[i]).finite) held[i] = 0;
  });
  return t;
}

template <int COUNT>
__device__ __forceinline__ Sums<COUNT> find_sums(const Walk& w, int filled, const Bits (&held)[HELD], int width,
                                                 int top) {
  Adding<COUNT> sum;
  if (top > FastTop<Bits>::value) {
    const FastCeiling<Bits> ceiling(width, top);
    each(filled, [&](int i) { sum.add(ceiling(held[i], sum.inexact)); });
  } else if (top != EMPTY_TOP) {
#pragma unroll 1
    for (int i = 0; i < filled; ++i) {
      const Rounded r = ceil_magnitude(parts(w.element(i)), width, top);
      sum.inexact |= r.inexact ? 1u : 0u;
      sum.add(r.value);
    }
  }
  return sum.sums();
}

// Where this thread is: its row, the elements that it sees, how many of the held ones some thread of the block fills.
struct Place {
  int64_t index;
  Walk walk;
  int filled, first;  // first: the first warp that has to do with the row
  bool valid;
};

__device__ __forceinline__ Place place(const INPUT* x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
                                       int64_t block_row, uint32_t b, int64_t begin, int64_t segment, int warps) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  Place p;
  const int64_t row = block_row + (ALONG_K ? warp / warps : lane);
  p.valid = row < rows;
  p.index = b * rows + row;
  p.first = ALONG_K ? warp / warps * warps : 0;
  Walk& w = p.walk;
  w.row = x + b * sb + smaller(row, rows - 1) * sr;
  w.sk = sk;
  const int64_t share = ALONG_K ? segment / warps : segment;  // of a warp along k, one after the other
  if (ALONG_K) begin += (warp - p.first) * share;
  w.end = smaller(begin + share, k);
  w.packs = ALONG_K && aligned_along_k(x, sb, sr, sk);
  w.begin = begin + (!ALONG_K ? warp : lane * (w.packs ? PACK : 1));
  const int64_t length = (larger<int64_t>(w.end - begin, 0) + (ALONG_K ? 31 : WARPS - 1)) / (ALONG_K ? 32 : WARPS);
  p.filled = static_cast<int>(smaller<int64_t>((length + RUN - 1) / RUN * RUN, HELD));
  return p;
}

// Sums of a row or segment out of those of its threads: in one thread of those that share it.
template <int COUNT>
__device__ __forceinline__ bool gather(Sums<COUNT>& s, Sums<COUNT> (*shared)[ALONG_K ? 1 : 32], int first, int warps) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, slot = ALONG_K ? 0 : lane;
  if (ALONG_K) merge_warp(s);
  if (ALONG_K && warps == 1) return lane == 0;
  if (!ALONG_K || lane == 0) shared[warp][slot] = s;
  __syncthreads();
  if (warp != first || (ALONG_K && lane != 0)) return false;
  for (int i = 1; i < warps; ++i) merge(s, shared[warp + i][slot]);
  return true;
}

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
describe(const INPUT* __restrict__ x, int64_t* __restrict__ out, Piece* __restrict__ pieces, int64_t sb, int64_t sr,
         int64_t sk, int64_t batch, int64_t rows, int64_t k, int64_t segment, uint32_t segments, int warps, int width) {
  after_previous();
  __shared__ Tops tops[WARPS][ALONG_K ? 1 : 32];
  __shared__ Sums<TOPS> sums[WARPS][ALONG_K ? 1 : 32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, slot = ALONG_K ? 0 : lane;
  const uint32_t block_rows = ALONG_K ? WARPS / warps : 32;
  const uint32_t groups = static_cast<uint32_t>((rows + block_rows - 1) / block_rows);
#if ALONG_K  // neighbouring blocks are neighbours in memory
  const uint32_t piece = blockIdx.x % segments, rest = blockIdx.x / segments, group = rest % groups, b = rest / groups;
#else
  const uint32_t group = blockIdx.x % groups, rest = blockIdx.x / groups, piece = rest % segments, b = rest / segments;
#endif
  const Place p = place(x, sb, sr, sk, rows, k, static_cast<int64_t>(group) * block_rows, b, piece * segment, segment,
                        warps);

  Bits held[HELD];
  load(p.walk, p.filled, held);
  Tops t = find_tops(p.walk, p.filled, held);
  if (ALONG_K) merge_warp(t);
  if (!ALONG_K || warps > 1) {
    if (!ALONG_K || lane == 0) tops[warp][slot] = t;
    __syncthreads();
    t = NOTHING;
    for (int i = 0; i < warps; ++i) merge(t, tops[p.first + i][slot]);
  }

  const int64_t stride = batch * rows;
  if (segments == 1) {
    Sums<1> s = find_sums<1>(p.walk, p.filled, held, width, t.top);
    if (gather(s, reinterpret_cast<Sums<1>(*)[ALONG_K ? 1 : 32]>(sums), p.first, warps) && p.valid)
      store(out, stride, p.index, t, s.peak, s.magnitudes[0], s.squares[0], (s.rest & 1) != 0, width);
  } else {
    Sums<TOPS> s = find_sums<TOPS>(p.walk, p.filled, held, width, t.top);
    if (gather(s, sums, p.first, warps) && p.valid) pieces[piece * stride + p.index] = {t, s};
  }
}

// Whether the sums of a segment were not noted for the row's top.
__device__ __forceinline__ bool far(int top_of_segment, int top) {
  return top_of_segment != EMPTY_TOP && top - top_of_segment >= TOPS;
}
// Adds the sums of a segment for the row's top, if they were noted; without a branch, so that several load at once.
__device__ __forceinline__ void add_noted(const Piece& piece, int top, Sums<1>& s) {
  const int of_segment = piece.tops.top;
  const bool noted = of_segment != EMPTY_TOP && !far(of_segment, top);
  const int j = noted ? top - of_segment : 0;
  const uint32_t peak = (piece.sums.peak + (1u << j) - 1) >> j, all = noted ? ~0u : 0;
  const uint64_t magnitudes = piece.sums.magnitudes[j], squares = piece.sums.squares[j];
  const uint32_t inexact = (piece.sums.rest & all & ((2u << j) - 1)) != 0 ? 1 : 0;
  merge(s, {peak & all, inexact, {noted ? magnitudes : 0}, {noted ? squares : 0}});
}

// The sums of every `step`th element from begin to end, for a top that is known.
__device__ __forceinline__ void read_again(const INPUT* row, int64_t sk, int64_t begin, int64_t end, int step,
                                           int width, int top, Sums<1>& s) {
  const Bits* words = reinterpret_cast<const Bits*>(row);
#pragma unroll 4
  for (int64_t h = begin; h < end; h += step) {
    const Rounded r = ceil_magnitude(parts(words[h * sk]), width, top);
    merge(s, {r.value, r.inexact ? 1u : 0u, {r.value}, {static_cast<uint64_t>(r.value) * r.value}});
  }
}

constexpr int FINISHING = ALONG_K ? WARPS : 24;  // warps

extern "C" __global__ void __launch_bounds__(32 * FINISHING, ALONG_K ? 4 : 1)
describe_finish(const INPUT* __restrict__ x, int64_t* __restrict__ out, const Piece* __restrict__ pieces, int64_t sb,
                int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k, int64_t segment, uint32_t segments,
                int, int width) {
  after_previous();
  // ALONG_K = 1: a warp owns a row, its lanes take turns at the segments. 0: a lane owns a row, the warps take turns.
  __shared__ Tops tops[FINISHING][ALONG_K ? 1 : 32];
  __shared__ Sums<1> sums[FINISHING][ALONG_K ? 1 : 32];
#if !ALONG_K
  __shared__ uint32_t missed[FINISHING];  // lanes whose rows have to be read again, for the segment of each warp
#endif
  constexpr uint32_t ROWS = ALONG_K ? FINISHING : 32;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const uint32_t groups = static_cast<uint32_t>((rows + ROWS - 1) / ROWS);
  const uint32_t group = blockIdx.x % groups, b = blockIdx.x / groups;
  const int64_t row = static_cast<int64_t>(group) * ROWS + (ALONG_K ? warp : lane);
  const int64_t stride = batch * rows, index = b * rows + smaller(row, rows - 1);
  const INPUT* at = x + b * sb + smaller(row, rows - 1) * sr;
  const uint32_t begin = ALONG_K ? lane : warp, step = ALONG_K ? 32 : FINISHING;

  Tops t = NOTHING;
#pragma unroll 4
  for (uint32_t i = begin; i < segments; i += step) merge(t, pieces[i * stride + index].tops);
  if (ALONG_K) {
    merge_warp(t);
  } else {
    tops[warp][lane] = t;
    __syncthreads();
    t = NOTHING;
#pragma unroll
    for (int i = 0; i < FINISHING; ++i) merge(t, tops[i][ALONG_K ? 0 : lane]);
  }

  Sums<1> s = {};
  bool some_far = false;
#pragma unroll 4
  for (uint32_t i = begin; i < segments; i += step) {
    const Piece& piece = pieces[i * stride + index];
    add_noted(piece, t.top, s);
    some_far |= far(piece.tops.top, t.top);
  }
  if (__syncthreads_or(some_far && row < rows) != 0) {
#pragma unroll 1
    for (uint32_t i0 = 0; i0 < segments; i0 += step) {
      const uint32_t i = i0 + begin;
      const bool missing = i < segments && row < rows && far(pieces[i * stride + index].tops.top, t.top);
      uint32_t all = __ballot_sync(ALL, missing);
#if ALONG_K
      for (; all != 0; all &= all - 1) {
        const int64_t start = static_cast<int64_t>(i0 + __ffs(all) - 1) * segment;
        read_again(at, sk, start + lane, smaller(start + segment, k), 32, width, t.top, s);
      }
#else
      if (lane == 0) missed[warp] = all;
      if (__syncthreads_or(missing) != 0)
#pragma unroll 1
        for (int w = 0; w < FINISHING; ++w) {
          const int64_t start = (i0 + w) * segment;
          if ((missed[w] >> lane & 1) != 0)
            read_again(at, sk, start + warp, smaller(start + segment, k), FINISHING, width, t.top, s);
        }
      __syncthreads();
#endif
    }
  }
  if (gather(s, sums, ALONG_K ? warp : 0, ALONG_K ? 1 : FINISHING) && row < rows)
    store(out, stride, index, t, s.peak, s.magnitudes[0], s.squares[0], (s.rest & 1) != 0, width);
}
