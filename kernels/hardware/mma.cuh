// Products of unsigned bytes by the tensor cores of every architecture from Turing on (mma.sync).
//
// The lane 4 g + c of a warp holds four bytes of column g of b, those of its own number. fold_pair multiplies them with
// 8 rows twice, whose bytes for this lane stand in `first` and `second` of the lane with the same c and with g the row:
//   d[0], d[1] = sum over all c of first(row g, c) b(column 2 c', c), the same of column 2 c' + 1;  d[2], d[3]: second
// where the receiving lane is 4 g + c'. LENGTH such words are summed, from `start` on.
#pragma once
#include "arithmetic/common.cuh"

// (tests that emulate a warp bring their own)
#if defined(__CUDACC_RTC__) || defined(__NVCC__)
// d = c + products of one word, or of two.
__device__ __forceinline__ void multiply_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first,
                                               uint32_t second, uint32_t b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(first), "r"(second), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else
  asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
      : "=r"(d[0]), "=r"(d[1])
      : "r"(first), "r"(b), "r"(c[0]), "r"(c[1]));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
      : "=r"(d[2]), "=r"(d[3])
      : "r"(second), "r"(b), "r"(c[2]), "r"(c[3]));
#endif
}
__device__ __forceinline__ void multiply_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first,
                                               uint32_t second, uint32_t b, uint32_t first_next,
                                               uint32_t second_next, uint32_t b_next) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(first), "r"(second), "r"(first_next), "r"(second_next), "r"(b), "r"(b_next), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
#else
  multiply_bytes(d, c, first, second, b);
  multiply_bytes(d, d, first_next, second_next, b_next);
#endif
}
#endif

template <int LENGTH>
__device__ __forceinline__ void fold_pair(uint32_t (&d)[4], const uint32_t (&start)[4], const uint32_t (&first)[LENGTH],
                                          const uint32_t (&second)[LENGTH], const uint32_t (&b)[LENGTH]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = start[i];
#pragma unroll
  for (int w = 0; w + 1 < LENGTH; w += 2)
    multiply_bytes(d, d, first[w], second[w], b[w], first[w + 1], second[w + 1], b[w + 1]);
  if (LENGTH % 2 == 1) multiply_bytes(d, d, first[LENGTH - 1], second[LENGTH - 1], b[LENGTH - 1]);
}
