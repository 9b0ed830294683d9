// The description of the rows of an operand (docs/design.md, section 3).
//
// Macros: INPUT (double or float); ALONG_K: 1 if neighbouring threads walk along k, 0 if along the rows (whichever is
// contiguous in memory).
//
// x is a view (batch, rows, k) with element strides sb, sr, sk of any sign. out is int64 [6][batch * rows].
//
// A row is cut into `segments` pieces of `segment` elements (a multiple of 32; segment * segments >= k). Blocks have
// 256 threads. ALONG_K = 1: a warp owns a piece of one row, a block 8 rows. ALONG_K = 0: a lane owns a row, a block 32
// rows, its warps take turns along the piece.
//
//   describe_init    grid ceil(batch * rows / 256)
//   describe_top     grid batch * ceil(rows / R) * segments,  R = 8 if ALONG_K else 32
//   describe_sums    the same grid
//   describe_finish  grid ceil(batch * rows / 256)
//   describe_rows    grid batch * rows: all four in one, a block per row; reads x twice, but the second time from the
//                    cache. For ALONG_K = 1 and enough rows to fill the device.
//
// All sums are of integers, so neither grid nor order matters. Until describe_finish, the field bottom holds the
// smallest exponent of frexp + BIAS, and INEXACT once some abs(x) 2^(W - top) is no integer.
#include "fixed_point.cuh"

typedef BitsOf<INPUT>::type Bits;
typedef unsigned long long Atomic;

constexpr int PACK = 16 / sizeof(INPUT);
constexpr int64_t BIAS = 8192;
constexpr int64_t INEXACT = 1ll << 40;
constexpr int BLOCK = 256;
constexpr int GROUP = ALONG_K ? 8 : 32;  // rows of a block
constexpr unsigned ALL = 0xffffffffu;

enum Field { TOP, PEAK, MAGNITUDES, SQUARES, BOTTOM, NONFINITE };

// Where a row begins, and which of its elements this thread sees: number `thread` and every `step` after it, from begin
// to end; counted in packs of 16 bytes where `aligned`.
struct Walk {
  const INPUT* row;
  int64_t sk, begin, end;
  int thread, step;
  bool aligned;
};

// Four 16-byte loads or eight small ones are under way at once; UNROLLED = false is for the rare paths.
template <bool UNROLLED, typename See> __device__ __forceinline__ void walk(const Walk& w, See see) {
  if (ALONG_K && w.aligned) {  // begin is a multiple of 32
    const int64_t whole = w.end - (w.end - w.begin) % PACK;
#pragma unroll(UNROLLED ? 4 : 1)
    for (int64_t h = w.begin + w.thread * PACK; h < whole; h += w.step * PACK) {
      Bits bits[PACK];
      load_16_bytes(w.row + h, bits);
#pragma unroll
      for (int j = 0; j < PACK; ++j) see(bits[j]);
    }
    if (w.thread < w.end - whole) see(reinterpret_cast<const Bits*>(w.row)[whole + w.thread]);
  } else {
    const int64_t first = w.begin + w.thread, stride = w.step * w.sk;
    const Bits* p = reinterpret_cast<const Bits*>(w.row) + first * w.sk;
#pragma unroll(UNROLLED ? 8 : 1)
    for (int64_t h = first; h < w.end; h += w.step, p += stride) see(*p);
  }
}

constexpr Bits SIGN = Bits(1) << (8 * sizeof(INPUT) - 1);
constexpr int MANTISSA = sizeof(INPUT) == 8 ? 52 : 23;  // bits without the implicit one
constexpr uint32_t SPECIAL = sizeof(INPUT) == 8 ? 0x7ff : 0xff;
constexpr int FIELD_BIAS = sizeof(INPUT) == 8 ? 1022 : 126;  // field - FIELD_BIAS is the exponent of frexp

__device__ __forceinline__ uint32_t field_of(Bits bits) {
  return static_cast<uint32_t>((bits & ~SIGN) >> MANTISSA);
}

struct Tops {
  int top, smallest, nonfinite;
};

// The extremes of normal numbers are those of the exponent field; where a subnormal turns up, the thread looks again.
__device__ __forceinline__ Tops find_tops(const Walk& w) {
  uint32_t largest = 0, least = ~0u;  // least: field - 1, so that zeros do not count
  int nonfinite = 0;
  bool subnormal = false;
  walk<true>(w, [&](Bits bits) {
    const uint32_t field = field_of(bits);
    largest = larger(largest, field == SPECIAL ? 0u : field);
    least = smaller(least, field - 1);
    nonfinite += field == SPECIAL;
    subnormal = subnormal || (field == 0 && (bits & ~SIGN) != 0);
  });
  Tops t = {EMPTY_TOP, -EMPTY_TOP, nonfinite};
  if (largest != 0) {
    t.top = static_cast<int>(largest) - FIELD_BIAS;
    t.smallest = static_cast<int>(least + 1) - FIELD_BIAS;
  }
  if (subnormal) {
    walk<false>(w, [&](Bits bits) {
      if (field_of(bits) != 0 || (bits & ~SIGN) == 0) return;
      const int e = top_exponent(parts(bits));
      t.top = larger(t.top, e);
      t.smallest = smaller(t.smallest, e);
    });
  }
  return t;
}

struct Sums {
  uint32_t peak;
  bool inexact;
  uint64_t magnitudes, squares;

  __device__ __forceinline__ void add(const Rounded& r) {
    peak = larger(peak, r.value);
    inexact = inexact || r.inexact;
    magnitudes += r.value;
    squares += static_cast<uint64_t>(r.value) * r.value;
  }
};

__device__ __forceinline__ Sums find_sums(const Walk& w, int width, int top) {
  Sums s = {0, false, 0, 0};
  if (top > FastTop<Bits>::value) {
    walk<true>(w, [&](Bits bits) {
      s.add(ceil_magnitude_fast(field_of(bits) == SPECIAL ? Bits(0) : bits, width, top));
    });
  } else if (top != EMPTY_TOP) {
    walk<false>(w, [&](Bits bits) { s.add(ceil_magnitude(parts(bits), width, top)); });
  }
  return s;
}

__device__ __forceinline__ void merge(Tops& t, int offset) {
  t.top = larger(t.top, __shfl_xor_sync(ALL, t.top, offset));
  t.smallest = smaller(t.smallest, __shfl_xor_sync(ALL, t.smallest, offset));
  t.nonfinite += __shfl_xor_sync(ALL, t.nonfinite, offset);
}
__device__ __forceinline__ void merge(Sums& s, int offset) {
  s.peak = larger(s.peak, __shfl_xor_sync(ALL, s.peak, offset));
  s.inexact = __shfl_xor_sync(ALL, s.inexact ? 1 : 0, offset) != 0 || s.inexact;
  s.magnitudes += __shfl_xor_sync(ALL, s.magnitudes, offset);
  s.squares += __shfl_xor_sync(ALL, s.squares, offset);
}
template <typename T> __device__ __forceinline__ void merge_warp(T& t) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) merge(t, offset);
}

// The row and the elements of this thread; false if there are none.
__device__ __forceinline__ bool place(const INPUT* x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
                                      int64_t segment, uint32_t segments, Walk& w, int64_t& index) {
  const uint32_t groups = static_cast<uint32_t>((rows + GROUP - 1) / GROUP);  // GROUP is a power of two
  const uint32_t piece = blockIdx.x % segments, rest = blockIdx.x / segments;
  const int64_t b = rest / groups, group = rest % groups;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t row = group * GROUP + (ALONG_K ? warp : lane);
  const int64_t begin = piece * segment;
  w.row = x + b * sb + row * sr;
  w.sk = sk;
  w.begin = begin;
  w.thread = ALONG_K ? lane : warp;
  w.step = ALONG_K ? 32 : 8;
  w.end = smaller(begin + segment, k);
  w.aligned = ALONG_K && aligned_along_k(x, sb, sr, sk);
  index = b * rows + row;
  return row < rows;  // of a whole warp if ALONG_K
}

__device__ __forceinline__ void finish(int64_t* out, int64_t index, int64_t stride, int width, int top, int smallest,
                                       bool inexact) {
  int64_t bottom = EMPTY_TOP;
  if (top != EMPTY_TOP) bottom = inexact ? smallest - (sizeof(INPUT) == 8 ? 53 : 24) : top - width;
  out[BOTTOM * stride + index] = bottom;
}

extern "C" __global__ void __launch_bounds__(BLOCK) describe_init(int64_t* out, int64_t batch_rows) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= batch_rows) return;
  out[TOP * batch_rows + i] = EMPTY_TOP;
  out[PEAK * batch_rows + i] = 0;
  out[MAGNITUDES * batch_rows + i] = 0;
  out[SQUARES * batch_rows + i] = 0;
  out[BOTTOM * batch_rows + i] = BIAS - EMPTY_TOP;
  out[NONFINITE * batch_rows + i] = 0;
}

extern "C" __global__ void __launch_bounds__(BLOCK, 4)
describe_top(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k,
             int64_t segment, uint32_t segments, int64_t* out) {
  Walk w;
  int64_t i;
  if (!place(x, sb, sr, sk, rows, k, segment, segments, w, i)) return;

  Tops t = find_tops(w);
  if (ALONG_K) {
    merge_warp(t);
    if ((threadIdx.x & 31) != 0) return;
  }

  const int64_t n = batch * rows;
  if (t.top != EMPTY_TOP) {
    atomicMax(reinterpret_cast<long long*>(out + TOP * n + i), static_cast<long long>(t.top));
    atomicMin(reinterpret_cast<long long*>(out + BOTTOM * n + i), static_cast<long long>(BIAS + t.smallest));
  }
  if (t.nonfinite != 0) atomicAdd(reinterpret_cast<Atomic*>(out + NONFINITE * n + i), static_cast<Atomic>(t.nonfinite));
}

extern "C" __global__ void __launch_bounds__(BLOCK, 4)
describe_sums(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k,
              int64_t segment, uint32_t segments, int width, int64_t* out) {
  Walk w;
  int64_t i;
  if (!place(x, sb, sr, sk, rows, k, segment, segments, w, i)) return;
  const int64_t n = batch * rows;
  const int top = static_cast<int>(out[TOP * n + i]);
  if (top == EMPTY_TOP) return;

  Sums s = find_sums(w, width, top);
  if (ALONG_K) {
    merge_warp(s);
    if ((threadIdx.x & 31) != 0) return;
  }

  if (s.peak == 0) return;
  atomicMax(reinterpret_cast<long long*>(out + PEAK * n + i), static_cast<long long>(s.peak));
  atomicAdd(reinterpret_cast<Atomic*>(out + MAGNITUDES * n + i), static_cast<Atomic>(s.magnitudes));
  atomicAdd(reinterpret_cast<Atomic*>(out + SQUARES * n + i), static_cast<Atomic>(s.squares));
  if (s.inexact) atomicOr(reinterpret_cast<Atomic*>(out + BOTTOM * n + i), static_cast<Atomic>(INEXACT));
}

extern "C" __global__ void __launch_bounds__(BLOCK) describe_finish(int64_t* out, int64_t batch_rows, int width) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= batch_rows) return;
  const int64_t noted = out[BOTTOM * batch_rows + i];
  const int smallest = static_cast<int>((noted & (INEXACT - 1)) - BIAS);
  finish(out, i, batch_rows, width, static_cast<int>(out[TOP * batch_rows + i]), smallest, (noted & INEXACT) != 0);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 4)
describe_rows(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k,
              int width, int64_t* out) {
  __shared__ Tops tops[BLOCK / 32];
  __shared__ Sums sums[BLOCK / 32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const uint32_t b = blockIdx.x / static_cast<uint32_t>(rows);
  const uint32_t row = blockIdx.x % static_cast<uint32_t>(rows);
  const bool aligned = ALONG_K && aligned_along_k(x, sb, sr, sk);
  const Walk w = {x + b * sb + row * sr, sk, 0, k, static_cast<int>(threadIdx.x), BLOCK, aligned};

  Tops t = find_tops(w);
  merge_warp(t);
  if (lane == 0) tops[warp] = t;
  __syncthreads();
  t = tops[lane & 7];
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) merge(t, offset);

  Sums s = find_sums(w, width, t.top);
  merge_warp(s);
  if (lane == 0) sums[warp] = s;
  __syncthreads();
  if (warp != 0) return;
  s = sums[lane & 7];
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) merge(s, offset);

  if (lane != 0) return;
  const int64_t n = batch * rows, i = blockIdx.x;
  out[TOP * n + i] = t.top;
  out[PEAK * n + i] = s.peak;
  out[MAGNITUDES * n + i] = s.magnitudes;
  out[SQUARES * n + i] = s.squares;
  out[NONFINITE * n + i] = t.nonfinite;
  finish(out, i, n, width, t.top, t.smallest, s.inexact);
}
