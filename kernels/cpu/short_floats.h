// Results of 16 bits: bfloat16, float16.
#pragma once

#include "digits.h"

namespace cpu {

struct ShortFormat {
  int64_t precision;  // bits of the significand
  int64_t least;      // exponent of the smallest number
  int64_t infinity;   // bits of Inf
};

// What is added to entries before they are rounded: `beta`, a power of two or the negative of one, times numbers, of
// which NaN and Inf count as zero.
struct Addend {
  const float* c;              // null: nothing is added
  int64_t of_batch, of_rows;   // steps in elements
  double beta;
};

// The bits of eight numbers rounded to nearest, ties to even, directly: normal numbers of float64 and zeros, which
// become +0. Read as an integer, the bits of positive numbers count them; so a carry goes on into the exponent.
INLINE Longs short_bits(Doubles x, const ShortFormat& of) {
  const Longs bits = (Longs)x & INT64_MAX, exponent = (bits >> 52) - 1075;  // of the last bit
  const Longs whole = (bits & ((int64_t(1) << 52) - 1)) | (int64_t(1) << 52);
  const Longs usual = exponent + (53 - of.precision), least = longs(of.least);
  const Longs unit = select(usual > least, usual, least);
  const Longs cut = unit - exponent, drop = select(cut < 54, cut, longs(54));  // of 54 bits nothing is half or more
  const Longs half = longs(1) << (drop - 1);
  Longs places = (whole + half - 1 + ((whole >> drop) & 1)) >> drop;
  places += (unit - least) << (int)(of.precision - 1);
  const Longs within = select(places < of.infinity, places, longs(of.infinity));
  return within | ((x < 0) & 0x8000);
}

INLINE void store_short(uint16_t* to, Longs values, int64_t count) {
  uint16_t all[8];
#if defined(__AVX512VNNI__)
  store(all, _mm512_cvtepi64_epi16((__m512i)values));
#else
  for (int i = 0; i < 8; i++) all[i] = (uint16_t)values[i];
#endif
  if (count >= 8) memcpy(to, all, 16);
  else if (count > 0) memcpy(to, all, 2 * count);
}

// Entries of a tile of at most four diagonals, rounded once: an integer, which float64 has (k is 33024 at most), times
// the factors of its row and its column, powers of two whose products are in its normal range; and what is added, from
// `c` on.
template <bool ADDS>
INLINE void round_short_entries(const DiagonalSums& x, int64_t rows, int64_t columns, const double* of_rows,
                                const double* of_columns, uint16_t* out, int64_t out_step, const ShortFormat& of,
                                const Addend& addend, const float* c) {
  for (int64_t i = 0; i < rows; i++, out += out_step, c += ADDS ? addend.of_rows : 0) {
    for (int64_t j = 0; j < columns; j += 16) {
      Doubles halves[2] = {};
      for (int64_t d = 0; d < x.count; d++) {
        const Sixteen some = sixteen(load<Ints>(x.sums + d * DIAGONAL + i * RIGHT_ROWS + j));
        for (int half = 0; half < 2; half++) {
          halves[half] = multiply_add(some.halves[half], doubles(x.weights[d]), halves[half]);
        }
      }
      for (int half = 0; half < 2; half++) {
        const int64_t at = j + 8 * half;
        if (at < columns) {
          Doubles values = halves[half] * of_rows[i] * load<Doubles>(of_columns + at);
          if (ADDS) {  // the exact sum rounded to odd, which 16 bits round as they would round itself
            Doubles sum, error;
            two_sum(values, finite(some_neighbours(c + at, columns - at)) * addend.beta, sum, error);
            values = to_odd(sum, error);
          }
          store_short(out + at, short_bits(values, of), columns - at);
        }
      }
    }
  }
}

}  // namespace cpu
