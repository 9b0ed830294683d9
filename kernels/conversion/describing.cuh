// What kernels that describe rows share (docs/design.md, section 3).
//
// Macro: INPUT (double or float).
#pragma once
#include "arithmetic/fixed_point.cuh"

typedef BitsOf<INPUT>::type Bits;

enum Field { TOP, PEAK, MAGNITUDES, SQUARES, BOTTOM, NONFINITE };

struct Tops {
  int top, smallest, nonfinite;  // smallest: exponent of frexp of a nonzero element
};
constexpr Tops NOTHING = {EMPTY_TOP, -EMPTY_TOP, 0};

// With y = ceil(abs(x) 2^(W - top)): the sums for `top` + 0, 1, ..., and `rest`, twice the or of all y, plus 1 if one
// of them was rounded.
template <int COUNT> struct Sums {
  uint32_t peak, rest;
  uint64_t magnitudes[COUNT], squares[COUNT];
};

__device__ __forceinline__ void merge(Tops& t, const Tops& other) {
  t.top = larger(t.top, other.top);
  t.smallest = smaller(t.smallest, other.smallest);
  t.nonfinite += other.nonfinite;
}
template <int COUNT> __device__ __forceinline__ void merge(Sums<COUNT>& s, const Sums<COUNT>& other) {
  s.peak = larger(s.peak, other.peak);
  s.rest |= other.rest;
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
    s.magnitudes[j] += other.magnitudes[j];
    s.squares[j] += other.squares[j];
  }
}
__device__ __forceinline__ Tops across(const Tops& t, int offset) {
  return {__shfl_xor_sync(ALL, t.top, offset), __shfl_xor_sync(ALL, t.smallest, offset),
          __shfl_xor_sync(ALL, t.nonfinite, offset)};
}
template <int COUNT> __device__ __forceinline__ Sums<COUNT> across(const Sums<COUNT>& s, int offset) {
  Sums<COUNT> other;
  other.peak = __shfl_xor_sync(ALL, s.peak, offset);
  other.rest = __shfl_xor_sync(ALL, s.rest, offset);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
    other.magnitudes[j] = __shfl_xor_sync(ALL, s.magnitudes[j], offset);
    other.squares[j] = __shfl_xor_sync(ALL, s.squares[j], offset);
  }
  return other;
}
template <typename T> __device__ __forceinline__ void merge_warp(T& t) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) merge(t, across(t, offset));
}

__device__ __forceinline__ int exponent_of(uint64_t, uint32_t m) { return static_cast<int>(m >> 20) - 1022; }
__device__ __forceinline__ int exponent_of(uint32_t, uint32_t m) { return top_exponent(parts(m)); }

// The extremes of the absolute values; for float64, of their upper halves, whose last bit tells zeros from what has a
// lower half alone.
constexpr uint32_t NO_SIGN = 0x7fffffffu;
struct Extremes {
  uint32_t largest = 0, least = ~0u, low = 0;  // least: less 1, so that zeros come out large

  __device__ __forceinline__ void see(uint64_t bits) {
    see((high_word(bits) & NO_SIGN) | not_zero(low_word(bits)), low_word(bits));
  }
  __device__ __forceinline__ void see(uint32_t bits) { see(bits & NO_SIGN, bits & 15u); }
  __device__ __forceinline__ void see(uint32_t m, uint32_t bits) {
    largest = larger(largest, m);
    least = smaller(least, m - 1);
    low |= bits;
  }
  // Whether they tell the tops; else each element has to be noted.
  __device__ __forceinline__ bool tell() const {
    return sizeof(INPUT) == 8 ? largest < 0x7ffu << 20 && least >= (1u << 20) - 1 : largest < 0xffu << 23;
  }
  __device__ __forceinline__ Tops tops() const {
    if (largest == 0) return NOTHING;
    return {exponent_of(Bits(0), largest), exponent_of(Bits(0), least + 1), 0};
  }
  // Whether some abs(x) 2^(W - top) is known to be no integer, if these tell and top > FastTop: for W <= 20, bits below
  // the 21st of a mantissa are fractions, and so is all of a subnormal float32.
  __device__ __forceinline__ bool inexact() const { return low != 0; }
};
// NaN and Inf are counted.
__device__ __forceinline__ void note(Tops& t, const Parts& p) {
  t.nonfinite += !p.finite;
  if (p.mantissa == 0) return;
  t.top = larger(t.top, top_exponent(p));
  t.smallest = smaller(t.smallest, top_exponent(p));
}

// Sums over elements, noted for COUNT tops.
template <int COUNT> struct Adding {
  uint32_t peak = 0, any = 0, inexact = 0, magnitudes[COUNT] = {};  // of at most 2^11 elements
  uint64_t squares[COUNT] = {};

  __device__ __forceinline__ void add(uint32_t y) {
    peak = larger(peak, y);
    if (COUNT > 1) any |= y;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
      magnitudes[j] += y;
      squares[j] += static_cast<uint64_t>(y) * y;
      y = (y + 1) >> 1;
    }
  }
  __device__ __forceinline__ Sums<COUNT> sums() const {
    Sums<COUNT> s = {peak, any << 1 | (inexact != 0 ? 1u : 0u), {}, {}};
#pragma unroll
    for (int j = 0; j < COUNT; ++j) s.magnitudes[j] = magnitudes[j], s.squares[j] = squares[j];
    return s;
  }
};

__device__ __forceinline__ void store(int64_t* out, int64_t stride, int64_t index, const Tops& t, uint64_t peak,
                                      uint64_t magnitudes, uint64_t squares, bool inexact, int width) {
  out[TOP * stride + index] = t.top;
  out[PEAK * stride + index] = peak;
  out[MAGNITUDES * stride + index] = magnitudes;
  out[SQUARES * stride + index] = squares;
  out[BOTTOM * stride + index] = t.top == EMPTY_TOP ? EMPTY_TOP
                                 : inexact          ? t.smallest - (sizeof(INPUT) == 8 ? 53 : 24)
                                                    : t.top - width;
  out[NONFINITE * stride + index] = t.nonfinite;
}
