// One warp: D = A B + C by a single mma instruction, m16n8k16 or (TF32) m16n8k8, for each block of the grid.
// A is row-major [16][K], B column-major [8][K], C and D row-major [16][8]; fragments as the PTX manual lays them out.

__device__ unsigned pair(const unsigned short* p) { return p[0] | (static_cast<unsigned>(p[1]) << 16); }

#define WORDS_OF_16_BITS(NAME, TYPE)                                                                       \
  extern "C" __global__ void NAME(const unsigned short* a, const unsigned short* b, float* c) {            \
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;                                                    \
    a += blockIdx.x * 256, b += blockIdx.x * 128, c += blockIdx.x * 128;                                   \
    const unsigned a0 = pair(a + g * 16 + 2 * t), a1 = pair(a + (g + 8) * 16 + 2 * t);                     \
    const unsigned a2 = pair(a + g * 16 + 2 * t + 8), a3 = pair(a + (g + 8) * 16 + 2 * t + 8);             \
    const unsigned b0 = pair(b + g * 16 + 2 * t), b1 = pair(b + g * 16 + 2 * t + 8);                       \
    float* upper = c + g * 8 + 2 * t;                                                                      \
    float* lower = upper + 64;                                                                             \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "       \
        "{%8,%9}, {%0,%1,%2,%3};"                                                                          \
        : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])                                   \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                           \
  }

WORDS_OF_16_BITS(fp16_fp32, "f16")
WORDS_OF_16_BITS(bf16_fp32, "bf16")

extern "C" __global__ void fp16_fp16(const unsigned short* a, const unsigned short* b, unsigned short* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  a += blockIdx.x * 256, b += blockIdx.x * 128, c += blockIdx.x * 128;
  const unsigned a0 = pair(a + g * 16 + 2 * t), a1 = pair(a + (g + 8) * 16 + 2 * t);
  const unsigned a2 = pair(a + g * 16 + 2 * t + 8), a3 = pair(a + (g + 8) * 16 + 2 * t + 8);
  const unsigned b0 = pair(b + g * 16 + 2 * t), b1 = pair(b + g * 16 + 2 * t + 8);
  unsigned upper = pair(c + g * 8 + 2 * t), lower = pair(c + (g + 8) * 8 + 2 * t);
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
      : "+r"(upper), "+r"(lower)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  for (int i = 0; i < 2; ++i) {
    c[g * 8 + 2 * t + i] = static_cast<unsigned short>(upper >> (16 * i));
    c[(g + 8) * 8 + 2 * t + i] = static_cast<unsigned short>(lower >> (16 * i));
  }
}

extern "C" __global__ void tf32_fp32(const unsigned* a, const unsigned* b, float* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  a += blockIdx.x * 128, b += blockIdx.x * 64, c += blockIdx.x * 128;
  const unsigned a0 = a[g * 8 + t], a1 = a[(g + 8) * 8 + t], a2 = a[g * 8 + t + 4], a3 = a[(g + 8) * 8 + t + 4];
  const unsigned b0 = b[g * 8 + t], b1 = b[g * 8 + t + 4];
  float* upper = c + g * 8 + 2 * t;
  float* lower = upper + 64;
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
