// Sixteen lanes of words of 32 bits: shifts, limbs that differ from lane to lane, and sums of panels.
#pragma once

#include "products.h"

namespace cpu {

constexpr int LANES = 16;       // of a vector of words
constexpr int PANEL_ROWS = LEFT_ROWS;    // of the left panel of a product of panels
constexpr int PANEL_LANES = RIGHT_ROWS;  // of the right one
constexpr int PANEL_VECTORS = PANEL_LANES / LANES;

// The 32 bits that begin `shift` bits, below 32, after the highest one of `high`, and go on in `low`.
INLINE UnsignedInts joined(UnsignedInts high, UnsignedInts low, UnsignedInts shift) {
  return (high << shift) | ((low >> 1) >> (31 - shift));
}

INLINE bool any(Ints x) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#else
  int32_t found = 0;
  for (int i = 0; i < LANES; i++) found |= x[i];
  return found != 0;
#endif
}

INLINE int32_t least_of(Ints x) {
#if defined(__AVX512F__)
  return _mm512_reduce_min_epi32((__m512i)x);
#else
  int32_t least = x[0];
  for (int i = 1; i < LANES; i++) least = x[i] < least ? x[i] : least;
  return least;
#endif
}

INLINE int32_t largest_of(Ints x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32((__m512i)x);
#else
  int32_t largest = x[0];
  for (int i = 1; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
  return largest;
#endif
}

// from[places[i]] in lane i.
INLINE UnsignedInts gathered(const uint32_t* from, Ints places) {
#if defined(__AVX512F__)
  return (UnsignedInts)_mm512_i32gather_epi32((__m512i)places, from, 4);
#else
  UnsignedInts found = {};
  for (int i = 0; i < LANES; i++) set(found, i, from[places[i]]);
  return found;
#endif
}

// Lane i of the row rows[i], with the first row in place of those before it and the row `last` for those after it.
// Rows are `step` words apart; `least` and `largest` are those of `rows`.
INLINE UnsignedInts of_rows(const uint32_t* from, int step, Ints rows, int least, int largest, int last) {
  if (largest - least <= 1) {  // as of most numbers
    const int one = least < 0 ? 0 : least > last ? last : least;
    const int other = largest < 0 ? 0 : largest > last ? last : largest;
    const UnsignedInts first = load<UnsignedInts>(from + one * step);
    if (one == other) return first;
    const UnsignedInts second = load<UnsignedInts>(from + other * step);
    return select(rows == least, first, second);
  }
  static const int32_t lane[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Ints floor = select(rows > 0, rows, Ints{}), within = select(floor < last, floor, ints(last));
  const Ints lanes = load<Ints>(lane);
  return gathered(from, within * step + lanes);
}

// Sixteen unsigned integers as numbers, in two halves.
INLINE Sixteen unsigned_sixteen(UnsignedInts x) {
  Sixteen found = sixteen((Ints)x);
  for (Doubles& half : found.halves) half += select(half < 0, doubles(0x1p32), Doubles{});
  return found;
}

// The bits up to the highest one that is set of numbers that are not zero; of zero any number.
INLINE Ints bit_lengths(UnsignedInts x) {
  const Sixteen numbers = unsigned_sixteen(x);
  return lower_halves(((Longs)numbers.halves[0] >> 52) - 1022, ((Longs)numbers.halves[1] >> 52) - 1022);
}

// x modulo a modulus, of an absolute value that exceeds half the modulus by less than its 128th part. x / modulus is
// below 2**16 in magnitude.
INLINE Ints near_residue(Ints x, int32_t modulus, float inverse) {
  const Floats about = multiply_add(converted<Floats>(x), floats(inverse), floats(0x1.8p23f));
  return x - ((Ints)about - (Ints)floats(0x1.8p23f)) * modulus;
}

// Products of eight rows of signed bytes, [words][8][4], and of 48 columns of unsigned ones, [words][48][4], added to
// start[row]: sums [8][48].
static __attribute__((noinline, unused)) void multiply_words(const int8_t* left, const void* right, int64_t words,
                                                             const int32_t* start, int32_t* sums) {
  Ints of[PANEL_ROWS][PANEL_VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < PANEL_ROWS; i++) {
#pragma GCC unroll 3
    for (int v = 0; v < PANEL_VECTORS; v++) of[i][v] = ints(start[i]);
  }
  add_panels<PANEL_VECTORS>(left, (const int8_t*)right, words, of);
#pragma GCC unroll 8
  for (int i = 0; i < PANEL_ROWS; i++) {
#pragma GCC unroll 3
    for (int v = 0; v < PANEL_VECTORS; v++) store(sums + i * PANEL_LANES + LANES * v, of[i][v]);
  }
}

}  // namespace cpu
