// int8 magnitudes, whose product is a lower bound of (abs(A) abs(B))_ij, and the ratio that a componentwise bound needs
// (docs/design.md, section 9).
#include "fixed_point.cuh"

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
magnitudes(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
           int64_t rows_padded, int64_t ks_padded, const int64_t* __restrict__ description, int sampled,
           int8_t* __restrict__ out) {
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

// No macros.
//
// The error terms of one operand (ErrorTerms in ozaki/_bounds.py), float64 [3][batch * rows], each operation rounded to
// nearest as NumPy does: with ulp = 2^-bits, u = ulp / 2 for a rounded row, else 0, s = magnitudes 2^-width, and
// UP = 1 + 2^-30: (u, s + k u, dropped ulp) UP on the left, (s, u, ulp) UP on the right.
//
// 256 threads; grid ceil(batch * rows / 256). A thread owns a row.
extern "C" __global__ void __launch_bounds__(256)
error_terms(const int64_t* __restrict__ description, int64_t batch_rows, int width, int statistic, int step, int base,
            int64_t threshold, double k, double dropped, int left, double* __restrict__ terms) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= batch_rows) return;
  const int64_t top = description[i], bottom = description[4 * batch_rows + i];
  const int mu = row_exponent(top, description[statistic * batch_rows + i], step, base, threshold);

  double s = 0, u = 0, ulp = 0;
  if (top != EMPTY_TOP) {
    s = __dmul_rn(static_cast<double>(description[2 * batch_rows + i]), power_of_two(-width));
    ulp = power_of_two(-(mu + static_cast<int>(top)));
    if (mu + bottom < 0) u = __dmul_rn(ulp, 0.5);
  }
  const double up = 1.0 + power_of_two(-30);
  terms[i] = __dmul_rn(left ? u : s, up);
  terms[batch_rows + i] = __dmul_rn(left ? __dadd_rn(s, __dmul_rn(k, u)) : u, up);
  terms[2 * batch_rows + i] = __dmul_rn(left ? __dmul_rn(dropped, ulp) : ulp, up);
}

// ratio_ij = ((p0_i q0_j + p1_i q1_j) + p2_i q2_j) / L_ij, each operation rounded to nearest, in this order. p_s[i] =
// p[s * p_stride + i], q likewise, all >= 0; L is int32 [rows][ld], >= 0.
//   result[0]  max over the entries with L > 0, as the bits of a double (of nonnegative numbers they order alike)
//   result[1]  number of entries with L = 0 and a positive numerator
// The caller sets both to zero first.
//
// Block (32, 8); grid (ceil(rows / 64), ceil(cols / 32)). A thread owns one column and every eighth of 64 rows.
extern "C" __global__ void __launch_bounds__(256)
worst_ratio(const int32_t* __restrict__ lower, int64_t ld, const double* __restrict__ p, int64_t p_stride,
            const double* __restrict__ q, int64_t q_stride, int64_t rows, int64_t cols, unsigned long long* result) {
  const int64_t col = static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * 64 + threadIdx.y;

  double best = __longlong_as_double(static_cast<long long>(*static_cast<volatile unsigned long long*>(result)));
  int unproven = 0;
  if (col < cols) {
    const double q0 = q[col], q1 = q[q_stride + col], q2 = q[2 * q_stride + col];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t row = row0 + 8 * i;
      if (row >= rows) break;
      const double numerator =
          __dadd_rn(__dadd_rn(__dmul_rn(p[row], q0), __dmul_rn(p[p_stride + row], q1)),
                    __dmul_rn(p[2 * p_stride + row], q2));
      const int32_t l = lower[row * ld + col];
      // numerator <= RD(best l) <= best l: the quotient, rounded, is no larger than best. NaN is not skipped.
      if (l == 0) {
        if (!(numerator <= 0.0)) ++unproven;
      } else if (!(numerator <= __dmul_rd(best, static_cast<double>(l)))) {
        best = __ddiv_rn(numerator, static_cast<double>(l));
      }
    }
  }

  unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(best));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffu, bits, offset);
    bits = other > bits ? other : bits;
    unproven += __shfl_xor_sync(0xffffffffu, unproven, offset);
  }
  if (threadIdx.x != 0) return;
  if (bits > *static_cast<volatile unsigned long long*>(result)) atomicMax(result, bits);
  if (unproven != 0) atomicAdd(result + 1, static_cast<unsigned long long>(unproven));
}

#endif
