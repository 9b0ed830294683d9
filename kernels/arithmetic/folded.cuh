// The Chinese remainder theorem in float64, for residues of the left operand that have the inverses of M / m_t in them:
// from z_g of groups of three moduli (grouped.cuh) to RN(Cbar 2^exponent). With P_g the product of a group,
//
//   Cbar = sum_g z_g M / P_g - Q M,  Q = RN(sum_g z_g / P_g),
//
// and z of the last group takes Q P_g. So weights are no longer than M / P_g, which have a digit less than the inverse in
// its place, and Q is no longer multiplied by the digits of M. Q comes from float32 sums: abs(Cbar) < M (1/2 - 2^-10)
// leaves them room to be off by 2^-10 (ozaki/schemes/folded.py proves that, and that each sum of digits is an exact float64
// integer).
#pragma once
#include "arithmetic/grouped.cuh"

// Constants, filled by the host. z_g are held raised, so that they are positive; BITS_OF_Z says whether all of them are
// then below 2^24, so that their bits as a float32 are these numbers times 2^-149. factor, fraction, minus_group, start: those
// of GroupedConstants.
template <int N, int DIGITS> struct FoldedConstants {
  double weight[groups_of(N)][DIGITS];  // digits of M / P_g
  double raised[groups_of(N)];          // 2^52, and by how much z_g is raised; z of the last group after it took Q P_g
  uint32_t factor[N];
  float fraction[N];
  uint32_t minus_group[groups_of(N)];
  uint32_t start[groups_of(N)];
  float ratio[groups_of(N)];            // 2^127 / P_g or, if they are not, 2^-22 / P_g
  float ratio_start;                    // takes back, in units of 2^-22, that z_g are raised, up to an integer
};

// In which order groups are added: the last one, which Q is in, stands in the middle, so that no sum on the way is larger
// than about 3/2 M.
HD constexpr int folded_order(int groups, int i) {
  return i < groups / 2 ? i : i == groups / 2 ? groups - 1 : i - 1;
}

// The digits of Cbar of some entries, whose sum with their places it is. z(e, g) is that of group g of entry e.
template <bool BITS_OF_Z, int N, int DIGITS, int COUNT, typename Z>
HD void folded_digit_sums(const Z& z, const FoldedConstants<N, DIGITS>& c, double (&s)[COUNT][DIGITS]) {
  constexpr int GROUPS = groups_of(N), LAST = GROUPS - 1;
  uint32_t last[COUNT];
#pragma unroll
  for (int e = 0; e < COUNT; ++e) {
    float ratio = c.ratio_start;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
      ratio = small_product(BITS_OF_Z ? float_of_bits(z(e, g)) : static_cast<float>(z(e, g)), c.ratio[g], ratio);
    last[e] = z(e, LAST) + bits_of(ratio + 3.0f) * c.minus_group[LAST];
  }
#pragma unroll
  for (int i = 0; i < GROUPS; ++i) {
    const int g = folded_order(GROUPS, i);
#pragma unroll
    for (int e = 0; e < COUNT; ++e) {
      const double v = double_of_limbs(0x43300000u, g == LAST ? last[e] : z(e, g)) - c.raised[g];
#pragma unroll
      for (int j = 0; j < DIGITS; ++j)
        s[e][j] = fused(v, c.weight[g][j], i == 0 ? 0.0 : s[e][j]);  // not -0: an exact zero is +0
    }
  }
}
