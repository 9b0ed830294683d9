// Where the tiles of a result are, and where they go.
#pragma once

#include <cstdint>

namespace cpu {

struct Result {
  int64_t batch, rows, columns;
  int64_t tile_rows, tile_columns;             // whole panels
  int64_t single;                              // whether out is float32, else float64
  int64_t triangle;                            // whether columns beyond the last row of a tile may be left as they are
  void* out;                                   // entries; or residues, or sums, [count][batch][rows][columns]
  int64_t of_batch, of_rows;                   // steps of out in elements
  const double* row_factors;                   // [batch or 1][rows]
  const double* column_factors;                // [batch or 1][columns]; sixteen more numbers may be read after each row
  int64_t step_of_row_factors, step_of_column_factors;  // from one matrix to the next; 0 for the only one
};

struct Tile {
  int64_t batch, row, row_end, column, column_end;
};

// A tile, which in a triangle ends with the column of its last row, or has no columns.
static inline Tile tile_of(const Result& c, int64_t number) {
  const int64_t across = (c.columns + c.tile_columns - 1) / c.tile_columns;
  const int64_t down = (c.rows + c.tile_rows - 1) / c.tile_rows;
  const int64_t batch = number / (across * down), row = number / across % down * c.tile_rows;
  const int64_t column = number % across * c.tile_columns;
  const int64_t row_end = row + c.tile_rows < c.rows ? row + c.tile_rows : c.rows;
  int64_t column_end = column + c.tile_columns < c.columns ? column + c.tile_columns : c.columns;
  if (c.triangle && row_end < column_end) column_end = row_end < column ? column : row_end;
  return {batch, row, row_end, column, column_end};
}

}  // namespace cpu
