// Correctly rounded inner products of a list of entries: rows of x times rows of y, each sum rounded once.
//
// First in twice the working precision, with a measured bound of the error (Dot2; T. Ogita, S. M. Rump, S. Oishi,
// Accurate sum and dot product, 2005): the entry is that to which both ends of the interval round. Where they round to
// two, or where a product's error underflows or something overflows, the sum is computed exactly.
#pragma once

#include "arithmetic/superaccumulator.cuh"

#include "split.h"

namespace cpu {

struct InnerProducts {
  const void *x, *y;
  int64_t x_single, y_single, single;      // whether elements, and results, are float32, else float64
  int64_t k;                               // none of the sizes is 0
  int64_t x_of_batch, x_of_rows;           // steps in elements; neighbours along k are neighbours in memory
  int64_t rows;                            // of each matrix of y
  int64_t y_of_batch, y_of_rows, y_of_k;
  const int64_t *batch, *of_x, *of_y;      // of each entry: its matrix, its row of x, its row of y
  const int64_t* starts;                   // of groups, and the end of the last one
  void* values;                            // the results, one for each entry
};

// A group has at most MOST_ENTRIES entries of one matrix, whose rows of y are in one range [32 r, 32 r + 32): rows that
// are neighbours in memory share lines of the cache. They are gathered BLOCK elements at a time.
constexpr int64_t GROUP_ROWS = 32, MOST_ENTRIES = 128, BLOCK = 1024, EXACT_AT_ONCE = 16;
constexpr int64_t STEP = BLOCK + 8;  // lines of neighbouring rows fall into different sets of the cache

// The sum of products of an entry, in each of eight lanes: sum + the errors of all products and additions.
struct InnerSums {
  Doubles sum = {}, errors = {}, sizes = {};  // `sizes`: the absolute values of the errors, summed
  Longs tiny = {};                            // not zero where the error of a product may have underflowed

  INLINE_MEMBER void see(Doubles x, Doubles y) {
    const Doubles product = x * y, of_product = product_error(x, y, product);
    tiny |= ((Doubles)((Longs)product & INT64_MAX) < LEAST_PRODUCT) & (x != 0) & (y != 0);
    const Doubles next = sum + product, added = next - sum;
    const Doubles error = ((sum - (next - added)) + (product - added)) + of_product;
    sum = next;
    errors += error;
    sizes += (Doubles)((Longs)error & INT64_MAX);
  }

  // x y is a multiple of the product of units of both, which is above 2**-106 abs(x y): from 2**-968 on, what is
  // rounded off is a multiple of 2**-1074.
  static constexpr double LEAST_PRODUCT = 0x1p-967;
};

// The scratch of a thread.
struct InnerScratch {
  double rows[GROUP_ROWS * STEP];  // of y, with zeros up to a multiple of eight
  InnerSums sums[MOST_ENTRIES];
  Superaccumulator exact[EXACT_AT_ONCE];
};

struct Sum {
  double high, low;
};

// a + b, exactly.
INLINE Sum two_sum(double a, double b) {
  const double sum = a + b, added = sum - a;
  return {sum, (a - (sum - added)) + (b - added)};
}

// RN(a + b), into either format.
INLINE void round_sum(double a, double b, double& rounded) { rounded = a + b; }
INLINE void round_sum(double a, double b, float& rounded) {
  // A sum that is not exact is made odd: its neighbour towards what is left, or it itself. Then float32, of less than
  // half as many bits, rounds it as it would round the exact sum.
  const Sum sum = two_sum(a, b);
  uint64_t bits = bits_of(sum.high);
  if (sum.low != 0 && bits % 2 == 0) bits += (sum.low < 0) == (sum.high < 0) ? 1 : -1;
  rounded = (float)double_of(bits);
}

// Whether the sums of an entry say what it is rounded to; `vectors`: how many products each lane has.
template <typename Result> INLINE bool decide(const InnerSums& sums, int64_t vectors, Result& result) {
  if (!none(sums.tiny)) return false;
  double value = 0, rest = 0, size = 0;
  for (int i = 0; i < 8; i++) {
    const Sum next = two_sum(value, sums.sum[i]);
    value = next.high;
    rest += sums.errors[i] + next.low;
    size += sums.sizes[i] + (next.low < 0 ? -next.low : next.low);
  }
  if (!(size < 0x1p1000)) return false;  // Inf or NaN: something has overflowed, or was neither
  // Additions of errors, each of which is wrong by 2**-53 of its result at most: in a lane one for a product, and one
  // for the sum; then those above. The factor covers that `size` is rounded, 2**-1073 that the product may underflow.
  const double factor = (double)(vectors + 32) * 0x1.01p-53;
  const double magnitude = rest < 0 ? -rest : rest;
  const double error = size == 0 ? 0 : size * factor + magnitude * 0x1p-51 + 0x1p-1073;  // and `rest` -+ it is rounded
  Result least, largest;
  round_sum(value, rest - error, least);
  round_sum(value, rest + error, largest);
  result = least;
  return memcmp(&least, &largest, sizeof least) == 0;
}

// A group of entries.
struct Group {
  int64_t start, count;  // its entries
  int64_t batch, first;  // the matrix, and the first of the rows of y
  uint32_t needed;       // of these: bit i for row first + i

  Group(const InnerProducts& s, int64_t number) {
    start = s.starts[number], count = s.starts[number + 1] - start;
    batch = s.batch[start], first = s.of_y[start] / GROUP_ROWS * GROUP_ROWS;
    needed = 0;
    for (int64_t e = start; e < start + count; e++) needed |= 1u << (s.of_y[e] - first);
  }

  bool needs_of_eight(int64_t row) const { return (needed >> row & 255) != 0; }
};

// Whether rows of y are neighbours in memory, and elements along k are not.
INLINE bool across(const InnerProducts& s) { return s.y_of_rows == 1 && s.y_of_k != 1; }

// Element `h` along k of a group's first row of y.
template <typename Element> INLINE const Element* first_of_y(const InnerProducts& s, const Group& group, int64_t h) {
  return (const Element*)s.y + group.batch * s.y_of_batch + group.first * s.y_of_rows + h * s.y_of_k;
}

// Elements along k that are gathered at once, from h on.
INLINE int64_t length_from(const InnerProducts& s, int64_t h) { return s.k - h < BLOCK ? s.k - h : BLOCK; }

// Copies elements [begin, begin + length) of a group's rows of y that are needed; of rows that are neighbours in
// memory, eights with one that is.
template <typename Element>
INLINE void gather_rows(const InnerProducts& s, const Group& group, int64_t begin, int64_t length, double* to) {
  const Element* from = first_of_y<Element>(s, group, begin);
  if (!across(s)) {
    for (int i = 0; i < GROUP_ROWS; i++) {
      if ((group.needed >> i & 1) == 0) continue;
      const Element* row = from + i * s.y_of_rows;
      for (int64_t h = 0; h < length; h += 8) {
        store(to + i * STEP + h, raw_elements(row + h * s.y_of_k, s.y_of_k, length - h));
      }
    }
    return;
  }
  constexpr int64_t AHEAD = 64;  // each element along k is in another line, and often in another page
  for (int64_t h = 0; h < length; h += 8) {
    for (int64_t row = 0; row < GROUP_ROWS; row += 8) {
      if (!group.needs_of_eight(row)) continue;
      Longs eight[8];
      for (int i = 0; i < 8; i++) {
        const bool there = h + i < length;
        if (h + i + AHEAD < length) __builtin_prefetch(from + (h + i + AHEAD) * s.y_of_k + row);
        const Element* some = from + (there ? h + i : 0) * s.y_of_k + row;
        eight[i] = (Longs)some_neighbours(some, there ? s.rows - group.first - row : 0);
      }
      transpose(eight);
      for (int i = 0; i < 8; i++) store(to + (row + i) * STEP + h, eight[i]);
    }
  }
}

// Fetches what `gather_rows` reads next into the cache while others are multiplied, one element along k at a time.
template <typename Element> class Fetching {
 public:
  Fetching(const InnerProducts& s, const Group& of, int64_t h)
      : group(of), at(first_of_y<Element>(s, of, h)), step(s.y_of_k), left(across(s) ? length_from(s, h) : 0) {}

  INLINE_MEMBER void fetch_some() {
    if (left <= 0) return;
    for (int64_t row = 0; row < GROUP_ROWS; row += 8) {
      if (group.needs_of_eight(row)) __builtin_prefetch(at + row, 0, 2);
    }
    at += step, left--;
  }

 private:
  const Group group;
  const Element* at;
  int64_t step, left;
};

template <typename X, typename Y, typename Result>
static void inner_products_of(const InnerProducts& s, int64_t begin, int64_t end, InnerScratch& scratch) {
  for (int64_t number = begin; number < end; number++) {
    const Group group(s, number), after(s, number + 1 < end ? number + 1 : number);
    const int64_t start = group.start, count = group.count;
    const X* const x = (const X*)s.x + group.batch * s.x_of_batch;
    const auto row_of_x = [&](int64_t e, int64_t h) { return x + s.of_x[start + e] * s.x_of_rows + h; };
    const auto row_of_y = [&](int64_t e) { return scratch.rows + (s.of_y[start + e] - group.first) * STEP; };

    for (int64_t e = 0; e < count; e++) scratch.sums[e] = InnerSums();
    for (int64_t h = 0; h < s.k; h += BLOCK) {
      const int64_t length = length_from(s, h);
      gather_rows<Y>(s, group, h, length, scratch.rows);
      const bool last = h + BLOCK >= s.k;
      Fetching<Y> later(s, last ? after : group, last ? 0 : h + BLOCK);
      for (int64_t e = 0; e < count; e++) {
        const X* const row = row_of_x(e, h);
        const X* const next = row_of_x(e + 1 < count ? e + 1 : e, h);  // which no cache has, most often
        const double* const column = row_of_y(e);
        InnerSums sums = scratch.sums[e];
        int64_t i = 0;
        for (; i + 8 <= length; i += 8) {
          __builtin_prefetch(next + i);
          later.fetch_some();
          sums.see(neighbours(row + i), load<Doubles>(column + i));
        }
        if (i < length) sums.see(some_neighbours(row + i, length - i), load<Doubles>(column + i));
        scratch.sums[e] = sums;
      }
    }

    Result* const values = (Result*)s.values + start;
    int64_t undecided[MOST_ENTRIES], left = 0;
    for (int64_t e = 0; e < count; e++) {
      if (!decide(scratch.sums[e], (s.k + 7) / 8, values[e])) undecided[left++] = e;
    }

    for (int64_t from = 0; from < left; from += EXACT_AT_ONCE) {
      const int64_t several = left - from < EXACT_AT_ONCE ? left - from : EXACT_AT_ONCE;
      for (int64_t i = 0; i < several; i++) scratch.exact[i].clear();
      for (int64_t h = 0; h < s.k; h += BLOCK) {
        const int64_t length = length_from(s, h);
        if (s.k > BLOCK) gather_rows<Y>(s, group, h, length, scratch.rows);  // else they are there
        for (int64_t i = 0; i < several; i++) {
          const int64_t e = undecided[from + i];
          const X* const row = row_of_x(e, h);
          const double* const column = row_of_y(e);
          Superaccumulator& exact = scratch.exact[i];
          for (int64_t t = 0; t < length; t++) {
            exact.add(parts(bits_of((double)row[t])), parts(bits_of(column[t])));
          }
          if ((h / BLOCK + 1) % (Superaccumulator::AT_ONCE / BLOCK) == 0) exact.carry();
        }
      }
      for (int64_t i = 0; i < several; i++) {
        const auto bits = scratch.exact[i].rounded<Result>();
        memcpy(values + undecided[from + i], &bits, sizeof bits);
      }
    }
  }
}

}  // namespace cpu
