// Measures of rows, for the kernels that describe operands (docs/definitions.md, section 1). All sums are of integers,
// so neither the grid nor the order in which parts of a row are put together changes a bit.
//
// Macro: INPUT (double or float).
#pragma once
#include "arithmetic/fixed_point.cuh"

typedef BitsOf<INPUT>::type Bits;

// Fields of a description, int64 [6][batch * rows].
enum Field { TOP, PEAK, MAGNITUDES, SQUARES, BOTTOM, NONFINITE };

// Of the elements of a row, or of a part of one: the smallest top with abs(x) < 2^top, the smallest frexp exponent of a
// nonzero element, and how many elements are NaN or Inf.
struct Tops {
  int top, smallest, nonfinite;
};
constexpr Tops NOTHING = {EMPTY_TOP, -EMPTY_TOP, 0};

// Sums over y = ceil(abs(x) 2^(W - top)) of the elements of a row or part of one: entry j holds those for top + j in
// place of top. `peak` is the largest y. `rest` is twice the bitwise or of all y, plus 1 if some abs(x) 2^(W - top) is
// no integer: so abs(x) 2^(W - top - j) are all integers if and only if bits 0 .. j of `rest` are zero.
template <int COUNT> struct Sums {
  uint32_t peak, rest;
  uint64_t magnitudes[COUNT], squares[COUNT];
};

// merge adds the measures of another part of the row; `across` returns those of the lane whose number differs in
// `offset`.
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
// Merges the measures of all lanes of a warp, in all lanes.
template <typename T> __device__ __forceinline__ void merge_warp(T& t) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) merge(t, across(t, offset));
}

// The frexp exponent from the upper limb of a normal float64, or from the bits of a float32, without sign.
__device__ __forceinline__ int exponent_of(uint64_t, uint32_t m) { return static_cast<int>(m >> 20) - 1022; }
__device__ __forceinline__ int exponent_of(uint32_t, uint32_t m) { return top_exponent(parts(m)); }

// The largest and smallest nonzero magnitude among elements, a few instructions for each: integer maxima and minima of
// the bits without the sign. Of float64 only the upper limb is compared, with its last bit set if the lower limb is not
// zero, so that numbers whose upper limb is zero are not taken for zeros. If sufficient() is true they give the exact
// Tops; else (NaN, Inf, some subnormal numbers) the caller calls note() for each element.
constexpr uint32_t NO_SIGN = 0x7fffffffu;
struct Extremes {
  uint32_t largest = 0, least = ~0u, low = 0;  // least: the smallest value minus 1, so zeros wrap to the largest

  __device__ __forceinline__ void include(uint64_t bits) {
    include((high_limb(bits) & NO_SIGN) | not_zero(low_limb(bits)), low_limb(bits));
  }
  __device__ __forceinline__ void include(uint32_t bits) { include(bits & NO_SIGN, bits & 15u); }
  __device__ __forceinline__ void include(uint32_t m, uint32_t bits) {
    largest = larger(largest, m);
    least = smaller(least, m - 1);
    low |= bits;
  }
  // Whether tops() is exact: all elements are finite and, of float64, none is subnormal.
  __device__ __forceinline__ bool sufficient() const {
    return sizeof(INPUT) == 8 ? largest < 0x7ffu << 20 && least >= (1u << 20) - 1 : largest < 0xffu << 23;
  }
  __device__ __forceinline__ Tops tops() const {
    if (largest == 0) return NOTHING;
    return {exponent_of(Bits(0), largest), exponent_of(Bits(0), least + 1), 0};
  }
  // Whether some abs(x) 2^(W - top) is known to be no integer, if sufficient() and top > FastTop: for W <= 20, bits
  // below the 21st of a mantissa are fractions, and so are all bits of a subnormal float32. false means: not known.
  __device__ __forceinline__ bool inexact() const { return low != 0; }
};
// Includes one element exactly; counts it if it is NaN or Inf.
__device__ __forceinline__ void note(Tops& t, const Parts& p) {
  t.nonfinite += !p.finite;
  if (p.mantissa == 0) return;
  t.top = larger(t.top, top_exponent(p));
  t.smallest = smaller(t.smallest, top_exponent(p));
}

// Accumulates Sums<COUNT> element by element: since ceil(ceil(z) / 2) = ceil(z / 2), y for the next top is y / 2
// rounded up.
template <int COUNT> struct Adding {
  uint32_t peak = 0, any = 0, inexact = 0, magnitudes[COUNT] = {};  // at most 2^11 elements: y <= 2^20
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

// Writes the six fields of row `index`, `stride` rows in all.
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
