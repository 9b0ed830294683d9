// NaN and Inf: the entries of C in rows of A or columns of B with such elements (docs/design.md, section 8).
//
// Macros: INPUT_A, INPUT_B, OUTPUT (double or float).
//
// Each such entry becomes what IEEE arithmetic gives for sum_h s(a_h) s(b_h), s(x) = x for NaN and Inf, else the sign
// of x: NaN (the quiet one with all other bits clear) if a product is NaN or both infinities occur, else Inf with its
// sign.
//
// a(row, h) = a[row * a_row_stride + h * a_k_stride], b(h, col) = b[col * b_col_stride + h * b_k_stride], one matrix.
// a_nonfinite, b_nonfinite: int64 counts for each row and column, from the descriptions.
//
// 256 threads; grid (ceil(rows / 32), ceil(cols / 1024)). A block owns 32 rows x 1024 columns and leaves at once if
// none of them is flagged; otherwise it goes through the 32 x 32 tiles that hold flagged entries. 32 elements of a row
// are four 32-bit masks; a warp makes those of 4 rows and 4 columns, and a thread owns 4 entries.
#include "common.cuh"

typedef BitsOf<OUTPUT>::type Bits;

struct Masks {
  uint32_t nan, infinite, zero, negative;
};

template <typename T> __device__ __forceinline__ Masks masks_of(const T* x, int64_t stride, int64_t h, int64_t k) {
  typedef typename BitsOf<T>::type Word;
  constexpr Word SIGN = Word(1) << (8 * sizeof(T) - 1);
  constexpr Word INFINITE = sizeof(T) == 8 ? Word(0x7ffull << 52) : Word(0xffull << 23);
  // Elements beyond k are 1: a product of signs, without effect.
  const Word bits = h < k ? reinterpret_cast<const Word*>(x)[h * stride] : Word(1);
  const Word magnitude = bits & ~SIGN;
  return {__ballot_sync(0xffffffffu, magnitude > INFINITE), __ballot_sync(0xffffffffu, magnitude == INFINITE),
          __ballot_sync(0xffffffffu, magnitude == 0), __ballot_sync(0xffffffffu, (bits & SIGN) != 0)};
}

extern "C" __global__ void __launch_bounds__(256, 3)
patch(const INPUT_A* __restrict__ a, int64_t a_row_stride, int64_t a_k_stride, const INPUT_B* __restrict__ b,
      int64_t b_col_stride, int64_t b_k_stride, const int64_t* __restrict__ a_nonfinite,
      const int64_t* __restrict__ b_nonfinite, OUTPUT* __restrict__ c, int64_t c_row_stride, int64_t c_col_stride,
      int64_t rows, int64_t cols, int64_t k) {
  __shared__ Masks of_row[32], of_col[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * 32;
  const int64_t strip = static_cast<int64_t>(blockIdx.y) * 1024;

  bool flagged = row0 + lane < rows && a_nonfinite[row0 + lane] != 0;
  const uint32_t row_flags = __ballot_sync(0xffffffffu, flagged);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t col = strip + 256 * i + threadIdx.x;
    flagged = flagged || (col < cols && b_nonfinite[col] != 0);
  }
  if (!__syncthreads_or(flagged)) return;

  for (int64_t col0 = strip; col0 < smaller(strip + 1024, cols); col0 += 32) {
    const uint32_t col_flags = __ballot_sync(0xffffffffu, col0 + lane < cols && b_nonfinite[col0 + lane] != 0);
    if ((row_flags | col_flags) == 0) continue;  // the same in every warp

    // Entry (warp + 8 i, lane) of the tile: was there NaN, a positive, a negative Inf?
    uint32_t nan[4] = {}, positive[4] = {}, negative[4] = {};
    for (int64_t h0 = 0; h0 < k; h0 += 32) {
      for (int i = warp; i < 32; i += 8) {
        const int64_t row = smaller(row0 + i, rows - 1), col = smaller(col0 + i, cols - 1);
        const Masks in_a = masks_of(a + row * a_row_stride, a_k_stride, h0 + lane, k);
        const Masks in_b = masks_of(b + col * b_col_stride, b_k_stride, h0 + lane, k);
        if (lane == 0) of_row[i] = in_a, of_col[i] = in_b;
      }
      __syncthreads();
      const Masks v = of_col[lane];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Masks u = of_row[warp + 8 * i];
        const uint32_t invalid = u.nan | v.nan | (u.infinite & v.zero) | (u.zero & v.infinite);
        const uint32_t infinite = (u.infinite | v.infinite) & ~invalid;
        const uint32_t sign = u.negative ^ v.negative;
        nan[i] |= invalid;
        positive[i] |= infinite & ~sign;
        negative[i] |= infinite & sign;
      }
      __syncthreads();
    }

    const int64_t col = col0 + lane;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = row0 + warp + 8 * i;
      if (row >= rows || col >= cols || ((row_flags >> (warp + 8 * i) | col_flags >> lane) & 1) == 0) continue;
      constexpr Bits INFINITE = sizeof(OUTPUT) == 8 ? Bits(0x7ffull << 52) : Bits(0xffull << 23);
      constexpr Bits QUIET = sizeof(OUTPUT) == 8 ? Bits(1ull << 51) : Bits(1ull << 22);
      constexpr Bits SIGN = Bits(1) << (8 * sizeof(OUTPUT) - 1);
      Bits bits = INFINITE;
      if (nan[i] != 0 || (positive[i] != 0 && negative[i] != 0))
        bits |= QUIET;
      else if (negative[i] != 0)
        bits |= SIGN;
      reinterpret_cast<Bits*>(c)[row * c_row_stride + col * c_col_stride] = bits;
    }
  }
}
