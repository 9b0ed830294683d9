// The places that clusters take in the order of tiles.
//
// The second-level cache has two halves, and what multiprocessors of both need is copied from one to the other and held
// twice. Clusters at one half take places from the first one on, those at the other from the last one back, each when
// it begins, wherever it was put: so those of one half have neighbouring tiles. The kernel of 14 residues at 4096 takes
// 1230 to 1236 microseconds so, by places of the grid 1253 to 1264 (H200). Which cluster has which tile changes no
// result.
#pragma once
#include "hardware/ptx.cuh"

// `taken` counts places, from the first one on in its lower 16 bits, from the last one back in the others; zero at
// first, and again when all are taken. Null if places are to be those of the grid. `second`: a bit for each
// multiprocessor at the second half.
struct Places {
  uint32_t* taken;
  uint32_t second[8];
};

// By all threads, before place_of; `place` is in shared memory.
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
__device__ __forceinline__ int place_of(const Places& places, const int& place) {
  if (places.taken == nullptr) return static_cast<int>(blockIdx.x / 2);
  return static_cast<int>(read_from_block(shared_address(&place), 0));
}
