// Slice products to results: C = RN(Cbar 2^-(mu_i + nu_j)), from the exact integer Cbar, rounded once
// (docs/definitions.md, sections 3 to 5); or, if ADDEND is defined, RN(alpha Cbar 2^-(mu_i + nu_j) + beta c_ij).
//
// Macros: OUTPUT (double or float); ADDEND (double or float), of c, or not defined; SLICES; DIGIT_BITS (0: residues; 8
// or 7: digits); LIMBS: 32-bit limbs that hold the integer and its sign (residues: Cbar, abs(Cbar) < M / 2; digits: V,
// Cbar without the factor 2^(r (p - 1))); SUM64: 1 if the diagonals are int64; TOGETHER: rows of a thread, all loaded
// before the first is combined.
//
// planes holds SLICES planes: of residues bytes y_t in [0, m_t), of digits int32 or int64 diagonals d = 2 .. p + 1. A
// plane is [rows][ld], planes are plane_stride elements apart, batch entries plane_batch. ld and both strides are
// multiples of 4, the address is aligned to 4 bytes (residues) or 16 (digits), and a row has room for cols rounded up
// to 4 entries. mu is int32 [rows], nu int32 [cols], batch entries mu_batch and nu_batch apart. C(b, row, col) = c[b *
// c_batch + row * c_row_stride + col * c_col_stride], any strides; 16-byte stores where c_col_stride is 1 and
// everything is aligned.
//
// With the macro PROJECTED the integers are also projected (projecting.cuh); then LOWER is 0.
//
// With the macro UNDECIDED = 1, of residues alone and not with ADDEND, undecided entries are listed (listing.cuh); then
// TOGETHER is 1.
//
// With the macro LOWER = 1 entries above the diagonal need not be there, and blocks that have no others write nothing.
//
// Block (32, 8); grid (ceil(rows / (8 TOGETHER)), ceil(cols / 128), batch). A thread owns 4 neighbouring columns of
// TOGETHER rows, 8 apart. Phases: 1. load the planes of all its rows; 2. for each row: integers, round, store.
#include "arithmetic/crt.cuh"
#include "hardware/launch.cuh"
#include "arithmetic/residues.cuh"
#include "conversion/results.cuh"
#ifdef PROJECTED
#include "conversion/projecting.cuh"
#endif
#ifdef UNDECIDED
#include "conversion/listing.cuh"
#endif

typedef BitsOf<OUTPUT>::type Bits;

#ifdef PROJECTED
#define PROJECTION , const Projection projection
#else
#define PROJECTION
#endif
#ifdef UNDECIDED
#define LISTING , const Listing listing
#else
#define LISTING
#endif

#if DIGIT_BITS == 0

typedef uint8_t Plane;
#define MORE_ARGUMENTS , const CrtConstants<SLICES, LIMBS> constants

// The bytes of all planes at 4 columns of a row; integer(j, ...) is Cbar at column j.
struct Entries {
  uint32_t y[SLICES];

  __device__ __forceinline__ void load(const Plane* p, int64_t plane_stride) {
#pragma unroll
    for (int t = 0; t < SLICES; ++t) y[t] = *reinterpret_cast<const uint32_t*>(p + t * plane_stride);
  }
  __device__ __forceinline__ void integer(int j, const CrtConstants<SLICES, LIMBS>& constants,
                                          uint32_t (&limbs)[LIMBS]) const {
    chinese_remainder<SLICES, LIMBS>(y, j, constants, limbs);
  }
};

#else

#if SUM64
typedef int64_t Plane;
#else
typedef int32_t Plane;
#endif
#define MORE_ARGUMENTS
struct NoConstants {};

// The diagonals at 4 columns of a row; integer(j, ...) is V at column j.
struct Entries {
  Plane diagonal[SLICES][4];

  __device__ __forceinline__ void load(const Plane* p, int64_t plane_stride) {
#pragma unroll
    for (int d = 0; d < SLICES; ++d) {
#if SUM64
      const longlong2* const at = reinterpret_cast<const longlong2*>(p + d * plane_stride);
      const longlong2 a = at[0], b = at[1];
      diagonal[d][0] = a.x, diagonal[d][1] = a.y, diagonal[d][2] = b.x, diagonal[d][3] = b.y;
#else
      const int4 a = *reinterpret_cast<const int4*>(p + d * plane_stride);
      diagonal[d][0] = a.x, diagonal[d][1] = a.y, diagonal[d][2] = a.z, diagonal[d][3] = a.w;
#endif
    }
  }

  // V = sum_d 2^(r (p + 1 - d)) D_d. 64-bit columns, 32 bits apart, collect the shifted diagonals, and carries wait
  // until the end: shifts that fall into the same column differ by at least r, so a column stays below 2^31 * 2^32.
  __device__ __forceinline__ void integer(int j, const NoConstants&, uint32_t (&limbs)[LIMBS]) const {
    int64_t column[LIMBS + 2];
#pragma unroll
    for (int w = 0; w < LIMBS + 2; ++w) column[w] = 0;
#pragma unroll
    for (int d = 0; d < SLICES; ++d) {
      const int shift = DIGIT_BITS * (SLICES - 1 - d), w = shift / 32, bit = shift % 32;
      if (w >= LIMBS) continue;
#if SUM64
      const uint64_t value = static_cast<uint64_t>(diagonal[d][j]), low = value << bit;
      column[w] += low_limb(low);
      column[w + 1] += high_limb(low);
      column[w + 2] += bit == 0 ? diagonal[d][j] >> 63 : diagonal[d][j] >> (64 - (bit == 0 ? 1 : bit));
#else
      column[w] += static_cast<int64_t>(diagonal[d][j]) * static_cast<int64_t>(1u << bit);
#endif
    }
    int64_t carry = 0;
#pragma unroll
    for (int w = 0; w < LIMBS; ++w) {
      carry += column[w];
      limbs[w] = low_limb(static_cast<uint64_t>(carry));
      carry >>= 32;
    }
  }
};

#endif

#ifdef ADDEND
constexpr int BLOCKS = LIMBS <= 4 ? 2 : 1;
#elif DIGIT_BITS != 0
constexpr int BLOCKS = LIMBS <= 4 ? 3 : 2, BITS = 32 * LIMBS - 1;
#else
// Three blocks of 80 registers a thread, as far as these hold all but a few numbers.
#if !defined(UNDECIDED)
constexpr int MOST = 22;
#elif !defined(PROJECTED) && !(__CUDA_ARCH__ >= 1200)
constexpr int MOST = 21;
#else
constexpr int MOST = 0;
#endif
constexpr int BLOCKS = SLICES <= MOST ? 3 : 2, BITS = 8 * SLICES - 1;
#endif

extern "C" __global__ void __launch_bounds__(256, BLOCKS)
recombine(const Plane* __restrict__ planes, int64_t plane_stride, int64_t plane_batch, int64_t ld,
          const int32_t* __restrict__ mu, int64_t mu_batch, const int32_t* __restrict__ nu, int64_t nu_batch,
          OUTPUT* __restrict__ c, int64_t c_batch, int64_t c_row_stride, int64_t c_col_stride, int64_t rows,
          int64_t cols MORE_ARGUMENTS COMBINATION PROJECTION LISTING) {
  after_previous();
#if DIGIT_BITS != 0
  const NoConstants constants;
#endif
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * (8 * TOGETHER) + threadIdx.y;
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x) * 4;
  const int64_t b = blockIdx.z;
  nu += b * nu_batch;
  if (LOWER && (blockIdx.x + 1) * (8 * TOGETHER) <= blockIdx.y * 128) return;
#ifdef PROJECTED
  // Lanes beyond the last column stay, since a warp sums its row together.
  const bool inside = col < cols;
#else
  constexpr bool inside = true;
#ifndef UNDECIDED
  if (row0 >= rows || col >= cols) return;
#endif
#endif

  // 1. Load.
  Entries entries[TOGETHER];
#pragma unroll
  for (int i = 0; i < TOGETHER; ++i)
    if (col < cols && row0 + 8 * i < rows) entries[i].load(planes + b * plane_batch + (row0 + 8 * i) * ld + col, plane_stride);
#ifdef UNDECIDED
  // What errors need is on its way together with that.
  static_assert(TOGETHER == 1, "");
  __shared__ Columns columns;
  const int64_t own = smaller(row0, rows - 1);
  const int mu_own = mu[b * mu_batch + own];
  const OfRow of_own(listing, mu_own, b, own);
  columns.find(listing, nu, b, static_cast<int64_t>(blockIdx.y) * 128, cols);
  __syncthreads();
#endif
#ifdef PROJECTED
  if (row0 >= rows) return;
#elif defined(UNDECIDED)
  if (row0 >= rows || col >= cols) return;
#endif
  // 2. Combine, round, store.
#pragma unroll
  for (int i = 0; i < TOGETHER; ++i) {
    const int64_t row = row0 + 8 * i;
    if (row >= rows) return;
#ifdef UNDECIDED
    const int exponent = -mu_own;
#else
    const int exponent = (DIGIT_BITS == 0 ? 0 : DIGIT_BITS * (SLICES - 1)) - mu[b * mu_batch + row];
#endif
#ifdef PROJECTED
    uint64_t sums[PRIMES] = {0, 0};
    const Projected<Entries> of_row = {entries[i], projection.x + col, cols - col, sums};
#else
    const Entries& of_row = entries[i];
#endif
    if (inside) {
    const auto place = [&] {
      return reinterpret_cast<Bits*>(c) + b * c_batch + row * c_row_stride + col * c_col_stride;
    };
#ifdef ADDEND
    const ADDEND* const addend =
        combination.c + (b * combination.batch + row * combination.row_stride + col * combination.col_stride);
    combine_and_store<OUTPUT, LIMBS>(of_row, constants, exponent, nu, col, cols, place, c_col_stride,
                                     combination.alpha, combination.beta, addend, combination.col_stride);
#elif defined(UNDECIDED)
    const Errors<Summands<OUTPUT>::unit<BITS, LIMBS>()> errors(columns, of_own);
    const uint32_t undecided =
        round_and_store<OUTPUT, BITS, LIMBS>(of_row, constants, exponent, nu, col, cols, place, c_col_stride, errors);
    list_entries<LOWER != 0>(listing, with_errors(undecided, errors), b, row, col, cols);
#else
    round_and_store<OUTPUT, BITS, LIMBS>(of_row, constants, exponent, nu, col, cols, place, c_col_stride);
#endif
    }
#ifdef PROJECTED
    add_to_row(sums, projection.sums + b * projection.sums_batch + row * PRIMES);
#endif
  }
}
