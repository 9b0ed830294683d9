// An entry of C that NaN and Inf determine (docs/definitions.md, section 6), from the elements themselves.
#pragma once
#include "arithmetic/combination.cuh"
#include "arithmetic/fixed_point.cuh"

// What IEEE arithmetic gives for the sum over h of s(a_h) s(b_h), s(x) = x for NaN and Inf, else the sign of x; of
// complex elements for a part, which is the real product of (x_0, y_0, ...) and (u_0, -v_0, ...) or (v_0, u_0, ...).
// Rare: a thread reads the row and the column alone.
template <typename Output, typename BitsA, typename BitsB>
__device__ __forceinline__ typename BitsOf<Output>::type special_entry(const BitsA* a, int64_t a_step, const BitsB* b,
                                                                       int64_t b_step, int k, int part) {
  constexpr uint64_t SIGN = 1ull << 63;
  bool nan = false, positive = false, negative = false;
#pragma unroll 1
  for (int i = 0; i < PARTS * k; ++i) {
    const int h = i / PARTS, of_a = i % PARTS, of_b = of_a ^ part;
    const uint64_t x = bits_of(double_of(a[h * a_step + of_a])), y = bits_of(double_of(b[h * b_step + of_b]));
    const uint64_t u = x & ~SIGN, v = y & ~SIGN;
    if (larger(u, v) < 0x7ffull << 52) continue;
    const bool minus = (((x ^ y) & SIGN) != 0) != (of_a == 1 && of_b == 1);
    nan = nan || larger(u, v) > 0x7ffull << 52 || smaller(u, v) == 0;
    positive = positive || !minus;
    negative = negative || minus;
  }
  return nan || (positive && negative) ? Special<Output>::nan() : Special<Output>::infinite(negative);
}
