// The Chinese remainder theorem: from bytes y_t in [0, m_t) to Cbar = sum_t y_t M / m_t - q M, in two's complement,
// LENGTH limbs, lowest first.
#pragma once
#include "arithmetic/common.cuh"

// Moduli are combined in groups of three, in order. So that no group has a single modulus, the last group has two (N %
// 3 = 2), or the last two groups have two each (N % 3 = 1). P_g is the product of the moduli of group g.
HD constexpr int crt_groups(int n) { return (n + 2) / 3; }
HD constexpr int crt_pairs(int n) { return n == 1 ? 0 : (3 - n % 3) % 3; }
HD constexpr int crt_start(int n, int g) {  // the first modulus of group g; n for g = crt_groups(n)
  return g <= crt_groups(n) - crt_pairs(n) ? smaller(3 * g, n) : n - 2 * (crt_groups(n) - g);
}
// Limbs of M / P_g that can be nonzero: it is a product of N - size moduli, each at most 2^8.
HD constexpr int crt_weight_limbs(int n, int limbs, int g) {
  return larger(1, smaller(limbs, (n - (crt_start(n, g + 1) - crt_start(n, g)) + 3) / 4));
}

// Constants, filled by the host, all uint32, limbs lowest first, G = (N + 2) / 3 groups:
//   pair[g]           P_g / m_t of the first two moduli of the group, 16 bits each, the first one low (0 for a second
//                     one that does not exist)
//   third[g]          P_g / m_t of the third modulus, or 0
//   weight[g][w]      M / P_g
//   fraction[g]       RN(2^F / P_g), F = 31 + floor(log2 min_g P_g)
//   minus_modulus[w]  2^(32 LENGTH) - M (modulo 2^(32 LENGTH))
//   fraction_shift    F - 32
// Layout: 4 (G LENGTH + 3 G + LENGTH + 1) bytes, no padding.
template <int N, int LENGTH> struct CrtConstants {
  uint32_t pair[crt_groups(N)];
  uint32_t third[crt_groups(N)];
  uint32_t weight[crt_groups(N)][LENGTH];
  uint32_t fraction[crt_groups(N)];
  uint32_t minus_modulus[LENGTH];
  uint32_t fraction_shift;
};

// Cbar of the entry whose residues are byte j of y[t], for all moduli t. With
//
//   z_g = sum over the group of y_t P_g / m_t < 3 P_g < 2^26,  Cbar = sum_g z_g (M / P_g) - q M,
//
// all computed modulo 2^(32 LENGTH), which is enough: abs(Cbar) < M / 2 <= 2^(32 LENGTH - 1). A 64-bit column of the
// sum holds at most 17 products below 2^58, and q (32 bits, q <= N) times a limb: below 2^63, so carries wait until the
// end.
//
// q = RN(sum_g z_g / P_g). The sum is q + Cbar / M, and abs(Cbar) <= R < M (1/2 - 2^-10) + 1, so an error below 2^-10 -
// 1/M does not change q. Each fraction[g] is off by at most 1/2 unit of 2^-F, so the sum by at most sum_g (3 P_g) / 2
// units: with 2^F > 2^30 min P_g that is 1.5 G (max P_g / min P_g) 2^-30. The exact figures are below 2^-18 up to N =
// 20 and below 2^-14 for all 49 moduli (tests/test_kernel_residues.py computes them).
//
// z(g) is z_g, or a number congruent to it modulo P_g that is no less than 0 and below 3 P_g.
template <int N, int LENGTH, typename OfGroup>
HD void integer_of_groups(const OfGroup& z_of, const CrtConstants<N, LENGTH>& c, uint32_t (&limbs)[LENGTH]) {
  constexpr int GROUPS = crt_groups(N);
  uint64_t column[LENGTH];
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) column[w] = 0;
  uint64_t fraction = static_cast<uint64_t>((1u << c.fraction_shift) >> 1) << 32;  // one half
#pragma unroll
  for (int g = 0; g < GROUPS; ++g) {
    const uint32_t z = z_of(g);
#pragma unroll
    for (int w = 0; w < LENGTH; ++w)
      if (w < crt_weight_limbs(N, LENGTH, g)) column[w] += static_cast<uint64_t>(z) * c.weight[g][w];
    fraction += static_cast<uint64_t>(z) * c.fraction[g];
  }
  const uint32_t q = high_limb(fraction) >> c.fraction_shift;
  uint64_t carry = 0;
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) {
    column[w] += static_cast<uint64_t>(q) * c.minus_modulus[w];
    carry += column[w];  // below 2^64: a column stays under 2^63
    limbs[w] = low_limb(carry);
    carry >>= 32;
  }
}
template <int N, int LENGTH>
HD void chinese_remainder(const uint32_t (&y)[N], int j, const CrtConstants<N, LENGTH>& c, uint32_t (&limbs)[LENGTH]) {
  const auto z_of = [&](int g) {
    const int t = crt_start(N, g), size = crt_start(N, g + 1) - t;
    uint32_t z = dot_halves(c.pair[g], interleaved_bytes(y[t], size > 1 ? y[smaller(t + 1, N - 1)] : 0, j / 2), j % 2);
    if (size > 2) z += byte_of(y[smaller(t + 2, N - 1)], j) * c.third[g];
    return z;
  };
  integer_of_groups<N, LENGTH>(z_of, c, limbs);
}
