// The product of two operands in low-precision words on Hopper, each pair of words in an accumulator of its own:
//
//   C_ij = 2^-(mu_i + nu_j) sum over pairs (s, t) of 2^-weight A_s B_t,  pairs of low words first
//
// The products of a pair are added in FP32 on the tensor core over all of k; those of the last pair (the leading words)
// may be promoted: added over a block of k, and blocks then in registers (docs/definitions.md, section 7).
//
// Macros: WORD (FP16, BF16 or TF32); TOTALS: 0 for one pair that is not promoted, else 1; PROMOTION (float or double):
// of the sums in registers, where there are any; TILE_COLS and TILE_STAGES.
//
// Tiles, ring and launch: see word_ring_sm90.cuh. Every word of an operand lies in tiles of its own (word_tiles.cuh),
// `slice` bytes after the word before; a stage is a block of one word of A and one of B. A tile goes through k once for
// each pair of words. A thread has COLS / 2 accumulators and as many totals.
//
// `blocks`: of 128 bytes of k; `k_blocks`: those that the operands have; a promoted block is a multiple of 128 bytes.
// Phases:
// 1. Producer: for each tile and each pair, copy the pair's blocks of k.
// 2. Consumers, for each tile: load exponents; for each pair multiply and add to the totals; scale and store.
#include "hardware/launch.cuh"
#include "words/word_program.cuh"
#include "words/word_ring_sm90.cuh"
#include "hardware/wgmma_words.cuh"

typedef float Accumulators[COLS / 2];

// Issues the products of the next stage; the first clears d if `fresh`.
__device__ __forceinline__ void multiply_stage(const Stages& stages, Ring& ring, Accumulators& d, bool fresh) {
  uint32_t a, b;
  stages.wait(ring);
  stages.descriptors(ring, a, b);
  wgmma_fence();
#pragma unroll
  for (int z = 0; z < 4; ++z) wgmma_words<WORD>(d, a + 2 * z, b + 2 * z, !fresh || z > 0);
  wgmma_commit();
  ring.next();
}
// Issues `count` further stages, while stage `last` is in flight; on return the last one issued is in flight and
// `last`.
__device__ __forceinline__ void multiply_stages(const Stages& stages, Ring& ring, Accumulators& d, int count,
                                                int& last) {
#pragma unroll 1
  for (int s = 0; s < count; ++s) {
    const int stage = ring.stage;
    multiply_stage(stages, ring, d, false);
    wgmma_wait<1>();
    stages.release(last);
    last = stage;
  }
}

// d = the products of the next `count` stages, complete on return, all stages released.
template <bool IN_TURNS>
__device__ __forceinline__ void multiply(const Stages& stages, Ring& ring, Accumulators& d, int count) {
  int last = ring.stage;
  if (IN_TURNS) take_turn();
  multiply_stage(stages, ring, d, true);
  if (IN_TURNS) {  // hand over before the ring is used up: stages become free only when both warpgroups have read them
    const int before = smaller(count, STAGES) / 2;
    multiply_stages(stages, ring, d, before, last);
    hand_over();
    count -= before;
  }
  multiply_stages(stages, ring, d, count - 1, last);
  wgmma_wait<0>();
  registers_ready(d);
  stages.release(last);
}

#if TOTALS

typedef PROMOTION Totals[COLS / 2];

// total = the sum over all pairs for one tile.
__device__ __forceinline__ void add_pairs(const Stages& stages, Ring& ring, Accumulators& d, Totals& total, int blocks,
                                          const Program& program) {
#pragma unroll
  for (int i = 0; i < COLS / 2; ++i) total[i] = 0;
  const bool promoted = program.block > 0;
#pragma unroll 1
  for (int g = 0; g < program.groups - promoted; ++g) {
    multiply<false>(stages, ring, d, blocks);
    const Power<PROMOTION> power(-program.weight[g]);
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i) total[i] += power(d[i]);
  }
  if (!promoted) return;
  volatile Totals aside;  // the other pairs' totals go to local memory: registers hold the sum of the blocks
#pragma unroll
  for (int i = 0; i < COLS / 2; ++i) aside[i] = total[i], total[i] = 0;
  const int block = program.block / 4;
#pragma unroll 1
  for (int first = 0; first < blocks; first += block) {
    multiply<true>(stages, ring, d, smaller(block, blocks - first));
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i) total[i] += d[i];
  }
#pragma unroll
  for (int i = 0; i < COLS / 2; ++i) total[i] += aside[i];
}

#endif

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
word_pairs(const Operand a, const Operand b, const Output<float> to, int blocks, int k_blocks, int work,
           const Tiles tiles, const __grid_constant__ Program program) {
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
        int n, i, j;
        locate(w, tiles, n, i, j);
        const uint8_t* const left = a.slices + n * a.batch + static_cast<int64_t>(2 * i + rank) * k_blocks * A_BYTES;
        const uint8_t* const right = b.slices + n * b.batch + static_cast<int64_t>(j) * k_blocks * B_BYTES;
        for (int g = 0; g < program.groups; ++g)
          stages.copy(ring, {left + program.left[g] * a.slice, right + program.right[g] * b.slice}, blocks, rank);
      }
    }
  } else {
    take_registers<240>();
    Accumulators d;
    Ring ring;
    if (warpgroup == 1) hand_over();
    for (int w = cluster; w < work; w += clusters) {
      keep_exponents(exponents, to, tiles, w);
#if TOTALS
      Totals sum;
      add_pairs(stages, ring, d, sum, blocks, program);
#else
      multiply<false>(stages, ring, d, blocks);
      const Accumulators& sum = d;
#endif
      store(sum, to, tiles, w, exponents);
    }
    if (warpgroup == 0) take_turn();
  }
  cluster_barrier();  // no block exits while the other one may still copy into its shared memory or signal its barriers
}
