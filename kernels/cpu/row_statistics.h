// The statistics of rows that decide how many digits each one has (docs/definitions.md, section 11), of sixteen
// elements at a time.
#pragma once

#include "split.h"

namespace cpu {

constexpr int THRESHOLDS = 64;
constexpr int64_t EXACT_SQUARES = int64_t(1) << 16;  // of digits, at most 2**14 each, that int32 adds

struct RowStatistics {
  const float* x;
  int64_t batch, rows, k;             // of x; none is 0
  int64_t of_batch, of_rows, of_k;    // steps in elements
  const int64_t *tops, *exponents;    // of the description, and mu: an image is x 2**mu, rounded; shape (batch, rows)
  int64_t last;                       // how many digits count in `low`: 1 or 2, of images below 2**31
  int64_t empty;                      // the top of rows of zeros
  int64_t* inexact;                   // rounded elements; shape (batch, rows)
  int64_t* low;                       // squares of the last digits, summed; shape (last, batch, rows)
  int32_t* counts;                    // elements that are no less than each threshold; shape (batch, rows, THRESHOLDS)
};

// What subtracting the exponent of an element and its two bits after the leading one from is how many quarters of
// binades lie above it. Elements that are zero are below all thresholds then.
INLINE int32_t place_of_top(const RowStatistics& s, int64_t row) {
  const int64_t top = s.tops[row];
  return top == s.empty ? 0 : (int32_t)(4 * (top + 126) + 3);
}

// Sums in each lane.
template <int LAST> struct DigitSums {
  Ints inexact = {}, low[LAST] = {};

  // Add sixteen finite elements, times both factors an image before it is rounded; returns their places.
  INLINE_MEMBER Ints see(Floats x, Floats first, Floats second, Ints tops) {
    const Floats values = x * first * second;
    Ints rest = nearest_integers(values);
    // What a factor flushed to zero was no integer.
    inexact -= (converted<Floats>(rest) != values) | ((values == 0) & (x != 0));
    for (int s = LAST - 1; s >= 0; s--) {
      const Ints digit = rest << 24 >> 24;
      low[s] += digit * digit;
      rest = (rest - digit) >> 8;
    }
    const Ints normal = (Ints)x & INT32_MAX, scaled = ((Ints)(x * 0x1p64f) & INT32_MAX) - (64 << 23);
    const Ints place = tops - (select(normal < (1 << 23), scaled, normal) >> 21);
    return select(place < THRESHOLDS, place, ints(THRESHOLDS));
  }
};

INLINE int64_t sum_of(Ints x) {
  int64_t sum = 0;
  for (int i = 0; i < 16; i++) sum += x[i];
  return sum;
}

// Places of elements, counted.
struct Counted {
  int32_t of[THRESHOLDS + 1];
};

INLINE void write_counts(const Counted& counted, int32_t* to) {
  int32_t so_far = 0;
  for (int b = 0; b < THRESHOLDS; b++) to[b] = so_far += counted.of[b];
}

// One row, most often of neighbours in memory.
template <int LAST> static void see_row(const RowStatistics& s, int64_t batch, int64_t row) {
  constexpr int TABLES = 4;  // in turn: a count is not read soon after it is written
  const int64_t at = batch * s.rows + row, all = s.batch * s.rows;
  const float* x = s.x + batch * s.of_batch + row * s.of_rows;
  const int half = (int)(s.exponents[at] >> 1);
  const Floats first = floats(ldexpf(1, half)), second = floats(ldexpf(1, (int)s.exponents[at] - half));
  const Ints tops = ints(place_of_top(s, at));
  Counted counted[TABLES] = {};
  int64_t inexact = 0, low[LAST] = {};
  for (int64_t begin = 0; begin < s.k; begin += 16 * EXACT_SQUARES) {
    const int64_t end = begin + 16 * EXACT_SQUARES < s.k ? begin + 16 * EXACT_SQUARES : s.k;
    DigitSums<LAST> sums;
    for (int64_t h = begin; h < end; h += 16) {
      Floats values = {};
      if (s.of_k == 1) values = some_floats(x + h, end - h);
      else for (int i = 0; i < 16 && h + i < end; i++) set(values, i, x[(h + i) * s.of_k]);
      int32_t places[16];
      store(places, sums.see(finite(values), first, second, tops));
#pragma GCC unroll 16
      for (int i = 0; i < 16; i++) counted[i % TABLES].of[places[i]]++;
    }
    inexact += sum_of(sums.inexact);
    for (int d = 0; d < LAST; d++) low[d] += sum_of(sums.low[d]);
  }
  for (int b = 0; b < THRESHOLDS; b++) {
    for (int i = 1; i < TABLES; i++) counted[0].of[b] += counted[i].of[b];
  }
  s.inexact[at] = inexact;
  for (int d = 0; d < LAST; d++) s.low[d * all + at] = low[d];
  write_counts(counted[0], s.counts + at * THRESHOLDS);
}

// Rows that are neighbours in memory; `count` of at most sixteen.
template <int LAST> static void see_across(const RowStatistics& s, int64_t batch, int64_t row, int64_t count) {
  const int64_t at = batch * s.rows + row, all = s.batch * s.rows;
  const float* x = s.x + batch * s.of_batch + row;
  float first[16] = {}, second[16] = {};
  int32_t tops[16] = {};
  for (int i = 0; i < count; i++) {
    const int half = (int)(s.exponents[at + i] >> 1);
    first[i] = ldexpf(1, half), second[i] = ldexpf(1, (int)s.exponents[at + i] - half);
    tops[i] = place_of_top(s, at + i);
  }
  Counted counted[16] = {};
  int64_t inexact[16] = {}, low[LAST][16] = {};
  for (int64_t begin = 0; begin < s.k; begin += EXACT_SQUARES) {
    const int64_t end = begin + EXACT_SQUARES < s.k ? begin + EXACT_SQUARES : s.k;
    DigitSums<LAST> sums;
    for (int64_t h = begin; h < end; h++) {
      const Floats values = finite(some_floats(x + h * s.of_k, count));
      int32_t places[16];
      store(places, sums.see(values, load<Floats>(first), load<Floats>(second), load<Ints>(tops)));
#pragma GCC unroll 16
      for (int i = 0; i < 16; i++) counted[i].of[places[i]]++;
    }
    for (int i = 0; i < 16; i++) {
      inexact[i] += sums.inexact[i];
      for (int d = 0; d < LAST; d++) low[d][i] += sums.low[d][i];
    }
  }
  for (int i = 0; i < count; i++) {
    s.inexact[at + i] = inexact[i];
    for (int d = 0; d < LAST; d++) s.low[d * all + at + i] = low[d][i];
    write_counts(counted[i], s.counts + (at + i) * THRESHOLDS);
  }
}

constexpr int64_t SEEN = 16;  // rows of a block

// Blocks [begin, end) of `SEEN` rows, counted through all matrices.
template <int LAST> static void see_blocks(const RowStatistics& s, int64_t begin, int64_t end) {
  const int64_t blocks = (s.rows + SEEN - 1) / SEEN;
  for (int64_t number = begin; number < end; number++) {
    const int64_t batch = number / blocks, row = number % blocks * SEEN;
    const int64_t count = s.rows - row < SEEN ? s.rows - row : SEEN;
    if (s.of_rows == 1 && s.of_k != 1) see_across<LAST>(s, batch, row, count);
    else for (int64_t i = row; i < row + count; i++) see_row<LAST>(s, batch, i);
  }
}

// Lower bounds of entries of abs(A) abs(B), one for each row (ozaki/bounds/row_digits.py).
struct LeastProducts {
  const int32_t* counts;              // of the rows, ascending; shape (rows, THRESHOLDS)
  const int64_t* matrices;            // the summary that each row goes with
  const int64_t* missing;             // k less the counts of the summaries, ascending; shape (batch, THRESHOLDS)
  const int64_t *weight, *product;    // sums of the steps, and of steps times `missing`, of those before one; shape
                                      // (batch, THRESHOLDS + 1)
  const int64_t* steps;
  int64_t* out;                       // of each row
};

static void find_least(const LeastProducts& s, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; row++) {
    const int32_t* counts = s.counts + row * THRESHOLDS;
    const int64_t matrix = s.matrices[row];
    const int64_t* missing = s.missing + matrix * THRESHOLDS;
    const int64_t *weight = s.weight + matrix * (THRESHOLDS + 1), *product = s.product + matrix * (THRESHOLDS + 1);
    int64_t least = 0;
    for (int b = 0, place = 0; b < THRESHOLDS; b++) {
      while (place < THRESHOLDS && missing[place] < counts[b]) place++;
      least += s.steps[b] * (counts[b] * weight[place] - product[place]);
    }
    s.out[row] = least;
  }
}

}  // namespace cpu
