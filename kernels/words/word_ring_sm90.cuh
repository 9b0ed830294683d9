// What the two kernels for low-precision words on Hopper share: tiles of 128 x TILE_COLS entries with TILE_STAGES
// stages in the ring of ring_sm90.cuh (a warpgroup has 64 rows: one half only), the turns of the two consumer
// warpgroups, and the end of a tile.
#pragma once
constexpr int ROWS = 128, COLS = TILE_COLS, STAGES = TILE_STAGES;
#define OTHER_TILE
#include "products/ring_sm90.cuh"
#include "arithmetic/words.cuh"

// Turns. Between two series of wgmma a warpgroup scales or adds its accumulators in registers; the tensor cores should
// work for the other warpgroup meanwhile. So the two take turns at issuing wgmma, and each hands over when half of what
// it has issued is complete:
//
//   warpgroup 0   | take, issue | hand over | wait, add | take, issue | hand over | ...
//   warpgroup 1                 | take, issue | hand over | wait, add | take, issue ...
//
// A named barrier for each direction (1: to warpgroup 0, 2: to warpgroup 1): who hands over arrives, who takes waits.
// Warpgroup 1 hands over the first turn at the start, and warpgroup 0 takes the last one at the end, so that arrivals
// and waits match. Turns are a matter of speed, not of correctness.
__device__ __forceinline__ void take_turn() { named_barrier(1 + threadIdx.x / 128, 256); }
__device__ __forceinline__ void hand_over() { named_barrier_arrive(2 - threadIdx.x / 128, 256); }

// Loads the shared exponents nu of the columns of tile w, shifted into the exponent field of a float32, into the
// calling warpgroup's own part of shared memory. Synchronises the warpgroup before (its threads have read the exponents
// of the tile before) and after.
typedef int Exponents[CONSUMERS][COLS];
__device__ __forceinline__ void keep_exponents(Exponents& exponents, const Output<float>& to, const Tiles& tiles,
                                               int w) {
  const int warpgroup = threadIdx.x / 128;
  int b, i, j;
  locate(w, tiles, b, i, j);
  named_barrier(3 + warpgroup, 128);  // those of the tile before were read
  for (int x = threadIdx.x % 128; x < COLS; x += 128)
    exponents[warpgroup][x] = to.nu[b * to.nu_batch + smaller(j * COLS + x, to.n - 1)] * (1 << 23);
  named_barrier(3 + warpgroup, 128);
}

// x 2^e for abs(e) <= 120, e given in the exponent field of a float32: one multiplication.
__device__ __forceinline__ float scaled(float x, int e) { return x * float_of_bits(e + (127 << 23)); }
__device__ __forceinline__ double scaled(double x, int e) {
  return x * double_of_limbs(static_cast<uint32_t>((e >> 3) + (1023 << 20)), 0);
}
// Whether abs(e) <= 60, e given in the exponent field of a float32.
__device__ __forceinline__ bool within_60(int e) { return static_cast<uint32_t>(e + (60 << 23)) <= 120u << 23; }

// Scales a thread's sums of tile w by 2^-(mu + nu) and stores them: of rows r and r + 8 and, of every 16 columns, 4
// neighbours. If all exponents are small (within_60) the scaling is one multiplication, else Power, which is right for
// any.
template <typename T>
__device__ __forceinline__ void store(const T (&sum)[COLS / 2], const Output<float>& to, const Tiles& tiles, int w,
                                      const Exponents& exponents) {
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  int b, i, j;
  locate(w, tiles, b, i, j);
  const int row = (2 * i + static_cast<int>(cluster_rank())) * ROWS + warpgroup * 64 + thread / 32 * 16 + lane / 4;
  const int col = j * COLS + lane % 4 * 4;
  const uint32_t nu = shared_address(exponents[warpgroup] + lane % 4 * 4);
  float* const c = to.c + b * to.batch;
  const bool aligned = ((reinterpret_cast<uint64_t>(c) | to.row_stride * 4) & 15) == 0;
  int of_row[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) of_row[h] = -to.mu[b * to.mu_batch + smaller(row + 8 * h, to.m - 1)] * (1 << 23);
  const bool rows_within = within_60(of_row[0]) && within_60(of_row[1]);
#pragma unroll
  for (int g = 0; g < COLS / 16; ++g) {
    const int first = col + 16 * g;
    int of_column[4];
    load_again(nu + 64 * g, of_column);
    bool within = rows_within;
#pragma unroll
    for (int x = 0; x < 4; ++x) within = within & within_60(of_column[x]);
    T four[2][4];
    float v[2][4];
#pragma unroll
    for (int z = 0; z < 8; ++z) four[z / 4][z % 4] = sum[(2 * g + z % 4 / 2) * 4 + z / 4 * 2 + z % 2];
    if (within) {
#pragma unroll
      for (int z = 0; z < 8; ++z) v[z / 4][z % 4] = scaled(four[z / 4][z % 4], of_row[z / 4] - of_column[z % 4]);
    } else {
#pragma unroll
      for (int z = 0; z < 8; ++z)
        v[z / 4][z % 4] = Power<T>((of_row[z / 4] >> 23) - (of_column[z % 4] >> 23))(four[z / 4][z % 4]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* const at = c + (row + 8 * h) * to.row_stride + first;
      if (row + 8 * h < to.m) {
        if (aligned && first + 4 <= to.n) {
          store_four(at, v[h]);
        } else {
#pragma unroll
          for (int x = 0; x < 4; ++x)
            if (first + x < to.n) at[x] = v[h][x];
        }
      }
    }
  }
}
