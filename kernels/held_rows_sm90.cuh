// Whole rows of an operand held in shared memory by the blocks of a cluster, on Hopper, so that what is found in them and
// what is cut from them are one read.
//
// Macros: INPUT (double or float); ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows; CLUSTER: 1, 2, 4
// or 8 blocks that hold HELD rows together, 8, 16 or 32; THREADS of a block, 128 or 256.
//
// Block `rank` of a cluster holds elements [rank share, (rank + 1) share) of each row, share a multiple of
// TILE_K. What it finds in them it leaves in its shared memory, where all blocks read it to put the rows together.
#pragma once
#include "largest.cuh"
#include "ptx.cuh"

constexpr int BLOCK = THREADS, WARPS = BLOCK / 32;
constexpr int ROWS = HELD, GROUPS = ROWS / 8, OWN = ROWS / WARPS;  // a warp describes OWN rows

constexpr int EXCHANGED = 1280;  // bytes of shared memory for what blocks tell each other, before the elements

// Elements stand in blocks of 128 along k. A lane looks at elements 64 half + 2 lane + {0, 1} of a row of each.
constexpr int NEXT_BLOCK = ROWS * TILE_K, HALF = ALONG_K ? 64 : 64 * ROWS, NEXT = ALONG_K ? 1 : ROWS;
__device__ __forceinline__ int place(int row, int h) { return ALONG_K ? row * TILE_K + h : turned<ROWS>(row, h); }

// The four of a block, from the place of element 2 lane on.
__device__ __forceinline__ void load_four(const Bits* at, Bits* bits) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#if ALONG_K
    load_pair(reinterpret_cast<const INPUT*>(at + HALF * half), bits[2 * half], bits[2 * half + 1]);
#else
    bits[2 * half] = at[HALF * half], bits[2 * half + 1] = at[HALF * half + NEXT];
#endif
  }
}
template <typename F> __device__ __forceinline__ void each(const Bits* at, int blocks, F f) {
#pragma unroll 2
  for (int j = 0; j < blocks; ++j, at += NEXT_BLOCK) {
    Bits bits[4];
    load_four(at, bits);
#pragma unroll
    for (int i = 0; i < 4; ++i) f(bits[i]);
  }
}
// Elements [h0, h0 + share) of ROWS rows, zero where there are none; x is that of the batch entry.
__device__ __forceinline__ void load(Bits* elements, const INPUT* x, int64_t sb, int64_t sr, int64_t sk, int64_t row0,
                                     int64_t h0, int share, int64_t rows, int64_t k) {
  const int thread = threadIdx.x, rows_left = static_cast<int>(smaller<int64_t>(rows - row0, ROWS));
  int k_left = static_cast<int>(smaller<int64_t>(larger<int64_t>(k - h0, 0), share));
  const Bits* const words = reinterpret_cast<const Bits*>(x) + (row0 * sr + h0 * sk);
#if ALONG_K
  if (aligned_along_k(x, sb, sr, sk)) {
    constexpr int PACK = 16 / sizeof(INPUT), STEP = BLOCK * PACK / TILE_K;
    const int row = thread / (TILE_K / PACK), h = thread % (TILE_K / PACK) * PACK;
    const Bits* from = words + (row * sr + h);
    for (int j = 0; j < share; j += TILE_K, elements += NEXT_BLOCK, from += TILE_K, k_left -= TILE_K) {
      const int readable = larger(smaller(k_left - h, PACK), 0) * static_cast<int>(sizeof(INPUT));
#pragma unroll
      for (int r = 0; r < ROWS; r += STEP)
        copy_16_bytes(elements + place(row + r, h), from + r * sr, row + r < rows_left ? readable : 0);
    }
    return;
  }
  constexpr int STEP_ROWS = BLOCK / TILE_K, STEP_K = 0;
  const int row = thread / TILE_K, h = thread % TILE_K;
#else
  constexpr int STEP_ROWS = 0, STEP_K = BLOCK / ROWS;
  const int row = thread % ROWS, h = thread / ROWS;
#endif
  const Bits* from = words + (row * sr + h * sk);
  const int64_t step = STEP_ROWS * sr + STEP_K * sk;
  for (int j = 0; j < share; j += TILE_K, elements += NEXT_BLOCK, from += TILE_K * sk, k_left -= TILE_K) {
    const Bits* at = from;
#pragma unroll 4
    for (int i = 0; i < NEXT_BLOCK / BLOCK; ++i, at += step) {
      const int r = row + STEP_ROWS * i, here = h + STEP_K * i;
      copy_or_zero(elements + place(r, here), at, r < rows_left && here < k_left);
    }
  }
}

__device__ __forceinline__ uint32_t largest_of_warp(uint32_t x) { return __reduce_max_sync(ALL, x); }
__device__ __forceinline__ uint64_t largest_of_warp(uint64_t x) {
  const uint32_t high = largest_of_warp(high_word(x));
  return static_cast<uint64_t>(high) << 32 | largest_of_warp(high_word(x) == high ? low_word(x) : 0u);
}
__device__ __forceinline__ Largest find_largest(const Bits* at, int blocks) {
  Largest t = {0, 0};
  each(at, blocks, [&](Bits bits) {
    const Bits magnitude = bits & ~SIGN;
    if (magnitude < SPECIAL) t.magnitude = larger(t.magnitude, magnitude);
    else ++t.nonfinite;
  });
  return {largest_of_warp(t.magnitude), __reduce_add_sync(ALL, t.nonfinite)};
}

// What all blocks of the cluster have at the place of `own`, which CLUSTER neighbouring lanes share.
template <typename T> __device__ __forceinline__ T of_cluster(const T& own) {
  T t;
#pragma unroll
  for (int i = 0; i < sizeof(T) / 4; ++i)
    reinterpret_cast<uint32_t*>(&t)[i] = read_from_block(shared_address(&own) + 4 * i, threadIdx.x % CLUSTER);
#pragma unroll
  for (int offset = CLUSTER / 2; offset > 0; offset /= 2) merge(t, across(t, offset));
  return t;
}
