// Where the bytes of an operand lie for wgmma: tiles that one bulk copy brings into shared memory as they are read.
//
// A tile block is TILE rows x 128 elements of k, contiguous, a row of it 128 bytes. wgmma reads K-major rows with the
// 128-byte swizzle: the eight 16-byte pieces of row r stand at piece ^ (r % 8). Blocks follow one another along k, then
// tiles along the rows:
//
//   element (row, h) at  ((row / TILE) (k_padded / 128) + h / 128) TILE 128 + tile_offset(r, h % 128 / 16) + h % 16,
//
// r = permuted_column<NEIGHBOURS>(row % TILE), NEIGHBOURS = 0 for the left operand. k_padded is a multiple of 128, the
// number of rows of TILE.
#pragma once
#include "arithmetic/common.cuh"

HD constexpr int tile_offset(int r, int piece) { return r * 128 + ((piece ^ (r & 7)) << 4); }

// An accumulator of wgmma gives thread lane the columns 8 i + 2 (lane % 4) + {0, 1}. Column j of the result is
// multiplied at permuted_column<N>(j), so that of every 4 N columns a thread has N neighbours, N (lane % 4) + o: with
// x = j % 4 N / N and o = j % N, it is 4 N (j / 4 N) + 8 (o / 2) + 2 x + o % 2. A thread then stores 16 bytes at a
// time, four threads 64: N = 16 where the result is bytes, 4 where it is float32.
template <int N> HD constexpr int permuted_column(int j) {
  return N == 0 ? j : (j & -4 * N) | (j & larger(N - 2, 0)) << 2 | j / larger(N, 1) % 4 << 1 | (j & 1);
}
