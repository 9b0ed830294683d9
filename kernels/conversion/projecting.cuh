// Projections of the integers that kernels round: C x modulo two primes (project.cu).
#pragma once
#include "arithmetic/projection.cuh"

// Where they go: sums[b][row] over all columns; x[col] of all matrices.
struct Projection {
  const uint2* x;
  unsigned long long* sums;
  int64_t sums_batch;
};

// Entries of four neighbouring columns of a row: each integer that is asked for is added to the sums of this thread,
// times its element of x. Each is asked for once.
template <typename Entries> struct Projected {
  const Entries& entries;
  const uint2* x;  // of the first of them
  int64_t left;    // columns from the first one on; those beyond do not count
  uint64_t (&sums)[PRIMES];

  template <typename Constants, int LENGTH>
  __device__ __forceinline__ void integer(int j, const Constants& constants, uint32_t (&limbs)[LENGTH]) const {
    entries.integer(j, constants, limbs);
    const uint2 of_column = j < left ? x[j] : make_uint2(0, 0);
    sums[0] += product_modulo<0>(residue_of_limbs<0, LENGTH>(limbs), of_column.x);
    sums[1] += product_modulo<1>(residue_of_limbs<1, LENGTH>(limbs), of_column.y);
  }
};

// Adds the sums of all lanes of a warp, which own columns of one row, to those of the row. The lanes share the work: the
// halves of both sums are four numbers, and each lane keeps one of them.
__device__ __forceinline__ void add_to_row(const uint64_t (&sums)[PRIMES], unsigned long long* of_row) {
  const uint32_t first = static_cast<uint32_t>(folded<0>(sums[0])), second = static_cast<uint32_t>(folded<1>(sums[1]));
  const uint32_t lane = threadIdx.x & 31;
  const uint32_t halves[4] = {first & 0xffff, first >> 16, second & 0xffff, second >> 16};
  const bool upper = (lane & 16) != 0, odd = (lane & 8) != 0;
  const uint32_t low = (upper ? halves[2] : halves[0]) + __shfl_xor_sync(ALL, upper ? halves[0] : halves[2], 16);
  const uint32_t high = (upper ? halves[3] : halves[1]) + __shfl_xor_sync(ALL, upper ? halves[1] : halves[3], 16);
  uint32_t sum = (odd ? high : low) + __shfl_xor_sync(ALL, odd ? low : high, 8);
  sum += __shfl_xor_sync(ALL, sum, 4);
  sum += __shfl_xor_sync(ALL, sum, 2);
  sum += __shfl_xor_sync(ALL, sum, 1);
  if (lane % 8 == 0) atomicAdd(of_row + (upper ? 1 : 0), static_cast<unsigned long long>(sum) << (odd ? 16 : 0));
}
