// The integer V of a product of digits (docs/definitions.md, section 3), when diagonals are accumulated one after the
// other, from the least significant one on, in one int32 accumulator: what a diagonal has below the unit of the next
// one is kept as a digit in [0, 2^R), and the rest is carried on. Then
//
//   V = top 2^(R (P - 1)) + sum_i low_i 2^(R i),  i = 0 .. P - 2,
//
// for P <= 7 digits of R = 8 or 7 bits. low[i] packs the digits low_i of four entries, a byte each; j (a compile-time
// constant) says which entry is meant.
#pragma once
#include "arithmetic/common.cuh"

// Limbs of `low`: one for each diagonal but the last (at least one).
HD constexpr int low_limbs(int p) { return larger(p - 1, 1); }

// The part of V that the digits make, nonnegative and below 2^48.
template <int P, int R> HD uint64_t below_top(const uint32_t (&low)[low_limbs(P)], int j) {
  static_assert(P <= 7, "");
  const auto packed = [&](int i) { return i < P - 1 ? low[smaller(i, low_limbs(P) - 1)] : 0u; };
  if (R == 8)
    return static_cast<uint64_t>(P > 5 ? gather_bytes(packed(4), packed(5), 0, 0, j) : 0u) << 32 |
           gather_bytes(packed(0), packed(1), packed(2), packed(3), j);
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < P - 1; ++i) sum |= static_cast<uint64_t>(byte_of(packed(i), j)) << (R * i);
  return sum;
}

// V in two's complement, DIAGONAL_LIMBS limbs, lowest first.
constexpr int DIAGONAL_LIMBS = 3;
template <int P, int R>
HD void join_diagonals(int32_t top, const uint32_t (&low)[low_limbs(P)], int j, uint32_t (&limbs)[DIAGONAL_LIMBS]) {
  constexpr int SHIFT = R * (P - 1);
  const uint64_t below = below_top<P, R>(low, j);
#pragma unroll
  for (int w = 0; w < DIAGONAL_LIMBS; ++w) {
    const int first = 32 * w - SHIFT;  // the bit of top that is bit 0 of this limb
    uint32_t limb = w < 2 ? low_limb(below >> (32 * (w & 1))) : 0u;
    if (first >= 0) limb |= static_cast<uint32_t>(top >> smaller(first, 31));
    else if (first > -32) limb |= static_cast<uint32_t>(top) << (-first & 31);
    limbs[w] = limb;
  }
}

// RN(V) as a float64, P > 3. With ODD, if V is not a float64, that neighbour of V whose last bit is one (rounding to
// odd): a further rounding to fewer bits then gives what one rounding of V would.
template <int P, int R, bool ODD>
HD double diagonals_as_double(int32_t top, const uint32_t (&low)[low_limbs(P)], int j) {
  constexpr int SHIFT = R * (P - 1);
  const uint64_t below = below_top<P, R>(low, j);
  const double high = double_of_limbs(0x43300000u, static_cast<uint32_t>(top) ^ 0x80000000u) -
                      double_of_limbs(0x43300000u, 0x80000000u);
  const double rest =
      double_of_limbs(0x43300000u | high_limb(below), low_limb(below)) - double_of_limbs(0x43300000u, 0);
  const double unit = double_of_limbs(static_cast<uint32_t>(SHIFT + 1023) << 20, 0);
  const double sum = fused(high, unit, rest);
  if (!ODD) return sum;
  const double error = fused(high, unit, -sum) + rest;  // both operations are exact: abs(sum - high unit) < 2^49
  const uint64_t bits = bits_of(sum);
  if (error == 0.0 || (bits & 1) != 0) return sum;
  const uint64_t odd = (error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
  return double_of_limbs(high_limb(odd), low_limb(odd));
}

// RN(V power) for a power of two, if that is no subnormal float64: only the sum above is rounded (float64), or only the
// conversion to float32.
template <int P, int R>
HD void round_diagonals(int32_t top, const uint32_t (&low)[low_limbs(P)], int j, double power, double& rounded) {
  rounded = diagonals_as_double<P, R, false>(top, low, j) * power;
}
template <int P, int R>
HD void round_diagonals(int32_t top, const uint32_t (&low)[low_limbs(P)], int j, double power, float& rounded) {
  rounded = static_cast<float>(diagonals_as_double<P, R, true>(top, low, j) * power);
}

// The same from the diagonals themselves, P <= 3, the most significant first: V, below 2^50, is exact as the difference
// of the float64 V + 1.5 2^52, which few_diagonals_with_offset builds by integer arithmetic on its bits, and 1.5 2^52.
constexpr uint32_t OFFSET = 0x43380000u;  // the upper limb of 1.5 2^52
template <int P, int R> HD double few_diagonals_with_offset(const int32_t (&sums)[P]) {
  static_assert(P <= 3, "");
  int64_t v = sums[0];
#pragma unroll
  for (int s = 1; s < P; ++s) v = v * (1 << R) + sums[s];
  const uint64_t bits = static_cast<uint64_t>(v);
  return double_of_limbs(high_limb(bits) + OFFSET, low_limb(bits));
}
template <int P, int R> HD void round_few_diagonals(const int32_t (&sums)[P], double power, double& rounded) {
  rounded = (few_diagonals_with_offset<P, R>(sums) - double_of_limbs(OFFSET, 0)) * power;
}
template <int P, int R> HD void round_few_diagonals(const int32_t (&sums)[P], double power, float& rounded) {
  // 1.5 2^52 power. (It does not overflow: float32 operands do not scale a product that far.)
  const double offset = double_of_limbs(high_limb(bits_of(power)) + (OFFSET - 0x3ff00000u), 0);
  rounded = static_cast<float>(fused(few_diagonals_with_offset<P, R>(sums), power, -offset));
}
