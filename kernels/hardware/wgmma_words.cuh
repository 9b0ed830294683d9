// wgmma on words of FP16, BF16 and TF32 (PTX ISA 8.0, sm_90a): a step along k takes 32 bytes of a row, whatever the
// format.
//
// d (64 x N, N / 2 registers a thread) = [accumulate] d + A (64 x 16 or 8) B (16 or 8 x N), products added in FP32; or
// FP16 words in FP16, whose d is N / 4 registers: entries 2 i and 2 i + 1 in the low and high half of the i-th.
#pragma once
#include "hardware/ptx.cuh"
#include "arithmetic/words.cuh"

#if defined(__CUDACC_RTC__) || defined(__NVCC__)  // (tests that emulate a cluster bring their own)
#define DEFINE(COUNT, N, A, B, P)                                                                                \
  template <Word W>                                                                                             \
  __device__ __forceinline__ void wgmma_words(float (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) {      \
    if constexpr (W == TF32)                                                                                    \
      asm volatile(WGMMA("m64n" #N "k8.f32.tf32.tf32", FIRST_##COUNT, A, B, P, ", 1, 1")                        \
                   : REGISTERS_##COUNT("+f")                                                                   \
                   : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"(accumulate));                     \
    else if constexpr (W == BF16)                                                                               \
      asm volatile(WGMMA("m64n" #N "k16.f32.bf16.bf16", FIRST_##COUNT, A, B, P, ", 1, 1, 0, 0")                 \
                   : REGISTERS_##COUNT("+f")                                                                   \
                   : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"(accumulate));                     \
    else                                                                                                        \
      asm volatile(WGMMA("m64n" #N "k16.f32.f16.f16", FIRST_##COUNT, A, B, P, ", 1, 1, 0, 0")                   \
                   : REGISTERS_##COUNT("+f")                                                                   \
                   : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"(accumulate));                     \
  }
DEFINE(64, 128, "%64", "%65", "%66")
DEFINE(96, 192, "%96", "%97", "%98")
DEFINE(104, 208, "%104", "%105", "%106")
DEFINE(128, 256, "%128", "%129", "%130")
#undef DEFINE

#define DEFINE_HALVES(COUNT, N, A, B, P)                                                                         \
  __device__ __forceinline__ void wgmma_halves(uint32_t (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) {   \
    asm volatile(WGMMA("m64n" #N "k16.f16.f16.f16", FIRST_##COUNT, A, B, P, ", 1, 1, 0, 0")                      \
                 : REGISTERS_##COUNT("+r")                                                                     \
                 : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"(accumulate));                       \
  }
DEFINE_HALVES(32, 128, "%32", "%33", "%34")
DEFINE_HALVES(48, 192, "%48", "%49", "%50")
DEFINE_HALVES(52, 208, "%52", "%53", "%54")
DEFINE_HALVES(64, 256, "%64", "%65", "%66")
#undef DEFINE_HALVES
#endif
