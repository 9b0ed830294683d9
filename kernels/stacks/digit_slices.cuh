// Balanced digits of eight bits of lines in registers, and what becomes of the accumulators of their products
// (docs/definitions.md, section 3).
//
// Macros: those of stack.cu; SLICES <= 6, so that V is below 2^63.
#pragma once
#include "arithmetic/diagonals.cuh"
#include "arithmetic/digits.cuh"
#include "arithmetic/grouped.cuh"
#include "arithmetic/rounding.cuh"
#include "hardware/mma.cuh"
#include "stacks/lines.cuh"

constexpr int STEP_BITS = 1, SHIFT = DIGIT_BITS * (SLICES - 1);  // max scaling; C = RN(V 2^(SHIFT - mu - nu))

struct Constants {
  uint64_t unused;
};

// Slice t holds the digits t + 1, the most significant ones first.
template <int PIECES> struct Slices : Lines<PIECES> {
  uint32_t bytes[2][PIECES][SLICES];

  __device__ __forceinline__ void cut(const Constants&) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const double by = double_of_limbs(static_cast<uint32_t>(this->exponent[r] + 1023) << 20, 0);
#pragma unroll
      for (int i = 0; i < PIECES; ++i) {
        uint32_t limbs[4][LIMBS];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // 1.5 2^52 + X, whose low bits are X in two's complement.
          const uint64_t near = bits_of(fused(this->x[r][4 * i + j], by, 0x1.8p52));
          limbs[j][0] = low_limb(near);
          if (LIMBS > 1) limbs[j][LIMBS - 1] = high_limb(near) - 0x43380000u;
          balanced_bytes(limbs[j]);
        }
#pragma unroll
        for (int t = 0; t < SLICES; ++t) {
          const int byte = SLICES - 1 - t, w = byte / 4;
          bytes[r][i][t] = gather_bytes(limbs[0][w], limbs[1][w], limbs[2][w], limbs[3][w], byte % 4);
        }
      }
    }
  }
  __device__ __forceinline__ uint32_t slice(int r, int i, int t, const Constants&) const { return bytes[r][i][t]; }
};

// What a lane keeps of an entry: its diagonals, the most significant first.
struct Entry {
  uint32_t z[SLICES];
  static constexpr int BITS = 63;

  __device__ __forceinline__ int64_t integer() const {
    int64_t v = static_cast<int32_t>(z[0]);
#pragma unroll
    for (int d = 1; d < SLICES; ++d) v = v * 256 + static_cast<int32_t>(z[d]);
    return v;
  }
  template <typename T> __device__ __forceinline__ T usually(int, double power, const Constants&) const {
    T rounded;
    if constexpr (SLICES <= 3) {
      int32_t sums[SLICES];
#pragma unroll
      for (int d = 0; d < SLICES; ++d) sums[d] = static_cast<int32_t>(z[d]);
      round_few_diagonals<SLICES, DIGIT_BITS>(sums, power, rounded);
    } else {
      rounded = static_cast<T>(static_cast<T>(integer()) * power);  // only the first conversion rounds
    }
    return rounded;
  }
  template <typename T> __device__ __forceinline__ T always(int, int exponent, const Constants&) const {
    const uint64_t v = static_cast<uint64_t>(integer());
    const uint32_t limbs[3] = {low_limb(v), high_limb(v), high_limb(v) >> 31 != 0 ? ~0u : 0u};
    return number_of(Rounding<T>::bits(limbs, exponent));
  }
};

template <int STEPS, bool HALF, int ENTRIES, typename Load>
__device__ __forceinline__ void multiply(Entry (&entries)[ENTRIES], Load load, const Constants&) {
  uint32_t d[SLICES][EIGHTS][4] = {};
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    uint4 v[SLICES];
#pragma unroll
    for (int t = 0; t < SLICES; ++t) v[t] = load(1, t, step);
#pragma unroll
    for (int s = 0; s < SLICES; ++s) {
      const uint4 u = load(0, s, step);
#pragma unroll
      for (int t = 0; s + t < SLICES; ++t) {
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
          uint32_t(&sum)[4] = d[s + t][eight];
          const uint32_t b = eight == 0 ? v[t].x : v[t].z, b_next = eight == 0 ? v[t].y : v[t].w;
          if constexpr (HALF) multiply_signed_bytes(sum, sum, u.x, u.y, b);
          else multiply_signed_bytes(sum, sum, u.x, u.y, b, u.z, u.w, b_next);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < ENTRIES; ++j)
#pragma unroll
    for (int s = 0; s < SLICES; ++s) entries[j].z[s] = d[s][j / 4][j % 4];
}
