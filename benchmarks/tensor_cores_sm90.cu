// Hopper's tensor cores alone: the products of one tile out of shared memory over and over, as the library's kernels
// multiply theirs (tiles, stages and wgmma of ring_sm90.cuh), but nothing is copied after the first stages.
//
// Macros: ELEMENT, the bytes of slices (uint8_t or int8_t); else WORD (FP16 or TF32).
//
// `stages`: STAGES * STAGE_BYTES bytes of elements. A block multiplies ROWS x COLS entries over rounds * STAGES * 128
// bytes of k; `sums`: one of each thread's, without which the compiler would leave out all.
//
// Launch: 256 threads, dynamic shared memory STAGES * STAGE_BYTES + 1024 bytes.
#include "hardware/launch.cuh"
#ifdef WORD
#define TILE_COLS 208
#define TILE_STAGES 5
#include "words/word_ring_sm90.cuh"
#include "hardware/wgmma_words.cuh"
#else
#include "products/ring_sm90.cuh"
#endif

extern "C" __global__ void __launch_bounds__(256, 1)
multiply(const uint8_t* __restrict__ stages, uint32_t* __restrict__ sums, int rounds) {
  after_previous();
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t filled;
  const uint32_t data = (shared_address(dynamic) + 1023) & ~1023u, barrier = shared_address(&filled);
  const uint32_t warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // descriptors are worked out once for a warp
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_init_fence();
    barrier_expect(barrier, STAGES * STAGE_BYTES);
    for (int s = 0; s < STAGES; ++s) bulk_copy(data + s * STAGE_BYTES, stages + s * STAGE_BYTES, STAGE_BYTES, barrier);
  }
  __syncthreads();
  barrier_wait(barrier, 0);
#ifdef WORD
  float d0[COLS / 2] = {};
#else
  uint32_t d0[COLS / 2] = {}, d1[COLS / 2] = {};
#endif
#pragma unroll 1
  for (int i = 0, s = 0; i < rounds * STAGES; ++i, s = s == STAGES - 1 ? 0 : s + 1) {
    const uint32_t at = data + s * STAGE_BYTES;
    const uint32_t a = tile_descriptor(at + warpgroup * (A_BYTES / 2)), b = tile_descriptor(at + A_BYTES);
#ifdef WORD
    wgmma_fence();
#pragma unroll
    for (int z = 0; z < 4; ++z) wgmma_words<WORD>(d0, a + 2 * z, b + 2 * z, 1);
    wgmma_commit();
    wgmma_wait<1>();
#else
    multiply_half<ELEMENT>(d0, a, b, false);
    multiply_half<ELEMENT>(d1, a + HALF, b, false);
    wgmma_wait<2>();
#endif
  }
  wgmma_wait<0>();
  registers_ready(d0);
#ifdef WORD
  const uint32_t sum = __float_as_uint(d0[0]);
#else
  registers_ready(d1);
  const uint32_t sum = d0[0] + d1[0];
#endif
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
