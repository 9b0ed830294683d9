// Products of residues, reduced modulo their numbers while they are in registers.
#pragma once

#include "split.h"

namespace cpu {

struct Modulus {
  int32_t modulus;
  float inverse;
  int32_t fold;  // 2**16 modulo the modulus, of least absolute value
};

// Adds to `sums` the products of each row of the left panel and each row of the right one, whole panels of bytes, each of
// `depth` / 4 words along k. V vectors of the right panel are wanted.
//
// Sums of `depth` products of a signed and an unsigned byte fit int32 up to a depth of 65,792.
template <int V>
INLINE void add_panels(const int8_t* left, const int8_t* right, int64_t depth, Ints (&sums)[LEFT_ROWS][V]) {
  for (int64_t h = 0; h < depth / 4; h++, left += 4 * LEFT_ROWS, right += 4 * RIGHT_ROWS) {
    Bytes bytes[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) bytes[v] = load<Bytes>(right + 64 * v);
#pragma GCC unroll 16
    for (int i = 0; i < LEFT_ROWS; i++) {
      int32_t word;
      memcpy(&word, left + 4 * i, 4);
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) add_dot_products(sums[i][v], bytes[v], word);
    }
  }
}

// Whole panels of residues: out[i][j] = the residue of the product of row i of the left panel and row j of the right
// one, plus out[i][j] if `add`.
template <int V>
INLINE void multiply_panels(const int8_t* left, const int8_t* right, int64_t depth, const Modulus& of, bool add,
                            int8_t* out, int64_t step) {
  Ints sums[LEFT_ROWS][V] = {};
  add_panels<V>(left, right, depth, sums);
#pragma GCC unroll 16
  for (int i = 0; i < LEFT_ROWS; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
      int8_t* to = out + i * step + 16 * v;
      Ints residue = sums[i][v];
      if (of.modulus == 256) {  // its low byte
        if (add) residue += widened(load<QuarterBytes>(to));
      } else {
        residue = (residue >> 16) * of.fold + (residue & 0xFFFF);  // below 2**23
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
  int64_t depth;
  const Modulus* moduli;
  int64_t count;  // of moduli
};

// The residues of a tile: rows [row, row_end) of the left operand and columns [column, column_end) of the right one,
// both beginning with a panel, as [count][rows][step], `plane` bytes from one modulus to the next.
static void multiply_tile(const Operands& of, int64_t batch, int64_t row, int64_t row_end, int64_t column,
                          int64_t column_end, int8_t* out, int64_t step, int64_t plane) {
  for (int64_t t = 0; t < of.count; t++) {
    const Modulus modulus = of.moduli[t];
    const int8_t* left = of.left + batch * of.left_matrix + t * of.left_plane;
    const int8_t* right = of.right + batch * of.right_matrix + t * of.right_plane;
    for (int64_t h = 0; h < of.depth; h += DEEPEST) {
      const int64_t depth = of.depth - h < DEEPEST ? of.depth - h : DEEPEST;
      for (int64_t j = column; j < column_end; j += RIGHT_ROWS) {
        const int8_t* b = right + j * of.depth + h * RIGHT_ROWS;
        const int64_t vectors = (column_end - j + 15) / 16;
        for (int64_t i = row; i < row_end; i += LEFT_ROWS) {
          const int8_t* a = left + i * of.depth + h * LEFT_ROWS;
          int8_t* to = out + t * plane + (i - row) * step + (j - column);
          if (vectors >= 3) multiply_panels<3>(a, b, depth, modulus, h > 0, to, step);
          else if (vectors == 2) multiply_panels<2>(a, b, depth, modulus, h > 0, to, step);
          else multiply_panels<1>(a, b, depth, modulus, h > 0, to, step);
        }
      }
    }
  }
}

}  // namespace cpu
