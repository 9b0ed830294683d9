// wgmma on low-precision words of FP16, BF16 and TF32 (PTX ISA 8.0, sm_90a). A step along k takes 32 bytes of a row,
// whatever the format: 16 words, or 8 of TF32.
//
// wgmma_words: d (64 x N, N / 2 registers a thread) = A B, plus d if `accumulate`, products added in FP32.
// wgmma_halves: FP16 words added in FP16; d has N / 4 registers, register i packs entries 2 i (low half) and 2 i + 1.
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
