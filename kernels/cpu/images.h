// Images of any width: RN(2**mu x), ties to even, in words of 32 bits, the lowest first, plus 2**31 of the highest one,
// so that their bytes are unsigned.
#pragma once

#include "numbers.h"
#include "split.h"

namespace cpu {

// Sixteen numbers: their limbs between two rows of zeros, [count + 2][16].
struct SixteenNumbers {
  uint32_t* rows;
  Ints signs, points;  // the number of bits before the point of each image, from -1 to those of all words
};

// The carry of lanes whose fraction is at least half: whether their image is rounded up. `after` is the first row that
// follows those which the fraction was read from in any lane.
INLINE Ints rounds_up(const SixteenNumbers& x, int count, UnsignedInts fraction, UnsignedInts lowest, Ints row,
                      UnsignedInts shift) {
  const Ints half = (Ints)(fraction >> 31), odd = (Ints)(lowest & 1);
  Ints beyond = (Ints)((fraction << 1) != 0);
  const Ints doubtful = (half != 0) & ~beyond & (odd == 0);
  if (any(doubtful)) {
    for (int i = 0; i < LANES; i++) {
      if (!doubtful[i]) continue;
      const int last = row[i] + 1;  // the fraction's last bits are the first of this row
      uint32_t rest = last <= count + 1 ? (x.rows[(last < 0 ? 0 : last) * LANES + i] << shift[i]) : 0;
      for (int r = last + 1; r <= count; r++) rest |= r > 0 ? x.rows[r * LANES + i] : 0;
      set(beyond, i, rest != 0 ? -1 : 0);
    }
  }
  return half & (odd | (beyond & 1));
}

// The image of sixteen numbers of `count` limbs in `words` words, `step` apart.
INLINE void image_of_numbers(const SixteenNumbers& x, int count, int words, uint32_t* to, int64_t step) {
  const int last = count + 1;
  const Ints row = (x.points >> 5) + 1;  // of the first bit after the point
  const UnsignedInts shift = (UnsignedInts)(x.points & 31);
  int least = least_of(row), largest = largest_of(row);
  const UnsignedInts after = of_rows(x.rows, LANES, row + 1, least + 1, largest + 1, last);
  UnsignedInts low = of_rows(x.rows, LANES, row, least, largest, last);
  const UnsignedInts fraction = joined(low, after, shift);
  UnsignedInts high = of_rows(x.rows, LANES, row - 1, least - 1, largest - 1, last);
  UnsignedInts word = joined(high, low, shift);
  const Ints up = rounds_up(x, count, fraction, word, row, shift);
  const Ints negative = x.signs >> 31, filled = x.signs != 0;
  // -(n + up) is the complement of n and 1 - up.
  UnsignedInts carry = (UnsignedInts)(filled & (up ^ (negative & 1)));
  for (int w = 0; w < words; w++) {
    const UnsignedInts signed_word = ((word ^ (UnsignedInts)negative) & (UnsignedInts)filled) + carry;
    carry &= (UnsignedInts)(signed_word == 0);
    store(to + w * step, w + 1 < words ? signed_word : signed_word ^ 0x80000000u);
    if (w + 1 == words) break;
    low = high;
    const int from = w + 2;
    high = of_rows(x.rows, LANES, row - from, least - from, largest - from, last);
    word = joined(high, low, shift);
  }
}

// Eight floats as integers times powers of two that are at least 1: images without their last zeros.
struct ShiftedIntegers {
  Longs integers, shifts;
};

INLINE ShiftedIntegers shifted_integers(Doubles x, Longs mu) {
  const Longs bits = (Longs)x, field = (bits >> 52) & 2047, least = select(field > 1, field, longs(1));
  const Longs whole = (bits & ((int64_t(1) << 52) - 1)) | ((field != 0) & (int64_t(1) << 52));
  const Longs shift = least - 1075 + mu;
  const Longs cut = select(shift < 0, -shift, Longs{}), within = select(cut < 54, cut, longs(54));
  const Longs kept = whole >> within, rest = whole - (kept << within), half = longs(1) << ((within > 0) & (within - 1));
  const Longs up = ((rest > half) | ((rest == half) & ((kept & 1) != 0))) & (within > 0) & 1;
  const Longs rounded = kept + up, negative = bits >> 63;
  return {(rounded ^ negative) - negative, select(shift > 0, shift, Longs{})};
}

// The lowest 32 bits of each integer times 2**(shift - 32 w).
INLINE Longs word_of(const ShiftedIntegers& x, int w) {
  const Longs down = 32 * w - x.shifts, most = longs(63);
  const Longs right = select(down > 0, select(down < most, down, most), Longs{});
  const Longs left = select(down < 0, select(-down < most, -down, most), Longs{});  // 2**63 leaves nothing of 32 bits
  return (x.integers >> right) << left;
}

// The image of sixteen floats, NaN and Inf as zero, in `words` words, `step` apart.
INLINE void image_of_floats(Doubles first, Doubles second, Longs first_mu, Longs second_mu, int words, uint32_t* to,
                            int64_t step) {
  const ShiftedIntegers a = shifted_integers(finite(first), first_mu), b = shifted_integers(finite(second), second_mu);
  for (int w = 0; w < words; w++) {
    const UnsignedInts word = (UnsignedInts)lower_halves(word_of(a, w), word_of(b, w));
    store(to + w * step, w + 1 < words ? word : word ^ 0x80000000u);
  }
}

// Where images come from: rows of floats or of multiprecision numbers.
struct Source {
  const void* floats;          // null: numbers
  int64_t single;              // whether floats are float32, else float64
  Steps of_floats;
  Numbers numbers;             // with the shape of the floats, too
  const int64_t* exponents;    // mu: an image is x 2**mu, rounded; [batch][rows]
  InnerFactors inner;
};

// Limbs of a number that its image in so many words depends on: the last one but for whether it is zero.
INLINE int64_t limbs_read(int64_t count, int words) { return count < words + 3 ? count : words + 3; }

// The image of the elements h to h + 16 of a row, or with `across` of rows `row` to row + 16; zero where there is none.
template <bool ACROSS>
INLINE void image_of(const Source& s, int64_t batch, int64_t row, int64_t h, int words, uint32_t* to, int64_t step,
                     uint32_t* scratch) {
  const Numbers& x = s.numbers;
  const int64_t rest = ACROSS ? x.rows - row : x.k - h, count = rest < LANES ? rest : LANES;
  if (count <= 0 || row >= x.rows || h >= x.k) {
    for (int w = 0; w < words; w++) store(to + w * step, unsigned_ints(w + 1 < words ? 0 : 0x80000000u));
    return;
  }
  int64_t mu[LANES] = {};
  const int64_t* of_rows = s.exponents + batch * x.rows + row;
  for (int i = 0; i < LANES; i++) mu[i] = !ACROSS ? of_rows[0] : i < count ? of_rows[i] : 0;
  if (s.floats) {
    const int64_t next = ACROSS ? s.of_floats.of_rows : s.of_floats.of_k, at = s.of_floats.at(batch, row, h);
    Doubles halves[2];
    if (s.single) {
      const float* from = (const float*)s.floats + at;
      halves[0] = raw_elements(from, next, count);
      halves[1] = raw_elements(from + (count > 8 ? 8 * next : 0), next, count - 8);
    } else {
      const double* from = (const double*)s.floats + at;
      halves[0] = raw_elements(from, next, count);
      halves[1] = raw_elements(from + (count > 8 ? 8 * next : 0), next, count - 8);
    }
    const double* inner = s.inner.of(batch);
    halves[0] = scaled<!ACROSS>(halves[0], inner, h, count);
    halves[1] = scaled<!ACROSS>(halves[1], inner, ACROSS ? h : h + 8, count - 8);
    image_of_floats(halves[0], halves[1], load<Longs>(mu), load<Longs>(mu + 8), words, to, step);
    return;
  }
  const int64_t next_sign = ACROSS ? x.of_signs.of_rows : x.of_signs.of_k;
  const int64_t next_exponent = ACROSS ? x.of_exponents.of_rows : x.of_exponents.of_k;
  const int64_t next_limb = ACROSS ? x.of_limbs.of_rows : x.of_limbs.of_k;
  const int8_t* signs = x.signs + x.of_signs.at(batch, row, h);
  const int64_t* exponents = x.exponents + x.of_exponents.at(batch, row, h);
  const uint32_t* limbs = x.limbs + x.of_limbs.at(batch, row, h);
  SixteenNumbers numbers = {scratch, {}, ints(-1)};
  int32_t of_signs[LANES] = {}, points[LANES];
  for (int i = 0; i < LANES; i++) {
    const int64_t point = i < count ? exponents[i * next_exponent] + mu[i] : -1;
    points[i] = point < -1 ? -1 : point > 32 * words ? 32 * words : (int32_t)point;
    of_signs[i] = i < count ? signs[i * next_sign] : 0;
  }
  numbers.signs = load<Ints>(of_signs), numbers.points = load<Ints>(points);
  store(scratch, UnsignedInts{});
  const int64_t read = limbs_read(x.count, words);
  store(scratch + (read + 1) * LANES, UnsignedInts{});
  for (int64_t l = 0; l < read; l++) {
    const uint32_t* from = limbs + l * x.of_limb;
    uint32_t* row_of_limbs = scratch + (l + 1) * LANES;
    if (ACROSS) __builtin_prefetch(from + 4 * x.of_limbs.of_k);  // of the next inner indices, which lie far away
    if (next_limb == 1 && count == LANES) memcpy(row_of_limbs, from, 4 * LANES);
    else for (int i = 0; i < LANES; i++) row_of_limbs[i] = i < count ? from[i * next_limb] : 0;
  }
  for (int64_t l = read; l < x.count; l++) {
    for (int i = 0; i < count; i++) scratch[read * LANES + i] |= limbs[l * x.of_limb + i * next_limb] != 0;
  }
  image_of_numbers(numbers, (int)read, words, to, step);
}

}  // namespace cpu
