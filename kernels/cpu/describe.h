// The descriptions of rows that plans and bounds rest on (ozaki/bounds/description.py).
#pragma once

#include "split.h"

namespace cpu {

struct Describe {
  const void* x;
  int64_t single;                          // whether x is float32, else float64
  int64_t batch, rows, k;                  // of x; none is 0
  int64_t of_batch, of_rows, of_k;         // steps in elements
  int64_t pairs;                           // whether rows 0 and 1, 2 and 3, ... are described as one; neighbours in memory
  int64_t width, empty;                    // bits of a magnitude; the top and bottom of rows of zeros
  int64_t *top, *peak, *magnitudes, *squares, *bottom, *nonfinite;  // shape (batch, rows)
};

constexpr int64_t EXACT_SUM = 8192;  // squares of magnitudes, of at most 2**40 each, that float64 adds exactly

INLINE Doubles magnitudes_of(Doubles x) { return (Doubles)((Longs)x & INT64_MAX); }

// Eight lanes, the two of each pair exchanged.
template <typename Vector> INLINE Vector exchanged(Vector x) {
  return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
}

// What a pass over eight lanes finds, in each of them.
struct Extremes {
  Doubles largest = {}, smallest = doubles(__builtin_inf());
  Longs nonfinite = {};

  INLINE_MEMBER void see(Doubles magnitudes) {
    const Longs finite = magnitudes < __builtin_inf();
    nonfinite -= ~finite;  // not finite, or NaN: -1
    magnitudes = (Doubles)((Longs)magnitudes & finite);
    largest = magnitudes > largest ? magnitudes : largest;
    smallest = (magnitudes < smallest) & (magnitudes != 0) ? magnitudes : smallest;
  }

  // Let both lanes of each pair have what was found in either.
  INLINE_MEMBER void join_pairs() {
    const Doubles larger = exchanged(largest), smaller = exchanged(smallest);
    largest = larger > largest ? larger : largest;
    smallest = smaller < smallest ? smaller : smallest;
    nonfinite += exchanged(nonfinite);
  }
};

struct Sums {
  Doubles magnitudes = {}, squares = {};
  Longs inexact = {};

  INLINE_MEMBER void see(Doubles values, Doubles first, Doubles second) {
    const Doubles scaled = values * first * second;
    Doubles units = upward(scaled);
    units = (units == 0) & (values != 0) ? doubles(1.0) : units;  // scaling flushed it to zero
    inexact |= units != scaled;
    magnitudes += units;
    squares = multiply_add(units, units, squares);
  }
};

INLINE void write_description(const Describe& d, int64_t at, double largest, double smallest, int64_t nonfinite,
                              int64_t magnitudes, int64_t squares, bool exact) {
  d.nonfinite[at] = nonfinite;
  if (largest == 0) {
    d.top[at] = d.bottom[at] = d.empty;
    d.peak[at] = d.magnitudes[at] = d.squares[at] = 0;
    return;
  }
  int top, low;
  frexp(largest, &top);
  frexp(smallest, &low);
  d.top[at] = top;
  d.peak[at] = (int64_t)ceil(ldexp(largest, (int)d.width - top));
  d.magnitudes[at] = magnitudes;
  d.squares[at] = squares;
  d.bottom[at] = exact ? top - d.width : low - (d.single ? 24 : 53);
}

// Eight magnitudes from `x` on, `step` apart; zero in place of those beyond the first `count`.
template <typename Element> INLINE Doubles some_magnitudes(const Element* x, int64_t step, int64_t count) {
  return magnitudes_of(raw_elements(x, step, count));
}

template <typename Element> INLINE void describe_row(const Describe& d, int64_t batch, int64_t row) {
  const Element* x = (const Element*)d.x + batch * d.of_batch + row * d.of_rows;
  Extremes found;
  for (int64_t h = 0; h < d.k; h += 8) found.see(some_magnitudes(x + h * d.of_k, d.of_k, d.k - h));
  double largest = 0, smallest = __builtin_inf();
  int64_t nonfinite = 0;
  for (int i = 0; i < 8; i++) {
    largest = found.largest[i] > largest ? found.largest[i] : largest;
    smallest = found.smallest[i] < smallest ? found.smallest[i] : smallest;
    nonfinite += found.nonfinite[i];
  }
  int64_t magnitudes = 0, squares = 0;
  bool exact = true;
  if (largest > 0) {
    int top;
    frexp(largest, &top);
    const Power power(d.width - top);
    for (int64_t begin = 0; begin < d.k; begin += EXACT_SUM) {
      const int64_t end = begin + EXACT_SUM < d.k ? begin + EXACT_SUM : d.k;
      Sums sums;
      for (int64_t h = begin; h < end; h += 8) {
        sums.see(finite(some_magnitudes(x + h * d.of_k, d.of_k, end - h)), doubles(power.first), doubles(power.second));
      }
      for (int i = 0; i < 8; i++) {
        magnitudes += (int64_t)sums.magnitudes[i], squares += (int64_t)sums.squares[i];
        exact = exact && !sums.inexact[i];
      }
    }
  }
  write_description(d, batch * d.rows + row, largest, smallest, nonfinite, magnitudes, squares, exact);
}

constexpr int ACROSS = 32;  // rows at a time that are neighbours in memory

// The first `count` of `ACROSS` rows; with ALL, of all of them.
template <typename Element, bool ALL>
INLINE void describe_across(const Describe& d, int64_t batch, int64_t row, int64_t count) {
  constexpr int VECTORS = ACROSS / 8;
  const Element* x = (const Element*)d.x + batch * d.of_batch + row;
  Extremes found[VECTORS];
  for (int64_t h = 0; h < d.k; h++) {
    for (int v = 0; v < VECTORS; v++) {
      const int64_t rest = count - 8 * v;
      found[v].see(magnitudes_of(across<ALL>(x + h * d.of_k + (ALL || rest > 0 ? 8 * v : 0), rest)));
    }
  }
  if (d.pairs) {
    for (int v = 0; v < VECTORS; v++) found[v].join_pairs();
  }
  Doubles first[VECTORS] = {}, second[VECTORS] = {};
  for (int i = 0; i < count; i++) {
    int top;
    frexp(found[i / 8].largest[i % 8], &top);
    const Power power(d.width - top);
    first[i / 8][i % 8] = power.first, second[i / 8][i % 8] = power.second;
  }
  Longs magnitudes[VECTORS] = {}, squares[VECTORS] = {}, inexact[VECTORS] = {};
  for (int64_t begin = 0; begin < d.k; begin += EXACT_SUM) {
    const int64_t end = begin + EXACT_SUM < d.k ? begin + EXACT_SUM : d.k;
    Sums sums[VECTORS];
    for (int64_t h = begin; h < end; h++) {
      for (int v = 0; v < VECTORS; v++) {
        const int64_t rest = count - 8 * v;
        const Element* from = x + h * d.of_k + (ALL || rest > 0 ? 8 * v : 0);
        sums[v].see(finite(magnitudes_of(across<ALL>(from, rest))), first[v], second[v]);
      }
    }
    for (int v = 0; v < VECTORS; v++) {
      magnitudes[v] += __builtin_convertvector(sums[v].magnitudes, Longs);
      squares[v] += __builtin_convertvector(sums[v].squares, Longs);
      inexact[v] |= sums[v].inexact;
    }
  }
  if (d.pairs) {
    for (int v = 0; v < VECTORS; v++) {
      magnitudes[v] += exchanged(magnitudes[v]), squares[v] += exchanged(squares[v]);
      inexact[v] |= exchanged(inexact[v]);
    }
  }
  for (int i = 0; i < count; i++) {
    const int v = i / 8, lane = i % 8;
    write_description(d, batch * d.rows + row + i, found[v].largest[lane], found[v].smallest[lane],
                      found[v].nonfinite[lane], magnitudes[v][lane], squares[v][lane], !inexact[v][lane]);
  }
}

// Blocks [begin, end) of `ACROSS` rows, counted through all matrices.
template <typename Element> void describe_blocks(const Describe& d, int64_t begin, int64_t end) {
  const int64_t blocks = (d.rows + ACROSS - 1) / ACROSS;
  for (int64_t at = begin; at < end; at++) {
    const int64_t batch = at / blocks, row = at % blocks * ACROSS;
    const int64_t count = d.rows - row < ACROSS ? d.rows - row : ACROSS;
    if (d.pairs || (d.of_rows == 1 && d.of_k != 1)) {
      if (count == ACROSS) describe_across<Element, true>(d, batch, row, count);
      else describe_across<Element, false>(d, batch, row, count);
    } else {
      for (int64_t i = 0; i < count; i++) describe_row<Element>(d, batch, row + i);
    }
  }
}

}  // namespace cpu
