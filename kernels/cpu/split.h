// Images of operands and their slices, residues or digits, as products.h and digits.h read them.
//
// The slices of a panel, residues modulo one number, WIDTH rows of the left operand or columns of the right one, lie as
// [k / 4][WIDTH][4]: four neighbours along k are the bytes of a word. Panels follow one another.
#pragma once

#include <cmath>

#include "panels.h"

namespace cpu {

// How an image becomes a residue modulo a number: of 2**63 more than the image as eight bytes the products with those
// of `low` and `high` are added to `start`, and reduced to [-m/2, m/2); then `offset` is added.
struct Residue {
  int32_t modulus;
  float inverse;
  int32_t start, low, high, offset;
};

// The factors of the inner indices of an operand, by which elements are multiplied as they are read (`scaled`).
struct InnerFactors {
  const double* factors;  // shape (batch or 1, k); null where there are none
  int64_t matrix;         // from one matrix's factors to the next one's; 0 for the only ones

  INLINE_MEMBER const double* of(int64_t batch) const {
    return factors == nullptr ? nullptr : factors + batch * matrix;
  }
};

struct Split {
  const void* x;
  int64_t single;                             // whether x is float32, else float64
  int64_t batch, rows, k;                     // of x
  int64_t of_batch, of_rows, of_k;            // steps in elements
  const int64_t* exponents;                   // mu: an image is x 2**mu, rounded; shape (batch, rows)
  const void* slices;                         // how images become each of them: Residue, or Digit (digits.h)
  int64_t count;                              // of slices
  int8_t* out;
  int64_t plane, matrix;                      // bytes from one slice, and from one matrix, to the next
  int64_t depth;                              // k with its padding, a multiple of 16
  int64_t narrow;                             // whether images are below 2**31, else 2**63
  InnerFactors inner;
};

// Sixteen images as words: the lower and the upper half of each one plus a bias.
struct Words {
  Ints low, high;
};

INLINE Words words_of(Doubles x, Doubles y, uint64_t bias) {
  const UnsignedLongs a = (UnsignedLongs)nearest_integers(x) + bias, b = (UnsignedLongs)nearest_integers(y) + bias;
  return {lower_halves((Longs)a, (Longs)b), upper_halves((Longs)a, (Longs)b)};
}

// What is added to images, of eight or of four bytes, of which residues are made: so that bytes are unsigned.
INLINE uint64_t bias_of(const Residue&, bool narrow) { return narrow ? uint64_t(1) << 31 : uint64_t(1) << 63; }

INLINE Ints slice_of(const Words& image, const Residue& of) {
  const Ints sum = dot_products(dot_products(ints(of.start), image.low, ints(of.low)), image.high, ints(of.high));
  return of.modulus == 256 ? (sum << 24) >> 24 : least_residue(sum, of.modulus, of.inverse);
}

// Sixteen images below 2**31: four bytes of each one plus a bias.
struct NarrowWords {
  Ints low;
};

INLINE NarrowWords narrow_words(Ints images, uint64_t bias) { return {(Ints)((UnsignedInts)images + (uint32_t)bias)}; }

INLINE Ints slice_of(const NarrowWords& image, const Residue& of) {
  const int32_t start = of.start + 128 * ((int8_t)(of.high >> 24) - (int8_t)(of.low >> 24));  // 2**31 for 2**63
  const Ints sum = dot_products(ints(start), image.low, ints(of.low));
  return of.modulus == 256 ? (sum << 24) >> 24 : least_residue(sum, of.modulus, of.inverse);
}

// Bytes plus `offset`, modulo 256.
INLINE Bytes shifted(Bytes bytes, int32_t offset) { return (Bytes)((UnsignedBytes)bytes + (uint8_t)offset); }

// Eight elements that are neighbours.
template <typename Element> INLINE Doubles neighbours(const Element* x) {
  if constexpr (sizeof(Element) == 8) return load<Doubles>(x);
  else return converted<Doubles>(load<HalfFloats>(x));
}

// Eight elements from `x` on, `step` apart; zero in place of those beyond the first `count`.
template <typename Element> INLINE Doubles raw_elements(const Element* x, int64_t step, int64_t count) {
  if (step == 1) return some_neighbours(x, count);
  Doubles values = {};
  for (int i = 0; i < 8 && i < count; i++) set(values, i, x[i * step]);
  return values;
}

// Eight elements from inner index `at` on, neighbours ALONG k or all at that index, times the factors `inner` of inner
// indices, powers of two or 0, by which no element leaves its format; null: they are as they are.
template <bool ALONG> INLINE Doubles scaled(Doubles x, const double* inner, int64_t at, int64_t count) {
  if (inner == nullptr) return x;
  return x * (ALONG ? some_neighbours(inner + at, count) : doubles(inner[at]));
}

// 2**exponent as two factors, neither of which leaves the range of float64.
struct Power {
  double first, second;

  explicit Power(int64_t exponent) {
    const int half = (int)(exponent / 2);
    first = ldexp(1.0, half), second = ldexp(1.0, (int)exponent - half);
  }
};

// What rows are multiplied by, 2**mu as two factors, none of which leaves the range of Number.
template <typename Number, int ROWS> struct RowFactors {
  Number first[ROWS], second[ROWS];

  INLINE_MEMBER RowFactors(const Split& s, int64_t batch, int64_t row)
      : RowFactors(s.exponents + batch * s.rows + row, s.rows - row) {}

  // Of `rows` rows from the one on whose exponent comes first; of rows beyond them they are 1.
  INLINE_MEMBER RowFactors(const int64_t* mu, int64_t rows) {
    for (int i = 0; i < ROWS; i += 8) {
      const Longs exponents = some_integers(mu + i, rows - i), half = exponents >> 1;
      store_some(first + i, powers(half), 8), store_some(second + i, powers(exponents - half), 8);
    }
  }
};

template <bool ONE> INLINE Doubles factor(const double* x) { return ONE ? doubles(*x) : load<Doubles>(x); }
template <bool ONE> INLINE Floats factor(const float* x) { return ONE ? floats(*x) : load<Floats>(x); }

// Where the factors of the second eight of sixteen elements begin, neighbours ALONG k or all at one inner index.
template <bool ALONG> constexpr int NEXT_ALONG = ALONG ? 8 : 0;

// The images of sixteen elements from `x` on, `step` apart, zeros beyond the first `count`; they are multiplied by the
// sixteen factors from `first` and `second` on, or, neighbours along k, all by the ONE that is there. `inner` are the
// factors of inner indices from the first one on, or null; `bias` is that of words.
template <bool NARROW, bool ONE, typename Element>
INLINE auto images_of(const Element* x, int64_t step, int64_t count, const double* first, const double* second,
                      const double* inner, uint64_t bias) {
  constexpr int NEXT = ONE ? 0 : 8;
  const Doubles some = finite(scaled<ONE>(raw_elements(x, step, count), inner, 0, count));
  const Doubles beside = raw_elements(x + (count > 8 ? 8 * step : 0), step, count - 8);
  const Doubles others = finite(scaled<ONE>(beside, inner, NEXT_ALONG<ONE>, count - 8));
  const Doubles low = some * factor<ONE>(first) * factor<ONE>(second);
  const Doubles high = others * factor<ONE>(first + NEXT) * factor<ONE>(second + NEXT);
  if constexpr (NARROW) return narrow_words(nearest_integers(low, high), bias);
  else return words_of(low, high, bias);
}

// Images below 2**31 of elements of 24 bits are exact in float32 until they are rounded: what a factor flushes is below
// 2**-126, and becomes no larger.
template <bool NARROW, bool ONE>
INLINE auto images_of(const float* x, int64_t step, int64_t count, const float* first, const float* second,
                      const double* inner, uint64_t bias) {
  Floats values = {};
  if (step == 1) values = some_floats(x, count);
  else for (int i = 0; i < 16 && i < count; i++) set(values, i, x[i * step]);
  if (inner != nullptr && !ONE) values = values * floats((float)inner[0]);
  for (int i = 0; inner != nullptr && ONE && i < 16 && i < count; i++) set(values, i, values[i] * (float)inner[i]);
  return narrow_words(nearest_integers(finite(values) * factor<ONE>(first) * factor<ONE>(second)), bias);
}

// What images are made in, and what they are.
template <typename Element, bool NARROW> struct Making {
  typedef double Number;
  typedef Words Images;
};
template <> struct Making<double, true> {
  typedef double Number;
  typedef NarrowWords Images;
};
template <> struct Making<float, true> {
  typedef float Number;
  typedef NarrowWords Images;
};

static_assert(LEFT_ROWS == 8, "`store_words` has the words of eight rows follow one another");

// A panel whose rows' neighbours along k are `of_k` apart, most often neighbours in memory; so many rows at a time that
// whole lines of the cache are written.
template <typename Slice, typename Element, bool NARROW, int WIDTH>
INLINE void split_panel_along_k(const Split& s, int64_t batch, int64_t panel) {
  constexpr int ROWS = WIDTH < 16 ? WIDTH : 16, MOST = 32 / ROWS;  // vectors along k at a time
  const Slice* const slices = (const Slice*)s.slices;
  const uint64_t bias = bias_of(slices[0], NARROW);
  const Element* x = (const Element*)s.x + batch * s.of_batch;
  int8_t* out = s.out + batch * s.matrix + panel * WIDTH * s.depth;
  const RowFactors<typename Making<Element, NARROW>::Number, WIDTH> factors(s, batch, panel * WIDTH);
  const int64_t present = s.rows - panel * WIDTH;
  const double* inner = s.inner.of(batch);
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
      typename Making<Element, NARROW>::Images images[MOST][ROWS];
      for (int v = 0; v < vectors; v++) {
        for (int i = 0; i < ROWS; i++) {
          const int64_t at = h + 16 * v, count = lengths[i] - at;
          const Element* from = rows[i] + (count > 0 ? at : 0) * s.of_k;
          const auto *first = factors.first + first_row + i, *second = factors.second + first_row + i;
          const double* of_k = inner == nullptr ? nullptr : inner + (count > 0 ? at : 0);
          images[v][i] = images_of<NARROW, true>(from, s.of_k, count, first, second, of_k, bias);
        }
      }
      for (int64_t t = 0; t < s.count; t++) {
        const Slice of = slices[t];
        int8_t* to = out + t * s.plane + h * WIDTH + 4 * first_row;
        for (int v = 0; v < vectors; v++, to += 16 * WIDTH) {
          Bytes bytes[ROWS / 4];
#pragma GCC unroll 4
          for (int j = 0; j < ROWS / 4; j++) {
            Ints four[4];
            for (int i = 0; i < 4; i++) four[i] = slice_of(images[v][4 * j + i], of);
            bytes[j] = shifted(packed(four[0], four[1], four[2], four[3]), of.offset);
          }
          store_words(to, 4 * WIDTH, bytes);
        }
      }
    }
  }
}

// The first 16 VECTORS rows of a panel whose rows are neighbours in memory; of panels of eight rows, two at once.
template <typename Slice, typename Element, bool NARROW, int WIDTH, int VECTORS>
INLINE void split_panel_across(const Split& s, int64_t batch, int64_t panel) {
  constexpr int MOST = 8;  // words along k at a time
  const Slice* const slices = (const Slice*)s.slices;
  const uint64_t bias = bias_of(slices[0], NARROW);
  const Element* x = (const Element*)s.x + batch * s.of_batch + panel * WIDTH;
  int8_t* out = s.out + batch * s.matrix + panel * WIDTH * s.depth;
  const int64_t rows = s.rows - panel * WIDTH;
  const double* inner = s.inner.of(batch);
  const RowFactors<typename Making<Element, NARROW>::Number, 16 * VECTORS> factors(s, batch, panel * WIDTH);
  for (int64_t h = 0; 4 * h < s.k; h += MOST) {
    const int words = (s.k + 3) / 4 - h < MOST ? (int)((s.k + 3) / 4 - h) : MOST;
    typename Making<Element, NARROW>::Images images[MOST][VECTORS][4];
    for (int w = 0; w < words; w++) {
      for (int j = 0; j < 4; j++) {
        const int64_t at = 4 * (h + w) + j;
        const bool there = at < s.k;
        const Element* from = x + (there ? at : 0) * s.of_k;
        const double* of_k = inner == nullptr ? nullptr : inner + (there ? at : 0);
        for (int v = 0; v < VECTORS; v++) {
          const int64_t count = there ? rows - 16 * v : 0;
          const auto *first = factors.first + 16 * v, *second = factors.second + 16 * v;
          images[w][v][j] = images_of<NARROW, false>(from + 16 * v, 1, count, first, second, of_k, bias);
        }
      }
    }
    for (int64_t t = 0; t < s.count; t++) {
      const Slice of = slices[t];
      int8_t* to = out + t * s.plane + 4 * h * WIDTH;
      for (int w = 0; w < words; w++, to += 4 * WIDTH) {
        for (int v = 0; v < VECTORS; v++) {
          Ints four[4];
          for (int j = 0; j < 4; j++) four[j] = slice_of(images[w][v][j], of);
          const Bytes in_rows = packed(four[0], four[1], four[2], four[3]);
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

// Panels [begin, end), counted through all matrices, of images that are NARROW or not. What is left of a panel's rows
// beyond those of x, and of its words beyond k, may not be written: no result comes from it. Of a left operand whose
// rows are neighbours in memory the first of two panels writes both, so only all ranges together split all panels.
template <typename Slice, typename Element, bool NARROW, int WIDTH>
static void split_panels_of(const Split& s, int64_t begin, int64_t end) {
  const int64_t panels = (s.rows + WIDTH - 1) / WIDTH;
  for (int64_t at = begin; at < end; at++) {
    const int64_t batch = at / panels, panel = at % panels, rows = s.rows - panel * WIDTH;
    if (s.of_rows != 1 || s.of_k == 1) split_panel_along_k<Slice, Element, NARROW, WIDTH>(s, batch, panel);
    else if (WIDTH < 16 && panel % 2 == 1) continue;  // the one before it had both
    else if (WIDTH < 16 || rows <= 16) split_panel_across<Slice, Element, NARROW, WIDTH, 1>(s, batch, panel);
    else if (rows <= 32) split_panel_across<Slice, Element, NARROW, WIDTH, 2>(s, batch, panel);
    else split_panel_across<Slice, Element, NARROW, WIDTH, 3>(s, batch, panel);
  }
}

template <typename Slice, typename Element, int WIDTH> void split_panels(const Split& s, int64_t begin, int64_t end) {
  if (s.narrow) split_panels_of<Slice, Element, true, WIDTH>(s, begin, end);
  else split_panels_of<Slice, Element, false, WIDTH>(s, begin, end);
}

}  // namespace cpu
