// Where the bytes of an operand lie for wgmma: tiles that one bulk copy brings into shared memory as they are read.
//
// A tile block is TILE rows x 128 elements of k, contiguous, a row of it 128 bytes. wgmma reads K-major rows with the
// 128-byte swizzle: the eight 16-byte pieces of row r stand at piece ^ (r % 8). Blocks follow one another along k, then
// tiles along the rows:
//
//   element (row, h) at  ((row / TILE) (k_padded / 128) + h / 128) TILE 128 + tile_offset(r, h % 128 / 16) + h % 16,
//
// r = row % TILE, or permuted_column(row % TILE) for the right operand. k_padded is a multiple of 128, the number of
// rows of TILE.
#pragma once
#include "common.cuh"

HD constexpr int tile_offset(int r, int piece) { return r * 128 + ((piece ^ (r & 7)) << 4); }

// An accumulator of wgmma gives thread lane the columns 8 i + 2 (lane % 4) + {0, 1}. Column j of the result is
// multiplied at permuted_column(j), so that of every 64 columns a thread has 16 neighbours, 16 (lane % 4) + o: with
// x = j % 64 / 16 and o = j % 16, it is 64 (j / 64) + 8 (o / 2) + 2 x + o % 2.
HD constexpr int permuted_column(int j) { return (j & ~63) | (j & 14) << 2 | (j >> 3 & 6) | (j & 1); }
