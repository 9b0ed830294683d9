// The entries of a product of digits in float64 that digit_gemm_sm90.cu and diagonal_gemm_sm90.cu do not round
// correctly, because exponents lead beyond the normal numbers: subnormal results, and Inf. This kernel runs after them
// and overwrites those entries; everywhere else it does nothing.
//
//   C_ij = RN(V_ij 2^(DIGIT_BITS (SLICES - 1) - mu_i - nu_j)), from the exact integer V
//
// Macros: SLICES, up to 7; DIGIT_BITS (8 or 7).
//
// Operands, exponents and C as in those kernels. 256 threads; grid batch * ceil(m / 128) * ceil(n / 128), all on x.
// Such data are rare, so speed does not matter:
// 1. A block reads the exponents of its 128 rows and 128 columns, and exits if none is far from zero.
// 2. Otherwise it goes through its region in tiles of 32 x 32 entries. Threads multiply four entries each by dp4a, from
//    slabs of 64 along k in shared memory.
// 3. It joins the diagonals to V, rounds and stores.
#if SLICES <= 3
#define OTHER_TILE
constexpr int ROWS = 128, COLS = 128, STAGES = 1;
#endif
#include "arithmetic/diagonals.cuh"
#include "hardware/launch.cuh"
#include "products/ring_sm90.cuh"
#include "arithmetic/rounding.cuh"
#include "hardware/tiles.cuh"

constexpr int REGION = 128, TILE = 32, SLAB = 64;  // SLAB: indices of k in shared memory at a time
constexpr int FAR = 480;  // if abs(mu_i), abs(nu_j) <= FAR, C_ij is normal, or it is exact

__device__ __forceinline__ bool is_far(int32_t exponent) { return static_cast<uint32_t>(exponent + FAR) > 2u * FAR; }

// A slab of TILE rows of each slice, four bytes in a limb; one limb of padding avoids bank conflicts.
typedef uint32_t Shared[SLICES][TILE][SLAB / 4 + 1];

// Copies 16 bytes of each slice of one row into shared memory: row `row` of an operand in tiles of `tile` rows, at
// position r of its tile, from h on. Called by TILE * 4 threads, four for a row.
__device__ __forceinline__ void load(Shared& to, const uint8_t* from, int64_t slice, int row, int tile, int r, int h,
                                     int blocks) {
  const int at = threadIdx.x % (TILE * 4) / 4, piece = threadIdx.x % 4;
  from += (static_cast<int64_t>(row / tile) * blocks + h / 128) * (tile * 128) + tile_offset(r, h % 128 / 16 + piece);
#pragma unroll
  for (int s = 0; s < SLICES; ++s) {
    const uint4 v = *reinterpret_cast<const uint4*>(from + s * slice);
    uint32_t* const limbs = to[s][at] + 4 * piece;
    limbs[0] = v.x, limbs[1] = v.y, limbs[2] = v.z, limbs[3] = v.w;
  }
}

extern "C" __global__ void __launch_bounds__(256)
digit_far(const Operand a, const Operand b, double* __restrict__ c, const int32_t* __restrict__ mu,
          const int32_t* __restrict__ nu, int64_t c_batch, int64_t c_row_stride, int64_t mu_batch, int64_t nu_batch,
          int m, int n, int blocks) {
  after_previous();
  __shared__ Shared left, right;
  // 1. Is any exponent of this region far?
  const uint32_t across = (n + REGION - 1) / REGION, down = (m + REGION - 1) / REGION;
  const int first_row = static_cast<int>(blockIdx.x / across % down) * REGION;
  const int first_col = static_cast<int>(blockIdx.x % across) * REGION;
  const int64_t entry = blockIdx.x / across / down;
  mu += entry * mu_batch;
  nu += entry * nu_batch;
  const int of_region = threadIdx.x % REGION;
  const int32_t exponent =
      threadIdx.x < REGION ? mu[smaller(first_row + of_region, m - 1)] : nu[smaller(first_col + of_region, n - 1)];
  if (!__syncthreads_or(is_far(exponent))) return;

  // 2. Multiply, tile by tile.
  const uint8_t* const from_a = a.slices + entry * a.batch;
  const uint8_t* const from_b = b.slices + entry * b.batch;
  for (int tile = 0; tile < REGION / TILE * (REGION / TILE); ++tile) {
    const int row0 = first_row + tile / (REGION / TILE) * TILE, col0 = first_col + tile % (REGION / TILE) * TILE;
    if (row0 >= m || col0 >= n) continue;
    int32_t sums[SLICES][4] = {};  // diagonals, the least significant first, of four rows
    for (int h = 0; h < 128 * blocks; h += SLAB) {
      __syncthreads();
      const int at = threadIdx.x % (TILE * 4) / 4;
      if (threadIdx.x < TILE * 4) {
        load(left, from_a, a.slice, row0 + at, ROWS, (row0 + at) % ROWS, h, blocks);
      } else {
        load(right, from_b, b.slice, col0 + at, COLS, permuted_column<4>((col0 + at) % COLS), h, blocks);
      }
      __syncthreads();
      for (int limb = 0; limb < SLAB / 4; ++limb) {
        int32_t y[SLICES];
#pragma unroll
        for (int s = 0; s < SLICES; ++s) y[s] = static_cast<int32_t>(right[s][threadIdx.x % TILE][limb]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int s = 0; s < SLICES; ++s) {
            const int32_t x = static_cast<int32_t>(left[s][threadIdx.x / TILE * 4 + i][limb]);
#pragma unroll
            for (int d = 0; d < SLICES - s; ++d) sums[d][i] = __dp4a(x, y[d + s], sums[d][i]);
          }
      }
    }
    // 3. Join, round, store.
    const int col = col0 + threadIdx.x % TILE;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + threadIdx.x / TILE * 4 + i;
      int32_t top = sums[0][i];
      uint32_t low[low_limbs(SLICES)] = {}, limbs[DIAGONAL_LIMBS];
#pragma unroll
      for (int d = 1; d < SLICES; ++d) {
        low[d - 1] = static_cast<uint32_t>(top) & ((1u << DIGIT_BITS) - 1);
        top = (top >> DIGIT_BITS) + sums[d][i];
      }
      if (row >= m || col >= n) continue;
      join_diagonals<SLICES, DIGIT_BITS>(top, low, 0, limbs);
      const uint64_t bits = Rounding<double>::bits(limbs, DIGIT_BITS * (SLICES - 1) - mu[row] - nu[col]);
      c[entry * c_batch + row * c_row_stride + col] = double_of(bits);
    }
  }
}
