// Layout of slices (bytes) for wgmma: tiles that one bulk copy brings into shared memory as wgmma reads them.
//
// A tile block is TILE rows x 128 elements of k, contiguous, 128 bytes a row. wgmma reads K-major rows with the
// 128-byte swizzle: the 16-byte piece number `piece` of row r stands at piece ^ (r % 8). Tile blocks follow one another
// along k, then tiles along the rows. Element (row, h) is at byte
//
//   ((row / TILE) (k_padded / 128) + h / 128) TILE 128 + tile_offset(r, h % 128 / 16) + h % 16,
//   r = permuted_column<NEIGHBOURS>(row % TILE), NEIGHBOURS = 0 for the left operand.
//
// k_padded is a multiple of 128, the padded number of rows one of TILE.
#pragma once
#include "arithmetic/common.cuh"

// Byte offset of 16-byte piece `piece` of row r in a tile block.
HD constexpr int tile_offset(int r, int piece) { return r * 128 + ((piece ^ (r & 7)) << 4); }

// The row of a B tile block where column j of the result is stored. wgmma gives lane `lane` the accumulators of columns
// 8 i + 2 (lane % 4) + {0, 1} of what it multiplies; with this permutation they are, of every 4 N columns of the
// result, the N neighbours N (lane % 4) + o, o = 0 .. N - 1. So a thread stores 16 bytes at a time and four threads 64:
// N = 16 where the result is bytes, 4 where it is float32. With x = j % (4 N) / N and o = j % N,
//
//   permuted_column(j) = 4 N (j / (4 N)) + 8 (o / 2) + 2 x + o % 2
template <int N> HD constexpr int permuted_column(int j) {
  return N == 0 ? j : (j & -4 * N) | (j & larger(N - 2, 0)) << 2 | j / larger(N, 1) % 4 << 1 | (j & 1);
}
// The column j whose B tile row is r: the inverse of permuted_column.
template <int N> HD constexpr int column_of_permuted(int r) {
  return N == 0 ? r : (r & -4 * N) | (r / 2 % 4 * N) | (r / 8 % larger(N / 2, 1) * 2) | (r & 1);
}
