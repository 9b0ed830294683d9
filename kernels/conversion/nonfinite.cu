// NaN and Inf: replaces the entries of C in rows of A or columns of B that have such elements (docs/definitions.md,
// section 6).
//
// Each such entry becomes what IEEE arithmetic gives for sum_h s(a_h) s(b_h), with s(x) = x for NaN and Inf, else the
// sign of x: NaN (the quiet one with all other bits clear) if a product is NaN or both infinities occur, else Inf with
// its sign.
//
// If ADDEND is defined, alpha times that is added to beta c as far as c is NaN or Inf (its finite entries count as
// zero).
//
// Macros: INPUT_A, INPUT_B, OUTPUT (double or float; with SIXTEEN defined BFloat16 or Float16); ADDEND (double or float), of c, or not defined; REALS: 1, or 2 if
// elements and entries are complex. Of x + y i and u + v i the real part of an entry then has the products x u and
// y (-v), the imaginary part x v and y u.
//
// a(b, row, h) = a[b * a_batch_stride + row * a_row_stride + h * a_k_stride], b(b, h, col) likewise, strides in real
// numbers; an imaginary part follows its real part. Batch strides are 0 where all entries share a matrix.
// a_description, b_description: int64 [6][a_batch * rows], [6][b_batch * cols].
//
// 256 threads; grid batch * ceil(rows / 128) * ceil(cols / 2048), all on x. A block owns 128 rows x 2048 columns.
// Phases:
// 1. Read which rows and columns are flagged; a block without any exits (nearly all do).
// 2. Go through the 32 x 32 tiles with flagged rows or columns, and through k in steps of 32: warps make four 32-bit
//    masks (NaN, Inf, zero, sign) of 32 elements of each row and column; a thread combines them for 4 entries.
// 3. Store the flagged entries of the tile.
#include "arithmetic/combination.cuh"
#ifdef SIXTEEN
#include "arithmetic/sixteen.cuh"
#endif
#include "hardware/launch.cuh"

typedef BitsOf<OUTPUT>::type Bits;

constexpr int BLOCK_ROWS = 128, BLOCK_COLS = 2048, NONFINITE = 5;  // the field of a description

// For 32 elements of a row: which are NaN, Inf, zero, negative.
struct Masks {
  uint32_t nan, infinite, zero, negative;
};

// The masks of 32 elements, lane by lane; called by all lanes of a warp.
template <typename T> __device__ __forceinline__ Masks masks_of(const T* x, int64_t stride, int64_t h, int64_t k) {
  typedef typename BitsOf<T>::type Word;
  constexpr Word SIGN = Word(1) << (8 * sizeof(T) - 1);
#ifdef SIXTEEN
  constexpr Word INFINITE = T::INFINITE;
#else
  constexpr Word INFINITE = sizeof(T) == 8 ? Word(0x7ffull << 52) : Word(0xffull << 23);
#endif
  // Elements beyond k count as 1: a product of signs is neither NaN nor Inf, so it has no effect.
  const Word bits = h < k ? reinterpret_cast<const Word*>(x)[h * stride] : Word(1);
  const Word magnitude = bits & ~SIGN;
  return {__ballot_sync(0xffffffffu, magnitude > INFINITE), __ballot_sync(0xffffffffu, magnitude == INFINITE),
          __ballot_sync(0xffffffffu, magnitude == 0), __ballot_sync(0xffffffffu, (bits & SIGN) != 0)};
}

extern "C" __global__ void __launch_bounds__(256, 3)
patch(const INPUT_A* __restrict__ a, const INPUT_B* __restrict__ b, const int64_t* __restrict__ a_description,
      const int64_t* __restrict__ b_description, OUTPUT* __restrict__ c, int64_t a_batch_stride, int64_t a_row_stride,
      int64_t a_k_stride, int64_t b_batch_stride, int64_t b_col_stride, int64_t b_k_stride, int64_t c_batch_stride,
      int64_t c_row_stride, int64_t c_col_stride, int64_t a_batch, int64_t b_batch, int64_t rows, int64_t cols,
      int64_t k COMBINATION) {
  __shared__ Masks of_row[32], of_col[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const uint32_t down = static_cast<uint32_t>((rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
  const uint32_t over = static_cast<uint32_t>((cols + BLOCK_COLS - 1) / BLOCK_COLS);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x % down) * BLOCK_ROWS;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x / down % over) * BLOCK_COLS;
  const int64_t last_row = smaller(first_row + BLOCK_ROWS, rows), last_col = smaller(first_col + BLOCK_COLS, cols);
  const int64_t at = blockIdx.x / down / over;
  const int64_t* const a_nonfinite = a_description + (NONFINITE * a_batch + (a_batch > 1 ? at : 0)) * rows;
  const int64_t* const b_nonfinite = b_description + (NONFINITE * b_batch + (b_batch > 1 ? at : 0)) * cols;

  // 1. Flags.
  bool flagged = threadIdx.x < last_row - first_row && a_nonfinite[first_row + threadIdx.x] != 0;
#pragma unroll
  for (int i = 0; i < BLOCK_COLS / 256; ++i) {
    const int64_t col = first_col + 256 * i + threadIdx.x;
    flagged = flagged || (col < last_col && b_nonfinite[col] != 0);
  }
  after_previous();  // descriptions are older than the kernel before this one, so they may be read without waiting
  if (!__syncthreads_or(flagged)) return;

  // 2. Tile by tile.
  a += at * a_batch_stride, b += at * b_batch_stride, c += at * c_batch_stride;
  const int64_t tile_rows = (last_row - first_row + 31) / 32, tiles = (last_col - first_col + 31) / 32 * tile_rows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row0 = first_row + tile % tile_rows * 32, col0 = first_col + tile / tile_rows * 32;
    const uint32_t row_flags = __ballot_sync(0xffffffffu, row0 + lane < last_row && a_nonfinite[row0 + lane] != 0);
    const uint32_t col_flags = __ballot_sync(0xffffffffu, col0 + lane < last_col && b_nonfinite[col0 + lane] != 0);
    if ((row_flags | col_flags) == 0) continue;  // the same in every warp, so all threads reach the barriers below

#pragma unroll 1
    for (int part = 0; part < REALS; ++part) {  // of the entries
      // Of entry (warp + 8 i, lane) of the tile: is a product NaN, +Inf, -Inf?
      uint32_t nan[4] = {}, positive[4] = {}, negative[4] = {};
#pragma unroll 1
      for (int term = 0; term < REALS; ++term) {  // parts `term` of A are multiplied by parts `term ^ part` of B
        const uint32_t turned = REALS == 2 && part == 0 && term == 1 ? ~0u : 0u;  // i^2 = -1
        for (int64_t h0 = 0; h0 < k; h0 += 32) {
          for (int i = warp; i < 32; i += 8) {
            const int64_t row = smaller(row0 + i, rows - 1), col = smaller(col0 + i, cols - 1);
            const Masks in_a = masks_of(a + row * a_row_stride + term, a_k_stride, h0 + lane, k);
            Masks in_b = masks_of(b + col * b_col_stride + (term ^ part), b_k_stride, h0 + lane, k);
            in_b.negative ^= turned;
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
      }

      // 3. Store.
      const int64_t col = col0 + lane;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = row0 + warp + 8 * i;
        if (row >= rows || col >= cols || ((row_flags >> (warp + 8 * i) | col_flags >> lane) & 1) == 0) continue;
        Bits bits = nan[i] != 0 || (positive[i] != 0 && negative[i] != 0) ? Special<OUTPUT>::nan()
                                                                          : Special<OUTPUT>::infinite(negative[i] != 0);
#ifdef ADDEND
        if (bits != Special<OUTPUT>::nan()) {
          bits = Special<OUTPUT>::infinite((negative[i] != 0) != (combination.alpha < 0.0));
          const ADDEND addend =
              combination.beta != 0.0
                  ? combination.c[at * combination.batch + row * combination.row_stride +
                                  col * combination.col_stride + part]
                  : ADDEND(0);
          // Inf + Inf is Inf; NaN, and an Inf of the other sign, make NaN.
          if (!is_finite(addend) && special_addend<OUTPUT>(combination.beta, addend) != bits)
            bits = Special<OUTPUT>::nan();
        }
#endif
        reinterpret_cast<Bits*>(c)[row * c_row_stride + col * c_col_stride + part] = bits;
      }
    }
  }
}
