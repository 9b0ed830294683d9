// Lower bounds of abs(A) abs(B) by products of magnitudes, and worst ratios to them (docs/bounds.md, B7).
#pragma once

#include "describe.h"
#include "products.h"

namespace cpu {

struct Magnitudes {
  const void* x;
  const void* imaginary;            // of complex elements, whose real parts are at x; else null
  int64_t single;                   // whether parts are float32, else float64
  int64_t batch, rows;              // of x
  int64_t of_batch, of_rows, of_k;  // steps in parts of the size of one
  const int64_t* exponents;         // shape (batch, rows): a magnitude is floor(abs(x) 2**exponent), at most 127
  int64_t count;                    // of inner indices that are read
  int64_t every;                    // of so many the first 32 are read; 32 for all of them
  int8_t* out;                      // panels as of residues modulo one number (split.h)
  int64_t matrix, depth;            // bytes from one matrix to the next; count with its padding, a multiple of 16
  InnerFactors inner;
};

constexpr int64_t SAMPLE = 32;  // neighbours that are read

// Eight elements' magnitudes, of complex ones the larger of both parts'; zero in place of NaN and Inf, and of elements
// beyond the first `count`. They begin at inner index `at`, and are neighbours ALONG k or all at it.
template <bool ALONG, typename Element>
INLINE Doubles larger_magnitudes(const Element* x, const Element* imaginary, int64_t step, int64_t count,
                                 const double* inner, int64_t at) {
  const Doubles real = magnitudes_of(finite(scaled<ALONG>(raw_elements(x, step, count), inner, at, count)));
  if (imaginary == nullptr) return real;
  const Doubles other = magnitudes_of(finite(scaled<ALONG>(raw_elements(imaginary, step, count), inner, at, count)));
  return select(other > real, other, real);
}

// The integer parts of sixteen magnitudes.
INLINE Ints floors(Doubles x, Doubles y) {
  const HalfInts halves[2] = {converted<HalfInts>(x), converted<HalfInts>(y)};
  Ints all;
  memcpy(&all, halves, sizeof all);
  return all;
}

// A panel whose rows' neighbours along k are `of_k` apart. Rows that are not there are not written.
template <typename Element, int WIDTH>
INLINE void magnitudes_along_k(const Magnitudes& s, int64_t batch, int64_t panel, int8_t* out) {
  const int64_t rows = s.rows - panel * WIDTH < WIDTH ? s.rows - panel * WIDTH : WIDTH;
  const RowFactors<double, WIDTH> power(s.exponents + batch * s.rows + panel * WIDTH, rows);
  const double* inner = s.inner.of(batch);
  for (int64_t i = 0; i < rows; i++) {
    const int64_t begin = batch * s.of_batch + (panel * WIDTH + i) * s.of_rows;
    for (int64_t h = 0; h < s.depth; h += 16) {
      const int64_t rest = s.count - h, index = rest > 0 ? h / SAMPLE * s.every + h % SAMPLE : 0;
      const int64_t at = begin + index * s.of_k;
      const int64_t beside = rest > 8 ? 8 * s.of_k : 0;
      const Element *x = (const Element*)s.x + at, *y = s.imaginary ? (const Element*)s.imaginary + at : nullptr;
      const Doubles first = larger_magnitudes<true>(x, y, s.of_k, rest, inner, index);
      const Element* others = y ? y + beside : nullptr;
      const Doubles second = larger_magnitudes<true>(x + beside, others, s.of_k, rest - 8, inner, index + 8);
      const QuarterBytes bytes = narrowed(
          floors(first * power.first[i] * power.second[i], second * power.first[i] * power.second[i]));
      int8_t* to = out + h * WIDTH + 4 * i;
      for (int word = 0; word < 4; word++, to += 4 * WIDTH) memcpy(to, (const char*)&bytes + 4 * word, 4);
    }
  }
}

// A panel whose rows are neighbours in memory. Sixteen rows of which none is there are not written.
template <typename Element, int WIDTH>
INLINE void magnitudes_across(const Magnitudes& s, int64_t batch, int64_t panel, int8_t* out) {
  const int64_t rows = s.rows - panel * WIDTH < WIDTH ? s.rows - panel * WIDTH : WIDTH;
  const RowFactors<double, WIDTH> power(s.exponents + batch * s.rows + panel * WIDTH, rows);
  const int64_t begin = batch * s.of_batch + panel * WIDTH;
  const double* inner = s.inner.of(batch);
  for (int64_t h = 0; h < s.depth; h += 4, out += 4 * WIDTH) {
    for (int row = 0; row < rows; row += 16) {
      Ints four[4];
      for (int j = 0; j < 4; j++) {
        Doubles halves[2] = {};
        const int64_t here = h + j, index = here / SAMPLE * s.every + here % SAMPLE, at = begin + index * s.of_k;
        for (int half = 0; half < 2 && here < s.count; half++) {
          const int64_t beside = row + 8 * half, rest = rows - beside;
          if (rest <= 0) break;
          const Element* y = s.imaginary ? (const Element*)s.imaginary + at + beside : nullptr;
          const Element* x = (const Element*)s.x + at + beside;
          halves[half] = larger_magnitudes<false>(x, y, 1, rest, inner, index) *
                         load<Doubles>(power.first + beside) * load<Doubles>(power.second + beside);
        }
        four[j] = floors(halves[0], halves[1]);
      }
      const Bytes bytes = transposed(packed(four[0], four[1], four[2], four[3]));
      memcpy(out + 4 * row, &bytes, WIDTH - row < 16 ? 4 * (WIDTH - row) : 64);
    }
  }
}

// Panels [begin, end), counted through all matrices.
template <typename Element, int WIDTH> void magnitude_panels(const Magnitudes& s, int64_t begin, int64_t end) {
  const int64_t panels = (s.rows + WIDTH - 1) / WIDTH;
  for (int64_t at = begin; at < end; at++) {
    const int64_t batch = at / panels, panel = at % panels;
    int8_t* out = s.out + batch * s.matrix + panel * WIDTH * s.depth;
    if (s.of_rows == 1 && s.of_k != 1) magnitudes_across<Element, WIDTH>(s, batch, panel, out);
    else magnitudes_along_k<Element, WIDTH>(s, batch, panel, out);
  }
}

// Whole panels of bytes: out[i][j] = the sum of products of row i of the left panel and row j of the right one, plus
// out[i][j] if `add`, for `rows` and `columns` of them. V vectors of the right panel are wanted.
template <int V>
INLINE void sum_panels(const int8_t* left, const int8_t* right, int64_t depth, bool add, int64_t rows, int64_t columns,
                       int32_t* out, int64_t step) {
  Ints sums[LEFT_ROWS][V] = {};
  add_panels<V>(left, right, depth / 4, sums);
#pragma GCC unroll 16
  for (int i = 0; i < LEFT_ROWS; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
      const int64_t rest = columns - 16 * v, bytes = rest < 16 ? 4 * rest : 64;
      if (i >= rows || rest <= 0) continue;
      int32_t* to = out + i * step + 16 * v;
      Ints sum = sums[i][v], before = {};
      if (bytes == 64) {
        if (add) sum += load<Ints>(to);
        store(to, sum);
      } else {
        if (add) memcpy(&before, to, bytes);
        sum += before;
        memcpy(to, &sum, bytes);
      }
    }
  }
}

struct SumsOfMagnitudes {
  const int8_t *left, *right;         // panels of magnitudes
  int64_t left_matrix, right_matrix;  // bytes from one matrix to the next; 0 for the only one
  int64_t depth;                      // at most 133,144, for which sums of products fit int32
  int64_t rows, columns;              // of out
  int32_t* out;                       // shape (batch, rows, columns)
};

// Compute panels [begin, end) of rows of the sums, counted through all matrices.
static void sum_rows(const SumsOfMagnitudes& s, int64_t begin, int64_t end) {
  const int64_t panels = (s.rows + LEFT_ROWS - 1) / LEFT_ROWS;
  for (int64_t h = 0; h < s.depth; h += DEEPEST) {
    const int64_t depth = s.depth - h < DEEPEST ? s.depth - h : DEEPEST;
    // Panels of the left operand that stay in a cache while a panel of the right one is read.
    constexpr int64_t TOGETHER = 32;
    for (int64_t first = begin; first < end; first += TOGETHER) {
      const int64_t last = first + TOGETHER < end ? first + TOGETHER : end;
      for (int64_t j = 0; j < s.columns; j += RIGHT_ROWS) {
        const int64_t columns = s.columns - j < RIGHT_ROWS ? s.columns - j : RIGHT_ROWS;
        for (int64_t at = first; at < last; at++) {
          const int64_t batch = at / panels, i = at % panels * LEFT_ROWS;
          const int8_t* a = s.left + batch * s.left_matrix + i * s.depth + h * LEFT_ROWS;
          const int8_t* b = s.right + batch * s.right_matrix + j * s.depth + h * RIGHT_ROWS;
          int32_t* to = s.out + (batch * s.rows + i) * s.columns + j;
          if (columns > 32) sum_panels<3>(a, b, depth, h > 0, s.rows - i, columns, to, s.columns);
          else if (columns > 16) sum_panels<2>(a, b, depth, h > 0, s.rows - i, columns, to, s.columns);
          else sum_panels<1>(a, b, depth, h > 0, s.rows - i, columns, to, s.columns);
        }
      }
    }
  }
}

struct Ratios {
  const void* lower;                     // shape (batch, rows, columns)
  int64_t integers;                      // whether lower is int32, else float64
  int64_t rows, columns;                 // of lower
  int64_t first;                         // rows of each matrix that are compared
  const double *left, *right;            // error terms, [3][batch or 1][rows], [3][batch or 1][columns]
  int64_t left_term, right_term;         // elements from one term to the next
  int64_t left_matrix, right_matrix;     // from one matrix to the next; 0 for the only one
  double* found;                         // shape (batch, first): the largest ratio of each row
};

// Eight elements, or the first `count` of them and zeros.
INLINE Doubles eight(const double* x, int64_t count) { return some_neighbours(x, count); }
INLINE Doubles eight(const int32_t* x, int64_t count) {
  HalfInts some = {};
  memcpy(&some, x, count < 8 ? 4 * count : sizeof some);
  return converted<Doubles>(some);
}

// Compare rows [begin, end), counted through the first rows of all matrices. Where a lower bound is 0, the ratio is
// Inf, or none if the error is 0, too.
template <typename Lower> void compare_rows(const Ratios& s, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at++) {
    const int64_t batch = at / s.first, row = at % s.first;
    const double *p = s.left + batch * s.left_matrix + row, *q = s.right + batch * s.right_matrix;
    const Lower* lower = (const Lower*)s.lower + (batch * s.rows + row) * s.columns;
    const Doubles p0 = doubles(p[0]), p1 = doubles(p[s.left_term]), p2 = doubles(p[2 * s.left_term]);
    Doubles largest = {};
    for (int64_t j = 0; j < s.columns; j += 8) {
      const Doubles below = eight(lower + j, s.columns - j);
      Doubles of[3];
      for (int t = 0; t < 3; t++) of[t] = eight(q + t * s.right_term + j, s.columns - j);
      Doubles above = p0 * of[0];
      above += p1 * of[1];
      above += p2 * of[2];
      const Doubles ratio = above / below;
      largest = select(ratio > largest, ratio, largest);
    }
    double found = 0;
    for (int i = 0; i < 8; i++) found = largest[i] > found ? largest[i] : found;
    s.found[at] = found;
  }
}

}  // namespace cpu
