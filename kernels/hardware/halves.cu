// How long atomic operations take from each multiprocessor to `count` words, `stride` apart: those at one half of the
// second-level cache are near to the same ones.
//
// latency is [256][count] clocks, rows by multiprocessor; turn, two numbers, and the words are zero. Blocks of 32
// threads, one for each multiprocessor, with so much dynamic shared memory that no two share one; they take turns.
#include "hardware/launch.cuh"
#include "hardware/ptx.cuh"

extern "C" __global__ void __launch_bounds__(32)
halves(uint32_t* __restrict__ turn, uint32_t* __restrict__ words, int64_t stride, int count,
       uint32_t* __restrict__ latency) {
  after_previous();
  if (threadIdx.x != 0) return;
  const uint32_t own = atomicAdd(turn, 1u);
  while (*static_cast<volatile uint32_t*>(turn + 1) != own) __nanosleep(100);
  uint32_t* const out = latency + multiprocessor() % 256 * count;
  for (int i = 0; i < count; ++i) {
    uint32_t least = ~0u;
    for (int round = 0; round < 4; ++round) {
      uint32_t none = 0;
      const int64_t start = clock64();
#pragma unroll
      for (int j = 0; j < 8; ++j) none = atomicAdd(words + i * stride, none);  // each waits for the one before
      least = smaller(least, static_cast<uint32_t>(clock64() - start));
    }
    out[i] = least;
  }
  __threadfence();
  atomicAdd(turn + 1, 1u);
}
