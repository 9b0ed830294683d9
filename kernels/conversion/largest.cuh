// The largest finite magnitude among elements of a row, by its bits, and how many elements are NaN or Inf.
//
// Macro: INPUT (double or float).
#pragma once
#include "conversion/describing.cuh"

constexpr Bits SIGN = Bits(1) << (8 * sizeof(INPUT) - 1);
constexpr Bits SPECIAL = Bits(sizeof(INPUT) == 8 ? 0x7ffull << 52 : 0xffull << 23);  // from here on: Inf and NaN

struct Largest {
  Bits magnitude;
  uint32_t nonfinite;
};

__device__ __forceinline__ void merge(Largest& t, const Largest& other) {
  t.magnitude = larger(t.magnitude, other.magnitude);
  t.nonfinite += other.nonfinite;
}
__device__ __forceinline__ Largest across(const Largest& t, int offset) {
  return {__shfl_xor_sync(ALL, t.magnitude, offset), __shfl_xor_sync(ALL, t.nonfinite, offset)};
}
