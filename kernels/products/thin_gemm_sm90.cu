// Residue products with few inner indices, and their results, in one kernel: C = RN(Cbar 2^-(mu_i + nu_j)). A block has
// the accumulators of all moduli for its tile of C, so nothing is written but C. The bits are those of residue_gemm and
// recombine.cu: the same integers, rounded by the same functions.
//
// Macros: ROUNDED: 1, or 0 to leave the bytes y_t = (A_t B_t) mod m_t at y[t * y_stride + batch entry * y_batch + row *
// ld + column], ld a multiple of 4, for what else may become of a product; OUTPUT (double or float); SLICES: the moduli,
// 4 to 18; LIMBS: 32-bit limbs of Cbar and its sign; STEPS: steps of 32 inner indices, 1 to 8.
//
// a and b are residues in [0, m_t) in tiles (hardware/tiles.cuh) of ROWS rows of A and of COLS columns of B, NEIGHBOURS
// = 4, of one block of 128 inner indices, or of two; tiles of a modulus follow one another. Bytes beyond 32 STEPS are not
// read.
//
// What bounds it, for 14 residues, by entry of C (a warp has 32 entries in the time of one; an H100 has 132 times four
// warps at work in a clock). First, one modulus after the other: 74 instructions, or for k = 64 / 128 42 / 84 clocks of
// shared memory, of which wgmma reads 1.5 bytes for each 32 inner indices. Then 70 instructions, for Chinese remainders
// and rounding. 23 / 47 bytes from the second-level cache, 8 bytes to memory. (residue_gemm multiplies
// two blocks of 128 at least; it and recombine.cu write and read 14 bytes more, in three times the memory's time.)
//
// Launch: 384 threads, any number of blocks on x; each multiplies every gridDim.x-th tile. STAGES * STAGE_BYTES + 1024
// bytes of dynamic shared memory, a ring of stages that hold the tiles of one modulus. For each modulus t:
//
//   barrier     (where t is even) the copies of moduli t and t + 1 have arrived, and no warpgroup reads the stages of
//               moduli below t - 1 any more
//   wgmma       of modulus t, into accumulators[t % 2]
//   cp.async    (where t is even) two more moduli of this tile, or of the next one -> the stages that are free now
//   registers   accumulators of modulus t - 1 are added to the z of its group (crt.cuh), while wgmma runs
//   after the last modulus: integers, rounding, stores, while the moduli of the next tile arrive
//
// Each of the three warpgroups has all rows and 32 columns of the tile; a lane has two rows, of each two times four
// neighbouring columns. Its 16 entries have GROUPS registers each.
#include "arithmetic/residues.cuh"
#include "arithmetic/sums_of_groups.cuh"
#include "conversion/results.cuh"
#include "hardware/launch.cuh"
#include "hardware/ptx.cuh"
#include "hardware/tiles.cuh"
#include "products/product.cuh"

constexpr int ROWS = 64, COLS = 96, DEPTH = 128, THREADS = 384;
constexpr int BLOCKS = (STEPS + 3) / 4;
constexpr int A_BYTES = ROWS * DEPTH * BLOCKS, B_BYTES = COLS * DEPTH * BLOCKS, STAGE_BYTES = A_BYTES + B_BYTES;
// As many as fit into shared memory; copies are at most a tile ahead.
constexpr int STAGES = smaller(BLOCKS == 1 ? 11 : 5, SLICES + 2);
constexpr int LAST = 2 - SLICES % 2;  // moduli after the last barrier of a tile

#if ROUNDED
constexpr int GROUPS = crt_groups(SLICES), BITS = 8 * SLICES - 1;
typedef BitsOf<OUTPUT>::type Bits;
#define RESULT const Output<OUTPUT> out, const CrtConstants<SLICES, LIMBS> crt, const GroupSums<SLICES> sums
#else
#define RESULT uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld, int m, const AccumulatorModuli moduli
#endif

// The group of modulus t.
HD constexpr int group_of(int t) {
  int g = 0;
  while (crt_start(SLICES, g + 1) <= t) ++g;
  return g;
}

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
    b = right.slices + matrix * right.batch + static_cast<int64_t>(j) * B_BYTES;
  }
};

// Copies the first PIECES pieces of each of LINES rows of a block of a tile.
template <int LINES, int PIECES>
__device__ __forceinline__ void copy_rows(const Destination& to, int at, const uint8_t* from) {
  constexpr int AT_ONCE = THREADS / PIECES;  // a multiple of 8: pieces stand alike in all rows of a thread
  const int row = threadIdx.x / PIECES, own = tile_offset(row, threadIdx.x % PIECES);
#pragma unroll
  for (int i = 0; i < (LINES + AT_ONCE - 1) / AT_ONCE; ++i)
    if ((i + 1) * AT_ONCE <= LINES || row < LINES - i * AT_ONCE)
      copy_16_bytes(to, at + own + i * AT_ONCE * DEPTH, reinterpret_cast<const uint4*>(from + own + i * AT_ONCE * DEPTH));
}
// Copies what is read of a tile.
template <int LINES> __device__ __forceinline__ void copy_tile(const Destination& to, int at, const uint8_t* from) {
  if constexpr (BLOCKS == 2) copy_rows<LINES, 8>(to, at, from);
  constexpr int BEFORE = (BLOCKS - 1) * LINES * DEPTH;
  copy_rows<LINES, 2 * (STEPS - 4 * (BLOCKS - 1))>(to, at + BEFORE, from + BEFORE);
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
  const int warpgroup = __shfl_sync(ALL, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
  const int down = threadIdx.x % 128 / 32 * 16, across = warpgroup * 32;
  uint8_t* const ring = dynamic + (-shared_address(dynamic) & 1023);  // as the swizzle of wgmma wants

  // Starts the copies of modulus t of a tile to a stage.
  const auto copy = [&](const Tile& tile, int t, int stage) {
    const Destination to(ring + stage * STAGE_BYTES);
    copy_tile<ROWS>(to, 0, tile.a + t * a.slice);
    copy_tile<COLS>(to, A_BYTES, tile.b + t * b.slice);
    copies_are_a_group();
  };
  const auto next = [](int stage) { return stage == STAGES - 1 ? 0 : stage + 1; };

  Tile tile(blockIdx.x, tiles, a, b);
  // Modulus t may be copied from the barrier of modulus t - STAGES + 2 on, at which that of t - STAGES is over.
  constexpr int BEFORE = STAGES - 1 - LAST;
#pragma unroll
  for (int t = 0; t < BEFORE; ++t) copy(tile, t, t);
  const uint32_t first_stage = tile_descriptor(shared_address(ring)), own_columns = (A_BYTES + across * DEPTH) >> 4;
  int stage = 0, free = BEFORE;
#pragma unroll 1
  for (int w = blockIdx.x; w < tiles.all; w += gridDim.x) {
    // Where the stages divide the moduli, both are the same for all tiles; the compiler would keep all addresses that
    // follow from them in registers, which there are not.
    stage = static_cast<int>(hidden(stage)), free = static_cast<int>(hidden(free));
    Tile after = tile;
    uint32_t d[2][16];
#if ROUNDED
    uint32_t z[GROUPS][16];
    float quotient[16];
#endif
#pragma unroll
    for (int t = 0; t <= SLICES; ++t) {
      if (t < SLICES) {
        if (t % 2 == 0) {
          wait_for_groups<STAGES - 5>();  // those of a modulus each that come after two moduli, at least
          shared_proxy_fence();
          __syncthreads();
        }
        const uint32_t of_a = first_stage + stage * (STAGE_BYTES >> 4), of_b = of_a + own_columns;
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
          const uint32_t block = step / 4 * (DEPTH >> 4), along = 2 * (step % 4);
          wgmma_bytes<uint8_t>(d[t % 2], of_a + block * ROWS + along, of_b + block * COLS + along, step > 0);
        }
        wgmma_commit();
        stage = next(stage);
        if (t % 2 == 0) {
#pragma unroll
          for (int more = t + STAGES - 1 - (t == 0 ? LAST : 2); more <= t + STAGES - 2; ++more, free = next(free)) {
            if (more == SLICES) {
              // After the last tile it is copied again, and not multiplied: without branches copies mix with products.
              const int following = w + static_cast<int>(gridDim.x);
              after = Tile(following < tiles.all ? following : w, tiles, a, b);
            }
            copy(more < SLICES ? tile : after, more % SLICES, free);
          }
        }
      }
      if (t == 0) continue;
      const int of = t - 1;
      uint32_t (&own)[16] = d[of % 2];
      if (t < SLICES) wgmma_wait<1>();
      else wgmma_wait<0>();
      registers_ready(own);
#if ROUNDED
      const int g = group_of(of);
#pragma unroll
      for (int e = 0; e < 16; ++e) {
        GroupSum sum = {z[g][e], quotient[e]};
        sum.add(own[e], of, g, sums);
        if (t == crt_start(SLICES, g + 1)) sum.finish(g, sums);
        z[g][e] = sum.z, quotient[e] = sum.quotient;
      }
#else
      uint8_t* const of_y = y + of * y_stride + tile.matrix * y_batch;
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // row 8 (i % 2) of this lane, its columns i / 2
        const int p = i / 2, h = i % 2, at = 8 * p + 2 * h;
        const int64_t at_row = static_cast<int64_t>(tile.i) * ROWS + down + lane / 4 + 8 * h;
        const int64_t col = static_cast<int64_t>(tile.j) * COLS + across + 16 * p + lane % 4 * 4;
        const uint32_t four = four_residues(own[at], own[at + 1], own[at + 4], own[at + 5], moduli.of[of]);
        if (at_row < m && col < ld) *reinterpret_cast<uint32_t*>(of_y + at_row * ld + col) = four;
      }
#endif
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
