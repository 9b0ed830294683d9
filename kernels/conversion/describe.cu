// The description of the rows of an operand (docs/definitions.md, section 1): six integers for each row, from one read
// of each element (but for segments far below their row's top, which are read twice).
//
// Macros: INPUT (double or float); REALS: 1, or 2 if an element is complex; ALONG_K: 1 if neighbouring threads read
// along k, 0 if along the rows (whichever is contiguous in memory); INNER: 0, or the real numbers at each inner index of
// rows that are scaled along k: what is described are then products by factors[batch][k / INNER], powers of two or 0.
//
// x is a view (batch, rows, k) of real numbers with strides sb, sr, sk of any sign; REALS neighbours along k, the parts
// of an element, are neighbours in memory, and sk is the stride from one element to the next. out is int64 [6][batch *
// rows].
//
// A row is cut into `segments` segments of `segment` elements, segment * segments >= k. A thread keeps up to HELD
// elements of a row in registers.
// - ALONG_K = 1: `warps` warps (1, 2, 4 or 8) share a segment of a row, a block of 256 threads has 8 / warps rows;
//   segment is a multiple of 32 * 8 * warps, at most 32 * HELD * warps
// - ALONG_K = 0: a lane owns a row, a block 32 rows, and its 8 warps share the segment; segment is a multiple of 8 * 8,
//   at most 8 * HELD
//
// The sums of a row are relative to its top, which a segment cannot know. So it computes them for its own top and for
// the next TOPS - 1, which costs little since ceil(ceil(z) / 2) = ceil(z / 2). Where the row's top is higher still,
// describe_finish reads the segment once more. All sums are of integers: grid and order change no bit.
//
//   describe         grid batch * ceil(rows / R) * segments, R = 8 / warps or 32. With one segment it writes the
//                    description, else a Piece of each segment
//                    1. load  2. tops of the segment  3. sums
//   describe_finish  merges the pieces, [segments][batch * rows], of each row; grid batch * ceil(rows / R), R = 8 or
//                    32; 256 threads, or with ALONG_K = 0 768
//                    1. the row's top  2. sums that the pieces have for it  3. sums of the other segments, from memory
#include "conversion/describing.cuh"
#include "conversion/factors.cuh"
#include "hardware/launch.cuh"

constexpr int PACK = 16 / sizeof(INPUT);
constexpr int HELD = ALONG_K || sizeof(INPUT) == 8 ? 256 / sizeof(INPUT) : 48;  // more float32 would spill
constexpr int RUN = 8;                     // held elements that are processed or skipped together
constexpr int TOPS = 3;                    // tops that the sums of a segment are computed for
constexpr int BLOCK = 256, WARPS = BLOCK / 32;

// What `describe` leaves of a segment of a row for `describe_finish`.
struct Piece {
  Tops tops;
  Sums<TOPS> sums;
};

// Number h of a row, times the factor of its inner index if rows are scaled.
__device__ __forceinline__ Bits times_factor(Bits bits, const double* factors, int64_t h) {
#if INNER
  return scaled_bits(bits, factors[h / INNER]);
#else
  return bits;
#endif
}

// Where number h of a row is.
__device__ __forceinline__ int64_t offset(int64_t h, int64_t sk) { return h / REALS * sk + h % REALS; }

// The elements of a row that a thread owns: its i-th one is element h(i), which exists if h(i) < end.
struct Walk {
  const INPUT* row;
  const double* factors;  // of all inner indices, if rows are scaled
  int64_t sk, begin, end;
  bool packs;  // 16 bytes may be loaded at a time: then neighbours come in packs

  __device__ __forceinline__ int64_t h(int i) const {
    if (!ALONG_K) return begin + WARPS * REALS * (i / REALS) + i % REALS;
    return packs ? begin + 32 * PACK * (i / PACK) + i % PACK : begin + 32 * i;
  }
  __device__ __forceinline__ Bits stored(int i) const {
    return h(i) < end ? reinterpret_cast<const Bits*>(row)[offset(h(i), sk)] : Bits(0);
  }
  __device__ __forceinline__ Bits element(int i) const {
    return h(i) < end ? times_factor(stored(i), factors, h(i)) : Bits(0);
  }
};

// 1. Load the first `filled` elements of the thread (a multiple of RUN) into registers; zero for the others.
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
      const Bits* p = reinterpret_cast<const Bits*>(w.row) + offset(w.h(c), w.sk);
      constexpr int TOGETHER = ALONG_K ? 1 : REALS;  // neighbours in memory that a thread has
      const int64_t step = (ALONG_K ? 32 / REALS : WARPS) * w.sk;
#pragma unroll
      for (int i = c; i < c + RUN; i += TOGETHER, p += step)
#pragma unroll
        for (int part = 0; part < TOGETHER; ++part) held[i + part] = p[part];
    } else {
#pragma unroll
      for (int i = c; i < c + RUN; ++i) held[i] = w.stored(i);
    }
#if INNER
#pragma unroll
    for (int i = c; i < c + RUN; ++i)
      if (c < filled && w.h(i) < w.end) held[i] = times_factor(held[i], w.factors, w.h(i));
#endif
  }
}

// Calls f(i) for each of the first `filled` elements in registers.
template <typename F> __device__ __forceinline__ void each(int filled, F f) {
#pragma unroll
  for (int c = 0; c < HELD; c += RUN) {
    if (c >= filled) break;
#pragma unroll
    for (int i = c; i < c + RUN; ++i) f(i);
  }
}

// 2. The tops of the thread's elements. Replaces NaN and Inf in registers by zero.
__device__ __forceinline__ Tops find_tops(const Walk& w, int filled, Bits (&held)[HELD]) {
  Extremes extremes;
  each(filled, [&](int i) { extremes.include(held[i]); });
  if (extremes.sufficient()) return extremes.tops();
  Tops t = NOTHING;
#pragma unroll 1
  for (int i = 0; i < filled; ++i) note(t, parts(w.element(i)));
  each(filled, [&](int i) {
    if (!parts(held[i]).finite) held[i] = 0;
  });
  return t;
}

// 3. The sums of the thread's elements relative to `top`, and to the COUNT - 1 next ones.
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

// A thread's place: its row (index among all rows; valid if it exists), its elements, the first warp that shares the
// row, and how many elements in registers are filled in some thread of the warp.
struct Place {
  int64_t index;
  Walk walk;
  int filled, first;
  bool valid;
};

// The place of this thread, for elements begin .. begin + segment - 1 of the block's rows.
__device__ __forceinline__ Place place(const INPUT* x, const double* factors, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
                                       int64_t block_row, uint32_t b, int64_t begin, int64_t segment, int warps) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  Place p;
  const int64_t row = block_row + (ALONG_K ? warp / warps : lane);
  p.valid = row < rows;
  p.index = b * rows + row;
  p.first = ALONG_K ? warp / warps * warps : 0;
  Walk& w = p.walk;
  w.row = x + b * sb + smaller(row, rows - 1) * sr;
  w.factors = factors;
  w.sk = sk;
  const int64_t share = ALONG_K ? segment / warps : segment;  // of a warp; along k one warp after the other
  if (ALONG_K) begin += (warp - p.first) * share;
  w.end = smaller(begin + share, k);
  w.packs = ALONG_K && REALS == 1 && aligned_along_k(x, sb, sr, sk);
  w.begin = begin + (!ALONG_K ? REALS * warp : lane * (w.packs ? PACK : 1));
  const int64_t length = (larger<int64_t>(w.end - begin, 0) + (ALONG_K ? 31 : WARPS - 1)) / (ALONG_K ? 32 : WARPS);
  p.filled = static_cast<int>(smaller<int64_t>((length + RUN - 1) / RUN * RUN, HELD));
  return p;
}

// Merges the sums of all threads that share a row (or a segment of it). Returns true in the one thread that has the
// result. All threads of the block call it: it may synchronise.
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
         int64_t sk, int64_t batch, int64_t rows, int64_t k, int64_t segment, uint32_t segments, int warps, int width
         FACTORS) {
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
#if INNER
  factors += b * (k / INNER);
#else
  const double* const factors = nullptr;
#endif
  const Place p = place(x, factors, sb, sr, sk, rows, k, static_cast<int64_t>(group) * block_rows, b, piece * segment,
                        segment, warps);

  // 1. Load.
  Bits held[HELD];
  load(p.walk, p.filled, held);
  // 2. Tops.
  Tops t = find_tops(p.walk, p.filled, held);
  if (ALONG_K) merge_warp(t);
  if (!ALONG_K || warps > 1) {
    if (!ALONG_K || lane == 0) tops[warp][slot] = t;
    __syncthreads();
    t = NOTHING;
    for (int i = 0; i < warps; ++i) merge(t, tops[p.first + i][slot]);
  }

  // 3. Sums.
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

// Whether a segment has no sums for the row's top: they have to be computed from memory.
__device__ __forceinline__ bool far(int top_of_segment, int top) {
  return top_of_segment != EMPTY_TOP && top - top_of_segment >= TOPS;
}
// Adds a segment's sums for the row's top, if it has them. No branch, so that the loads of several segments overlap.
__device__ __forceinline__ void add_noted(const Piece& piece, int top, Sums<1>& s) {
  const int of_segment = piece.tops.top;
  const bool noted = of_segment != EMPTY_TOP && !far(of_segment, top);
  const int j = noted ? top - of_segment : 0;
  const uint32_t peak = (piece.sums.peak + (1u << j) - 1) >> j, all = noted ? ~0u : 0;
  const uint64_t magnitudes = piece.sums.magnitudes[j], squares = piece.sums.squares[j];
  const uint32_t inexact = (piece.sums.rest & all & ((2u << j) - 1)) != 0 ? 1 : 0;
  merge(s, {peak & all, inexact, {noted ? magnitudes : 0}, {noted ? squares : 0}});
}

// Adds the sums of every step-th element from `begin` to `end`, read from memory, relative to the row's top.
__device__ __forceinline__ void add_from_memory(const INPUT* row, const double* factors, int64_t sk, int64_t begin, int64_t end, int step,
                                           int width, int top, Sums<1>& s) {
  const Bits* elements = reinterpret_cast<const Bits*>(row);
#pragma unroll 4
  for (int64_t h = begin; h < end; h += step) {
    const Rounded r = ceil_magnitude(parts(times_factor(elements[offset(h, sk)], factors, h)), width, top);
    merge(s, {r.value, r.inexact ? 1u : 0u, {r.value}, {static_cast<uint64_t>(r.value) * r.value}});
  }
}

constexpr int FINISHING = ALONG_K ? WARPS : 24;  // warps of a block of describe_finish

extern "C" __global__ void __launch_bounds__(32 * FINISHING, ALONG_K ? 4 : 1)
describe_finish(const INPUT* __restrict__ x, int64_t* __restrict__ out, const Piece* __restrict__ pieces, int64_t sb,
                int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k, int64_t segment, uint32_t segments,
                int, int width FACTORS) {
  after_previous();
  // ALONG_K = 1: a warp owns a row, its lanes share the segments. 0: a lane owns a row, the warps share the segments.
  __shared__ Tops tops[FINISHING][ALONG_K ? 1 : 32];
  __shared__ Sums<1> sums[FINISHING][ALONG_K ? 1 : 32];
#if !ALONG_K
  __shared__ uint32_t missed[FINISHING];  // for the segment of each warp: lanes whose rows have no sums of it
#endif
  constexpr uint32_t ROWS = ALONG_K ? FINISHING : 32;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const uint32_t groups = static_cast<uint32_t>((rows + ROWS - 1) / ROWS);
  const uint32_t group = blockIdx.x % groups, b = blockIdx.x / groups;
  const int64_t row = static_cast<int64_t>(group) * ROWS + (ALONG_K ? warp : lane);
  const int64_t stride = batch * rows, index = b * rows + smaller(row, rows - 1);
  const INPUT* at = x + b * sb + smaller(row, rows - 1) * sr;
#if INNER
  factors += b * (k / INNER);
#else
  const double* const factors = nullptr;
#endif
  const uint32_t begin = ALONG_K ? lane : warp, step = ALONG_K ? 32 : FINISHING;

  // 1. The row's top.
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

  // 2. Sums that the pieces have for it.
  Sums<1> s = {};
  bool some_far = false;
#pragma unroll 4
  for (uint32_t i = begin; i < segments; i += step) {
    const Piece& piece = pieces[i * stride + index];
    add_noted(piece, t.top, s);
    some_far |= far(piece.tops.top, t.top);
  }
  // 3. Segments far below the row's top, each by all threads that share the row.
  if (__syncthreads_or(some_far && row < rows) != 0) {
#pragma unroll 1
    for (uint32_t i0 = 0; i0 < segments; i0 += step) {
      const uint32_t i = i0 + begin;
      const bool missing = i < segments && row < rows && far(pieces[i * stride + index].tops.top, t.top);
      uint32_t all = __ballot_sync(ALL, missing);
#if ALONG_K
      for (; all != 0; all &= all - 1) {
        const int64_t start = static_cast<int64_t>(i0 + __ffs(all) - 1) * segment;
        add_from_memory(at, factors, sk, start + lane, smaller(start + segment, k), 32, width, t.top, s);
      }
#else
      if (lane == 0) missed[warp] = all;
      if (__syncthreads_or(missing) != 0)
#pragma unroll 1
        for (int w = 0; w < FINISHING; ++w) {
          const int64_t start = (i0 + w) * segment;
          if ((missed[w] >> lane & 1) != 0)
            add_from_memory(at, factors, sk, start + warp, smaller(start + segment, k), FINISHING, width, t.top, s);
        }
      __syncthreads();
#endif
    }
  }
  if (gather(s, sums, ALONG_K ? warp : 0, ALONG_K ? 1 : FINISHING) && row < rows)
    store(out, stride, index, t, s.peak, s.magnitudes[0], s.squares[0], (s.rest & 1) != 0, width);
}
