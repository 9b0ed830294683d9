// Magnitudes for the proof, eight at a time: floor(abs(x) 2^(width - top)), NaN and Inf as 0 (docs/bounds.md, B7).
#pragma once
#include "arithmetic/fixed_point.cuh"

template <typename Bits>
__device__ __forceinline__ void magnitudes_of(const Bits (&bits)[8], int width, int top, uint32_t (&value)[8]) {
  if (top > FastTop<Bits>::value) {
    const FastFloor<Bits> floor(width, top);
#pragma unroll
    for (int j = 0; j < 8; ++j) value[j] = floor(bits[j]);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const Parts p = parts(bits[j]);
      value[j] = low_limb(floor_scaled(p.mantissa, p.exponent + width - top));
    }
  }
}

// Stores eight magnitudes below 2^7 as bytes; `to` is aligned to 8 bytes.
__device__ __forceinline__ void store(int8_t* to, const uint32_t (&value)[8]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(gather_bytes(value[0], value[1], value[2], value[3], 0),
                                             gather_bytes(value[4], value[5], value[6], value[7], 0));
}
