// Sums of digit products, diagonal by diagonal from the least significant one on, in one accumulator: what a diagonal
// has below the unit of the next is kept as a digit in [0, 2^R), the rest is carried on. The product is then
//   V = top 2^(R (P - 1)) + sum_i low_i 2^(R i),  i = 0 .. P - 2,
// for P <= 7 digits of R = 8 or 7 bits. Word i of `low` holds low_i of four entries, of which j (a constant) is meant.
#pragma once
#include "arithmetic/common.cuh"

HD constexpr int low_words(int p) { return larger(p - 1, 1); }

// The part of V that the digits make, below 2^48.
template <int P, int R> HD uint64_t below_top(const uint32_t (&low)[low_words(P)], int j) {
  static_assert(P <= 7, "");
  const auto word = [&](int i) { return i < P - 1 ? low[smaller(i, low_words(P) - 1)] : 0u; };
  if (R == 8)
    return static_cast<uint64_t>(P > 5 ? gather_bytes(word(4), word(5), 0, 0, j) : 0u) << 32 |
           gather_bytes(word(0), word(1), word(2), word(3), j);
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < P - 1; ++i) sum |= static_cast<uint64_t>(byte_of(word(i), j)) << (R * i);
  return sum;
}

// V as two's complement words.
constexpr int DIAGONAL_WORDS = 3;
template <int P, int R>
HD void join_diagonals(int32_t top, const uint32_t (&low)[low_words(P)], int j, uint32_t (&words)[DIAGONAL_WORDS]) {
  constexpr int SHIFT = R * (P - 1);
  const uint64_t below = below_top<P, R>(low, j);
#pragma unroll
  for (int w = 0; w < DIAGONAL_WORDS; ++w) {
    const int first = 32 * w - SHIFT;  // the bit of top that is bit 0 of this word
    uint32_t word = w < 2 ? low_word(below >> (32 * (w & 1))) : 0u;
    if (first >= 0) word |= static_cast<uint32_t>(top >> smaller(first, 31));
    else if (first > -32) word |= static_cast<uint32_t>(top) << (-first & 31);
    words[w] = word;
  }
}

// V as a float64, RN(V), P > 3; with ODD, where that is not exact, the neighbour of V whose last bit is one, so that a
// further rounding to fewer bits is the only one.
template <int P, int R, bool ODD>
HD double diagonals_as_double(int32_t top, const uint32_t (&low)[low_words(P)], int j) {
  constexpr int SHIFT = R * (P - 1);
  const uint64_t below = below_top<P, R>(low, j);
  const double high = double_of_words(0x43300000u, static_cast<uint32_t>(top) ^ 0x80000000u) -
                      double_of_words(0x43300000u, 0x80000000u);
  const double rest =
      double_of_words(0x43300000u | high_word(below), low_word(below)) - double_of_words(0x43300000u, 0);
  const double unit = double_of_words(static_cast<uint32_t>(SHIFT + 1023) << 20, 0);
  const double sum = fused(high, unit, rest);
  if (!ODD) return sum;
  const double error = fused(high, unit, -sum) + rest;  // both exact: sum differs from high unit by less than 2^49
  const uint64_t bits = bits_of(sum);
  if (error == 0.0 || (bits & 1) != 0) return sum;
  const uint64_t odd = (error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
  return double_of_words(high_word(odd), low_word(odd));
}

// RN(V power) for a power of two, if that is no subnormal float64: nothing but the sum above is rounded, or the
// conversion to float32.
template <int P, int R>
HD void round_diagonals(int32_t top, const uint32_t (&low)[low_words(P)], int j, double power, double& rounded) {
  rounded = diagonals_as_double<P, R, false>(top, low, j) * power;
}
template <int P, int R>
HD void round_diagonals(int32_t top, const uint32_t (&low)[low_words(P)], int j, double power, float& rounded) {
  rounded = static_cast<float>(diagonals_as_double<P, R, true>(top, low, j) * power);
}

// The same of the sums themselves, P <= 3, the most significant first: V, below 2^50, is exact as the difference of two
// float64 numbers beside 1.5 2^52.
constexpr uint32_t BESIDE = 0x43380000u;  // the high word of 1.5 2^52
template <int P, int R> HD double few_diagonals_beside(const int32_t (&sums)[P]) {
  static_assert(P <= 3, "");
  int64_t v = sums[0];
#pragma unroll
  for (int s = 1; s < P; ++s) v = v * (1 << R) + sums[s];
  const uint64_t bits = static_cast<uint64_t>(v);
  return double_of_words(high_word(bits) + BESIDE, low_word(bits));
}
template <int P, int R> HD void round_few_diagonals(const int32_t (&sums)[P], double power, double& rounded) {
  rounded = (few_diagonals_beside<P, R>(sums) - double_of_words(BESIDE, 0)) * power;
}
template <int P, int R> HD void round_few_diagonals(const int32_t (&sums)[P], double power, float& rounded) {
  // (no float32 operands scale a product so far that this overflows)
  const double beside = double_of_words(high_word(bits_of(power)) + (BESIDE - 0x3ff00000u), 0);
  rounded = static_cast<float>(fused(few_diagonals_beside<P, R>(sums), power, -beside));
}
