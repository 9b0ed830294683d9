// From accumulators, sums of k <= 256 products of bytes in [0, m_t), straight to the z_g that crt.cuh combines, without
// bytes y_t in between. With the accumulators c_t of the moduli of group g, P their product,
//
//   z = sum_t c_t P / m_t - (q - 1) P,   q = RN(sum_t c_t / m_t),   computed modulo 2^32.
//
// Each c_t is below 256 255^2 < 2^24, so its bits as a float32 are the number c_t 2^-149 (numbers below 2^-125 all have
// that unit). With factors RN(2^127 / m_t) the sums are those of c_t / m_t in units of 2^-22; for moduli above 96 they
// are below 2^19 units, so the three factors, products and sums are off by 2^-5 of a unit each at most. Added to 3.0,
// which has that unit, too, they leave q in the low bits: z is in (P / 4, 7 P / 4), and crt.cuh takes z from 0 to 3 P.
#pragma once
#include "arithmetic/crt.cuh"

// Constants, filled by the host; groups and their members as in crt.cuh. 4 (2 N + 2 G) bytes, no padding.
template <int N> struct GroupSums {
  float inverse[N];               // RN(2^127 / m_t)
  uint32_t cofactor[N];           // P / m_t
  uint32_t minus[crt_groups(N)];  // 2^32 - P
  uint32_t start[crt_groups(N)];  // P (bits of 3.0 + 1) modulo 2^32
};

// x y, and x y + z, of which x is the float32 with these bits, rounded to nearest.
HD float product_of_bits(uint32_t x, float y) {
#ifdef __CUDA_ARCH__
  float z;  // asm: never flushes subnormals, whatever the compiler's options
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(z) : "f"(float_of_bits(x)), "f"(y));
  return z;
#else
  return float_of_bits(x) * y;
#endif
}
HD float sum_of_bits(uint32_t x, float y, float z) {
#ifdef __CUDA_ARCH__
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(float_of_bits(x)), "f"(y), "f"(z));
  return sum;
#else
  return __builtin_fmaf(float_of_bits(x), y, z);
#endif
}

// The z of one group, while the moduli of the group come one after the other.
struct GroupSum {
  uint32_t z;
  float quotient;

  // The accumulator of modulus t, which is the first one of its group or not.
  template <int N> HD void add(uint32_t accumulator, int t, int g, const GroupSums<N>& c) {
    const bool first = t == crt_start(N, g);
    quotient = first ? product_of_bits(accumulator, c.inverse[t]) : sum_of_bits(accumulator, c.inverse[t], quotient);
    z = accumulator * c.cofactor[t] + (first ? c.start[g] : z);
  }
  template <int N> HD void finish(int g, const GroupSums<N>& c) { z += bits_of(quotient + 3.0f) * c.minus[g]; }
};
