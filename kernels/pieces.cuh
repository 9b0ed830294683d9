// The last tiles split along k, so that every cluster of a persistent grid has its share of them.
//
// A tile's pieces belong to clusters that follow one another, the one with the beginning of k last: a cluster waits
// only for those before it in the grid. Each works on whole tiles first, then on the end of a tile, at last on a
// beginning, so that the piece which others wait for comes first. Whole tiles go on in step, and share what the cache
// holds.
#pragma once
#include "common.cuh"

// Tiles 0 .. whole - 1 are multiplied as a whole, the next `split` ones by the last `sharers` clusters of the grid, as
// many at least, in pieces of two blocks of k or more; 0: none is.
struct Pieces {
  int whole, split, sharers;
};
// What cluster r, counted from the end, has of the tiles that are split: [begin(r), begin(r + 1)), in blocks of k. The
// product of all three is below 2^31.
__device__ __forceinline__ int begin_of(int r, const Pieces& pieces, int blocks) {
  const int position = static_cast<int>(static_cast<uint32_t>(r * pieces.split * blocks) / pieces.sharers);
  const int rest = position % blocks;
  return rest == 1 ? position - 1 : rest == blocks - 1 ? position + 1 : position;
}
struct Piece {
  int tile, first, last;  // blocks [first, last) of k
  bool exists;
};
// Piece number i of this cluster: whole tiles, then the end of a tile, at last the beginning of one.
__device__ __forceinline__ Piece piece_of(int i, const Pieces& pieces, int blocks) {
  const int clusters = gridDim.x / 2, cluster = blockIdx.x / 2, r = clusters - 1 - cluster;
  const int tile = cluster + i * clusters;
  if (tile < pieces.whole) return {tile, 0, blocks, true};
  if (r >= pieces.sharers) return {0, 0, 0, false};
  const int begin = begin_of(r, pieces, blocks), end = begin_of(r + 1, pieces, blocks);
  const int start = (begin + blocks - 1) / blocks * blocks;  // of a tile
  int later = tile - pieces.whole;  // below clusters for the first piece, since that many divide the whole tiles
  if (start > begin) {
    if (later < clusters)
      return {pieces.whole + start / blocks - 1, begin - start + blocks, smaller(end - start, 0) + blocks, true};
    later -= clusters;
  }
  return {pieces.whole + start / blocks, 0, smaller(end - start, blocks), later < clusters && start < end};
}

// Number of clusters, right before this one in the grid, that have the rest of a tile that it owns.
__device__ __forceinline__ int helpers_of(const Piece& piece, const Pieces& pieces, int blocks) {
  if (piece.first > 0 || piece.last == blocks) return 0;
  const int r = gridDim.x / 2 - 1 - blockIdx.x / 2, end = (piece.tile - pieces.whole + 1) * blocks;
  int helpers = 1;
  while (begin_of(r + 1 + helpers, pieces, blocks) < end) ++helpers;
  return helpers;
}
