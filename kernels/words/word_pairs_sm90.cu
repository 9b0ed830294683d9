// The product of two operands in words on Hopper, each pair of words in an accumulator of its own:
// C = 2^-(mu_i + nu_j) sum 2^-weight A_s B_t, low words first, the products of a pair added in FP32 over all of k, or
// those of the last pair over a block of k, blocks then being added outside (docs/design.md, section 10).
//
// Macros: WORD (FP16, BF16 or TF32); TOTALS: 0 for one pair that is not promoted; PROMOTION (float or double): of sums
// outside the tensor core, where there are any; TILE_COLS and TILE_STAGES.
//
// Tiles, ring and launch as word_ring_sm90.cuh has them; every word of an operand lies in tiles of its own
// (word_tiles.cuh), `slice` bytes after the one before, and a stage is a block of one word of A and one of B. Pairs
// follow one another: a thread has COLS / 2 accumulators and as many totals.
//
// `blocks`: of 128 bytes of k; `k_blocks`: those that the operands have; a promoted block is a multiple of 128 bytes.
#include "hardware/launch.cuh"
#include "words/word_program.cuh"
#include "words/word_ring_sm90.cuh"
#include "hardware/wgmma_words.cuh"

typedef float Accumulators[COLS / 2];

// The products of the next stage.
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
// Of `count` more; the last one is under way.
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

// The products of `count` stages.
template <bool IN_TURNS>
__device__ __forceinline__ void multiply(const Stages& stages, Ring& ring, Accumulators& d, int count) {
  int last = ring.stage;
  if (IN_TURNS) take_turn();
  multiply_stage(stages, ring, d, true);
  if (IN_TURNS) {  // what it begins before it hands over must fit into the ring
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
  volatile Totals aside;  // in local memory: registers hold the sum of the blocks
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
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
