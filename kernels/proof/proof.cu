// Kernels of a componentwise proof (docs/bounds.md, B7): the magnitudes whose product L is a lower bound of (abs(A)
// abs(B))_ij; the error terms of rows and columns; and the worst ratio of error bound to L.
//
// This file is compiled in two forms: with INPUT_A defined it holds `magnitudes`, else the other kernels.
#include "hardware/launch.cuh"
#include "arithmetic/magnitudes.cuh"
#include "hardware/tiles.cuh"
#include "arithmetic/worst.cuh"

#ifdef INPUT_A

// magnitudes: v = floor(abs(x) 2^(width - top)) of all elements of both operands, top that of the element's row; NaN
// and Inf give 0. Exact integers below 2^width. Of a complex element abs(x) is the larger one of its parts.
//
// Macros: INPUT_A and INPUT_B (double or float); REALS: 1, or 2 if elements are complex; MAGNITUDE (int8_t, width <= 7;
// or double, width <= 21, TILE = 0, not sampled); ALONG_K_ and TILE_ of both operands as ALONG_K and TILE in split.cu,
// columns permuted by permuted_column<0> for A and <16> for B; LARGEST_ of both: 1 if the description is what tops.cu
// writes, else 0; INNER: 1 if rows are scaled along k, so that x stands for its products by factors[batch][k].
//
// With `sampled` only the elements h with h % 128 < 32 are taken, to position c = (h / 128) * 32 + h % 128 of the
// output, of complex ones those with h % 64 < 32 in the same way; else c = h. Stored at out + b * rows_padded *
// ks_padded plus
//   TILE = 0:  row * ks_padded + c
//   else:      the offset of (row, c) that tiles.cuh gives,
// zeros for padding rows and positions. ks_padded is a multiple of 128, rows_padded of TILE, out aligned to 16 bytes.
//
// 256 threads; grid a_blocks + b_blocks, batch * ceil(rows_padded / 32) * (ks_padded / 128) of each, all on x. A block
// owns 32 rows x 128 positions of one operand.
template <typename T> struct Operand {
  const T* x;                  // element h of a row of batch entry b at b * sb + row * sr + h * sk, in real numbers
  const int64_t* description;  // [6][batch * rows], of which only top is read
  MAGNITUDE* out;
  int64_t rows, rows_padded, sb, sr, sk;
#if INNER
  const double* factors;
#endif
};

constexpr int PACK = smaller<int>(8, 16 / sizeof(MAGNITUDE));

// Stores eight magnitudes as float64, two at a time.
__device__ __forceinline__ void store(double* to, const uint32_t (&value)[8]) {
#pragma unroll
  for (int j = 0; j < 8; j += 2)
    *reinterpret_cast<double2*>(to + behind<PACK>(j)) = make_double2(value[j], value[j + 1]);
}

// The part of an operand that this block owns: 32 rows x 128 positions. Where rows are neighbours in memory (ALONG_K =
// 0) it is transposed in the shared memory `staged`.
template <bool ALONG_K, int TILE, int N, bool LARGEST, typename T>
__device__ __forceinline__ void part_of(const Operand<T>& operand, uint32_t block, int64_t k, int64_t ks_padded,
                                        int width, bool sampled, void* staged) {
  typedef typename BitsOf<T>::type Bits;
  const int64_t rows = operand.rows, rows_padded = operand.rows_padded, sr = operand.sr, sk = operand.sk;
  const uint32_t tiles_k = static_cast<uint32_t>(ks_padded / TILE_K);
  const uint32_t tiles_row = static_cast<uint32_t>((rows_padded + TILE_ROWS - 1) / TILE_ROWS);
  const uint32_t inner = ALONG_K ? tiles_k : tiles_row, outer = ALONG_K ? tiles_row : tiles_k;
  const uint32_t rest = block / inner, b = rest / outer;  // neighbouring blocks are neighbours in memory
  const uint32_t at_k = ALONG_K ? block % inner : rest % outer, at_row = ALONG_K ? rest % outer : block % inner;
  const int64_t row0 = static_cast<int64_t>(at_row) * TILE_ROWS;
  const int64_t c = static_cast<int64_t>(at_k) * TILE_K + tile_h<PACK>();
  const T* const x = operand.x + b * operand.sb;

  // 1. The tops of this thread's two rows.
  int top[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = row0 + tile_row(i);
    top[i] = row < rows ? described_top<Bits, LARGEST>(operand.description[b * rows + row]) : EMPTY_TOP;
  }
  // 2. Eight elements of each of them.
  Bits bits[2][8];
  if (ALONG_K) {
    const bool aligned = aligned_along_k(x, 0, sr, sk);
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // eight positions in a row are eight elements in a row, sampled or not
      const int64_t row = row0 + tile_row(i);
      load_along_k<PACK, REALS>(x + row * sr, sk, position<REALS>(c, sampled), k, row < rows, aligned, bits[i]);
    }
  } else {
    Bits* const tile = static_cast<Bits*>(staged);
    stage_along_rows<PACK, REALS>(tile, x, sr, sk, row0, static_cast<int64_t>(at_k) * TILE_K, rows, k, sampled);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) read_staged<PACK>(tile, tile_row(i), bits[i]);
  }

  // 3. Their magnitudes.
  MAGNITUDE* const out = operand.out + b * rows_padded * ks_padded;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = row0 + tile_row(i);
    int64_t at = row * ks_padded + c;
    if constexpr (TILE > 0) {
      const int in_tile = static_cast<int>(at_row % (TILE / TILE_ROWS)) * TILE_ROWS + tile_row(i);
      at = (static_cast<int64_t>(at_row / (TILE / TILE_ROWS)) * tiles_k + at_k) * (TILE * TILE_K) +
           tile_offset(permuted_column<N>(in_tile), tile_h() >> 4) + (tile_h() & 15);
    }
#if INNER
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t h = position<REALS>(c + behind<PACK>(j), sampled);
      if (h < k) bits[i][j] = scaled_bits(bits[i][j], operand.factors[b * k + h]);
    }
#endif
    uint32_t value[8];
    magnitudes_of(bits[i], width, top[i], value);
    if (row < rows_padded) store(out + at, value);
  }
}

// Bytes of an element that is transposed in shared memory; 0 if none is.
constexpr int STAGED = larger<int>(ALONG_K_A ? 0 : sizeof(INPUT_A), ALONG_K_B ? 0 : sizeof(INPUT_B));

extern "C" __global__ void __launch_bounds__(256, 4)
magnitudes(const Operand<INPUT_A> a, const Operand<INPUT_B> b, uint32_t a_blocks, int64_t k, int64_t ks_padded,
           int width, int sampled) {
  after_previous();
  __shared__ __align__(16) uint8_t staged[larger(TILE_K * TILE_ROWS * STAGED, 1)];
  if (blockIdx.x < a_blocks)
    part_of<ALONG_K_A, TILE_A, 0, LARGEST_A>(a, blockIdx.x, k, ks_padded, width, sampled != 0, staged);
  else
    part_of<ALONG_K_B, TILE_B, 16, LARGEST_B>(b, blockIdx.x - a_blocks, k, ks_padded, width, sampled != 0, staged);
}

#else

// error_terms: the error terms p of rows and q of columns for one or two schemes (`ErrorTerms` in Python), as
// terms_of_row has them.
// `statistic` is the field of the description that the scaling reads. Besides,
//   result[1], result[2]  largest top - bottom of the rows of a and of b
//   result[3]             no_span - the smallest top - bottom of a row that is not all zeros
// The caller sets `result` to zero first. No macros.
//
// 256 threads; grid ceil(a.padded / 256) + ceil(b.padded / 256) on x, the schemes on y; `padded` counts padded rows of
// all batch entries. A thread owns a row.
struct Side {
  const int64_t* description;
  int64_t batch, rows, padded;  // rows and padded: of all batch entries together
};
// Where the terms for one scheme go, and the constants of its scaling rule (row_exponent).
struct Wanted {
  double* exact_a;   // [3][rows]
  float* rounded_a;  // [padded] rows as place_of has them; the same number for each batch entry
  double* exact_b;
  float* rounded_b;
  Atomic* result;
  int64_t statistic, step, base, threshold;
  double dropped;
};
struct AllWanted {
  Wanted of[2];
};

extern "C" __global__ void __launch_bounds__(256)
error_terms(const Side a, const Side b, const __grid_constant__ AllWanted all, int width, double k, int64_t no_span) {
  after_previous();
  const Wanted& wanted = all.of[blockIdx.y];
  const uint32_t a_blocks = static_cast<uint32_t>((a.padded + 255) / 256);
  const bool left = blockIdx.x < a_blocks;
  const Side side = left ? a : b;
  double* const exact = left ? wanted.exact_a : wanted.exact_b;
  const int64_t each = side.padded / side.batch, rows = side.rows / side.batch;
  const int64_t at = static_cast<int64_t>(blockIdx.x - (left ? 0 : a_blocks)) * 256 + threadIdx.x;
  const int64_t entry = at / each, row = at % each;
  float* const rounded = (left ? wanted.rounded_a : wanted.rounded_b) + entry * ROUNDED * each;

  // 1. The terms of this thread's row, as float64 and rounded up to float32.
  int64_t span = 0, spare = 0;
  double term[3] = {0, 0, 0};
  if (at < side.padded) {
    if (row < rows) {
      const int64_t i = entry * rows + row;
      const int64_t top = side.description[i], bottom = side.description[4 * side.rows + i];
      const int mu = row_exponent(top, side.description[wanted.statistic * side.rows + i],
                                  static_cast<int>(wanted.step), static_cast<int>(wanted.base), wanted.threshold);
      terms_of_row(left, top, bottom, side.description[2 * side.rows + i], mu, width, k, wanted.dropped, term);
#pragma unroll
      for (int t = 0; t < 3; ++t) exact[t * side.rows + i] = term[t];
      span = top - bottom;
      if (top != EMPTY_TOP) spare = no_span - span;
    }
#pragma unroll
    for (int t = 0; t < 3; ++t) rounded[place_of(row, t)] = __double2float_ru(term[t]);
  }
  // 2. Of columns: the inverse of q0, and the largest quotients q1 / q0, q2 / q0 among 16 neighbours.
  if (!left) {
    const bool empty = term[0] == 0;
    const float most = __frcp_ru(__double2float_rd(term[0]));
    float quotient[2];
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      quotient[t] = empty ? 0.0f : __fmul_ru(__double2float_ru(term[1 + t]), most);
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2)
        quotient[t] = fmaxf(quotient[t], __shfl_xor_sync(ALL, quotient[t], offset));
    }
    if (at < side.padded) {
      rounded[place_of(row, INVERSE)] = empty ? float_of_bits(0x7fffffffu) : __frcp_rd(__double2float_ru(term[0]));
      if (row % 4 < 2) rounded[place_of(row, QUOTIENTS)] = row % 4 == 0 ? quotient[0] : quotient[1];
    }
  }
  // 3. Extremes of top - bottom over all rows.
  const Atomic widest = largest_of_warp(static_cast<Atomic>(span));
  const Atomic most_spare = largest_of_warp(static_cast<Atomic>(spare));
  if ((threadIdx.x & 31) != 0) return;
  raise(wanted.result + (left ? 1 : 2), widest);
  raise(wanted.result + 3, most_spare);
}

// unit_terms: terms (1, 0, 0) for rows that are not all zeros and (0, 0, 0) for the others. The worst ratio of these is
// the inverse of the least L_ij of two rows that are not all zeros. Layouts, grid and threads as in error_terms,
// without y.
struct Known : Side {
  int64_t empty;  // field 0 of the description of a row that is all zeros
};
// Where the terms of an operand go.
struct Places {
  double* exact;
  float* rounded;
};

extern "C" __global__ void __launch_bounds__(256)
unit_terms(const Known a, const Places of_a, const Known b, const Places of_b) {
  after_previous();
  const uint32_t a_blocks = static_cast<uint32_t>((a.padded + 255) / 256);
  const bool left = blockIdx.x < a_blocks;
  const Known side = left ? a : b;
  const Places to = left ? of_a : of_b;
  const int64_t each = side.padded / side.batch, rows = side.rows / side.batch;
  const int64_t at = static_cast<int64_t>(blockIdx.x - (left ? 0 : a_blocks)) * 256 + threadIdx.x;
  if (at >= side.padded) return;
  const int64_t entry = at / each, row = at % each, i = entry * rows + row;
  const bool filled = row < rows && side.description[i] != side.empty;
  float* const rounded = to.rounded + entry * ROUNDED * each;
#pragma unroll
  for (int t = 0; t < 3; ++t) {
    const bool one = t == 0 && filled;
    if (row < rows) to.exact[t * side.rows + i] = one ? 1.0 : 0.0;
    rounded[place_of(row, t)] = one ? 1.0f : 0.0f;
  }
  if (left) return;
  rounded[place_of(row, INVERSE)] = filled ? 1.0f : float_of_bits(0x7fffffffu);
  if (row % 4 < 2) rounded[place_of(row, QUOTIENTS)] = 0.0f;
}

// worst_ratio: the largest ((p0_i q0_j + p1_i q1_j) + p2_i q2_j) / L_ij over the first `compared` rows of each batch
// entry, L int32 [batch][rows][ld], 0 <= L < 2^31 - 1. ld is a multiple of 4, L aligned to 16 bytes. The result is left
// as Worst::publish does; the caller sets it to zero first.
//
// 256 threads; grid batch * ceil(compared / 128) * ceil(cols / 128), all on x. A block owns 128 rows x 128 columns, a
// warp 16 rows x 128 columns. For most entries float32 shows, rounded up in the numerator and down in best L, that they
// do not raise the maximum; only the others are computed in float64.
constexpr int WARP_ROWS = 16;

extern "C" __global__ void __launch_bounds__(256, 2)
worst_ratio(const int32_t* __restrict__ lower, const Terms p, const Terms q, Atomic* result, int64_t ld, int64_t rows,
            int64_t cols, int64_t compared) {
  after_previous();
  const uint32_t down = static_cast<uint32_t>((compared + 127) / 128),
                 over = static_cast<uint32_t>((cols + 127) / 128);
  const uint32_t tile = blockIdx.x / over, b = tile / down;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t col = static_cast<int64_t>(blockIdx.x % over) * 128 + 4 * lane;
  const int64_t row0 = static_cast<int64_t>(tile % down) * 128 + WARP_ROWS * warp;
  lower += (b * rows + row0) * ld + col;

  int4 l[WARP_ROWS];
#pragma unroll
  for (int i = 0; i < WARP_ROWS; ++i)
    l[i] = row0 + i < compared && col < cols ? __ldcs(reinterpret_cast<const int4*>(lower + i * ld))
                                         : make_int4(0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff);

  float4 of_col[3];
  float of_row[3];  // terms of row lane % 16
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    of_col[s] = col < cols ? *reinterpret_cast<const float4*>(q.rounded + b * q.rounded_step + place_of(col, s))
                           : make_float4(0, 0, 0, 0);
    of_row[s] = row0 + (lane & 15) < compared ? p.rounded[b * p.rounded_step + place_of(row0 + (lane & 15), s)] : 0.0f;
  }

  Worst worst;
  worst.set(*static_cast<volatile Atomic*>(result));
#pragma unroll
  for (int i = 0; i < WARP_ROWS; ++i) {
    const int value[4] = {l[i].x, l[i].y, l[i].z, l[i].w};
    const float p0 = __shfl_sync(ALL, of_row[0], i), p1 = __shfl_sync(ALL, of_row[1], i);
    const float p2 = __shfl_sync(ALL, of_row[2], i);
    const float above[4] = {__fmaf_ru(p0, of_col[0].x, __fmaf_ru(p1, of_col[1].x, __fmul_ru(p2, of_col[2].x))),
                            __fmaf_ru(p0, of_col[0].y, __fmaf_ru(p1, of_col[1].y, __fmul_ru(p2, of_col[2].y))),
                            __fmaf_ru(p0, of_col[0].z, __fmaf_ru(p1, of_col[1].z, __fmul_ru(p2, of_col[2].z))),
                            __fmaf_ru(p0, of_col[0].w, __fmaf_ru(p1, of_col[1].w, __fmul_ru(p2, of_col[2].w)))};
    bool dismissed = i > 0;  // there is no ratio to compare the first row with: compute it
#pragma unroll
    for (int j = 0; j < 4; ++j) dismissed = dismissed & !(above[j] > __fmul_rd(worst.below, __int2float_rd(value[j])));
    if (__all_sync(ALL, dismissed) || row0 + i >= compared) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (col + j < cols) worst.include(numerator(p, q, b, row0 + i, col + j), value[j]);
    worst.share();
  }
  worst.share();
  worst.publish(result);
}

#endif
