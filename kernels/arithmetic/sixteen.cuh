// Floating-point numbers of 16 bits: their values as float32, and the rounding of exact integers to them, once.
#pragma once
#include "arithmetic/combination.cuh"
#include "arithmetic/fixed_point.cuh"

// PRECISION bits of the significand, values below 2^TOP; the bits of Inf.
struct BFloat16 {
  static constexpr int PRECISION = 8, TOP = 128;
  static constexpr uint16_t INFINITE = 0x7f80;
  uint16_t bits;
};
struct Float16 {
  static constexpr int PRECISION = 11, TOP = 16;
  static constexpr uint16_t INFINITE = 0x7c00;
  uint16_t bits;
};
template <> struct BitsOf<BFloat16> { typedef uint16_t type; };
template <> struct BitsOf<Float16> { typedef uint16_t type; };

// The bits of the float32 that an element is, with its sign; of a NaN those of a NaN.
template <typename T> HD uint32_t widened(uint32_t bits);
template <> HD uint32_t widened<BFloat16>(uint32_t bits) { return bits << 16; }
template <> HD uint32_t widened<Float16>(uint32_t bits) {
#ifdef __CUDA_ARCH__
  uint32_t wide;
  asm("{\n.reg .b16 half;\ncvt.u16.u32 half, %1;\ncvt.f32.f16 %0, half;\n}" : "=r"(wide) : "r"(bits));
  return wide;
#else
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude < 0x400u) return sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f);
  return sign | ((magnitude << 13) + (magnitude < 0x7c00u ? 112u << 23 : 224u << 23));
#endif
}
// The same, but +0 for NaN and Inf.
template <typename T> HD uint32_t finite_element(uint32_t bits) {
  return (bits & 0x7fffu) < T::INFINITE ? widened<T>(bits) : 0u;
}

// The bits of an element that is given as a float32 with the same value.
template <typename T> HD uint16_t narrowed(uint32_t bits);
template <> HD uint16_t narrowed<BFloat16>(uint32_t bits) {
  return static_cast<uint16_t>(bits >> 16 | ((bits & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0u));
}
template <> HD uint16_t narrowed<Float16>(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude == 0x7f800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude >= 113u << 23) return static_cast<uint16_t>(sign | (magnitude - (112u << 23)) >> 13);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(float_of_bits(magnitude) * 0x1p24f));
}

// RN(limbs 2^exponent), ties to even, with its sign.
template <> struct Rounding<BFloat16> {
  template <int LENGTH> static HD uint16_t bits(const uint32_t (&limbs)[LENGTH], int exponent) {
    bool negative;
    const uint64_t magnitude = round_to_format<8, 128>(limbs, exponent, negative);
    return static_cast<uint16_t>(magnitude | (negative ? 0x8000u : 0u));
  }
};
template <> struct Rounding<Float16> {
  template <int LENGTH> static HD uint16_t bits(const uint32_t (&limbs)[LENGTH], int exponent) {
    bool negative;
    const uint64_t magnitude = round_to_format<11, 16>(limbs, exponent, negative);
    return static_cast<uint16_t>(magnitude | (negative ? 0x8000u : 0u));
  }
};

template <> struct Special<BFloat16> {
  static HD uint16_t nan() { return 0x7fc0; }
  static HD uint16_t infinite(bool negative) { return negative ? 0xff80 : 0x7f80; }
};
template <> struct Special<Float16> {
  static HD uint16_t nan() { return 0x7e00; }
  static HD uint16_t infinite(bool negative) { return negative ? 0xfc00 : 0x7c00; }
};

HD float fused_toward_zero(float x, float y, float z) {
#ifdef __CUDA_ARCH__
  return __fmaf_rz(x, y, z);
#else
  return fused_toward(FE_TOWARDZERO, x, y, z);
#endif
}

HD float float_toward_zero(int64_t x) {  // below 2^62 in magnitude
#ifdef __CUDA_ARCH__
  return __ll2float_rz(x);
#else
  const float f = static_cast<float>(x);
  const int64_t nearest = static_cast<int64_t>(f);
  return (x < 0 ? nearest < x : nearest > x) ? float_of_bits(bits_of(f) - 1) : f;
#endif
}

// V = sum_s sums[s] 2^(8 (P - 1 - s)) of P diagonals of digits, the most significant first.
template <int P> HD int64_t joined(const int32_t (&sums)[P]) {
  int64_t v = sums[0];
#pragma unroll
  for (int s = 1; s < P; ++s) v = v * 256 + sums[s];
  return v;
}
// RN(V 2^exponent), whatever over- or underflows.
template <typename T> HD uint16_t round_joined(int64_t v, int exponent) {
  const uint32_t limbs[2] = {low_limb(static_cast<uint64_t>(v)), high_limb(static_cast<uint64_t>(v))};
  return Rounding<T>::bits(limbs, exponent);
}

// V, of at most three diagonals, below 2^47 in magnitude, as a float32 that is rounded toward zero, and whose last bit
// is set if that changed it. A further rounding to fewer bits than 23 then gives what one rounding of V would. With
//
//   V = h 2^23 + l, 0 <= l < 2^23,   H = h - 1,   L = 2^23 + l,
//
// which are float32, f = RZ(H 2^23 + L); and f = V if and only if H 2^23 - f, which is a float32, is -L.
template <int P> HD float joined_to_odd(const int32_t (&sums)[P]) {
  // What is above bit 8 (P - 1) of V, less 2^23 in units of V; and the low limb of V.
  int upper = sums[P - 1] >> 8;
#pragma unroll
  for (int s = P - 2; s > 0; --s) upper = (upper + sums[s]) >> 8;
  upper += sums[0] - (1 << (23 - 8 * (P - 1)));
  uint32_t low = static_cast<uint32_t>(sums[0]);
#pragma unroll
  for (int s = 1; s < P; ++s) low = low * 256u + static_cast<uint32_t>(sums[s]);
  const float high = static_cast<float>(upper >> (23 - 8 * (P - 1)));
  const float below = float_of_bits((low & 0x7fffffu) | 0x4b000000u);
  const float f = fused_toward_zero(high, 8388608.0f, below);
  const bool inexact = fused(high, 8388608.0f, -f) != -below;
  return float_of_bits(bits_of(f) | (inexact ? 1u : 0u));
}
// The same of four diagonals, V below 2^62, which few rows have.
template <> HD float joined_to_odd<4>(const int32_t (&sums)[4]) {
  const int64_t v = joined<4>(sums);
  const float f = float_toward_zero(v);
  return float_of_bits(bits_of(f) | (static_cast<int64_t>(f) != v ? 1u : 0u));
}

// Two neighbouring results in one limb, the first one lowest: RN(x), RN(y).
#ifndef __CUDA_ARCH__
template <typename T> HD uint16_t rounded_float(float x) {
  const uint32_t bits = bits_of(x), field = larger(bits >> 23 & 0xffu, 1u);
  const uint32_t whole = (bits & 0x7fffffu) | ((bits >> 23 & 0xffu) != 0 ? 1u << 23 : 0u);
  if ((bits & 0x7f800000u) == 0x7f800000u) return Special<T>::infinite(bits >> 31 != 0);
  const bool negative = bits >> 31 != 0;
  const uint32_t limbs[2] = {whole, 0};
  return static_cast<uint16_t>(Rounding<T>::bits(limbs, static_cast<int>(field) - 150) | (negative ? 0x8000u : 0u));
}
#endif
template <typename T> HD uint32_t rounded_pair(float x, float y);
template <> HD uint32_t rounded_pair<BFloat16>(float x, float y) {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
  return pair;
#else
  return 0;  // nothing that calls this runs there
#endif
#else
  return rounded_float<BFloat16>(x) | static_cast<uint32_t>(rounded_float<BFloat16>(y)) << 16;
#endif
}
template <> HD uint32_t rounded_pair<Float16>(float x, float y) {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
  return pair;
#else
  return 0;
#endif
#else
  return rounded_float<Float16>(x) | static_cast<uint32_t>(rounded_float<Float16>(y)) << 16;
#endif
}

// Whether a float32 V, 0 or from 1 to 2^62 in magnitude, times 2^exponent is one multiplication: neither is the power a
// subnormal number, nor V times it. What overflows is Inf in any format.
HD bool usual_exponent(int exponent) { return static_cast<uint32_t>(exponent + 126) <= 253u; }

HD float product_toward_zero(float x, float y) {
#ifdef __CUDA_ARCH__
  return __fmul_rz(x, y);
#else
  return fused_toward_zero(x, y, 0.0f);
#endif
}
// V 2^exponent for any exponent, rounded toward zero, and odd where that changes it: a further rounding to 16 bits then
// gives what one rounding would. From 2^-252 and 2^252 on nothing is left of V, or everything overflows.
HD float scaled_to_odd(float v, int exponent) {
  const int second = smaller(larger(exponent, -126), 126), first = smaller(larger(exponent - second, -126), 126);
  const float between = product_toward_zero(v, float_of_bits(static_cast<uint32_t>(first + 127) << 23));
  const float scaled = product_toward_zero(between, float_of_bits(static_cast<uint32_t>(second + 127) << 23));
  const bool inexact = scaled * float_of_bits(static_cast<uint32_t>(127 - second) << 23) != between;
  return float_of_bits(bits_of(scaled) | (inexact ? 1u : 0u));
}

// V 2^exponent + c, V below 2^53, c a float32, exactly but for what rounding to odd leaves out, twice: to float64 and
// to float32. A further rounding to 16 bits then gives what one rounding would. -302 <= exponent <= 250.
HD float added_to_odd(int64_t v, int exponent, float c) {
  const double term = static_cast<double>(v) * double_of(static_cast<uint64_t>(exponent + 1023) << 52), addend = c;
  const double sum = term + addend, added = sum - term, error = (term - (sum - added)) + (addend - added);
  uint64_t bits = bits_of(sum);
  if (error != 0.0 && bits % 2 == 0) bits += (error < 0.0) == (sum < 0.0) ? 1 : -1;
  const double odd = double_of(bits);
#ifdef __CUDA_ARCH__
  const float found = __double2float_rz(odd);
#else
  const int before = std::fegetround();
  std::fesetround(FE_TOWARDZERO);
  const volatile double given = odd;
  const volatile float found = static_cast<float>(given);
  std::fesetround(before);
#endif
  const float rounded = found;
  return float_of_bits(bits_of(rounded) | (static_cast<double>(rounded) != odd ? 1u : 0u));
}
