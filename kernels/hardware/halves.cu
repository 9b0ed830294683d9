// Latency of atomic operations from each multiprocessor to `count` counters in global memory, `stride` counters apart.
// Multiprocessors at the same half of the second-level cache are near to the same counters, which tells the host which
// multiprocessor is at which half.
//
// latency [256][count], in clocks, row by %smid; `turn` are two numbers, which and the counters are zero before the
// kernel. Launch: blocks of 32 threads, as many as multiprocessors, with so much dynamic shared memory that no two
// share a multiprocessor. Phases of a block: 1. draw a ticket, wait until it is its turn; 2. measure each counter: the
// best of four runs of eight dependent atomics; 3. pass the turn on.
#include "hardware/launch.cuh"
#include "hardware/ptx.cuh"

extern "C" __global__ void __launch_bounds__(32)
halves(uint32_t* __restrict__ turn, uint32_t* __restrict__ counters, int64_t stride, int count,
       uint32_t* __restrict__ latency) {
  after_previous();
  if (threadIdx.x != 0) return;
  const uint32_t ticket = atomicAdd(turn, 1u);
  while (*static_cast<volatile uint32_t*>(turn + 1) != ticket) __nanosleep(100);
  uint32_t* const out = latency + multiprocessor() % 256 * count;
  for (int i = 0; i < count; ++i) {
    uint32_t least = ~0u;
    for (int round = 0; round < 4; ++round) {
      uint32_t zero = 0;
      const int64_t start = clock64();
#pragma unroll
      for (int j = 0; j < 8; ++j) zero = atomicAdd(counters + i * stride, zero);  // each needs the last one's result
      least = smaller(least, static_cast<uint32_t>(clock64() - start));
    }
    out[i] = least;
  }
  __threadfence();
  atomicAdd(turn + 1, 1u);
}
