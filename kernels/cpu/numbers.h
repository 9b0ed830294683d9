// Rows of multiprecision numbers (ozaki/multiprecision/numbers.py), and the leading bits that describe them.
#pragma once

#include "words.h"

namespace cpu {

struct Steps {
  int64_t of_batch, of_rows, of_k;  // in elements

  INLINE_MEMBER int64_t at(int64_t batch, int64_t row, int64_t h) const {
    return batch * of_batch + row * of_rows + h * of_k;
  }
};

struct Numbers {
  const int8_t* signs;
  const int64_t* exponents;
  const uint32_t* limbs;
  int64_t count;               // limbs of a number, the highest first
  int64_t batch, rows, k;
  Steps of_signs, of_exponents, of_limbs;
  int64_t of_limb;             // from one limb of a number to the next
};

struct Leading {
  Numbers x;
  double* values;              // [batch][rows][k] in any order
  Steps of_values;
  int64_t *tops, *bottoms;     // [batch][rows]
  int64_t least;               // exponent of a leading bit below which elements count as having that one
};

constexpr int64_t NO_TOP = -(int64_t(1) << 62);
constexpr int LEADING_ROWS = 128;  // at a time: memory is read in long runs where these are neighbours

// The exponent of the lowest bit that is set, in units of the element's own exponent.
INLINE int64_t lowest_bit(const Numbers& x, const uint32_t* limbs) {
  for (int64_t l = x.count - 1; l >= 0; l--) {
    const uint32_t limb = limbs[l * x.of_limb];
    if (limb) return -32 * (l + 1) + __builtin_ctz(limb);
  }
  return 0;
}

// x 2**-top, cut to 53 bits; the last of them is set if bits were cut off that are not zero.
INLINE double leading_bits(const Numbers& x, int sign, int64_t exponent, const uint32_t* limbs, int64_t least) {
  if (sign == 0) return 0;
  uint64_t head = (uint64_t)limbs[0] << 32 | (x.count > 1 ? limbs[x.of_limb] : 0);
  bool cut = (head & 2047) != 0;
  for (int64_t l = 2; l < x.count && !cut; l++) cut = limbs[l * x.of_limb] != 0;
  const double value = (double)(int64_t)(head >> 11 | cut);
  int64_t bits;
  memcpy(&bits, &value, 8);
  bits += ((exponent < least ? least : exponent) - 53) * (int64_t(1) << 52);  // far from the end of the range
  bits |= sign < 0 ? INT64_MIN : 0;
  double scaled;
  memcpy(&scaled, &bits, 8);
  return scaled;
}

// Rows [row, row + count) of a matrix, element by element in the order of memory.
template <typename See> INLINE void see_rows(const Numbers& x, int64_t row, int64_t count, See see) {
  if (x.of_limbs.of_rows < x.of_limbs.of_k) {
    for (int64_t h = 0; h < x.k; h++) {
      for (int64_t i = 0; i < count; i++) see(i, row + i, h);
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      for (int64_t h = 0; h < x.k; h++) see(i, row + i, h);
    }
  }
}

// Blocks [begin, end) of LEADING_ROWS rows, counted through all matrices.
static void lead_blocks(const Leading& d, int64_t begin, int64_t end) {
  const Numbers& x = d.x;
  const int64_t blocks = (x.rows + LEADING_ROWS - 1) / LEADING_ROWS;
  for (int64_t number = begin; number < end; number++) {
    const int64_t batch = number / blocks, row = number % blocks * LEADING_ROWS;
    const int64_t count = x.rows - row < LEADING_ROWS ? x.rows - row : LEADING_ROWS;
    int64_t tops[LEADING_ROWS], bottoms[LEADING_ROWS];
    for (int64_t i = 0; i < count; i++) tops[i] = NO_TOP, bottoms[i] = -NO_TOP;
    see_rows(x, row, count, [&](int64_t i, int64_t at, int64_t h) {
      if (x.signs[x.of_signs.at(batch, at, h)] == 0) return;
      const int64_t exponent = x.exponents[x.of_exponents.at(batch, at, h)];
      const int64_t lowest = exponent + lowest_bit(x, x.limbs + x.of_limbs.at(batch, at, h));
      tops[i] = exponent > tops[i] ? exponent : tops[i];
      bottoms[i] = lowest < bottoms[i] ? lowest : bottoms[i];
    });
    for (int64_t i = 0; i < count; i++) {
      const bool filled = tops[i] > NO_TOP;
      tops[i] = filled ? tops[i] : 0;
      d.tops[batch * x.rows + row + i] = tops[i];
      d.bottoms[batch * x.rows + row + i] = filled ? bottoms[i] - tops[i] : 0;
    }
    see_rows(x, row, count, [&](int64_t i, int64_t at, int64_t h) {
      const int sign = x.signs[x.of_signs.at(batch, at, h)];
      const int64_t exponent = x.exponents[x.of_exponents.at(batch, at, h)] - tops[i];
      d.values[d.of_values.at(batch, at, h)] =
          leading_bits(x, sign, exponent, x.limbs + x.of_limbs.at(batch, at, h), d.least);
    });
  }
}

}  // namespace cpu
