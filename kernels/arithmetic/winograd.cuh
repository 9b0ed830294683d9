// Sums of residues in [0, m), m <= 256, four at a time: those that Winograd's form of Strassen's product needs
// (docs/engines.md).
//
// Four bytes are split into two limbs of two 16-bit halves. A half is reduced by unsigned minima modulo 2^16: of x, x -
// m, x - 2 m, ..., the one in [0, m) is the smallest, since negative ones wrap around to large numbers.
#pragma once
#include "arithmetic/common.cuh"

// min((a + b) mod 2^16, c) in both halves of a limb.
HD uint32_t least_of_halves(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
  uint32_t x;  // one instruction from compute capability 9.0 on
  asm("{\n.reg .b32 sum;\nadd.u16x2 sum, %1, %2;\nmin.u16x2 %0, sum, %3;\n}" : "=r"(x) : "r"(a), "r"(b), "r"(c));
  return x;
#else
  const uint32_t low = smaller((a + b) & 0xffffu, c & 0xffffu);
  return smaller(((a >> 16) + (b >> 16)) & 0xffffu, c >> 16) << 16 | low;
#endif
}

constexpr uint32_t HALVES = 0x10001u;

struct Modulus {
  uint32_t m;
  uint32_t minus_once, minus_twice;  // -m and -2 m in both halves

  HD explicit Modulus(uint32_t m) : m(m), minus_once((65536 - m) * HALVES), minus_twice((65536 - 2 * m) * HALVES) {}

  // x mod m in both halves, for x < 2 m.
  HD uint32_t reduced_once(uint32_t x) const { return least_of_halves(x, minus_once, x); }
  // x mod m in both halves, for x < 4 m.
  HD uint32_t reduced(uint32_t x) const { return reduced_once(least_of_halves(x, minus_twice, x)); }
};

// Bytes 0 and 2 of x in halves, bytes 1 and 3 in halves, and the inverse for halves below 256.
HD uint32_t even_bytes(uint32_t x) { return x & 0x00ff00ffu; }
HD uint32_t odd_bytes(uint32_t x) {
#ifdef __CUDA_ARCH__
  return __byte_perm(x, 0, 0x4341);
#else
  return x >> 8 & 0x00ff00ffu;
#endif
}
HD uint32_t joined_bytes(uint32_t even, uint32_t odd) { return even + (odd << 8); }

// From the residues of the quadrants of an operand (p, q of its upper rows, r, s of its lower ones; for the right
// operand a row is a column of B) to those of the four sums that are multiplied:
//   left    r + s,  r + s - p,  p - r,  q - (r + s - p)
//   right   r - p,  s - (r - p),  s - r,  q - (s - (r - p))
template <bool OF_LEFT>
HD void slice_sums(uint32_t p, uint32_t q, uint32_t r, uint32_t s, const Modulus& m, uint32_t (&sum)[4]) {
  const uint32_t up = m.m * HALVES;  // added to differences, which are then in (0, 2 m)
  uint32_t out[4][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto half_of = [i](uint32_t x) { return i == 0 ? even_bytes(x) : odd_bytes(x); };
    const uint32_t a = half_of(p), b = half_of(q), c = half_of(r), d = half_of(s);
    uint32_t x[4];
    if (OF_LEFT) {
      x[0] = m.reduced_once(c + d);
      x[1] = m.reduced_once(x[0] - a + up);
      x[2] = m.reduced_once(a - c + up);
    } else {
      x[0] = m.reduced_once(c - a + up);
      x[1] = m.reduced_once(d - x[0] + up);
      x[2] = m.reduced_once(d - c + up);
    }
    x[3] = m.reduced_once(b - x[1] + up);
#pragma unroll
    for (int j = 0; j < 4; ++j) out[j][i] = x[j];
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) sum[j] = joined_bytes(out[j][0], out[j][1]);
}

// From the residues of the seven products to those of the four quadrants of the result (recombine_quadrants.cu).
HD void product_sums(const uint32_t (&p)[7], const Modulus& m, uint32_t (&sum)[4]) {
  uint32_t out[4][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t x[7];
#pragma unroll
    for (int j = 0; j < 7; ++j) x[j] = i == 0 ? even_bytes(p[j]) : odd_bytes(p[j]);
    const uint32_t both = x[0] + x[5], three = both + x[6];
    out[0][i] = m.reduced(x[0] + x[1]);
    out[1][i] = m.reduced(both + x[4] + x[2]);
    out[2][i] = m.reduced(three + x[3]);
    out[3][i] = m.reduced(three + x[4]);
  }
#pragma unroll
  for (int q = 0; q < 4; ++q) sum[q] = joined_bytes(out[q][0], out[q][1]);
}
