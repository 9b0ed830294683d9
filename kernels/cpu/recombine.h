// Chinese remainders, and the one rounding.
#pragma once

#include "vectors.h"

namespace cpu {

struct Recombination {
  int64_t count, limbs;     // of moduli; 1 to 3 limbs, of so few bits that sums of products with residues are exact
  const double* weights;    // limbs of each weight as [count][limbs], each times its power of two
  const double* product;    // limbs of the product of all moduli, likewise
  double inverse;           // 1 / product
};

INLINE void two_sum(Doubles a, Doubles b, Doubles& sum, Doubles& error) {
  sum = a + b;
  const Doubles of_b = sum - a;
  error = (a - (sum - of_b)) + (b - of_b);
}

// x + error, abs(error) at most half a unit of x, rounded to odd: x if it is exact, else the neighbour of the sum whose
// last bit is set.
INLINE Doubles to_odd(Doubles x, Doubles error) {
  const Longs inexact = error != 0, opposed = ((Longs)x ^ (Longs)error) < 0;
  return (Doubles)((((Longs)x) + (inexact & opposed)) | (inexact & 1));
}

// The integer of eight entries: h + m + l = Cbar exactly.
struct Limbs {
  Doubles high, middle, low;
};

// RN(high + middle + low), or with `odd` that sum rounded to odd (S. Boldo and G. Melquiond, 2008).
template <bool ODD> INLINE Doubles rounded(const Limbs& x) {
  Doubles upper, lower, high, rest, tail, error;
  two_sum(x.middle, x.low, upper, lower);
  two_sum(x.high, upper, high, rest);
  two_sum(rest, lower, tail, error);
  const Doubles sticky = to_odd(tail, error);
  if (!ODD) return high + sticky;
  Doubles sum, left;
  two_sum(high, sticky, sum, left);
  return to_odd(sum, left);
}

// Cbar from the limbs of a number that differs from it by a multiple of the product, which float64 has exactly.
template <int LIMBS> INLINE Limbs without_multiple(Doubles (&x)[3], const Recombination& r) {
  const Doubles about = LIMBS > 1 ? x[0] + x[1] : x[0];
  const Doubles quotient = nearest(about * r.inverse);  // right, since abs(Cbar) stays away from half the product
  for (int l = 0; l < LIMBS; l++) x[l] = multiply_add(quotient, doubles(-r.product[l]), x[l]);
  return {x[0], x[1], x[2]};
}

// The integers of 8 HALVES entries, as limbs.
template <int LIMBS, int HALVES>
INLINE void limbs_of(const int8_t* residues, int64_t plane, const Recombination& r, Limbs (&of)[HALVES]) {
  Doubles limbs[HALVES][3] = {};  // the highest of LIMBS first
  for (int64_t t = 0; t < r.count; t++) {
    for (int first = 0; first < HALVES; first += 2) {
      const Sixteen y = sixteen(widened(load<QuarterBytes>(residues + t * plane + 8 * first)));
      for (int l = 0; l < LIMBS; l++) {
        const Doubles weight = doubles(r.weights[t * LIMBS + l]);
        for (int half = first; half < first + 2 && half < HALVES; half++) {
          limbs[half][l] = multiply_add(y.halves[half - first], weight, limbs[half][l]);
        }
      }
    }
  }
  for (int half = 0; half < HALVES; half++) of[half] = without_multiple<LIMBS>(limbs[half], r);
}

// What makes limbs of the residues of a tile, of entries from row i and column j on.
template <int LIMBS> struct OfResidues {
  const int8_t* residues;
  int64_t step, plane;
  const Recombination& r;

  template <int HALVES> INLINE_MEMBER void operator()(int64_t i, int64_t j, Limbs (&of)[HALVES]) const {
    limbs_of<LIMBS>(residues + i * step + j, plane, r, of);
  }
};

// Some columns, from column j on, of row i of a tile; arguments as of `round_tile`.
template <typename Element, int HALVES, typename Make>
INLINE void round_some(const Make& make, int64_t i, int64_t j, int64_t columns, double of_row, const double* of_columns,
                       Element* out) {
  Limbs limbs[HALVES];
  make(i, j, limbs);
  for (int half = 0; half < HALVES; half++) {
    const Doubles value = rounded<sizeof(Element) == 4>(limbs[half]);
    store_some(out + j + 8 * half, value * of_row * load<Doubles>(of_columns + j + 8 * half), columns - j - 8 * half);
  }
}

// Entries of a tile of which `make` makes limbs, rounded once to Element: Cbar times the factors of its row and its
// column, powers of two whose products leave no entry but zero outside the normal range of float64.
template <typename Element, typename Make>
INLINE void round_entries(const Make& make, int64_t rows, int64_t columns, const double* of_rows,
                          const double* of_columns, Element* out, int64_t out_step) {
  for (int64_t i = 0; i < rows; i++, out += out_step) {
    int64_t j = 0;
    for (; j + 24 < columns; j += 32) {  // so many that the operations of some wait for those of others
      round_some<Element, 4>(make, i, j, columns, of_rows[i], of_columns, out);
    }
    for (; j + 8 < columns; j += 16) round_some<Element, 2>(make, i, j, columns, of_rows[i], of_columns, out);
    if (j < columns) round_some<Element, 1>(make, i, j, columns, of_rows[i], of_columns, out);
  }
}

template <typename Element, int LIMBS>
static void round_limbs(const int8_t* residues, int64_t step, int64_t plane, const Recombination& r, int64_t rows,
                        int64_t columns, const double* of_rows, const double* of_columns, Element* out,
                        int64_t out_step) {
  round_entries(OfResidues<LIMBS>{residues, step, plane, r}, rows, columns, of_rows, of_columns, out, out_step);
}

// Entries of a tile of residues, as `round_entries` says.
//
// Residues and `of_columns` may be read up to the next multiple of sixteen.
template <typename Element>
static void round_tile(const int8_t* residues, int64_t step, int64_t plane, const Recombination& r, int64_t rows,
                       int64_t columns, const double* of_rows, const double* of_columns, Element* out,
                       int64_t out_step) {
  const auto of_limbs = r.limbs == 1   ? round_limbs<Element, 1>
                        : r.limbs == 2 ? round_limbs<Element, 2>
                                       : round_limbs<Element, 3>;
  of_limbs(residues, step, plane, r, rows, columns, of_rows, of_columns, out, out_step);
}

}  // namespace cpu
