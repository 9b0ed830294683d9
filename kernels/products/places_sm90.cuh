// Which cluster takes which place in the order of tiles, chosen by the half of the second-level cache that it is near.
//
// The second-level cache of Hopper has two halves. What multiprocessors at both halves read is copied from one half to
// the other and takes room in both. So clusters at the first half take places from 0 upwards and clusters at the second
// half from the last one downwards: neighbouring tiles, which share operands, are then multiplied at one half. A
// cluster takes its place when it begins, on whatever multiprocessor it was scheduled. 14 residues at n = 4096 take
// 1230 to 1236 microseconds so, and 1253 to 1264 with places in grid order (residue_gemm, one H200). Which cluster has
// which tile changes no result.
#pragma once
#include "hardware/ptx.cuh"

// `taken` is a global counter: places taken from the first one upwards in its lower 16 bits, from the last one
// downwards in its upper 16 bits. It is zero before the kernel, and the cluster that takes the last place clears it for
// the next kernel. taken = nullptr: places in grid order. `second` has a bit for each multiprocessor, set if it is at
// the second half (measured by halves.cu).
struct Places {
  uint32_t* taken;
  uint32_t second[8];
};

// Called by all threads of both blocks of a cluster before place_of. Rank 0 writes the cluster's place to `place` in
// its shared memory; the barrier of the cluster makes it visible to both blocks.
__device__ __forceinline__ void take_place(const Places& places, int& place) {
  if (places.taken == nullptr) return;
  if (threadIdx.x == 0 && cluster_rank() == 0) {
    const uint32_t sm = multiprocessor() % 256, clusters = gridDim.x / 2;
    const bool second = (places.second[sm / 32] >> sm % 32 & 1) != 0;
    const uint32_t before = atomicAdd(places.taken, second ? 0x10000u : 1u);
    const uint32_t first = before & 0xffff, last = before >> 16;
    place = static_cast<int>(second ? clusters - 1 - last : first);
    if (first + last == clusters - 1) *places.taken = 0;
  }
  cluster_barrier();
}
// The place of this thread's cluster, read from rank 0's shared memory.
__device__ __forceinline__ int place_of(const Places& places, const int& place) {
  if (places.taken == nullptr) return static_cast<int>(blockIdx.x / 2);
  return static_cast<int>(read_from_block(shared_address(&place), 0));
}
