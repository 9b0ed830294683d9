// Balanced digits of images, and their products (docs/definitions.md, section 3): the products of all pairs of digits
// of a diagonal are added up in the same registers.
//
// Left digits are signed. Right ones are `half` more than they are, half of the radix, and unsigned, as the processor's
// units want one of two factors to be: the sums of a diagonal begin with what corrects this, -half times the sum of the
// left digits that it takes. That is less work than any other way: there is one such number for a row and a diagonal.
#pragma once

#include "products.h"
#include "recombine.h"

namespace cpu {

// How an image becomes a digit. `bias`, the same for all digits of a scheme, has half of the radix in each of them:
// with it added, digits are unsigned bit fields. This one has `bits` bits from bit `shift` on; half of the radix is
// taken off again, and `offset` is added: 0 on the left, half of the radix on the right.
struct Digit {
  uint64_t bias;
  int32_t shift, bits, offset;
};

INLINE uint64_t bias_of(const Digit& of, bool) { return of.bias; }

INLINE Ints balanced(Ints word, int32_t bits) { return (word & ((1 << bits) - 1)) - (1 << (bits - 1)); }

INLINE Ints slice_of(const NarrowWords& image, const Digit& of) { return balanced(image.low >> of.shift, of.bits); }

INLINE Ints slice_of(const Words& image, const Digit& of) {
  if (of.shift >= 32) return balanced(image.high >> (of.shift - 32), of.bits);
  if (of.shift + of.bits <= 32) return balanced(image.low >> of.shift, of.bits);
  const UnsignedInts low = (UnsignedInts)image.low >> of.shift, high = (UnsignedInts)image.high << (32 - of.shift);
  return balanced((Ints)(low | high), of.bits);
}

constexpr int64_t OF_LIMB = 3, MOST_DIGITS = 3 * OF_LIMB;  // diagonals of a limb: sums below 2**31, 16 bits apart

// Both operands; `panels.count` planes of digits on the left, the most significant first, without moduli, and so many
// diagonals. No sum of a diagonal, of so many words along k, reaches 2**31, whichever of its products are added.
struct DigitOperands {
  Operands panels;
  int64_t right_count;    // planes on the right: no more than on the left
  int64_t half;
  const double* weights;  // of the diagonals, powers of two

  // The left digit with which a diagonal begins: on the right there is none that goes with those before it.
  INLINE_MEMBER int64_t first_of(int64_t diagonal) const {
    return diagonal < right_count ? 0 : diagonal - right_count + 1;
  }
};

constexpr int64_t DIAGONAL = LEFT_ROWS * RIGHT_ROWS;  // sums of a diagonal of two panels, [8][48]

// The sums of all diagonals of two panels, and the limbs of the integers that they are.
struct DiagonalSums {
  const int32_t* sums;  // [count][8][48]
  int64_t count;
  const double* weights;

  template <int HALVES> INLINE_MEMBER void operator()(int64_t i, int64_t j, Limbs (&of)[HALVES]) const {
    Doubles limbs[HALVES][3] = {};  // each below 2**48 times its unit, so that float64 has it
    const int32_t* from = sums + i * RIGHT_ROWS + j;
#pragma GCC unroll 3
    for (int l = 0; l < 3; l++) {
      for (int64_t d = l * OF_LIMB; d < (l + 1) * OF_LIMB && d < count; d++) {
#pragma GCC unroll 2
        for (int first = 0; first < HALVES; first += 2) {
          const Sixteen some = sixteen(load<Ints>(from + d * DIAGONAL + 8 * first));
          for (int half = first; half < first + 2 && half < HALVES; half++) {
            limbs[half][l] = multiply_add(some.halves[half - first], doubles(weights[d]), limbs[half][l]);
          }
        }
      }
    }
    for (int half = 0; half < HALVES; half++) of[half] = {limbs[half][0], limbs[half][1], limbs[half][2]};
  }
};

// What the sums of each diagonal of a panel begin with, [count][8].
INLINE void start_diagonals(const int8_t* left, const DigitOperands& of, int32_t* starts) {
  int32_t so_far[MOST_DIGITS + 1][LEFT_ROWS] = {};  // of all digits before one
  for (int64_t t = 0; t < of.panels.count; t++, left += of.panels.left_plane) {
    Ints pairs = {};  // of two words of eight rows
    int64_t h = 0;
    for (; h + 1 < of.panels.words; h += 2) {
      pairs = dot_products(pairs, ints(0x01010101), load<Ints>(left + 4 * LEFT_ROWS * h));
    }
    if (h < of.panels.words) {
      Ints last = {};
      memcpy(&last, left + 4 * LEFT_ROWS * h, 4 * LEFT_ROWS);
      pairs = dot_products(pairs, ints(0x01010101), last);
    }
    for (int i = 0; i < LEFT_ROWS; i++) {
      so_far[t + 1][i] = so_far[t][i] - (int32_t)of.half * (pairs[i] + pairs[LEFT_ROWS + i]);
      starts[t * LEFT_ROWS + i] = so_far[t + 1][i] - so_far[of.first_of(t)][i];
    }
  }
}

// The sums of a diagonal, of whole panels: of so many pairs, of which one is the first digit of the left panel, at
// `left`, and the last one that is taken of the right panel, at `right`; and so on, forwards on the left and backwards
// on the right. V vectors of the right panel are wanted. A function of its own: inside of other loops GCC 12 leaves the
// sums in memory.
template <int V>
static __attribute__((noinline)) void multiply_diagonal(const int8_t* left, const int8_t* right, const Operands& of,
                                                        int64_t pairs, const int32_t* starts, int32_t* out) {
  Ints sums[LEFT_ROWS][V];
#pragma GCC unroll 16
  for (int i = 0; i < LEFT_ROWS; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) sums[i][v] = ints(starts[i]);
  }
  for (int64_t s = 0; s < pairs; s++, left += of.left_plane, right -= of.right_plane) {
    add_panels<V>(left, right, of.words, sums);
  }
#pragma GCC unroll 16
  for (int i = 0; i < LEFT_ROWS; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) store(out + i * RIGHT_ROWS + 16 * v, sums[i][v]);
  }
}

// The sums of all diagonals of whole panels.
template <int V>
INLINE void multiply_diagonals(const int8_t* left, const int8_t* right, const DigitOperands& of, const int32_t* starts,
                               int32_t* out) {
  const Operands& x = of.panels;
  for (int64_t d = 0; d < x.count; d++) {
    const int64_t first = of.first_of(d), last = d - first;
    multiply_diagonal<V>(left + first * x.left_plane, right + last * x.right_plane, x, last + 1, starts + d * LEFT_ROWS,
                         out + d * DIAGONAL);
  }
}

// Let `take` have the sums of all diagonals of the entries of two panels, one pair after the other, of a tile: rows
// [row, row_end) of the left operand and columns [column, column_end) of the right one, both beginning with a panel.
//
// `scratch` has `count` numbers for each row of whole panels, and for each entry of two panels.
template <typename Take>
INLINE void multiply_digit_tile(const DigitOperands& of, int64_t batch, int64_t row, int64_t row_end, int64_t column,
                                int64_t column_end, int32_t* scratch, const Take& take) {
  const Operands& x = of.panels;
  const int8_t *left = x.left + batch * x.left_matrix, *right = x.right + batch * x.right_matrix;
  int32_t *const sums = scratch, *const starts = scratch + x.count * DIAGONAL;
  for (int64_t i = row; i < row_end; i += LEFT_ROWS) {
    start_diagonals(left + i * x.left_depth, of, starts + (i - row) * x.count);
  }
  const DiagonalSums found = {sums, x.count, of.weights};
  for (int64_t j = column; j < column_end; j += RIGHT_ROWS) {
    const int8_t* b = right + j * x.right_depth;
    const int64_t columns = column_end - j < RIGHT_ROWS ? column_end - j : RIGHT_ROWS;
    for (int64_t i = row; i < row_end; i += LEFT_ROWS) {
      const int64_t rows = row_end - i < LEFT_ROWS ? row_end - i : LEFT_ROWS;
      const int8_t* a = left + i * x.left_depth;
      const int32_t* from = starts + (i - row) * x.count;
      if (columns > 32) multiply_diagonals<3>(a, b, of, from, sums);
      else if (columns > 16) multiply_diagonals<2>(a, b, of, from, sums);
      else multiply_diagonals<1>(a, b, of, from, sums);
      take(found, i, rows, j, columns);
    }
  }
}

}  // namespace cpu
