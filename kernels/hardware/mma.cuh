// Sums of products of unsigned bytes by mma.sync, on the tensor cores of every architecture from Turing on: by them
// conversion/cut.cuh reduces images to residues.
//
// Lane 4 g + c of a warp holds limbs of four bytes: of column g of matrix b its part c, LENGTH of them; and in `first`
// and `second` its part c of row g of two matrices of 8 rows. fold_pair multiplies both with b:
//   d[0], d[1] = start + sum over c of first(row g, c) b(column 2 c', c), and the same of column 2 c' + 1
//   d[2], d[3] = the same of second
// in lane 4 g + c'.
#pragma once
#include "arithmetic/common.cuh"

// (The emulation of a warp in tests/ has its own definitions.)
#if defined(__CUDACC_RTC__) || defined(__NVCC__)
// d = c + the products of one limb of each lane, or of two limbs.
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

// The same of signed bytes.
__device__ __forceinline__ void multiply_signed_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first,
                                                      uint32_t second, uint32_t b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(first), "r"(second), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
      : "=r"(d[0]), "=r"(d[1])
      : "r"(first), "r"(b), "r"(c[0]), "r"(c[1]));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
      : "=r"(d[2]), "=r"(d[3])
      : "r"(second), "r"(b), "r"(c[2]), "r"(c[3]));
#endif
}
__device__ __forceinline__ void multiply_signed_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first,
                                                      uint32_t second, uint32_t b, uint32_t first_next,
                                                      uint32_t second_next, uint32_t b_next) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(first), "r"(second), "r"(first_next), "r"(second_next), "r"(b), "r"(b_next), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
#else
  multiply_signed_bytes(d, c, first, second, b);
  multiply_signed_bytes(d, d, first_next, second_next, b_next);
#endif
}

// Four matrices of eight rows of 16 bytes in shared memory: lane 8 i + j gives the address of row j of matrix i, and lane
// 4 g + c receives limb c of row g of matrix i in part[i].
__device__ __forceinline__ void load_matrices(uint32_t (&part)[4], const uint32_t* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
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
