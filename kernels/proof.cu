// int8 magnitudes, whose product is a lower bound of (abs(A) abs(B))_ij, and the ratio that a componentwise bound needs
// (docs/design.md, section 9).
#include "fixed_point.cuh"
#include "launch.cuh"

#ifdef INPUT

// Macros: INPUT (double or float); ALONG_K as in split.cu.
//
// floor(abs(x) 2^(7 - top)), 0 .. 127, NaN and Inf as 0, of a view x (batch, rows, k) with element strides sb, sr, sk.
// With `sampled`, only of the elements h with h % 128 < 32, at position c = (h / 128) * 32 + h % 128; else c = h.
// Stored at out + (b * rows_padded + row) * ks_padded + c, zeros for the padding. description is int64
// [6][batch * rows], of which only top is read. ks_padded is a multiple of 8, out aligned to 8 bytes.
//
// 256 threads; grid batch * ceil(rows_padded / 32) * ceil(ks_padded / 128), all on x.
extern "C" __global__ void __launch_bounds__(256)
magnitudes(const INPUT* __restrict__ x, const int64_t* __restrict__ description, int8_t* __restrict__ out, int64_t sb,
           int64_t sr, int64_t sk, int64_t rows, int64_t k, int64_t rows_padded, int64_t ks_padded, int sampled) {
  after_previous();
  typedef BitsOf<INPUT>::type Bits;
  const uint32_t tiles_k = static_cast<uint32_t>((ks_padded + TILE_K - 1) / TILE_K);
  const uint32_t tiles_row = static_cast<uint32_t>((rows_padded + TILE_ROWS - 1) / TILE_ROWS);
#if ALONG_K
  const uint32_t at_k = blockIdx.x % tiles_k, rest = blockIdx.x / tiles_k;
  const uint32_t at_row = rest % tiles_row, b = rest / tiles_row;
#else
  const uint32_t at_row = blockIdx.x % tiles_row, rest = blockIdx.x / tiles_row;
  const uint32_t at_k = rest % tiles_k, b = rest / tiles_k;
#endif
  const int64_t row0 = static_cast<int64_t>(at_row) * TILE_ROWS;
  const int64_t c = static_cast<int64_t>(at_k) * TILE_K + tile_h();
  x += b * sb;

#if ALONG_K
  const bool aligned = aligned_along_k(x, 0, sr, sk);
#else
  __shared__ Bits tile[TILE_K * TILE_ROWS];
  stage_along_rows(tile, x, sr, sk, row0, static_cast<int64_t>(at_k) * TILE_K, rows, k, sampled != 0);
  __syncthreads();
#endif
  if (c >= ks_padded) return;

#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const int64_t row = row0 + tile_row(i);
    if (row >= rows_padded) continue;
    const bool valid = row < rows;

    Bits bits[8];
#if ALONG_K
    load_along_k(x + row * sr, sk, position(c, sampled != 0), k, valid, aligned, bits);  // 8 positions are neighbours
#else
    read_staged(tile, tile_row(i), bits);
#endif
    const int top = valid ? static_cast<int>(description[b * rows + row]) : 0;

    uint32_t value[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const Parts p = parts(bits[j]);
      value[j] = low_word(floor_scaled(p.mantissa, p.exponent + 7 - top));
    }
    *reinterpret_cast<uint2*>(out + (b * rows_padded + row) * ks_padded + c) =
        make_uint2(gather_bytes(value[0], value[1], value[2], value[3], 0),
                   gather_bytes(value[4], value[5], value[6], value[7], 0));
  }
}

#else

// 2^e for a normal double.
__device__ __forceinline__ double power_of_two(int e) {
  return __longlong_as_double(static_cast<long long>(e + 1023) << 52);
}

constexpr unsigned ALL = 0xffffffffu;

typedef unsigned long long Atomic;

// At `address` what is larger, that or `value`; nonnegative doubles order as their bits do.
__device__ __forceinline__ void raise(Atomic* address, Atomic value) {
  if (value > *static_cast<volatile Atomic*>(address)) atomicMax(address, value);
}
__device__ __forceinline__ Atomic largest_of_warp(Atomic value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = larger(value, __shfl_xor_sync(ALL, value, offset));
  return value;
}

// No macros.
//
// The error terms of both operands (ErrorTerms in ozaki/_bounds.py), float64 [3][a_rows], then [3][b_rows], each
// operation rounded to nearest as NumPy does: with ulp = 2^-bits, u = ulp / 2 for a rounded row, else 0, s = magnitudes
// 2^-width, and UP = 1 + 2^-30: (u, s + k u, dropped ulp) UP on the left, (s, u, ulp) UP on the right. a_rows and b_rows
// are those of all of the batch, `statistic` is the field that the scaling reads.
//   result[2], result[3]  largest top - bottom of the rows of a and b; the caller sets them to zero first
//
// 256 threads; grid ceil(a_rows / 256) + ceil(b_rows / 256). A thread owns a row.
extern "C" __global__ void __launch_bounds__(256)
error_terms(const int64_t* __restrict__ a, const int64_t* __restrict__ b, double* __restrict__ terms, Atomic* result,
            int64_t a_rows, int64_t b_rows, int width, int statistic, int step, int base, int64_t threshold, double k,
            double dropped) {
  after_previous();
  const uint32_t a_blocks = static_cast<uint32_t>((a_rows + 255) / 256);
  const bool left = blockIdx.x < a_blocks;
  const int64_t rows = left ? a_rows : b_rows;
  const int64_t i = static_cast<int64_t>(blockIdx.x - (left ? 0 : a_blocks)) * 256 + threadIdx.x;
  const int64_t* const description = left ? a : b;
  if (!left) terms += 3 * a_rows;

  int64_t span = 0;
  if (i < rows) {
    const int64_t top = description[i], bottom = description[4 * rows + i];
    const int mu = row_exponent(top, description[statistic * rows + i], step, base, threshold);
    double s = 0, u = 0, ulp = 0;
    if (top != EMPTY_TOP) {
      s = __dmul_rn(static_cast<double>(description[2 * rows + i]), power_of_two(-width));
      ulp = power_of_two(-(mu + static_cast<int>(top)));
      if (mu + bottom < 0) u = __dmul_rn(ulp, 0.5);
    }
    const double up = 1.0 + power_of_two(-30);
    terms[i] = __dmul_rn(left ? u : s, up);
    terms[rows + i] = __dmul_rn(left ? __dadd_rn(s, __dmul_rn(k, u)) : u, up);
    terms[2 * rows + i] = __dmul_rn(left ? __dmul_rn(dropped, ulp) : ulp, up);
    span = top - bottom;
  }
  const Atomic widest = largest_of_warp(static_cast<Atomic>(span));
  if ((threadIdx.x & 31) == 0) raise(result + (left ? 2 : 3), widest);
}

// ratio_ij = ((p0_i q0_j + p1_i q1_j) + p2_i q2_j) / L_ij, each operation rounded to nearest, in this order. p_s[i] =
// p[s * p_stride + i], q likewise, all >= 0; L is int32 [batch][rows][ld], >= 0 and below 2^31 - 1, rows of p and q of
// batch entry b start b * p_step and b * q_step further; ld is a multiple of 4, L aligned to 16 bytes.
//   result[0]  max over the entries with L > 0, as the bits of a double
//   result[1]  number of entries with L = 0 and a positive numerator
// The caller sets both to zero first. Of each batch entry the first `looked_at` rows count.
//
// 256 threads; grid batch * ceil(looked_at / 128) * ceil(cols / 128), all on x. A warp owns 16 rows x 128 columns. Few
// entries are computed: for the others float32, rounded up above and down below, shows that they raise no maximum.
__device__ __forceinline__ double numerator(double p0, double q0, double p1, double q1, double p2, double q2) {
  return __dadd_rn(__dadd_rn(__dmul_rn(p0, q0), __dmul_rn(p1, q1)), __dmul_rn(p2, q2));
}

// The worst ratio so far, and entries without any.
struct Worst {
  double best = 0;
  float below = 0;  // best, rounded down
  int unproven = 0;

  __device__ __forceinline__ void set(double ratio) {
    best = ratio;
    below = __double2float_rd(ratio);
  }
  __device__ __forceinline__ void see(double above, int l) {
    // above <= RD(best l) <= best l: the quotient, rounded, is no larger than best. NaN is not skipped.
    if (l == 0) {
      if (!(above <= 0.0)) ++unproven;
    } else if (!(above <= __dmul_rd(best, static_cast<double>(l)))) {
      set(__ddiv_rn(above, static_cast<double>(l)));
    }
  }
};

constexpr int WARP_ROWS = 16;

extern "C" __global__ void __launch_bounds__(256, 2)
worst_ratio(const int32_t* __restrict__ lower, const double* __restrict__ p, const double* __restrict__ q,
            Atomic* result, int64_t ld, int64_t p_stride, int64_t q_stride, int64_t p_step, int64_t q_step,
            int64_t rows, int64_t cols, int64_t looked_at) {
  after_previous();
  const uint32_t down = static_cast<uint32_t>((looked_at + 127) / 128), over = static_cast<uint32_t>((cols + 127) / 128);
  const uint32_t tile = blockIdx.x / over, b = tile / down;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t col = static_cast<int64_t>(blockIdx.x % over) * 128 + 4 * lane;
  const int64_t row0 = static_cast<int64_t>(tile % down) * 128 + WARP_ROWS * warp;
  lower += (b * rows + row0) * ld + col;
  p += b * p_step + row0;
  q += b * q_step + col;

  int4 l[WARP_ROWS];
#pragma unroll
  for (int i = 0; i < WARP_ROWS; ++i)
    l[i] = row0 + i < looked_at && col < cols ? __ldcs(reinterpret_cast<const int4*>(lower + i * ld))
                                         : make_int4(0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff);

  float of_col[4][3], of_row[3];  // rounded up; those of row lane % 16
#pragma unroll
  for (int s = 0; s < 3; ++s) {
#pragma unroll
    for (int j = 0; j < 4; ++j) of_col[j][s] = col + j < cols ? __double2float_ru(q[s * q_stride + j]) : 0.0f;
    of_row[s] = row0 + (lane & 15) < looked_at ? __double2float_ru(p[s * p_stride + (lane & 15)]) : 0.0f;
  }

  Worst worst;
  worst.set(__longlong_as_double(static_cast<long long>(*static_cast<volatile Atomic*>(result))));
#pragma unroll
  for (int i = 0; i < WARP_ROWS; ++i) {
    const int value[4] = {l[i].x, l[i].y, l[i].z, l[i].w};
    const float p0 = __shfl_sync(ALL, of_row[0], i), p1 = __shfl_sync(ALL, of_row[1], i);
    const float p2 = __shfl_sync(ALL, of_row[2], i);
    bool seen = i > 0;  // with nothing to compare with yet, the first row is computed
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float above = __fmaf_ru(p0, of_col[j][0], __fmaf_ru(p1, of_col[j][1], __fmul_ru(p2, of_col[j][2])));
      seen = seen && above <= __fmul_rd(worst.below, __int2float_rd(value[j]));
    }
    if (__all_sync(ALL, seen) || row0 + i >= looked_at) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (col + j >= cols) continue;
      const double above =
          numerator(p[i], q[j], p[p_stride + i], q[q_stride + j], p[2 * p_stride + i], q[2 * q_stride + j]);
      worst.see(above, value[j]);
    }
    worst.set(__longlong_as_double(static_cast<long long>(largest_of_warp(__double_as_longlong(worst.best)))));
  }
  const double best = worst.best;
  int unproven = worst.unproven;

  const Atomic bits = largest_of_warp(static_cast<Atomic>(__double_as_longlong(best)));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) unproven += __shfl_xor_sync(ALL, unproven, offset);
  if (lane != 0) return;
  raise(result, bits);
  if (unproven != 0) atomicAdd(result + 1, static_cast<Atomic>(unproven));
}

#endif
