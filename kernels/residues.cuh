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
//   q = floor(sum * reciprocal / 2^32 + 1/2) rounds sum / m to nearest: the reciprocal is less than 1 too large, so
// the quotient less than 2^22 / 2^32 = 2^-10, while sum / m keeps at least 1 / (2 m) > 2^-9 from a half for odd m. For m = 256
// the reciprocal is exact and a half goes up, to -128.
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

// x mod m in [0, m). With reciprocal = 2^32 / m + e, 0 <= e < 1, and abs(x) <= 2^31,
//   x reciprocal / 2^32 - 1/2 = x / m + (x e / 2^32 - 1/2) lies in [x / m - 1, x / m],
// and equals x / m only for x e = 2^31, which no x < 2^31 reaches. Its floor is floor(x / m) or one less, the rest is in
// [0, 2 m), and as unsigned numbers the smaller of rest and rest - m is the residue.
HD uint32_t reduce_int32(int32_t x, uint32_t modulus, uint32_t reciprocal) {
  const int64_t product = static_cast<int64_t>(x) * static_cast<int32_t>(reciprocal) - (1ll << 31);
  const uint32_t rest = static_cast<uint32_t>(x) - high_word(static_cast<uint64_t>(product)) * modulus;
  return smaller(rest, rest - modulus);
}

HD uint32_t add_residues(uint32_t x, uint32_t y, uint32_t modulus) {  // x, y in [0, m)
  const uint32_t sum = x + y;
  return smaller(sum, sum - modulus);
}
