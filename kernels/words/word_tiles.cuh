// Layout of low-precision words for wgmma: tiles that one bulk copy brings into shared memory as wgmma reads them.
//
// A tile block is TILE rows x 128 bytes, contiguous. The 128 bytes of a row hold either 128 bytes of k in one word (64
// elements of 16-bit words, 32 of TF32), or 64 bytes of k in both words of two, the first words before the second ones.
// Swizzle and permuted rows are those of tiles.cuh. Tile blocks follow one another along k, then tiles along the rows.
#pragma once
#include "hardware/tiles.cuh"

// Offset of the word s of `count` words of the elements at byte `byte` (a multiple of 16) of a row, `row_bytes` being
// the bytes of a row in one word.
template <int N>
HD int64_t word_tile_offset(int64_t row, int64_t byte, int64_t row_bytes, int s, int count, int tile) {
  const int r = permuted_column<N>(static_cast<int>(row % tile)), share = 128 / count;
  return (row / tile * (row_bytes / share) + byte / share) * (tile * 128) +
         tile_offset(r, (share * s + static_cast<int>(byte % share)) / 16);
}
