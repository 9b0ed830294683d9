// Elements of scaled rows as low-precision floating-point words: numbers of FP16, BF16 or TF32 (docs/definitions.md,
// section 7).
//
// All arithmetic here is exact in float32, subnormal numbers included (kernels are compiled without -ftz), with one
// exception: elements that scaling takes below 2^-126 lose their last bits. With a ceiling of 15 they are less than
// 2^-140 times the largest element of their row.
#pragma once
#include "arithmetic/common.cuh"

enum Word { FP16, BF16, TF32 };
enum Conversion { RN, RNA, RZ };  // to nearest with ties to even or away from zero, or toward zero

// 2^e; for e outside the normal numbers the nearest normal power of two.
HD float power_of_two(int e) { return float_of_bits(static_cast<uint32_t>(smaller(larger(e, -126), 127) + 127) << 23); }

// x 2^e, rounded once, for e <= 254 and, where e < -252, abs(x) < 2^100. Two products: the first is exact unless the
// result is zero or Inf all the same.
struct Scale {
  float first, second;
  HD explicit Scale(int e) {
    const int within = smaller(larger(e, -126), 127);
    first = power_of_two(e - within);
    second = power_of_two(within);
  }
  HD float operator()(float x) const { return x * first * second; }
};

// The same for float (Scale) and double.
template <typename T> struct Power;
template <> struct Power<float> : Scale { using Scale::Scale; };
template <> struct Power<double> {
  double power;
  HD explicit Power(int e) : power(double_of_limbs(static_cast<uint32_t>(e + 1023) << 20, 0)) {}
  HD double operator()(double x) const { return x * power; }
};

// x rounded to a number of format W by conversion C, as a float32.
template <Word W, Conversion C> HD float round_to_word(float x) {
#ifdef __CUDA_ARCH__
  if (W == FP16 && C == RN) {
    float rounded;
    asm("{\n.reg .f16 half;\ncvt.rn.f16.f32 half, %1;\ncvt.f32.f16 %0, half;\n}" : "=f"(rounded) : "f"(x));
    return rounded;
  }
#endif
  const uint32_t bits = bits_of(x), sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
  int dropped = W == BF16 ? 16 : 13;
  if (W == FP16) {  // subnormal FP16, below 2^-14: the last bit stays 2^-24
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    dropped += larger(-14 - exponent, 0);
    if (dropped >= 24) {  // less than the smallest number
      const bool up = C == RN ? magnitude > 0x33000000u : C == RNA && magnitude >= 0x33000000u;
      return float_of_bits(sign | (up ? 0x33800000u : 0u));
    }
  }
  const uint32_t half = 1u << (dropped - 1), odd = magnitude >> dropped & 1;
  const uint32_t added = C == RN ? half - 1 + odd : C == RNA ? half : 0u;
  return float_of_bits(sign | ((magnitude + added) & ~(2 * half - 1)));
}

// Cuts x into P words: word s is 2^(S s) times what the words before it leave, rounded. Returns what all words leave.
template <Word W, Conversion C, int S, int P> HD float split_into_words(float x, float (&words)[P]) {
#pragma unroll
  for (int s = 0; s < P; ++s) {
    words[s] = round_to_word<W, C>(x * power_of_two(S * s));
    x -= words[s] * power_of_two(-S * s);
  }
  return x;
}

// Two FP16 numbers packed in 32 bits, low and high half.
#if defined(__CUDACC_RTC__) || defined(__NVCC__)
__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  uint32_t packed;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("{\n.reg .f16 l, h;\ncvt.rn.f16.f32 l, %2;\ncvt.rn.f16.f32 h, %1;\nmov.b32 %0, {l, h};\n}"
      : "=r"(packed) : "f"(high), "f"(low));
#endif
  return packed;
}
__device__ __forceinline__ float half_to_float(uint32_t halves, int i) {  // i a constant
  float x;
  if (i == 0) asm("{\n.reg .f16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(x) : "r"(halves));
  else asm("{\n.reg .f16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, high;\n}" : "=f"(x) : "r"(halves));
  return x;
}
#endif
