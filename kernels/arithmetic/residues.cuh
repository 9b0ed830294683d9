// Residues modulo m <= 256: of an image (to make slices), and of an accumulator (int32 or uint32 slice products).
//
// A number is a sum of bytes b_j 2^(8 j). With fold_j = inv 2^(8 j) mod m, dot products of bytes give
//
//   f = start + sum_j b_j fold_j,  0 <= f < 2^22,
//
// congruent to x inv plus a known shift. The quotient of f by m comes from one fused multiply-add. Taken as the bits of
// a float32, f is the subnormal number f 2^-149; with inverse = 2^132 RN(1 / m), 16 < m <= 256,
//
//   f 2^-149 inverse + (1.5 2^6 + s 2^-17)
//
// rounds to a multiple of 2^-17, and its bits are those of 1.5 2^6 plus q + s, q = RN(f / m). There is no tie, since m
// is odd; RN(1 / m) is off by a factor of at most 1 + 2^-24, so the quotient by less than 2^-2 / m, and f / m differs
// from every half-integer by at least 1 / (2 m). f minus these bits times m has f - q m - s m in its low byte, for the
// low byte of the bits of 1.5 2^6 is zero. f - q m lies in [-(m-1)/2, (m-1)/2]; s moves the result by any multiple of m
// (mod 256). For m = 256 the low byte is that of f, whatever q is.
#pragma once
#include "arithmetic/common.cuh"

// Constants of one modulus for residue_of_sum. For residues in [0, m) instead of symmetric ones, f counts (m+1)/2 more
// than x, so q is floor(x / m) + 1, and s takes the shift back: f - q m = x - floor(x / m) m - (m-1)/2, and -s m =
// (m-1)/2 mod 256.
struct Quotient {
  uint32_t start;  // in f; below 256
  float inverse;   // 2^132 RN(1 / m), RN to float32
  float addend;    // 1.5 2^6 + s 2^-17; s = 0 for symmetric residues, and for m = 256
  uint32_t modulus;
};

// f - (RN(f / m) + s) m in the low byte, for addend = 1.5 2^6 + s 2^-17; the other bytes are arbitrary.
HD uint32_t residue_of_sum(uint32_t f, float inverse, float addend, uint32_t modulus) {
#ifdef __CUDA_ARCH__
  float q;  // asm: never flushes subnormals, whatever the compiler's options
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(q) : "f"(float_of_bits(f)), "f"(inverse), "f"(addend));
#else
  const float q = __builtin_fmaf(float_of_bits(f), inverse, addend);
#endif
  return f - bits_of(q) * modulus;
}

// Constants of the residues of images of LENGTH limbs, which are raised by 2^(32 LENGTH - 1) so that they are
// nonnegative. Byte j of fold[t][w] is inv_t 2^(8 (4 w + j)) mod m_t, in [0, m_t), inv_t = 1 for the right operand.
// quotient[t].start = -inv_t 2^(32 LENGTH - 1) mod m_t or, for residues in [0, m_t), that of (m_t+1)/2 more. The host
// fills it: 4 N (LENGTH + 4) bytes, no padding; where N is larger than the number of slices, with the last one again.
// f <= 4 LENGTH 255^2 + 255 < 2^22 for LENGTH <= 16.
template <int N, int LENGTH> struct ResidueConstants {
  uint32_t fold[N][LENGTH];
  Quotient quotient[N];
};

// Accumulators to [0, m): those of products of unsigned bytes as they are, those of signed ones raised by 2^31, which
// `start` takes back. Here f < 2^18, and the quotient is rounded down: with RU(1 / m), 1 / m rounded up to float32, the
// product of the subnormal number f 2^-149 and RU(1 / m), rounded down, is q 2^-149 with q = floor(f / m), because f /
// m <= f RU(1 / m) < f / m + 1 / m; and its bits are q.
constexpr int MAX_MODULI = 64;
struct AccumulatorModulus {
  uint32_t fold;               // byte j: 2^(8 j) mod m
  uint32_t start;              // in f; below 256
  float inverse;               // RU(1 / m)
  uint32_t modulus, negative;  // m and 2^32 - m
};
struct AccumulatorModuli {
  AccumulatorModulus of[MAX_MODULI];
};

// floor(f / m), 0 <= f < 2^18.
template <typename Modulus> HD uint32_t quotient(uint32_t f, const Modulus& m) {
#ifdef __CUDA_ARCH__
  float q;  // asm: never flushes subnormals, whatever the compiler's options
  asm("mul.rm.f32 %0, %1, %2;" : "=f"(q) : "f"(float_of_bits(f)), "f"(m.inverse));
  return bits_of(q);
#else
  return f / m.modulus;
#endif
}

// The residues in [0, m) of four accumulators, a byte each: with f_i and q_i of each, sum_i 2^(8 i) (f_i - q_i m)
// modulo 2^32. Each f_i - q_i m is in [0, m), so bytes do not disturb one another.
HD uint32_t four_residues(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3, const AccumulatorModulus& m) {
  const uint32_t x[4] = {x0, x1, x2, x3};
  uint32_t sum = 0, quotients = 0;
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    const uint32_t f = dot_bytes(x[i], m.fold, m.start);
    sum = (sum << 8) + f;
    quotients = (quotients << 8) + quotient(f, m);
  }
  return sum + quotients * m.negative;
}

// From the slice products P, Q and perhaps R of a complex entry modulo m, each in [0, m), to the residues of its parts:
// P c_0 + Q c_1 + R c_2 modulo m, with other numbers c in [0, m) for each part. At most 3 255^2, which is below 2^18.
struct ComplexModulus {
  uint32_t pair[2], third[2];  // of the real and the imaginary part: bytes c_0, c_1, 0, 0; c_2
  float inverse;               // RU(1 / m)
  uint32_t modulus, negative;  // m and 2^32 - m
};

// The residues of a part of four entries, a byte each, from the bytes of their slice products; r = 0 without an R.
HD uint32_t four_residues_of_part(uint32_t p, uint32_t q, uint32_t r, const ComplexModulus& m, int part) {
  uint32_t sum = 0, quotients = 0;
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    const uint32_t pair = interleaved_bytes(p, q, i / 2);
    const uint32_t f = dot_bytes(pair, m.pair[part] << (16 * (i % 2)), byte_of(r, i) * m.third[part]);
    sum = (sum << 8) + f;
    quotients = (quotients << 8) + quotient(f, m);
  }
  return sum + quotients * m.negative;
}

HD uint32_t add_residues(uint32_t x, uint32_t y, uint32_t modulus) {  // (x + y) mod m for x, y in [0, m)
  const uint32_t sum = x + y;
  return smaller(sum, sum - modulus);
}
HD uint32_t add_four_residues(uint32_t x, uint32_t y, uint32_t modulus) {  // byte by byte
  uint32_t r[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) r[i] = add_residues(byte_of(x, i), byte_of(y, i), modulus);
  return gather_bytes(r[0], r[1], r[2], r[3], 0);
}

// f mod m for f < 2^24, inverse = RU(1 / m). The bits of f as a float32 are those of f 2^-149 (numbers below 2^-125 all
// have that unit), and f RU(1 / m) <= (f / m) (1 + 2^-23) < (f + 2) / m. So the quotient is floor(f / m), or one more,
// with the residue -2 or -1 in place of m - 2 or m - 1.
HD uint32_t residue_below_24(uint32_t f, uint32_t modulus, float inverse) {
#ifdef __CUDA_ARCH__
  float product;  // asm: never flushes subnormals, whatever the compiler's options
  asm("mul.rm.f32 %0, %1, %2;" : "=f"(product) : "f"(float_of_bits(f)), "f"(inverse));
  const uint32_t q = bits_of(product);
#else
  const uint32_t q = static_cast<uint32_t>(static_cast<double>(f) * inverse);  // the same: 48 bits, cut to an integer
#endif
  const uint32_t rest = f - q * modulus;
  return smaller(rest, rest + modulus);
}

// Residues of two bytes, for moduli above 256 and below 2^14, of x c, x an unsigned accumulator: with fold_j = c 2^(8
// j) mod m, f = sum_j x_j fold_j + old, old in [0, m), is at most (4 255 + 1) (m - 1) < 2^24.
struct PairModulus {
  uint32_t fold[2];  // fold_0 and fold_2 in the low halves, fold_1 and fold_3 in the high ones
  float inverse;     // RU(1 / m)
  uint32_t modulus;
};
struct PairModuli {
  PairModulus of[MAX_MODULI];
};

HD uint32_t pair_residue(uint32_t x, uint32_t old, const PairModulus& m) {
  return residue_below_24(dot_halves(m.fold[1], x, 1, dot_halves(m.fold[0], x, 0, old)), m.modulus, m.inverse);
}
HD uint32_t pair_of(uint32_t low, uint32_t high, int i) { return byte_of(low, i) | byte_of(high, i) << 8; }
