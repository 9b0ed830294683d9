// Products of residues of two digits, three for each modulus (A. Karatsuba and Y. Ofman), reduced while they are in a
// cache.
#pragma once

#include "words.h"

namespace cpu {

// y = sum of the three products times `weights`, modulo the modulus. The parts of a weight are a number, and 2**16
// times it, modulo the modulus, of least absolute value.
struct DigitProduct {
  int32_t modulus;
  float inverse;
  struct {
    int32_t low, high;
  } weights[3];
};

constexpr int64_t DEEPEST_DIGITS = 2048;  // of a turn: three panels of the right operand stay in a cache of 512 KiB

// The three products of whole panels, `plane` bytes apart: two bytes of y, signed, the lower and the upper one, to two
// planes `out_plane` bytes apart; plus what is there if `add`. V vectors are wanted.
static void multiply_digit_panels(const int8_t* left, const int8_t* right, int64_t left_plane, int64_t right_plane,
                                  int64_t words, const DigitProduct& of, bool add, int vectors, int8_t* out,
                                  int64_t step, int64_t out_plane) {
  // Sums of a turn are below 2**26, and 2**15 more than they are: their lower halves less 2**15 are signed.
  static const int32_t starts[PANEL_ROWS] = {0x8000, 0x8000, 0x8000, 0x8000, 0x8000, 0x8000, 0x8000, 0x8000};
  int32_t sums[3][PANEL_ROWS][PANEL_LANES];
  for (int d = 0; d < 3; d++) {
    multiply_words(left + d * left_plane, right + d * right_plane, words, starts, &sums[d][0][0]);
  }
  for (int i = 0; i < PANEL_ROWS; i++) {
    for (int v = 0; v < vectors; v++) {
      int8_t* to = out + i * step + LANES * v;
      Ints y = {};
      if (add) y = widened(load<QuarterBytes>(to)) + widened(load<QuarterBytes>(to + out_plane)) * 256;
      for (int d = 0; d < 3; d++) {
        const Ints halves = load<Ints>(&sums[d][i][LANES * v]) ^ 0x8000;
        y += dot_products_of_halves(halves, of.weights[d].low, of.weights[d].high);
      }
      y = near_residue(y, of.modulus, of.inverse);
      store(to, narrowed(y));
      store(to + out_plane, narrowed((y + 128) >> 8));
    }
  }
}

// Operands with planes of residues of one byte, `bytes.count`, and then three for each modulus of two digits.
struct WideOperands {
  Operands bytes;
  const DigitProduct* digits;
  int64_t digit_count;
};

// The residues of a tile as signed bytes: one plane for each modulus of one byte, two for each of two digits.
static void multiply_wide_tile(const WideOperands& of, int64_t batch, int64_t row, int64_t row_end, int64_t column,
                               int64_t column_end, int8_t* out, int64_t step, int64_t plane) {
  multiply_tile(of.bytes, batch, row, row_end, column, column_end, out, step, plane);
  const Operands& x = of.bytes;
  for (int64_t t = 0; t < of.digit_count; t++) {
    const int8_t* left = x.left + batch * x.left_matrix + (x.count + 3 * t) * x.left_plane;
    const int8_t* right = x.right + batch * x.right_matrix + (x.count + 3 * t) * x.right_plane;
    int8_t* tile = out + (x.count + 2 * t) * plane;
    for (int64_t h = 0; h < x.words; h += DEEPEST_DIGITS / 4) {
      const int64_t words = x.words - h < DEEPEST_DIGITS / 4 ? x.words - h : DEEPEST_DIGITS / 4;
      for (int64_t j = column; j < column_end; j += PANEL_LANES) {
        const int64_t vectors = (column_end - j + LANES - 1) / LANES;
        for (int64_t i = row; i < row_end; i += PANEL_ROWS) {
          multiply_digit_panels(left + i * x.left_depth + 4 * h * PANEL_ROWS,
                                right + j * x.right_depth + 4 * h * PANEL_LANES, x.left_plane, x.right_plane, words,
                                of.digits[t], h > 0,
                                vectors < PANEL_VECTORS ? (int)vectors : PANEL_VECTORS,
                                tile + (i - row) * step + (j - column), step, plane);
        }
      }
    }
  }
}

}  // namespace cpu
