// Images of operands and their residues, as products.h reads them.
//
// The residues modulo one number of a panel, WIDTH rows of the left operand or columns of the right one, lie as
// [k / 4][WIDTH][4]: four neighbours along k are the bytes of a word. Panels follow one another.
#pragma once

#include <cmath>

#include "vectors.h"

namespace cpu {

constexpr int LEFT_ROWS = 8, RIGHT_ROWS = 48;  // of a panel

// How an image becomes a residue modulo a number: of 2**63 more than the image as eight bytes the products with those of
// `low` and `high` are added to `start`, and reduced to [-m/2, m/2); then `offset` is added.
struct Residue {
  int32_t modulus;
  float inverse;
  int32_t start, low, high, offset;
};

struct Split {
  const void* x;
  int64_t single;                             // whether x is float32, else float64
  int64_t batch, rows, k;                     // of x
  int64_t of_batch, of_rows, of_k;            // steps in elements
  const int64_t* exponents;                   // mu: an image is x 2**mu, rounded; shape (batch, rows)
  const Residue* residues;
  int64_t count;                              // of residues
  int8_t* out;
  int64_t plane, matrix;                      // bytes from one residue, and from one matrix, to the next
  int64_t depth;                              // k with its padding, a multiple of 16
};

// Sixteen images as words: the lower and the upper half of each one plus 2**63.
struct Words {
  Ints low, high;
};

INLINE Words words_of(Doubles x, Doubles y) {
  const Ints a = (Ints)nearest_integers(x), b = (Ints)nearest_integers(y);
  const Ints low = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const Ints high = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {low, high ^ INT32_MIN};
}

INLINE Ints residue_of(const Words& image, const Residue& of) {
  const Ints sum = dot_products(dot_products(ints(of.start), image.low, ints(of.low)), image.high, ints(of.high));
  return of.modulus == 256 ? (sum << 24) >> 24 : least_residue(sum, of.modulus, of.inverse);
}

// Bytes plus `offset`, modulo 256.
INLINE Bytes shifted(Bytes bytes, int32_t offset) { return (Bytes)((UnsignedBytes)bytes + (uint8_t)offset); }

// Eight elements that are neighbours.
template <typename Element> INLINE Doubles neighbours(const Element* x) {
  if constexpr (sizeof(Element) == 8) return load<Doubles>(x);
  else return __builtin_convertvector(load<HalfFloats>(x), Doubles);
}

// Eight elements from `x` on, `step` apart; zero in place of those beyond the first `count`.
template <typename Element> INLINE Doubles raw_elements(const Element* x, int64_t step, int64_t count) {
  if (step == 1) return some_neighbours(x, count);
  Doubles values = {};
  for (int i = 0; i < 8 && i < count; i++) values[i] = x[i * step];
  return values;
}

// The same, and zero in place of NaN and Inf.
template <typename Element> INLINE Doubles elements(const Element* x, int64_t step, int64_t count) {
  return finite(raw_elements(x, step, count));
}

// 2**exponent as two factors, neither of which leaves the range of float64.
struct Power {
  double first = 0, second = 0;

  Power() = default;
  explicit Power(int64_t exponent) {
    const int half = (int)(exponent / 2);
    first = ldexp(1.0, half), second = ldexp(1.0, (int)exponent - half);
  }
};

// What rows are multiplied by, 2**mu as two factors, none of which leaves the range of float64; zero beyond the rows.
template <int ROWS> struct Factors {
  double first[ROWS], second[ROWS];

  INLINE_MEMBER Factors(const Split& s, int64_t batch, int64_t row) {
    for (int i = 0; i < ROWS; i += 8) {
      const int64_t count = s.rows - row - i;
      const Longs exponents = some_integers(s.exponents + batch * s.rows + row + i, count);
      const Longs half = exponents >> 1;
      store(first + i, powers(half)), store(second + i, powers(exponents - half));
    }
  }
};

// Four words of each of eight or sixteen rows, at `to`, words `step` bytes apart: of four rows in each vector, which has
// their first words, then their second ones.
INLINE void store_words(int8_t* to, int64_t step, const Bytes (&rows)[2]) {
  static_assert(LEFT_ROWS == 8, "words of eight rows follow one another");
  const Longs a = (Longs)rows[0], b = (Longs)rows[1];
  store(to, __builtin_shufflevector(a, b, 0, 1, 8, 9, 2, 3, 10, 11));
  store(to + 2 * step, __builtin_shufflevector(a, b, 4, 5, 12, 13, 6, 7, 14, 15));
}

INLINE void store_words(int8_t* to, int64_t step, const Bytes (&rows)[4]) {
  const Longs a = (Longs)rows[0], b = (Longs)rows[1], c = (Longs)rows[2], d = (Longs)rows[3];
  const Longs ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
  const Longs cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 8, 9, 10, 11);
  const Longs ab_last = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  const Longs cd_last = __builtin_shufflevector(c, d, 4, 5, 6, 7, 12, 13, 14, 15);
  store(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5, 8, 9, 12, 13));
  store(to + step, __builtin_shufflevector(ab, cd, 2, 3, 6, 7, 10, 11, 14, 15));
  store(to + 2 * step, __builtin_shufflevector(ab_last, cd_last, 0, 1, 4, 5, 8, 9, 12, 13));
  store(to + 3 * step, __builtin_shufflevector(ab_last, cd_last, 2, 3, 6, 7, 10, 11, 14, 15));
}

// A panel whose rows' neighbours along k are `of_k` apart, most often neighbours in memory; so many rows at a time that
// whole lines of the cache are written.
template <typename Element, int WIDTH> INLINE void split_panel_along_k(const Split& s, int64_t batch, int64_t panel) {
  constexpr int ROWS = WIDTH < 16 ? WIDTH : 16, MOST = 32 / ROWS;  // vectors along k at a time
  const Element* x = (const Element*)s.x + batch * s.of_batch;
  int8_t* out = s.out + batch * s.matrix + panel * WIDTH * s.depth;
  const Factors<WIDTH> factors(s, batch, panel * WIDTH);
  const int64_t present = s.rows - panel * WIDTH;
  for (int first_row = 0; first_row < WIDTH && first_row < present; first_row += ROWS) {
    const Element* rows[ROWS];
    int64_t lengths[ROWS];
    for (int i = 0; i < ROWS; i++) {
      const bool there = first_row + i < present;
      rows[i] = x + (there ? panel * WIDTH + first_row + i : 0) * s.of_rows;
      lengths[i] = there ? s.k : 0;
    }
    for (int64_t h = 0; h < s.depth; h += 16 * MOST) {
      const int vectors = s.depth - h < 16 * MOST ? (int)(s.depth - h) / 16 : MOST;
      Words images[MOST][ROWS];
      for (int v = 0; v < vectors; v++) {
        for (int i = 0; i < ROWS; i++) {
          const int64_t at = h + 16 * v, count = lengths[i] - at;
          const Element* from = rows[i] + (count > 0 ? at : 0) * s.of_k;
          const Doubles low = elements(from, s.of_k, count);
          const Doubles high = elements(from + (count > 8 ? 8 * s.of_k : 0), s.of_k, count - 8);
          const Doubles first = doubles(factors.first[first_row + i]), second = doubles(factors.second[first_row + i]);
          images[v][i] = words_of(low * first * second, high * first * second);
        }
      }
      for (int64_t t = 0; t < s.count; t++) {
        const Residue of = s.residues[t];
        int8_t* to = out + t * s.plane + h * WIDTH + 4 * first_row;
        for (int v = 0; v < vectors; v++, to += 16 * WIDTH) {
          Bytes bytes[ROWS / 4];
#pragma GCC unroll 4
          for (int j = 0; j < ROWS / 4; j++) {
            Ints residues[4];
            for (int i = 0; i < 4; i++) residues[i] = residue_of(images[v][4 * j + i], of);
            bytes[j] = shifted(packed(residues[0], residues[1], residues[2], residues[3]), of.offset);
          }
          store_words(to, 4 * WIDTH, bytes);
        }
      }
    }
  }
}

// The first 16 VECTORS rows of a panel whose rows are neighbours in memory; of panels of eight rows, two at once.
template <typename Element, int WIDTH, int VECTORS>
INLINE void split_panel_across(const Split& s, int64_t batch, int64_t panel) {
  constexpr int MOST = 8;  // words along k at a time
  const Element* x = (const Element*)s.x + batch * s.of_batch + panel * WIDTH;
  int8_t* out = s.out + batch * s.matrix + panel * WIDTH * s.depth;
  const int64_t rows = s.rows - panel * WIDTH;
  const Factors<16 * VECTORS> factors(s, batch, panel * WIDTH);
  for (int64_t h = 0; 4 * h < s.k; h += MOST) {
    const int words = (s.k + 3) / 4 - h < MOST ? (int)((s.k + 3) / 4 - h) : MOST;
    Words images[MOST][VECTORS][4];
    for (int w = 0; w < words; w++) {
      for (int j = 0; j < 4; j++) {
        const int64_t at = 4 * (h + w) + j;
        const bool there = at < s.k;
        const Element* from = x + (there ? at : 0) * s.of_k;
        for (int v = 0; v < VECTORS; v++) {
          Doubles halves[2];
          for (int half = 0; half < 2; half++) {
            const int begin = 16 * v + 8 * half;
            const Doubles of_rows = finite(some_neighbours(from + begin, there ? rows - begin : 0));
            halves[half] = of_rows * load<Doubles>(factors.first + begin) * load<Doubles>(factors.second + begin);
          }
          images[w][v][j] = words_of(halves[0], halves[1]);
        }
      }
    }
    for (int64_t t = 0; t < s.count; t++) {
      const Residue of = s.residues[t];
      int8_t* to = out + t * s.plane + 4 * h * WIDTH;
      for (int w = 0; w < words; w++, to += 4 * WIDTH) {
        for (int v = 0; v < VECTORS; v++) {
          Ints residues[4];
          for (int j = 0; j < 4; j++) residues[j] = residue_of(images[w][v][j], of);
          const Bytes in_rows = packed(residues[0], residues[1], residues[2], residues[3]);
          const Bytes bytes = shifted(transposed(in_rows), of.offset);
          if constexpr (WIDTH < 16) {
            memcpy(to, &bytes, 32);
            if (rows > WIDTH) memcpy(to + WIDTH * s.depth, (const char*)&bytes + 32, 32);
          } else {
            store(to + 64 * v, bytes);
          }
        }
      }
    }
  }
}

// Panels [begin, end), counted through all matrices. What is left of a panel's rows beyond those of x, and of its words
// beyond k, may not be written: no result comes from it.
template <typename Element, int WIDTH> void split_panels(const Split& s, int64_t begin, int64_t end) {
  const int64_t panels = (s.rows + WIDTH - 1) / WIDTH;
  for (int64_t at = begin; at < end; at++) {
    const int64_t batch = at / panels, panel = at % panels, rows = s.rows - panel * WIDTH;
    if (s.of_rows != 1 || s.of_k == 1) split_panel_along_k<Element, WIDTH>(s, batch, panel);
    else if (WIDTH < 16 && panel % 2 == 1) continue;  // the one before it had both
    else if (WIDTH < 16 || rows <= 16) split_panel_across<Element, WIDTH, 1>(s, batch, panel);
    else if (rows <= 32) split_panel_across<Element, WIDTH, 2>(s, batch, panel);
    else split_panel_across<Element, WIDTH, 3>(s, batch, panel);
  }
}

}  // namespace cpu
