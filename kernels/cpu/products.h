// Products of residues, reduced modulo their numbers while they are in registers.
#pragma once

#include "split.h"

namespace cpu {

struct Modulus {
  int32_t modulus;
  float inverse;
  int32_t fold;  // 2**16 modulo the modulus, of least absolute value
};

constexpr int64_t UNFOLDED = 64;  // most words along k whose sums `least_residue` takes as they are

// Whole panels of residues: out[i][j] = the residue of the product of row i of the left panel and row j of the right
// one, plus out[i][j] if `add`. FOLD is needed for more than `UNFOLDED` words, and for `add`.
//
// UNFOLDED: abs(sum) <= 256 m/2 (m - 1) for an odd modulus m, so it is below 2**23, and its quotient below 2**15.
template <int V, bool FOLD>
INLINE void multiply_panels(const int8_t* left, const int8_t* right, int64_t words, const Modulus& of, bool add,
                            int8_t* out, int64_t step) {
  constexpr int32_t HALF = FOLD ? 1 << 15 : 0;  // then the lower half of a sum is a signed one that is flipped
  Ints sums[LEFT_ROWS][V];
#pragma GCC unroll 16
  for (int i = 0; i < LEFT_ROWS; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) sums[i][v] = ints(HALF);
  }
  add_panels<V>(left, right, words, sums);
#pragma GCC unroll 16
  for (int i = 0; i < LEFT_ROWS; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
      int8_t* to = out + i * step + 16 * v;
      Ints residue = sums[i][v];
      if (of.modulus == 256) {  // its low byte
        if (add) residue += widened(load<QuarterBytes>(to));
      } else {
        if (FOLD) residue = dot_products_of_halves(residue ^ HALF, 1, of.fold);  // below 2**23
        if (add) residue += widened(load<QuarterBytes>(to));
        residue = least_residue(residue, of.modulus, of.inverse);
      }
      store(to, narrowed(residue));
    }
  }
}

constexpr int64_t DEEPEST = 8192;  // of a turn: a panel of the right operand stays in a cache of 512 KiB

struct Operands {
  const int8_t* left;
  const int8_t* right;
  int64_t left_plane, right_plane;    // bytes from one modulus to the next
  int64_t left_matrix, right_matrix;  // bytes from one matrix to the next; 0 for the only one
  int64_t left_depth, right_depth;    // of panels
  int64_t words;                      // along k that are multiplied: at most a fourth of both depths
  const Modulus* moduli;
  int64_t count;  // of moduli
};

// `multiply_panels` for as many vectors of the right panel as there are.
template <bool FOLD>
INLINE void multiply_some(int64_t vectors, const int8_t* left, const int8_t* right, int64_t words, const Modulus& of,
                          bool add, int8_t* out, int64_t step) {
  if (vectors >= 3) multiply_panels<3, FOLD>(left, right, words, of, add, out, step);
  else if (vectors == 2) multiply_panels<2, FOLD>(left, right, words, of, add, out, step);
  else multiply_panels<1, FOLD>(left, right, words, of, add, out, step);
}

// Bytes of the residues of a tile modulo one number, which are padded by a line of the cache: else those of one entry
// modulo all numbers could lie in one set of it.
INLINE int64_t tile_plane(int64_t tile_rows, int64_t tile_columns) { return tile_rows * tile_columns + 64; }

// The residues of a tile: rows [row, row_end) of the left operand and columns [column, column_end) of the right one,
// both beginning with a panel, as [count][rows][step], `plane` bytes from one modulus to the next.
static void multiply_tile(const Operands& of, int64_t batch, int64_t row, int64_t row_end, int64_t column,
                          int64_t column_end, int8_t* out, int64_t step, int64_t plane) {
  for (int64_t t = 0; t < of.count; t++) {
    const Modulus modulus = of.moduli[t];
    const int8_t* left = of.left + batch * of.left_matrix + t * of.left_plane;
    const int8_t* right = of.right + batch * of.right_matrix + t * of.right_plane;
    for (int64_t h = 0; h < of.words; h += DEEPEST / 4) {
      const int64_t words = of.words - h < DEEPEST / 4 ? of.words - h : DEEPEST / 4;
      for (int64_t j = column; j < column_end; j += RIGHT_ROWS) {
        const int8_t* b = right + j * of.right_depth + 4 * h * RIGHT_ROWS;
        const int64_t vectors = (column_end - j + 15) / 16;
        for (int64_t i = row; i < row_end; i += LEFT_ROWS) {
          const int8_t* a = left + i * of.left_depth + 4 * h * LEFT_ROWS;
          int8_t* to = out + t * plane + (i - row) * step + (j - column);
          if (of.words <= UNFOLDED) multiply_some<false>(vectors, a, b, words, modulus, false, to, step);
          else multiply_some<true>(vectors, a, b, words, modulus, h > 0, to, step);
        }
      }
    }
  }
}

}  // namespace cpu
