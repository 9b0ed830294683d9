// Products of low-precision words by mma.sync, on the tensor cores of every architecture from Ampere on: c += A B with
// A a fragment of 16 rows (fragments.cuh) and B half a fragment, 8 columns, over 32 bytes of k. Thread 4 g + t of the
// warp has rows g (c[0], c[1]) and g + 8 (c[2], c[3]) of columns 2 t and 2 t + 1.
#pragma once
#include "arithmetic/words.cuh"

#if defined(__CUDACC_RTC__) || defined(__NVCC__)  // (tests that emulate a warp bring their own)
template <Word W>
__device__ __forceinline__ void multiply_words(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
#define MMA(SHAPE)                                                                                               \
  asm("mma.sync.aligned." SHAPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                     \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                           \
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1))
  if constexpr (W == FP16) MMA("m16n8k16.row.col.f32.f16.f16");
  else if constexpr (W == BF16) MMA("m16n8k16.row.col.f32.bf16.bf16");
  else MMA("m16n8k8.row.col.f32.tf32.tf32");
#undef MMA
}

// FP16 words, added in FP16: c[0] packs the two numbers that are c[0] and c[1] above, c[1] the other two, low half
// first.
__device__ __forceinline__ void multiply_words(uint32_t (&c)[2], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
      : "+r"(c[0]), "+r"(c[1])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
#endif
