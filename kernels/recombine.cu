// Slice products -> C = RN(Cbar 2^-(mu_i + nu_j)), from the exact integer, rounded once (docs/design.md, 5 to 7).
//
// Macros: OUTPUT (double or float); SLICES; DIGIT_BITS (0: residues; 8 or 7: digits); WORDS: 32-bit words that hold the
// integer with its sign (residues: Cbar, abs(Cbar) < M / 2; digits: V, without the factor 2^(r(p-1))); SUM64: 1 if the
// digit diagonals are int64; WINOGRAD: 1 if the residues are those of Winograd's seven products.
//
// planes: residues: bytes y_t in [0, m_t), SLICES planes; digits: int32 or int64 diagonals d = 2 .. p + 1, SLICES
// planes. Each is [rows][ld], planes plane_stride elements apart, batch entries plane_batch. ld and both strides are
// multiples of 4, the address is aligned to 4 bytes (residues) or 16 (digits), and a row holds cols rounded up to 4
// entries. mu is int32 [rows], nu int32 [cols], batch entries mu_batch and nu_batch apart. C(b, row, col) =
// c[b * c_batch + row * c_row_stride + col * c_col_stride], any strides; 16-byte stores where c_col_stride is 1 and
// everything is aligned.
//
// Block (32, 8); grid (ceil(rows / 8), ceil(cols / 128), batch). A thread owns 4 neighbouring columns of a row.
//
// With WINOGRAD, "batch entries" of the planes are the seven products P1 .. P7 of halves; C is one matrix, of four quadrants
//   P1 + P2             P1 + P6 + P5 + P3
//   P1 + P6 + P7 + P4   P1 + P6 + P7 + P5      (modulo m_t),
// the first with half_rows x half_cols entries; a plane has less than 2^32. Grid (4 ceil(half_rows / 8), ceil(half_cols / 128)): blocks that read
// the same places of planes follow one another.
#include "crt.cuh"
#include "launch.cuh"
#include "residues.cuh"
#include "rounding.cuh"
#if WINOGRAD
#include "winograd.cuh"
#endif

typedef BitsOf<OUTPUT>::type Bits;

#if DIGIT_BITS == 0

typedef uint8_t Plane;
#if WINOGRAD
#define MORE_ARGUMENTS \
  , const CrtConstants<SLICES, WORDS> constants, int64_t half_rows, int64_t half_cols, const AccumulatorModuli moduli
#else
#define MORE_ARGUMENTS , const CrtConstants<SLICES, WORDS> constants
#endif
constexpr int BITS = 8 * SLICES - 1;

// All planes at 4 columns, then the integer at each of them.
struct Entries {
  uint32_t y[SLICES];

  __device__ __forceinline__ void load(const Plane* p, int64_t plane_stride) {
#pragma unroll
    for (int t = 0; t < SLICES; ++t) y[t] = *reinterpret_cast<const uint32_t*>(p + t * plane_stride);
  }
#if WINOGRAD
  // `at`: where in each of the seven products, which are `each` bytes apart.
  __device__ __forceinline__ void load(const Plane* p, uint32_t at, int64_t plane_stride, int64_t each, int quadrant,
                                       const AccumulatorModuli& moduli) {
    const auto four = [&](int product, int t) {
      return *reinterpret_cast<const uint32_t*>(p + (product * each + t * plane_stride) + at);
    };
    if (quadrant == 0) {
#pragma unroll
      for (int t = 0; t < SLICES; ++t) y[t] = product_sum(four(0, t), four(1, t), Modulus(moduli.of[t].modulus));
    } else {
      const int third = quadrant == 1 ? 4 : 6, fourth = quadrant == 1 ? 2 : quadrant == 2 ? 3 : 4;
#pragma unroll
      for (int t = 0; t < SLICES; ++t)
        y[t] = product_sum(four(0, t), four(5, t), four(third, t), four(fourth, t), Modulus(moduli.of[t].modulus));
    }
  }
#endif
  __device__ __forceinline__ void integer(int j, const CrtConstants<SLICES, WORDS>& constants,
                                          uint32_t (&words)[WORDS]) const {
    chinese_remainder<SLICES, WORDS>(y, j, constants, words);
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
constexpr int BITS = 32 * WORDS - 1;

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

  // V = sum_d 2^(r (p + 1 - d)) D_d. Columns of 32 bits collect signed 64-bit sums, carries wait until the end: shifts
  // in one column differ by r at least, so the sum stays below 2^31 * 2^32.
  __device__ __forceinline__ void integer(int j, const NoConstants&, uint32_t (&words)[WORDS]) const {
    int64_t column[WORDS + 2];
#pragma unroll
    for (int w = 0; w < WORDS + 2; ++w) column[w] = 0;
#pragma unroll
    for (int d = 0; d < SLICES; ++d) {
      const int shift = DIGIT_BITS * (SLICES - 1 - d), w = shift / 32, bit = shift % 32;
      if (w >= WORDS) continue;
#if SUM64
      const uint64_t value = static_cast<uint64_t>(diagonal[d][j]), low = value << bit;
      column[w] += low_word(low);
      column[w + 1] += high_word(low);
      column[w + 2] += bit == 0 ? diagonal[d][j] >> 63 : diagonal[d][j] >> (64 - (bit == 0 ? 1 : bit));
#else
      column[w] += static_cast<int64_t>(diagonal[d][j]) * static_cast<int64_t>(1u << bit);
#endif
    }
    int64_t carry = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
      carry += column[w];
      words[w] = low_word(static_cast<uint64_t>(carry));
      carry >>= 32;
    }
  }
};

#endif

__device__ __forceinline__ void store_four(uint64_t* c, const uint64_t (&bits)[4]) {
  ulonglong2* const out = reinterpret_cast<ulonglong2*>(c);
  out[0] = make_ulonglong2(bits[0], bits[1]);
  out[1] = make_ulonglong2(bits[2], bits[3]);
}
__device__ __forceinline__ void store_four(uint32_t* c, const uint32_t (&bits)[4]) {
  *reinterpret_cast<uint4*>(c) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
}

extern "C" __global__ void __launch_bounds__(256, WORDS <= 4 ? 3 : 2)
recombine(const Plane* __restrict__ planes, int64_t plane_stride, int64_t plane_batch, int64_t ld,
          const int32_t* __restrict__ mu, int64_t mu_batch, const int32_t* __restrict__ nu, int64_t nu_batch,
          OUTPUT* __restrict__ c, int64_t c_batch, int64_t c_row_stride, int64_t c_col_stride, int64_t rows,
          int64_t cols MORE_ARGUMENTS) {
  after_previous();
#if DIGIT_BITS != 0
  const NoConstants constants;
  const int factor = DIGIT_BITS * (SLICES - 1);
#else
  const int factor = 0;
#endif
#if WINOGRAD
  const int quadrant = blockIdx.x % 4;
  const int64_t block = blockIdx.x / 4;
#else
  const int64_t block = blockIdx.x;
#endif
  int64_t row = block * 8 + threadIdx.y;
  int64_t col = (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x) * 4;
  const int64_t at = row * ld + col;
#if WINOGRAD
  if (row >= half_rows || col >= half_cols) return;
  if (quadrant / 2 == 1) row += half_rows;
  if (quadrant % 2 == 1) col += half_cols;
#endif
  if (row >= rows || col >= cols) return;
  const int64_t b = blockIdx.z;
  nu += b * nu_batch;

  Entries entries;
#if WINOGRAD
  entries.load(planes, static_cast<uint32_t>(at), plane_stride, plane_batch, quadrant, moduli);
#else
  entries.load(planes + b * plane_batch + at, plane_stride);
#endif
  const int exponent = factor - mu[b * mu_batch + row];
  int nu_four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) nu_four[j] = nu[smaller(col + j, cols - 1)];

  Bits bits[4];
  uint32_t words[4][WORDS];
  bool rounded = true;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    entries.integer(j, constants, words[j]);
    OUTPUT value;
    rounded = round_by_addition<BITS>(words[j], exponent - nu_four[j], value) && rounded;
    bits[j] = bits_of(value);
  }
  if (!rounded) {  // rare
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = Rounding<OUTPUT>::bits(words[j], exponent - nu_four[j]);
  }

  Bits* const out = reinterpret_cast<Bits*>(c) + b * c_batch + row * c_row_stride + col * c_col_stride;
  if (c_col_stride == 1 && col + 4 <= cols && (reinterpret_cast<uint64_t>(out) & 15) == 0) {
    store_four(out, bits);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (col + j < cols) out[j * c_col_stride] = bits[j];
  }
}
