// What the kernels for words share on Hopper: tiles of 128 x TILE_COLS entries from the ring of ring_sm90.cuh, with
// TILE_STAGES; the turns of the two warpgroups; the end of a tile.
#pragma once
constexpr int ROWS = 128, COLS = TILE_COLS, STAGES = TILE_STAGES;
#define OTHER_TILE
#include "ring_sm90.cuh"
#include "words.cuh"

// The tensor cores need never wait while sums are scaled or added: the two warpgroups take turns, and one hands over when
// half of what it has begun is over. Warpgroup 1 hands over the first turn, and 0 takes the last one.
__device__ __forceinline__ void take_turn() { named_barrier(1 + threadIdx.x / 128, 256); }
__device__ __forceinline__ void hand_over() { named_barrier_arrive(2 - threadIdx.x / 128, 256); }

// Scale and store a thread's sums: rows `row` and `row` + 8, and of every 16 columns the 4 from col on.
template <typename T>
__device__ __forceinline__ void store(const T (&sum)[COLS / 2], const Output<float>& to, int b, int row, int col) {
  float* const c = to.c + b * to.batch;
  const bool aligned = ((reinterpret_cast<uint64_t>(c) | to.row_stride * 4) & 15) == 0;
  const int32_t* const nu = to.nu + b * to.nu_batch;
  int exponent[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) exponent[h] = row + 8 * h < to.m ? -to.mu[b * to.mu_batch + row + 8 * h] : 0;
#pragma unroll
  for (int g = 0; g < COLS / 16; ++g) {
    const int first = col + 16 * g;
    int of_column[4];
#pragma unroll
    for (int x = 0; x < 4; ++x) of_column[x] = first + x < to.n ? nu[first + x] : 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float v[4];
#pragma unroll
      for (int x = 0; x < 4; ++x) v[x] = Power<T>(exponent[h] - of_column[x])(sum[(2 * g + x / 2) * 4 + 2 * h + x % 2]);
      float* const at = c + (row + 8 * h) * to.row_stride + first;
      if (row + 8 * h < to.m) {
        if (aligned && first + 4 <= to.n) {
          __stcs(reinterpret_cast<float4*>(at), make_float4(v[0], v[1], v[2], v[3]));
        } else {
#pragma unroll
          for (int x = 0; x < 4; ++x)
            if (first + x < to.n) at[x] = v[x];
        }
      }
    }
  }
}
