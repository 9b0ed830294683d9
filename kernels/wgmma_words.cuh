// wgmma on FP16 and TF32 words (PTX ISA 8.0, sm_90a): a step along k takes 32 bytes of a row, whatever the format.
//
// d (64 x N, N / 2 registers a thread) = [accumulate] d + A (64 x 16 or 8) B (16 or 8 x N), products added in FP32; or FP16
// words in FP16, whose d is N / 4 registers: entries 2 i and 2 i + 1 in the low and high half of the i-th.
#pragma once
#include "ptx.cuh"

#if defined(__CUDACC_RTC__) || defined(__NVCC__)  // (tests that emulate a cluster bring their own)
#define R8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FIRST_64                                                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"  \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"  \
  "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define FIRST_96 FIRST_64 ","      \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"  \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define FIRST_104 FIRST_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define REGISTERS_64 R8(0), R8(8), R8(16), R8(24), R8(32), R8(40), R8(48), R8(56)
#define REGISTERS_96 REGISTERS_64, R8(64), R8(72), R8(80), R8(88)
#define REGISTERS_104 REGISTERS_96, R8(96)
#define FIRST_48                                                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"  \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define FIRST_32                                                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"  \
  "%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA(SHAPE, OPERANDS, A, B, P, MORE) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." SHAPE " {" OPERANDS "}, " A ", " B ", p" MORE ";\n}\n"

#define DEFINE(COUNT, N, A, B, P)                                                                                       \
  template <bool IS_TF32>                                                                                              \
  __device__ __forceinline__ void wgmma_words(float (&d)[COUNT], uint64_t a, uint64_t b, int accumulate) {             \
    if constexpr (IS_TF32)                                                                                             \
      asm volatile(WGMMA("m64n" #N "k8.f32.tf32.tf32", FIRST_##COUNT, A, B, P, ", 1, 1")                               \
                   : REGISTERS_##COUNT : "l"(a), "l"(b), "r"(accumulate));                                             \
    else                                                                                                               \
      asm volatile(WGMMA("m64n" #N "k16.f32.f16.f16", FIRST_##COUNT, A, B, P, ", 1, 1, 0, 0")                          \
                   : REGISTERS_##COUNT : "l"(a), "l"(b), "r"(accumulate));                                             \
  }
DEFINE(64, 128, "%64", "%65", "%66")
DEFINE(96, 192, "%96", "%97", "%98")
DEFINE(104, 208, "%104", "%105", "%106")
#undef DEFINE

#undef R8
#define R8(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), "+r"(d[i + 7])
#define REGISTERS_32 R8(0), R8(8), R8(16), R8(24)
#define REGISTERS_48 REGISTERS_32, R8(32), R8(40)
#define DEFINE_HALVES(COUNT, N, A, B, P)                                                                         \
  __device__ __forceinline__ void wgmma_halves(uint32_t (&d)[COUNT], uint64_t a, uint64_t b, int accumulate) {   \
    asm volatile(WGMMA("m64n" #N "k16.f16.f16.f16", FIRST_##COUNT, A, B, P, ", 1, 1, 0, 0")                      \
                 : REGISTERS_##COUNT : "l"(a), "l"(b), "r"(accumulate));                                         \
  }
DEFINE_HALVES(32, 128, "%32", "%33", "%34")
DEFINE_HALVES(48, 192, "%48", "%49", "%50")
DEFINE_HALVES(64, 256, "%64", "%65", "%66")
#undef DEFINE_HALVES
#undef WGMMA
#undef R8
#endif
