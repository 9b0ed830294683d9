// Residues: of an image modulo each m_t <= 256 (slices), and of an int32 slice product (accumulator).
#pragma once
#include "common.cuh"

// Constants of the residues of images; byte b of a number counts 2^(8 b).
//   fold[t][w]     byte j: inv_t 2^(8 (4 w + j)) mod m_t, in [0, m_t); inv_t = 1 for the right operand
//   bias[t]        -inv_t 2^(32 LENGTH - 1) mod m_t, in [0, m_t)
//   reciprocal[t]  ceil(2^32 / m_t)
//   modulus[t]     m_t
// Layout: 4 N (LENGTH + 3) bytes, no padding.
template <int N, int LENGTH> struct ResidueConstants {
  uint32_t fold[N][LENGTH];
  uint32_t bias[N];
  uint32_t reciprocal[N];
  uint32_t modulus[N];
};

// The symmetric residue, in [-(m-1)/2, m/2] (m = 256: [-128, 127]), of x inv_t. `raised` is x + 2^(32 LENGTH - 1), so
// the sum over unsigned bytes is nonnegative: at most 4 LENGTH 255^2 + 255 < 2^22 for LENGTH <= 16.
//   q = floor(sum * reciprocal / 2^32 + 1/2) rounds sum / m to nearest: the reciprocal is less than 1 too large, so the
// quotient less than 2^22 / 2^32 = 2^-10, while sum / m keeps at least 1 / (2 m) > 2^-9 from a half for odd m. For
// m = 256 the reciprocal is exact and a half goes up, to -128.
template <int N, int LENGTH>
HD int32_t symmetric_residue(const uint32_t (&raised)[LENGTH], const ResidueConstants<N, LENGTH>& c, int t) {
  uint32_t sum = c.bias[t];
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) sum = dot_bytes(raised[w], c.fold[t][w], sum);
  const uint32_t quotient = high_word(static_cast<uint64_t>(sum) * c.reciprocal[t] + (1ull << 31));
  return static_cast<int32_t>(sum - quotient * c.modulus[t]);
}

// The moduli for the reduction of accumulators: modulus[t] and ceil(2^32 / m_t). Layout: 512 bytes.
constexpr int MAX_MODULI = 64;
struct Moduli {
  uint32_t modulus[MAX_MODULI];
  uint32_t reciprocal[MAX_MODULI];
};

// x mod m in [0, m). With reciprocal = 2^32 / m + e, 0 <= e < 1, and -2^31 <= x < 2^31,
//   x reciprocal / 2^32 - 1/2 = x / m + (x e / 2^32 - 1/2) lies between x / m - 1 and x / m, exclusively.
// Its floor is floor(x / m) or one less, the rest is in [0, 2 m), and as unsigned numbers the smaller of rest and
// rest - m is the residue.
HD uint32_t reduce_int32(int32_t x, uint32_t modulus, uint32_t reciprocal) {
  const int64_t product = static_cast<int64_t>(x) * static_cast<int32_t>(reciprocal) - (1ll << 31);
  const uint32_t rest = static_cast<uint32_t>(x) - high_word(static_cast<uint64_t>(product)) * modulus;
  return smaller(rest, rest - modulus);
}

HD uint32_t add_residues(uint32_t x, uint32_t y, uint32_t modulus) {  // x, y in [0, m)
  const uint32_t sum = x + y;
  return smaller(sum, sum - modulus);
}

// An accumulator modulo m without a wide product. With v = x + 2^31 as four unsigned bytes,
//   f = sum_j byte_j (2^(8 j) mod m) + bias,  bias = -2^31 mod m,   f < 4 255^2 + 256 < 2^18 + 2^8,
// is congruent to x. The dot product starts at the bits of 2^23, so what comes out are the bits of the float 2^23 + f;
//   q = RN((f - (m-1)/2) / m) = floor(f / m) for odd m,
// found by one fused multiply-add that rounds to an integer beside 1.5 2^23: its argument is off by less than
// 2^19 / m 2^-24 < 1 / (2 m), the distance to the nearest tie. y = f - q m, of which the low byte is wanted: integer
// arithmetic on the bits of both floats gives it, their high parts being multiples of 256. m = 256 needs no q.
// No value here is subnormal.
struct AccumulatorModulus {
  uint32_t fold;       // byte j: 2^(8 j) mod m
  uint32_t start;      // bits of the float 2^23, plus bias
  float offset;        // 2^23 + (m-1)/2 (m = 256: 2^23)
  float inverse;       // 1 / m
  uint32_t modulus;
};
struct AccumulatorModuli {
  AccumulatorModulus of[MAX_MODULI];
};

// x mod m in the low byte; the others hold anything.
HD uint32_t accumulator_residue(uint32_t x, const AccumulatorModulus& m) {
  const uint32_t f = dot_bytes(x ^ 0x80000000u, m.fold, m.start);
#ifdef __CUDA_ARCH__
  const float q = __fmaf_rn(__fsub_rn(float_of_bits(f), m.offset), m.inverse, 12582912.0f);
#else
  const float q = __builtin_fmaf(float_of_bits(f) - m.offset, m.inverse, 12582912.0f);
#endif
  return f - bits_of_float(q) * m.modulus;
}
