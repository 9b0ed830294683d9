// Residue products with few inner indices, and their results, in one kernel: C = RN(Cbar 2^-(mu_i + nu_j)). A block has
// the accumulators of all moduli for its tile of C, so nothing is written but C. The bits are those of residue_gemm and
// recombine.cu: the same integers, rounded by the same functions.
//
// Macros: ROUNDED: 1, or 0 to leave the bytes y_t = (A_t B_t) mod m_t at y[t * y_stride + batch entry * y_batch + row *
// ld + column], ld a multiple of 4, for what else may become of a product; OUTPUT (double or float); SLICES: the moduli,
// 4 to 18; LIMBS: 32-bit limbs of Cbar and its sign; STEPS: steps of 32 inner indices, 1 to 4.
//
// a and b are residues in [0, m_t) in tiles (hardware/tiles.cuh) of ROWS rows of A and of COLS columns of B, NEIGHBOURS
// = 4, one block of 128 inner indices; tiles of a modulus follow one another. Bytes beyond 32 STEPS are not read.
//
// What bounds it, for 14 residues and k = 64, by entry of C (a warp has 32 entries in the time of one, an H100 132 x 4
// warps in a clock): 42 instructions to add accumulators up, 80 for Chinese remainders and rounding, 14 to multiply and
// load, 2 to copy; 39 clocks of tensor cores; 84 clocks of shared memory (168 for k = 128); 23 bytes from the
// second-level cache, 8 bytes to memory. residue_gemm and recombine.cu write and read 14 bytes more.
//
// Launch: 384 threads, any number of blocks on x; each multiplies every gridDim.x-th tile. STAGES * STAGE_BYTES bytes
// of dynamic shared memory, a ring of stages that hold the tiles of one group of moduli (crt.cuh):
//
//   cp.async       group g + 2 of the tile, or of the next tile  -> stage s + 2
//   mma.sync       stage s, modulus by modulus; the accumulators are added to the z of the group at once
//   after the last group: integers, rounding, stores, while the groups of the next tile arrive
//
// 12 warps, 6 x 2, each with 16 rows x 32 columns of the tile; a lane has two rows, of each two times four neighbouring
// columns. Its 16 entries have GROUPS registers each.
#include "arithmetic/residues.cuh"
#include "arithmetic/sums_of_groups.cuh"
#include "conversion/results.cuh"
#include "hardware/launch.cuh"
#include "hardware/mma.cuh"
#include "hardware/ptx.cuh"
#include "hardware/tiles.cuh"

#define store_four store_four_of_product
#include "products/product.cuh"
#undef store_four

constexpr int ROWS = 96, COLS = 64, DEPTH = 128, THREADS = 384;
constexpr int A_BYTES = ROWS * DEPTH, MODULUS_BYTES = (ROWS + COLS) * DEPTH;
constexpr int GROUPS = crt_groups(SLICES), OF_GROUP = smaller(SLICES, 3);
constexpr int STAGES = 3, STAGE_BYTES = OF_GROUP * MODULUS_BYTES;

#if ROUNDED

constexpr int BITS = 8 * SLICES - 1;
typedef BitsOf<OUTPUT>::type Bits;
#define RESULT const Output<OUTPUT> out, const CrtConstants<SLICES, LIMBS> crt, const GroupSums<SLICES> sums
#else
#define RESULT uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld, int m, const AccumulatorModuli moduli
#endif
static_assert(GROUPS >= STAGES - 1, "copies are at most a tile ahead");

// Tile number w: matrix by matrix, in it group by group of `group` rows of tiles, in a group column by column.
struct Tiles {
  int rows, columns;  // of tiles, in one matrix
  int group;
  int all;  // of all matrices
};
// Where a tile lies in C, and its first bytes in the first slices of the operands.
struct Tile {
  const uint8_t *a, *b;
  int matrix, i, j;

  __device__ __forceinline__ Tile(uint32_t w, const Tiles& tiles, const Operand& left, const Operand& right) {
    const uint32_t each = tiles.rows * tiles.columns, in_group = tiles.group * tiles.columns;
    matrix = w / each;
    const uint32_t rest = w % each, first = rest / in_group * tiles.group, q = rest % in_group;
    const uint32_t height = smaller<uint32_t>(tiles.group, tiles.rows - first);
    i = first + q % height, j = q / height;
    a = left.slices + matrix * left.batch + static_cast<int64_t>(i) * A_BYTES;
    b = right.slices + matrix * right.batch + static_cast<int64_t>(j) * (COLS * DEPTH);
  }
};

// Copies the pieces of `LINES` rows of a tile that are read, from a thread's first one on.
template <int LINES> __device__ __forceinline__ void copy_rows(const Destination& to, int at, const uint8_t* from) {
  constexpr int PIECES = 2 * STEPS, AT_ONCE = THREADS / PIECES;  // a multiple of 8: pieces stand alike in all rows
  const int row = threadIdx.x / PIECES, own = tile_offset(row, threadIdx.x % PIECES);
#pragma unroll
  for (int i = 0; i < (LINES + AT_ONCE - 1) / AT_ONCE; ++i)
    if ((i + 1) * AT_ONCE <= LINES || row < LINES - i * AT_ONCE)
      copy_16_bytes(to, at + own + i * AT_ONCE * DEPTH, reinterpret_cast<const uint4*>(from + own + i * AT_ONCE * DEPTH));
}

#if ROUNDED
// The entries of four neighbouring columns of a row, by the z of all groups.
struct Entries {
  const uint32_t (&z)[GROUPS][16];
  int first;  // of the 16

  __device__ __forceinline__ void integer(int j, const CrtConstants<SLICES, LIMBS>& constants,
                                          uint32_t (&limbs)[LIMBS]) const {
    const int entry = first + 4 * (j / 2) + j % 2;
    integer_of_groups<SLICES, LIMBS>([&](int g) { return z[g][entry]; }, constants, limbs);
  }
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
thin_gemm(const Operand a, const Operand b, const Tiles tiles, RESULT) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  after_previous();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, down = warp / 2 * 16, across = warp % 2 * 32;

  // Starts the copies of group g of a tile to a stage.
  const auto copy = [&](const Tile& tile, int g, int stage) {
    const Destination to(dynamic + stage * STAGE_BYTES);
    const int t = crt_start(SLICES, g), size = crt_start(SLICES, g + 1) - t;
#pragma unroll
    for (int i = 0; i < OF_GROUP; ++i) {
      if (i >= size) continue;
      copy_rows<ROWS>(to, i * MODULUS_BYTES, tile.a + (t + i) * a.slice);
      copy_rows<COLS>(to, i * MODULUS_BYTES + A_BYTES, tile.b + (t + i) * b.slice);
    }
    copies_are_a_group();
  };
  const auto next = [](int stage) { return stage == STAGES - 1 ? 0 : stage + 1; };

  Tile tile(blockIdx.x, tiles, a, b);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) copy(tile, s, s);
  // Where this lane's rows of 16 bytes begin in a stage, of A and of both halves of the columns of B.
  const int row = lane % 8;
  const int of_a = tile_offset(down + lane / 8 % 2 * 8 + row, lane / 16);
  const int of_b = A_BYTES + tile_offset(across + lane / 16 * 8 + row, lane / 8 % 2);
  int stage = 0, free = STAGES - 1;
#pragma unroll 1
  for (int w = blockIdx.x; w < tiles.all; w += gridDim.x) {
    Tile after = tile;
#if ROUNDED
    uint32_t z[GROUPS][16];
#endif
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
      wait_for_groups<STAGES - 2>();
      __syncthreads();  // all copies of this stage have arrived, and no warp reads the stage before any more
      if (g + STAGES - 1 == GROUPS) {
        // After the last tile it is copied again, and not multiplied: without branches copies mix with products.
        const int following = w + static_cast<int>(gridDim.x);
        after = Tile(following < tiles.all ? following : w, tiles, a, b);
      }
      copy(g + STAGES - 1 < GROUPS ? tile : after, (g + STAGES - 1) % GROUPS, free);
      const uint8_t* const at = dynamic + stage * STAGE_BYTES;
      stage = next(stage), free = next(free);
#if ROUNDED
      float quotient[16];
#endif
#pragma unroll
      for (int t = crt_start(SLICES, g); t < crt_start(SLICES, g + 1); ++t) {
        const uint8_t* const of_modulus = at + (t - crt_start(SLICES, g)) * MODULUS_BYTES;
        uint32_t d[4][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
          uint32_t rows[4], columns[2][4];
          load_matrices(rows, reinterpret_cast<const uint32_t*>(of_modulus + (of_a ^ 32 * step)));
#pragma unroll
          for (int p = 0; p < 2; ++p) {
            load_matrices(columns[p], reinterpret_cast<const uint32_t*>(of_modulus + (of_b + p * 16 * DEPTH ^ 32 * step)));
#pragma unroll
            for (int i = 0; i < 2; ++i)
              multiply_bytes(d[2 * p + i], d[2 * p + i], rows[0], rows[1], columns[p][2 * i], rows[2], rows[3],
                             columns[p][2 * i + 1]);
          }
        }
#if ROUNDED
#pragma unroll
        for (int e = 0; e < 16; ++e) {
          GroupSum sum = {z[g][e], quotient[e]};
          sum.add(d[e / 4][e % 4], t, g, sums);
          if (t + 1 == crt_start(SLICES, g + 1)) sum.finish(g, sums);
          z[g][e] = sum.z, quotient[e] = sum.quotient;
        }
#else
        uint8_t* const of_y = y + t * y_stride + tile.matrix * y_batch;
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // row 8 (i % 2) of this lane, its columns i / 2
          const int p = i / 2, h = i % 2;
          const int64_t at_row = static_cast<int64_t>(tile.i) * ROWS + down + lane / 4 + 8 * h;
          const int64_t col = static_cast<int64_t>(tile.j) * COLS + across + 16 * p + lane % 4 * 4;
          const uint32_t four = four_residues(d[2 * p][2 * h], d[2 * p][2 * h + 1], d[2 * p + 1][2 * h],
                                              d[2 * p + 1][2 * h + 1], moduli.of[t]);
          if (at_row < m && col < ld) *reinterpret_cast<uint32_t*>(of_y + at_row * ld + col) = four;
        }
#endif
      }
    }
#if ROUNDED
    const int32_t* const nu = out.nu + tile.matrix * out.nu_batch;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row_of_c = static_cast<int64_t>(tile.i) * ROWS + down + lane / 4 + 8 * h;
      if (row_of_c >= out.m) continue;
      const int exponent = -out.mu[tile.matrix * out.mu_batch + row_of_c];
      Bits* const begin = reinterpret_cast<Bits*>(out.c) + tile.matrix * out.batch + row_of_c * out.row_stride;
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const int64_t col = static_cast<int64_t>(tile.j) * COLS + across + 16 * p + lane % 4 * 4;
        if (col < out.n)
          round_and_store<OUTPUT, BITS, LIMBS>(Entries{z, 8 * p + 2 * h}, crt, exponent, nu, col,
                                               static_cast<int64_t>(out.n), [&] { return begin + col; }, 1);
      }
    }
#endif
    tile = after;
  }
}
