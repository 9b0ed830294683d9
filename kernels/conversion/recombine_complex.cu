// Slice products of complex residues to results: both parts of C = RN(Cbar 2^-(mu_i + nu_j)), from exact integers, each
// rounded once (docs/definitions.md, section 9); or, if ADDEND is defined, of RN(alpha Cbar 2^-(mu_i + nu_j) + beta
// c_ij).
//
// Macros: OUTPUT (double or float), of a part; ADDEND (double or float), of a part of c, or not defined; MODULI;
// ROOTED: the first so many moduli have a root of -1, and so two slice products each, the others three; LIMBS: 32-bit
// limbs that hold a part of Cbar and its sign.
//
// planes holds the slice products, bytes in [0, m), modulus by modulus. A plane is [rows][ld], planes are plane_stride
// apart, batch entries plane_batch. ld and both strides are multiples of 4, as is the address, and a row has room for
// cols rounded up to 4 entries. mu is int32 [rows], nu int32 [cols], batch entries mu_batch and nu_batch apart. C(b,
// row, col) begins at c[b * c_batch + row * c_row_stride + col * c_col_stride], strides in real numbers, and its
// imaginary part follows its real part.
//
// With the macro LOWER = 1 entries above the diagonal need not be there, and blocks that have no others write nothing.
//
// Block (32, 8); grid (ceil(rows / 8), ceil(cols / 128), batch). A thread owns 4 neighbouring columns of a row. Phases:
// 1. load the slice products; 2. for each part: residues, integers, round; 3. store.
#include "arithmetic/crt.cuh"
#include "hardware/launch.cuh"
#include "arithmetic/residues.cuh"
#include "conversion/results.cuh"

typedef BitsOf<OUTPUT>::type Bits;

constexpr int PLANES = 2 * ROOTED + 3 * (MODULI - ROOTED);

struct Constants {
  CrtConstants<MODULI, LIMBS> crt;
  ComplexModulus of[MODULI];
};

// The residues of a part of the entries at 4 columns of a row; integer(j, ...) is that part of Cbar at column j.
struct Entries {
  uint32_t y[MODULI];

  __device__ __forceinline__ Entries(const uint32_t (&products)[PLANES], const Constants& constants, int part) {
#pragma unroll
    for (int t = 0; t < MODULI; ++t) {
      const int first = t < ROOTED ? 2 * t : 3 * t - ROOTED;
      const uint32_t third = t < ROOTED ? 0u : products[smaller(first + 2, PLANES - 1)];
      y[t] = four_residues_of_part(products[first], products[first + 1], third, constants.of[t], part);
    }
  }
  __device__ __forceinline__ void integer(int j, const Constants& constants, uint32_t (&limbs)[LIMBS]) const {
    chinese_remainder<MODULI, LIMBS>(y, j, constants.crt, limbs);
  }
};

extern "C" __global__ void __launch_bounds__(256, LIMBS <= 4 ? 2 : 1)
recombine_complex(const uint8_t* __restrict__ planes, int64_t plane_stride, int64_t plane_batch, int64_t ld,
                  const int32_t* __restrict__ mu, int64_t mu_batch, const int32_t* __restrict__ nu, int64_t nu_batch,
                  OUTPUT* __restrict__ c, int64_t c_batch, int64_t c_row_stride, int64_t c_col_stride, int64_t rows,
                  int64_t cols, const __grid_constant__ Constants constants COMBINATION) {
  after_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.y;
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x) * 4;
  if (row >= rows || col >= cols) return;
  if (LOWER && (blockIdx.x + 1) * 8 <= blockIdx.y * 128) return;
  const int64_t b = blockIdx.z;
  nu += b * nu_batch;

  // 1. Load.
  uint32_t products[PLANES];
  planes += b * plane_batch + row * ld + col;
#pragma unroll
  for (int t = 0; t < PLANES; ++t) products[t] = *reinterpret_cast<const uint32_t*>(planes + t * plane_stride);

  // 2. Residues, integers, round.
  const int exponent = -mu[b * mu_batch + row];
  Bits bits[2][4];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const Entries entries(products, constants, part);
#ifdef ADDEND
    const ADDEND* const addend = combination.c + (b * combination.batch + row * combination.row_stride +
                                                  col * combination.col_stride + part);
    combine_four<OUTPUT, LIMBS>(entries, constants, exponent, nu, col, cols, bits[part], combination.alpha,
                                combination.beta, addend, combination.col_stride);
#else
    round_four<OUTPUT, 8 * MODULI - 1, LIMBS>(entries, constants, exponent, nu, col, cols, bits[part], NoErrors());
#endif
  }

  // 3. Store: two columns make four neighbouring numbers.
  Bits* const out = reinterpret_cast<Bits*>(c) + b * c_batch + row * c_row_stride + col * c_col_stride;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const Bits four[4] = {bits[0][j], bits[1][j], bits[0][j + 1], bits[1][j + 1]};
    if (c_col_stride == 2 && col + j + 2 <= cols) {
      store_columns(out + 2 * j, four, 0, 4, 1);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (col + j + i / 2 < cols) out[(j + i / 2) * c_col_stride + i % 2] = four[i];
    }
  }
}
