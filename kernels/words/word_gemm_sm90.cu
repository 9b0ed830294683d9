// The product of two operands in one or two low-precision words each on Hopper, with one promoted accumulator:
//
//   C_ij = 2^-(mu_i + nu_j) sum over blocks of k of
//            (A_2 B_1 + A_1 B_2) 2^-SCALE_BITS + A_1 B_1      two words (halfhalf, tf32tf32), or
//            A_1 B_1                                          one word of FP16 (two-stage)
//
// A block is 128 bytes of a row (64 elements of 16 bits, 32 of TF32). All its products are added in one accumulator of
// the tensor core that starts from zero, the products of low words first; then the block is promoted: added to an FP32
// sum in registers, rounded to nearest (docs/definitions.md, section 7).
//
// Macros: HALF_SUMS: 1 for one word of FP16 and accumulators of FP16, 0 for two words and accumulators of FP32; WORD
// (FP16 or TF32) and SCALE_BITS, of two words; TILE_COLS and TILE_STAGES.
//
// Tiles, ring and launch: see word_ring_sm90.cuh; operands in tiles of word_tiles.cuh. A stage is a block of one word,
// or half a block of both words. A thread has TILE_COLS / 2 sums and as many accumulators (of FP16:
// one or two sets, two numbers in a register), up to 208 of its 240 registers.
//
// `blocks`: of k; `k_stages`: stages that the operands have along k. Phases:
// 1. Producer: copy the stages of each tile.
// 2. Consumers, for each tile: load exponents, clear sums; for each block multiply and promote; scale and store.
#include "hardware/launch.cuh"
#include "words/word_ring_sm90.cuh"
#include "hardware/wgmma_words.cuh"

constexpr int WORD_COUNT = HALF_SUMS ? 1 : 2;

typedef float Sums[COLS / 2];

#if HALF_SUMS

// Two sets of accumulators if registers allow, for two blocks in turn: the tensor cores work on one block while the
// other one is promoted. Turns of the warpgroups (word_ring_sm90.cuh) would cost more here than they save.
constexpr int AT_A_TIME = COLS <= 208 ? 2 : 1;

typedef uint32_t Accumulators[AT_A_TIME][COLS / 4];

// Issues the products of the next block into fresh accumulators d; returns its stage, which the caller releases.
__device__ __forceinline__ int multiply(const Stages& stages, Ring& ring, uint32_t (&d)[COLS / 4]) {
  uint32_t a, b;
  stages.wait(ring);
  stages.descriptors(ring, a, b);
  wgmma_fence();
#pragma unroll
  for (int z = 0; z < 4; ++z) wgmma_halves(d, a + 2 * z, b + 2 * z, z > 0);
  wgmma_commit();
  const int stage = ring.stage;
  ring.next();
  return stage;
}

// Promotes the block in d: waits until all but the LATER groups of wgmma issued after it are complete, releases its
// stage, adds d to the sums.
template <int LATER>
__device__ __forceinline__ void promote(const Stages& stages, int stage, uint32_t (&d)[COLS / 4], Sums& sum) {
  wgmma_wait<LATER>();
  registers_ready(d);
  stages.release(stage);
#pragma unroll
  for (int i = 0; i < COLS / 2; ++i) sum[i] += half_to_float(d[i / 2], i % 2);
}

// Multiplies and promotes all blocks of a tile. With two sets of accumulators the next block is issued before the one
// before it is promoted.
__device__ __forceinline__ void add_blocks(const Stages& stages, Ring& ring, Accumulators& d, Sums& sum, int blocks) {
  if constexpr (AT_A_TIME == 1) {
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) promote<0>(stages, multiply(stages, ring, d[0]), d[0], sum);
  } else {
    int stage = multiply(stages, ring, d[0]);
#pragma unroll 1
    for (; blocks > 2; blocks -= 2) {
      const int second = multiply(stages, ring, d[1]);
      promote<1>(stages, stage, d[0], sum);
      stage = multiply(stages, ring, d[0]);
      promote<1>(stages, second, d[1], sum);
    }
    if (blocks == 2) {
      const int second = multiply(stages, ring, d[1]);
      promote<1>(stages, stage, d[0], sum);
      promote<0>(stages, second, d[1], sum);
    } else {
      promote<0>(stages, stage, d[0], sum);
    }
  }
}

#else

typedef Sums Accumulators;

constexpr uint32_t SECOND = 64 >> 4;  // added to the descriptor of the first words it gives that of the second words

// Issues the products of low words with leading ones over one stage; the first clears d if `fresh`.
__device__ __forceinline__ void multiply_low(Accumulators& d, uint32_t a, uint32_t b, bool fresh) {
  wgmma_fence();
#pragma unroll
  for (int z = 0; z < 2; ++z) {
    wgmma_words<WORD>(d, a + SECOND + 2 * z, b + 2 * z, !fresh || z > 0);
    wgmma_words<WORD>(d, a + 2 * z, b + SECOND + 2 * z, 1);
  }
  wgmma_commit();
}
// Issues the products of the leading words over one stage, added to d.
__device__ __forceinline__ void multiply_leading(Accumulators& d, uint32_t a, uint32_t b) {
  wgmma_fence();
#pragma unroll
  for (int z = 0; z < 2; ++z) wgmma_words<WORD>(d, a + 2 * z, b + 2 * z, 1);
  wgmma_commit();
}

// Multiplies a block, two stages, and promotes it: low words in both stages; scale the accumulators by 2^-SCALE_BITS
// (exact) while the other warpgroup has its turn; leading words in both stages, which are still in shared memory.
__device__ __forceinline__ void add_block(const Stages& stages, Ring& ring, Accumulators& d, Sums& sum) {
  uint32_t a0, b0, a1, b1;
  const int first = ring.stage;
  take_turn();
  stages.wait(ring);
  stages.descriptors(ring, a0, b0);
  multiply_low(d, a0, b0, true);
  ring.next();
  stages.wait(ring);
  stages.descriptors(ring, a1, b1);
  multiply_low(d, a1, b1, false);
  const int second = ring.stage;
  ring.next();
  if (SCALE_BITS > 0) {
    wgmma_wait<1>();
    hand_over();
    wgmma_wait<0>();
    registers_ready(d);
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i) d[i] *= power_of_two(-SCALE_BITS);
    take_turn();
  }
  multiply_leading(d, a0, b0);
  multiply_leading(d, a1, b1);
  wgmma_wait<1>();
  stages.release(first);
  hand_over();
  wgmma_wait<0>();
  registers_ready(d);
  stages.release(second);
#pragma unroll
  for (int i = 0; i < COLS / 2; ++i) sum[i] += d[i];
}
// Multiplies and promotes all blocks of a tile.
__device__ __forceinline__ void add_blocks(const Stages& stages, Ring& ring, Accumulators& d, Sums& sum, int blocks) {
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) add_block(stages, ring, d, sum);
}

#endif

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
word_gemm(const Operand a, const Operand b, const Output<float> to, int blocks, int k_stages, int work,
          const Tiles tiles, const Together together) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ __align__(16) Exponents exponents;
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();
  const uint32_t rank = cluster_rank();
  const int cluster = blockIdx.x / 2, clusters = gridDim.x / 2;
  const int warpgroup = threadIdx.x / 128;

  if (warpgroup == CONSUMERS) {
    keep_registers<24>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      for (int w = cluster; w < work; w += clusters) {
        if (rank == 0) together.begin(w);
        int n, i, j;
        locate(w, tiles, n, i, j);
        const From from = {a.slices + n * a.batch + static_cast<int64_t>(2 * i + rank) * k_stages * A_BYTES,
                           b.slices + n * b.batch + static_cast<int64_t>(j) * k_stages * B_BYTES};
        stages.copy(ring, from, WORD_COUNT * blocks, rank);
      }
    }
  } else {
    take_registers<240>();
    Accumulators d;
    Sums sum;
    Ring ring;
    if (WORD_COUNT == 2 && warpgroup == 1) hand_over();
    for (int w = cluster; w < work; w += clusters) {
      keep_exponents(exponents, to, tiles, w);
#pragma unroll
      for (int i = 0; i < COLS / 2; ++i) sum[i] = 0.0f;
      add_blocks(stages, ring, d, sum, blocks);
      store(sum, to, tiles, w, exponents);
    }
    if (WORD_COUNT == 2 && warpgroup == 0) take_turn();
  }
  cluster_barrier();  // no block exits while the other one may still copy into its shared memory or signal its barriers
}
