// From floating-point bits to integers: the parts of a number, the measures of a row, and the fixed-point image.
#pragma once
#include "arithmetic/common.cuh"

#ifndef __CUDACC__
#include <cfenv>
#include <cmath>
#endif

// x = (-1)^negative * mantissa * 2^exponent. NaN and Inf are not finite and have mantissa 0.
struct Parts {
  uint64_t mantissa;
  int exponent;
  bool negative;
  bool finite;
};

HD Parts parts(uint64_t bits) {  // of a float64
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  Parts p;
  p.mantissa = bits & 0xfffffffffffffull;
  if (field != 0) p.mantissa |= 1ull << 52;  // else subnormal: no implicit bit, the exponent of field 1
  p.exponent = larger(field, 1) - 1075;
  p.negative = bits >> 63 != 0;
  p.finite = field != 0x7ff;
  if (!p.finite) p.mantissa = 0;
  return p;
}

HD Parts parts(uint32_t bits) {  // of a float32
  const int field = static_cast<int>(bits >> 23 & 0xff);
  uint32_t mantissa = bits & 0x7fffffu;
  if (field != 0) mantissa |= 1u << 23;
  Parts p;
  p.exponent = larger(field, 1) - 150;
  p.negative = bits >> 31 != 0;
  p.finite = field != 0xff;
  p.mantissa = p.finite ? mantissa : 0u;
  return p;
}

// The smallest e with abs(x) < 2^e, the exponent of frexp; EMPTY_TOP for zero.
HD int top_exponent(const Parts& p) {
  return p.mantissa == 0 ? EMPTY_TOP : p.exponent + bit_length(p.mantissa);
}

// floor and ceil of mantissa * 2^shift, for mantissa <= 2^53 and any shift; a left shift must fit 64 bits.
HD uint64_t floor_scaled(uint64_t mantissa, int shift) {
  return shift >= 0 ? mantissa << smaller(shift, 63) : mantissa >> smaller(-shift, 63);
}
HD uint64_t ceil_scaled(uint64_t mantissa, int shift) {
  if (shift >= 0) return mantissa << smaller(shift, 63);
  const int right = smaller(-shift, 63);  // mantissa < 2^63: from 63 on everything is fraction
  return (mantissa + ((1ull << right) - 1)) >> right;
}
// Whether mantissa * 2^shift is no integer.
HD bool has_fraction(uint64_t mantissa, int shift) {
  if (shift >= 0) return false;
  return (mantissa & ((1ull << smaller(-shift, 63)) - 1)) != 0;
}

// ---- The describing sums: ceil(abs(x) 2^(W - top)) and whether it was inexact, W <= 20, abs(x) < 2^top -------------

// An integer that a number was rounded up to, and whether that changed it.
struct Rounded {
  uint32_t value;
  bool inexact;
};

// ceil(abs(x) 2^(W - top)) for any x with abs(x) < 2^top.
HD Rounded ceil_magnitude(const Parts& p, int width, int top) {
  const int shift = p.exponent + width - top;
  return {static_cast<uint32_t>(ceil_scaled(p.mantissa, shift)), has_fraction(p.mantissa, shift)};
}

// The same by a floating-point sum, for a row whose top is that of a normal number with room to spare (top > FastTop).
// Numbers near 2^52 (float32: 2^23) have a unit of 1, so y = ceil(abs(x) 2^(W - top)) <= 2^20 is in the low bits of
// abs(x) 2^(W - top) + 2^52, rounded up; and abs(x) 2^(W - top) is no integer if rounding down gives another sum. Not
// for NaN and Inf.
template <typename Bits> struct FastTop;
template <> struct FastTop<uint64_t> { static constexpr int value = -1000; };
template <> struct FastTop<uint32_t> { static constexpr int value = -100; };

#ifndef __CUDA_ARCH__
template <typename T> inline T fused_toward(int direction, T x, T y, T z) {
  const int before = std::fegetround();
  std::fesetround(direction);
  volatile T between = x;  // keeps the compiler from moving the fma out of the changed rounding mode
  volatile T sum = std::fma(between, y, z);
  std::fesetround(before);
  return sum;
}
#endif
// RU(x y + z) and RD(x y + z): one rounding, up or down.
HD double fused_up(double x, double y, double z) {
#ifdef __CUDA_ARCH__
  return __fma_ru(x, y, z);
#else
  return fused_toward(FE_UPWARD, x, y, z);
#endif
}
HD double fused_down(double x, double y, double z) {
#ifdef __CUDA_ARCH__
  return __fma_rd(x, y, z);
#else
  return fused_toward(FE_DOWNWARD, x, y, z);
#endif
}
HD float fused_up(float x, float y, float z) {
#ifdef __CUDA_ARCH__
  float sum;  // asm: __fmaf_ru flushes subnormals under -ftz=true
  asm("fma.rp.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(x), "f"(y), "f"(z));
  return sum;
#else
  return fused_toward(FE_UPWARD, x, y, z);
#endif
}
HD float fused_down(float x, float y, float z) {
#ifdef __CUDA_ARCH__
  float sum;
  asm("fma.rm.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(x), "f"(y), "f"(z));
  return sum;
#else
  return fused_toward(FE_DOWNWARD, x, y, z);
#endif
}

template <typename Bits> struct FastCeiling;
// FastCeiling(W, top)(bits) is y; the second form also sets `inexact` nonzero if abs(x) 2^(W - top) is no integer, and
// below(bits) is its floor.
template <> struct FastCeiling<uint64_t> {
  double factor;

  HD FastCeiling(int width, int top) : factor(double_of(static_cast<uint64_t>(width - top + 1023) << 52)) {}
  HD uint32_t operator()(uint64_t bits) const {
    return low_limb(bits_of(fused_up(double_of(bits & ~(1ull << 63)), factor, 0x1p52)));
  }
  HD uint32_t below(uint64_t bits) const {
    return low_limb(bits_of(fused_down(double_of(bits & ~(1ull << 63)), factor, 0x1p52)));
  }
  HD uint32_t operator()(uint64_t bits, uint32_t& inexact) const {
    const uint32_t y = (*this)(bits);
    inexact |= y ^ below(bits);
    return y;
  }
};
template <> struct FastCeiling<uint32_t> {
  float factor;

  HD FastCeiling(int width, int top) : factor(float_of_bits(static_cast<uint32_t>(width - top + 127) << 23)) {}
  HD uint32_t operator()(uint32_t bits) const {
    return bits_of(fused_up(float_of_bits(bits & 0x7fffffffu), factor, 0x1p23f)) & 0x7fffffu;
  }
  HD uint32_t below(uint32_t bits) const {
    return bits_of(fused_down(float_of_bits(bits & 0x7fffffffu), factor, 0x1p23f)) & 0x7fffffu;
  }
  HD uint32_t operator()(uint32_t bits, uint32_t& inexact) const {
    const uint32_t y = (*this)(bits);
    inexact |= y ^ below(bits);
    return y;
  }
};

// floor(abs(x) 2^(W - top)) < 2^W in the same way, W <= 22; NaN and Inf give 0.
template <typename Bits> struct FastFloor;
template <> struct FastFloor<uint64_t> {
  double factor;

  HD FastFloor(int width, int top) : factor(double_of(static_cast<uint64_t>(width - top + 1023) << 52)) {}
  HD uint32_t operator()(uint64_t bits) const {
    const uint64_t y = bits_of(fused_down(double_of(bits & ~(1ull << 63)), factor, 0x1p52));
    return high_limb(y) == 0x43300000u ? low_limb(y) : 0u;
  }
};
template <> struct FastFloor<uint32_t> {
  float factor;

  HD FastFloor(int width, int top) : factor(float_of_bits(static_cast<uint32_t>(width - top + 127) << 23)) {}
  HD uint32_t operator()(uint32_t bits) const {
    const uint32_t y = bits_of(fused_down(float_of_bits(bits & 0x7fffffffu), factor, 0x1p23f));
    return y < 0x4b800000u ? y & 0x7fffffu : 0u;
  }
};

// ---- The exponent of a row ------------------------------------------------------------------------------------------

// mu = base + g - top, g the largest integer >= 0 with statistic * step^g <= threshold (step 2 or 4; 0 < statistic <=
// threshold < 2^63); 0 for a row without nonzero.
HD int row_exponent(int64_t top, int64_t statistic, int step, int base, int64_t threshold) {
  if (top == EMPTY_TOP) return 0;
  const int step_bits = step == 4 ? 2 : 1;
  const uint64_t value = static_cast<uint64_t>(larger<int64_t>(statistic, 1));
  const int spare = bit_length(static_cast<uint64_t>(threshold)) - bit_length(value);
  // Shifted by `spare` bits value is as long as threshold, so it still fits; one step more would exceed the threshold.
  int g = spare < 0 ? 0 : spare >> (step_bits - 1);
  if (g > 0 && (value << (g * step_bits)) > static_cast<uint64_t>(threshold)) --g;
  return base + g - static_cast<int>(top);
}

// The top of a row from field 0 of its description: the field itself or, if OF_LARGEST, that of the largest element.
template <typename Bits, bool OF_LARGEST> HD int described_top(int64_t field) {
  return OF_LARGEST ? top_exponent(parts(static_cast<Bits>(field))) : static_cast<int>(field);
}

// row_exponent of row `index` of a description, int64 [6][batch_rows]. `statistic` is the number of the field that the
// scaling reads or, if OF_LARGEST (field 0 is the largest element itself), the magnitude bits W of the peak, which is
// computed from that element.
template <typename Bits, bool OF_LARGEST>
HD int described_exponent(const int64_t* description, int64_t batch_rows, int64_t index, int statistic, int step,
                          int base, int64_t threshold) {
  if (!OF_LARGEST)
    return row_exponent(description[index], description[statistic * batch_rows + index], step, base, threshold);
  const Parts p = parts(static_cast<Bits>(description[index]));
  const int top = top_exponent(p);
  return row_exponent(top, ceil_magnitude(p, statistic, top).value, step, base, threshold);
}

// ---- The image RN(2^mu x) as a two's complement number of LENGTH 32-bit limbs, lowest first -------------------------

// RN((-1)^negative mantissa 2^shift), ties to even, as a 64-bit integer; mantissa < 2^53, mantissa 2^shift < 2^63.
HD uint64_t rounded_64(uint64_t mantissa, int shift, bool negative) {
  int right = 10 - shift;                       // from mantissa << 10, which has 63 bits at most
  mantissa <<= smaller(larger(-right, 0), 63);  // subnormal or float32: there was room for more
  if (right > 63) mantissa = 0;                 // below 2^(63 - 64) = 1/2
  right = smaller(larger(right, 0), 63);
  const uint64_t twice = mantissa << 11;
  const uint64_t value = (twice >> 1) >> right;
  const uint64_t rest = twice << (63 - right);        // the dropped bits, 2^63 is one half
  const bool up = (rest | (value & 1)) > 1ull << 63;  // at exactly one half an odd value rounds up
  // -(value + up) = ~value + 1 - up: one addition for both signs.
  const uint64_t sign = negative ? ~0ull : 0ull;
  return (value ^ sign) + (up != negative ? 1u : 0u);
}

// The same in 32 bits; mantissa < 2^24, mantissa 2^shift < 2^31.
HD uint32_t rounded_32(uint32_t mantissa, int shift, bool negative) {
  int right = 7 - shift;
  mantissa <<= smaller(larger(-right, 0), 31);
  if (right > 31) mantissa = 0;
  right = smaller(larger(right, 0), 31);
  const uint32_t twice = mantissa << 8;
  const uint32_t value = (twice >> 1) >> right;
  const uint32_t rest = twice << (31 - right);
  const bool up = (rest | (value & 1)) > 1u << 31;
  const uint32_t sign = negative ? ~0u : 0u;
  return (value ^ sign) + (up != negative ? 1u : 0u);
}

// RN(2^mu x) of a number in parts; it fits LENGTH limbs. mu > 10 - exponent shifts to the left, which is exact.
template <int LENGTH>
HD void image_of_parts(const Parts& p, int mu, uint32_t (&limbs)[LENGTH]) {
  const int shift = p.exponent + mu;
  const uint32_t sign = p.negative && p.mantissa != 0 ? ~0u : 0u;
  if (LENGTH <= 2 || shift <= 10) {
    const uint64_t value = rounded_64(p.mantissa, shift, p.negative);
    limbs[0] = low_limb(value);
    if (LENGTH > 1) limbs[LENGTH > 1 ? 1 : 0] = high_limb(value);
    for (int i = 2; i < LENGTH; ++i) limbs[i] = high_limb(value) >> 31 ? ~0u : 0u;
  } else {
    // An exact left shift: limb i holds bits 32 i - shift and up of the mantissa; then negate.
    uint32_t carry = sign & 1;
#pragma unroll
    for (int i = 0; i < LENGTH; ++i) {
      const int from = 32 * i - shift;
      uint32_t limb = 0;
      if (from >= 0 && from < 64) limb = low_limb(p.mantissa >> (from & 63));
      if (from < 0 && from > -32) limb = low_limb(p.mantissa) << (-from & 31);
      limbs[i] = (limb ^ sign) + carry;
      carry = carry != 0 && limbs[i] == 0 ? 1u : 0u;
    }
  }
}

// ---- The image in float64 arithmetic, for at most two limbs ---------------------------------------------------------
HD double double_of(uint32_t bits) {  // the value of a float32, also of a subnormal one
#ifdef __CUDA_ARCH__
  double x;
  asm("cvt.f64.f32 %0, %1;" : "=d"(x) : "f"(__uint_as_float(bits)));
  return x;
#else
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
#endif
}
// An element times a factor, a power of two or 0, for which the product is a normal number of its format, or zero.
HD uint64_t scaled_bits(uint64_t bits, double factor) { return bits_of(double_of(bits) * factor); }
HD uint32_t scaled_bits(uint32_t bits, double factor) { return bits_of(static_cast<float>(double_of(bits) * factor)); }

// A usual exponent has -1022 <= mu <= 1023, so 2^mu is a normal float64. Other exponents (of subnormal rows, or of huge
// ones with a narrow image) are split: elements are first multiplied by 2^600 or 2^-200 (tame), which is exact, or
// leaves a number far below one half, and then by 2^usual_part(mu) (factor_of).
HD bool usual_scale(int mu) { return mu >= -1022 && mu <= 1023; }
HD int usual_part(int mu) { return mu > 1023 ? mu - 600 : mu < -1022 ? larger(mu + 200, -1022) : mu; }
HD double factor_of(int mu) { return double_of(static_cast<uint64_t>(usual_part(mu) + 1023) << 52); }
// The bits of an element times the first part of the scale; zero for NaN and Inf.
HD uint64_t tame(uint64_t bits, int mu) {
  const double rest = mu > 1023 ? 0x1p600 : mu < -1022 ? 0x1p-200 : 1.0;
  return (bits >> 52 & 0x7ff) == 0x7ff ? 0ull : bits_of(double_of(bits) * rest);
}
HD uint32_t tame(uint32_t bits, int) {  // float32: every mu is usual
  return (bits >> 23 & 0xff) == 0xff ? 0u : bits;
}

// RN(x factor), ties to even, for abs(x factor) < 2^(32 LENGTH - 1), LENGTH <= 2; with RAISED plus 2^(32 LENGTH - 1). x
// factor is exact, or so small that it counts as zero. One limb: float64 numbers near 1.5 2^52 are integers, and the
// low bits of 1.5 2^52 + n are n in two's complement.
template <bool RAISED, int LENGTH> HD void image_by_doubles(double x, double factor, uint32_t (&limbs)[LENGTH]) {
  if (LENGTH == 1) {
    limbs[0] = low_limb(bits_of(fused(x, factor, RAISED ? 0x1.8p52 + 0x1p31 : 0x1.8p52)));
  } else {
    const uint64_t y = static_cast<uint64_t>(nearest_integer(x * factor));
    limbs[0] = low_limb(y);
    limbs[LENGTH > 1 ? 1 : 0] = high_limb(y) ^ (RAISED ? 0x80000000u : 0u);
  }
}

// The image RN(2^mu x). The caller has chosen mu so that it fits: abs(Abar) < 2^(32 LENGTH - 1). NaN and Inf count as
// zero.
template <int LENGTH> HD void image(uint64_t bits, int mu, uint32_t (&limbs)[LENGTH]) {
  image_of_parts<LENGTH>(parts(bits), mu, limbs);
}
template <int LENGTH> HD void image(uint32_t bits, int mu, uint32_t (&limbs)[LENGTH]) {
  const Parts p = parts(bits);
  if (LENGTH == 1)
    limbs[0] = rounded_32(low_limb(p.mantissa), p.exponent + mu, p.negative);
  else
    image_of_parts<LENGTH>(p, mu, limbs);
}
