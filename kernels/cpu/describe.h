// The descriptions of rows that plans and bounds rest on (ozaki/bounds/description.py), of eight rows at a time.
#pragma once

#include "split.h"

namespace cpu {

struct Describe {
  const void* x;
  int64_t single;                          // whether x is float32, else float64
  int64_t batch, rows, k;                  // of x; none is 0
  int64_t of_batch, of_rows, of_k;         // steps in elements
  int64_t pairs;                           // whether rows 2 i and 2 i + 1, neighbours in memory, are described as one
  int64_t width, empty;                    // bits of a magnitude; the top and bottom of rows of zeros
  int64_t *top, *peak, *magnitudes, *squares, *bottom, *nonfinite;  // shape (batch, rows)
  InnerFactors inner;
};

constexpr int64_t EXACT_SUM = 8192;  // squares of magnitudes, of at most 2**40 each, that float64 adds exactly

INLINE Doubles magnitudes_of(Doubles x) { return (Doubles)((Longs)x & INT64_MAX); }

// The first pass, in each lane. PLAIN: NaN and Inf count as the largest magnitudes; else they are counted by
// themselves.
template <bool PLAIN> struct Extremes {
  Longs largest = {};           // the bits of magnitudes are ordered as these are
  UnsignedLongs below = ~UnsignedLongs{};  // those of the smallest that is not zero, minus 1
  Longs nonfinite = {};

  INLINE_MEMBER void see(Doubles x) {
    Longs bits = (Longs)magnitudes_of(x);
    if (!PLAIN) {
      const Longs is_finite = (Doubles)bits < __builtin_inf();  // -1, or 0 of NaN and Inf
      nonfinite += is_finite + 1;
      bits &= is_finite;
    }
    const UnsignedLongs lower = (UnsignedLongs)bits - 1;
    largest = select(bits > largest, bits, largest);
    below = select(lower < below, lower, below);
  }

  // Let both lanes of each pair have what was found in either.
  INLINE_MEMBER void join_pairs() {
    const Longs larger = exchanged(largest);
    const UnsignedLongs lower = exchanged(below);
    largest = select(larger > largest, larger, largest);
    below = select(lower < below, lower, below);
    nonfinite += exchanged(nonfinite);
  }
};

// What the first pass found of eight rows, one in each lane.
struct Found {
  Doubles largest, smallest;  // zero, and no number, of rows of zeros
  Longs nonfinite;
};

// What the second pass multiplies by, of eight rows: 2**(width - top) in two factors, or if PLAIN serves in one.
struct Scale {
  Longs filled, top, low;  // -1 for rows that are not all zeros; frexp's exponents of the largest and the smallest
  Doubles first, second;
  bool plain;  // one factor has the whole power, and it flushes no element to zero

  Scale() = default;
  Scale(const Found& found, int64_t width) {
    filled = found.largest != 0;
    top = frexp_exponents(found.largest) & filled;
    low = frexp_exponents(found.smallest) & filled;
    const Longs exponents = width - top;
    plain = none((exponents < -1022) | (exponents > 1023) | (low + exponents < -1000) | (found.nonfinite != 0));
    const Longs half = plain ? exponents : exponents >> 1;
    first = powers(half), second = powers(exponents - half);
  }
};

// The second pass, in each lane.
template <bool PLAIN> struct Sums {
  Doubles magnitudes = {}, squares = {};
  Longs inexact = {};  // not zero if one of them was rounded up

  INLINE_MEMBER void see(Doubles x, Doubles first, Doubles second) {
    const Doubles values = magnitudes_of(PLAIN ? x : finite(x));
    const Doubles scaled = PLAIN ? values * first : values * first * second;
    Doubles units = upward(scaled);
    if (!PLAIN) units = select((units == 0) & (values != 0), doubles(1.0), units);  // scaling flushed it to zero
    inexact |= (Longs)(units - scaled);
    magnitudes += units;
    squares = multiply_add(units, units, squares);
  }
};

// The sums of eight rows, one in each lane.
struct Totals {
  Longs magnitudes = {}, squares = {}, inexact = {};
};

INLINE void write_eight(const Describe& d, int64_t at, int64_t count, const Found& found, const Scale& scale,
                        const Totals& sums) {
  const Longs empty = longs(d.empty);
  const Longs peak = converted<Longs>(upward(found.largest * scale.first * scale.second));
  const Longs bottom = select(sums.inexact != 0, scale.low - (d.single ? 24 : 53), scale.top - d.width);
  store_some(d.top + at, select(scale.filled, scale.top, empty), count);
  store_some(d.peak + at, peak, count);
  store_some(d.magnitudes + at, sums.magnitudes, count);
  store_some(d.squares + at, sums.squares, count);
  store_some(d.bottom + at, select(scale.filled, bottom, empty), count);
  store_some(d.nonfinite + at, found.nonfinite, count);
}

constexpr int EIGHT = 8;

template <bool PLAIN, typename Element>
INLINE Found extremes_along_k(const Describe& d, const Element* const (&x)[EIGHT], const double* inner) {
  Extremes<PLAIN> rows[EIGHT];
  int64_t h = 0;
  if (d.of_k == 1) {
    for (; h + 8 <= d.k; h += 8) {
      for (int i = 0; i < EIGHT; i++) rows[i].see(scaled<true>(neighbours(x[i] + h), inner, h, 8));
    }
  }
  for (; h < d.k; h += 8) {
    for (int i = 0; i < EIGHT; i++) {
      rows[i].see(scaled<true>(raw_elements(x[i] + h * d.of_k, d.of_k, d.k - h), inner, h, d.k - h));
    }
  }
  Longs largest[EIGHT], below[EIGHT], nonfinite[EIGHT];
  for (int i = 0; i < EIGHT; i++) {
    largest[i] = rows[i].largest, below[i] = (Longs)rows[i].below, nonfinite[i] = rows[i].nonfinite;
  }
  transpose(largest), transpose(below);
  if (!PLAIN) transpose(nonfinite);
  Extremes<true> of;
  for (int i = 0; i < EIGHT; i++) {
    of.largest = select(largest[i] > of.largest, largest[i], of.largest);
    of.below = select((UnsignedLongs)below[i] < of.below, (UnsignedLongs)below[i], of.below);
    if (!PLAIN) of.nonfinite += nonfinite[i];
  }
  return {(Doubles)of.largest, (Doubles)(of.below + 1), of.nonfinite};
}

template <bool PLAIN, typename Element>
INLINE Totals sums_along_k(const Describe& d, const Element* const (&x)[EIGHT], const double* inner,
                           const Scale& scale) {
  Totals sums;
  for (int64_t begin = 0; begin < d.k; begin += EXACT_SUM) {
    const int64_t end = begin + EXACT_SUM < d.k ? begin + EXACT_SUM : d.k;
    Sums<PLAIN> rows[EIGHT];
    int64_t h = begin;
    if (d.of_k == 1) {
      for (; h + 8 <= end; h += 8) {
        for (int i = 0; i < EIGHT; i++) {
          const Doubles some = scaled<true>(neighbours(x[i] + h), inner, h, 8);
          rows[i].see(some, doubles(scale.first[i]), doubles(scale.second[i]));
        }
      }
    }
    for (; h < end; h += 8) {
      for (int i = 0; i < EIGHT; i++) {
        const Doubles some = scaled<true>(raw_elements(x[i] + h * d.of_k, d.of_k, end - h), inner, h, end - h);
        rows[i].see(some, doubles(scale.first[i]), doubles(scale.second[i]));
      }
    }
    Longs magnitudes[EIGHT], squares[EIGHT], inexact[EIGHT];
    for (int i = 0; i < EIGHT; i++) {
      magnitudes[i] = converted<Longs>(rows[i].magnitudes);
      squares[i] = converted<Longs>(rows[i].squares);
      inexact[i] = rows[i].inexact;
    }
    transpose(magnitudes), transpose(squares), transpose(inexact);
    for (int i = 0; i < EIGHT; i++) {
      sums.magnitudes += magnitudes[i], sums.squares += squares[i], sums.inexact |= inexact[i];
    }
  }
  return sums;
}

// Rows whose neighbours along k are `of_k` apart, most often neighbours in memory; `count` of at most eight.
template <typename Element> INLINE void describe_along_k(const Describe& d, int64_t batch, int64_t row, int64_t count) {
  const Element* x[EIGHT];
  for (int i = 0; i < EIGHT; i++) {  // in place of rows that are not there the first one is read
    x[i] = (const Element*)d.x + batch * d.of_batch + (row + (i < count ? i : 0)) * d.of_rows;
  }
  const double* inner = d.inner.of(batch);
  Found found = extremes_along_k<true>(d, x, inner);
  if (!none((Longs)found.largest >= (Longs)doubles(__builtin_inf()))) found = extremes_along_k<false>(d, x, inner);
  const Scale scale(found, d.width);
  const Totals sums = scale.plain ? sums_along_k<true>(d, x, inner, scale) : sums_along_k<false>(d, x, inner, scale);
  write_eight(d, batch * d.rows + row, count, found, scale, sums);
}

constexpr int ACROSS = 32;  // rows at a time that are neighbours in memory: a few lines of the cache

template <bool PLAIN, int VECTORS, typename Element>
INLINE void extremes_across(const Describe& d, const Element* x, const double* inner, int64_t count,
                            Found (&found)[VECTORS]) {
  Extremes<PLAIN> of[VECTORS];
  for (int64_t h = 0; h < d.k; h++) {
    for (int v = 0; v < VECTORS; v++) {
      of[v].see(scaled<false>(raw_elements(x + h * d.of_k + 8 * v, 1, count - 8 * v), inner, h, 8));
    }
  }
  for (int v = 0; v < VECTORS && d.pairs; v++) of[v].join_pairs();
  for (int v = 0; v < VECTORS; v++) found[v] = {(Doubles)of[v].largest, (Doubles)(of[v].below + 1), of[v].nonfinite};
}

template <bool PLAIN, int VECTORS, typename Element>
INLINE void sums_across(const Describe& d, const Element* x, const double* inner, int64_t count,
                        const Scale (&scales)[VECTORS], Totals (&sums)[VECTORS]) {
  for (int64_t begin = 0; begin < d.k; begin += EXACT_SUM) {
    const int64_t end = begin + EXACT_SUM < d.k ? begin + EXACT_SUM : d.k;
    Sums<PLAIN> of[VECTORS];
    for (int64_t h = begin; h < end; h++) {
      for (int v = 0; v < VECTORS; v++) {
        const Doubles some = raw_elements(x + h * d.of_k + 8 * v, 1, count - 8 * v);
        of[v].see(scaled<false>(some, inner, h, 8), scales[v].first, scales[v].second);
      }
    }
    for (int v = 0; v < VECTORS; v++) {
      sums[v].magnitudes += converted<Longs>(of[v].magnitudes);
      sums[v].squares += converted<Longs>(of[v].squares);
      sums[v].inexact |= of[v].inexact;
    }
  }
  for (int v = 0; v < VECTORS && d.pairs; v++) {
    sums[v].magnitudes += exchanged(sums[v].magnitudes), sums[v].squares += exchanged(sums[v].squares);
    sums[v].inexact |= exchanged(sums[v].inexact);
  }
}

// Rows that are neighbours in memory; `count` of at most 8 VECTORS.
template <typename Element, int VECTORS>
INLINE void describe_across(const Describe& d, int64_t batch, int64_t row, int64_t count) {
  const Element* x = (const Element*)d.x + batch * d.of_batch + row;
  const double* inner = d.inner.of(batch);
  Found found[VECTORS];
  extremes_across<true>(d, x, inner, count, found);
  Longs infinite = {};
  for (int v = 0; v < VECTORS; v++) infinite |= (Longs)found[v].largest >= (Longs)doubles(__builtin_inf());
  if (!none(infinite)) extremes_across<false>(d, x, inner, count, found);
  Scale scales[VECTORS];
  bool plain = true;
  for (int v = 0; v < VECTORS; v++) scales[v] = Scale(found[v], d.width), plain = plain && scales[v].plain;
  Totals sums[VECTORS];
  if (plain) sums_across<true>(d, x, inner, count, scales, sums);
  else sums_across<false>(d, x, inner, count, scales, sums);
  for (int v = 0; v < VECTORS; v++) {
    write_eight(d, batch * d.rows + row + 8 * v, count - 8 * v, found[v], scales[v], sums[v]);
  }
}

// Blocks [begin, end) of `ACROSS` rows, counted through all matrices.
template <typename Element> void describe_blocks(const Describe& d, int64_t begin, int64_t end) {
  const int64_t blocks = (d.rows + ACROSS - 1) / ACROSS;
  for (int64_t at = begin; at < end; at++) {
    const int64_t batch = at / blocks, row = at % blocks * ACROSS;
    const int64_t count = d.rows - row < ACROSS ? d.rows - row : ACROSS;
    if (d.pairs || (d.of_rows == 1 && d.of_k != 1)) {
      if (count > 16) describe_across<Element, 4>(d, batch, row, count);
      else if (count > 8) describe_across<Element, 2>(d, batch, row, count);
      else describe_across<Element, 1>(d, batch, row, count);
    } else {
      for (int64_t i = 0; i < count; i += EIGHT) {
        describe_along_k<Element>(d, batch, row + i, count - i < EIGHT ? count - i : EIGHT);
      }
    }
  }
}

}  // namespace cpu
