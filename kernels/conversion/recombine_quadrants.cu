// The result of one level of Strassen's product, in Winograd's form, of one matrix: the residues of seven products of
// half blocks to C = RN(Cbar 2^-(mu_i + nu_j)) (docs/definitions.md, sections 3 to 5); or, if ADDEND is defined, to
// RN(alpha Cbar 2^-(mu_i + nu_j) + beta c_ij).
//
// Macros: OUTPUT and ADDEND (double or float), SLICES and LIMBS as in recombine.cu, for residues.
//
// planes holds the bytes of products P1 .. P7, [SLICES][7][half_rows][ld], `each` bytes a product; ld and the address
// are multiples of 4. Modulo m_t, C has the quadrants
//   P1 + P2             P1 + P6 + P5 + P3
//   P1 + P6 + P7 + P4   P1 + P6 + P7 + P5
// of which the first has half_rows x half_cols entries, half_cols a multiple of 4. mu, nu and C as in recombine.cu.
//
// With the macro PROJECTED the integers are also projected (projecting.cuh). With the macro UNDECIDED = 1, not with
// ADDEND, undecided entries are listed (listing.cuh).
//
// Block (32, 4); grid ceil(half_rows / 4) * ceil(min(half_cols, cols) / 128), all on x. A thread owns 4 neighbouring
// columns of a row in each quadrant. Phases: 1. for each modulus: load seven products, add; 2. for each quadrant:
// integers, round, store.
#include "arithmetic/crt.cuh"
#include "hardware/launch.cuh"
#include "arithmetic/residues.cuh"
#include "conversion/results.cuh"
#include "arithmetic/winograd.cuh"
#ifdef PROJECTED
#include "conversion/projecting.cuh"
#endif
#ifdef UNDECIDED
#include "conversion/listing.cuh"
#endif

typedef BitsOf<OUTPUT>::type Bits;

#ifdef ADDEND
constexpr int BLOCKS = 2;
#else
constexpr int BLOCKS = SLICES <= 20 ? 3 : 2, BITS = 8 * SLICES - 1;
#endif

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

// The bytes y_t of C at four columns of a row; integer(j, ...) is Cbar at column j.
struct Entries {
  uint32_t y[SLICES];

  __device__ __forceinline__ void integer(int j, const CrtConstants<SLICES, LIMBS>& constants,
                                          uint32_t (&limbs)[LIMBS]) const {
    chinese_remainder<SLICES, LIMBS>(y, j, constants, limbs);
  }
};

extern "C" __global__ void __launch_bounds__(128, BLOCKS)
recombine_quadrants(const uint8_t* __restrict__ planes, int64_t each, int64_t ld, const int32_t* __restrict__ mu,
                    const int32_t* __restrict__ nu, OUTPUT* __restrict__ c, int64_t c_row_stride, int64_t c_col_stride,
                    int64_t rows, int64_t cols, const CrtConstants<SLICES, LIMBS> constants, int64_t half_rows,
                    int64_t half_cols, const AccumulatorModuli moduli COMBINATION PROJECTION LISTING) {
  after_previous();
  const uint32_t across = static_cast<uint32_t>((smaller(half_cols, cols) + 127) / 128);
  const int64_t row = static_cast<int64_t>(blockIdx.x / across) * 4 + threadIdx.y;
  const int64_t col = (static_cast<int64_t>(blockIdx.x % across) * 32 + threadIdx.x) * 4;
  const bool inside = col < smaller(half_cols, cols);
#ifdef UNDECIDED
  __shared__ Columns columns[2];
  const int64_t first_col = static_cast<int64_t>(blockIdx.x % across) * 128;
  columns[0].find(listing, nu, 0, first_col, cols);
  columns[1].find(listing, nu, 0, first_col + half_cols, cols);
  __syncthreads();
#endif
#ifdef PROJECTED
  if (row >= smaller(half_rows, rows)) return;  // lanes beyond the last column stay, since a warp sums its row together
#else
  if (row >= smaller(half_rows, rows) || !inside) return;
#endif

  // 1. Add.
  Entries quadrant[4];
  const uint8_t* at = planes + (row * ld + col);
  if (inside) {
#pragma unroll
    for (int t = 0; t < SLICES; ++t) {
      uint32_t product[7], sum[4];
#pragma unroll
      for (int i = 0; i < 7; ++i, at += each) product[i] = *reinterpret_cast<const uint32_t*>(at);
      product_sums(product, Modulus(moduli.of[t].modulus), sum);
#pragma unroll
      for (int q = 0; q < 4; ++q) quadrant[q].y[t] = sum[q];
    }
  }
  // 2. Combine, round, store.
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int64_t r = row + q / 2 * half_rows, h = col + q % 2 * half_cols;
#ifdef PROJECTED
    if (r >= rows) continue;
    uint64_t sums[PRIMES] = {0, 0};
    const Projected<Entries> of_row = {quadrant[q], projection.x + h, cols - h, sums};
    if (inside && h < cols) {
#else
    if (r >= rows || h >= cols) continue;
    const Entries& of_row = quadrant[q];
    {
#endif
    const auto place = [&] { return reinterpret_cast<Bits*>(c) + r * c_row_stride + h * c_col_stride; };
#ifdef ADDEND
    combine_and_store<OUTPUT, LIMBS>(of_row, constants, -mu[r], nu, h, cols, place, c_col_stride,
                                     combination.alpha, combination.beta,
                                     combination.c + (r * combination.row_stride + h * combination.col_stride),
                                     combination.col_stride);
#elif defined(UNDECIDED)
    const Errors<Summands<OUTPUT>::unit<BITS, LIMBS>()> errors(columns[q % 2], OfRow(listing, mu[r], 0, r));
    const uint32_t undecided =
        round_and_store<OUTPUT, BITS, LIMBS>(of_row, constants, -mu[r], nu, h, cols, place, c_col_stride, errors);
    list_entries<false>(listing, with_errors(undecided, errors), 0, r, h, cols);
#else
    round_and_store<OUTPUT, BITS, LIMBS>(of_row, constants, -mu[r], nu, h, cols, place, c_col_stride);
#endif
    }
#ifdef PROJECTED
    add_to_row(sums, projection.sums + r * PRIMES);
#endif
  }
}
