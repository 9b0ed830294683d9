// Where the words of an element, one or two, lie for wgmma: tiles that one bulk copy brings into shared memory as they
// are read.
//
// A tile block is TILE rows x 128 bytes, contiguous: of a row 128 bytes of k (64 elements of 16 bits, or 32 of 32) in
// one word, or 64 bytes of k in two, first words, then second words. wgmma reads K-major rows with the 128-byte
// swizzle, as in tiles.cuh. Blocks follow one another along k, then tiles along the rows.
#pragma once
#include "hardware/tiles.cuh"

// The place of word s of `count` of the elements at byte `byte` (a multiple of 16) of a row of `row_bytes` bytes.
template <int N>
HD int64_t word_tile_offset(int64_t row, int64_t byte, int64_t row_bytes, int s, int count, int tile) {
  const int r = permuted_column<N>(static_cast<int>(row % tile)), share = 128 / count;
  return (row / tile * (row_bytes / share) + byte / share) * (tile * 128) +
         tile_offset(r, (share * s + static_cast<int>(byte % share)) / 16);
}
