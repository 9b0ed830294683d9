// Splitting the last tiles of a product along k, so that every cluster of a persistent grid has work until the end.
//
// Split tiles are laid out one after the other along an axis of blocks of k, which the last `sharers` clusters of the
// grid cut into equal shares. Cluster r (counted from the end of the grid) has the share [begin(r), begin(r + 1)):
//
//   axis        0                    blocks                2 blocks
//               |     split tile 0    |     split tile 1    |
//   clusters    |   r = 0    |    r = 1     |   r = 2    |   r = 3 ...
//                 owner of 0   end of 0,
//                              owner of 1
//
// The owner of a tile is the cluster with the beginning of its k; it rounds and stores the result. The others
// (contributors) write their partial sums to global memory and raise a flag. Contributors of a tile are the clusters
// right before its owner in the grid (they have larger r), so a cluster only ever waits for clusters with smaller block
// numbers, which have begun before it. Each cluster goes through whole tiles first, then its end of a tile, and its
// beginning of a tile last: so the piece that an owner waits for comes early. All clusters go through the whole tiles
// at the same pace and share what the second-level cache holds.
#pragma once
#include "hardware/ptx.cuh"

// Tiles 0 .. whole - 1 are multiplied as a whole, the next `split` ones in pieces by the last `sharers` clusters of the
// grid; sharers >= split, and each piece has at least two blocks of k. split = 0: no tile is split.
struct Pieces {
  int whole, split, sharers;
};
// Where the share of cluster r begins on the axis, moved so that no piece has a single block of k. r * split * blocks
// must stay below 2^31.
__device__ __forceinline__ int begin_of(int r, const Pieces& pieces, int blocks) {
  const int position = static_cast<int>(static_cast<uint32_t>(r * pieces.split * blocks) / pieces.sharers);
  const int rest = position % blocks;
  return rest == 1 ? position - 1 : rest == blocks - 1 ? position + 1 : position;
}
// Blocks [first, last) of k of a tile.
struct Piece {
  int tile, first, last;
  bool exists;
};
// Piece number i of this cluster (exists = false after the last one): whole tiles, then the end (or a middle part) of a
// tile, then the beginning of one.
__device__ __forceinline__ Piece piece_of(int i, const Pieces& pieces, int blocks) {
  const int clusters = gridDim.x / 2, cluster = blockIdx.x / 2, r = clusters - 1 - cluster;
  const int tile = cluster + i * clusters;
  if (tile < pieces.whole) return {tile, 0, blocks, true};
  if (r >= pieces.sharers) return {0, 0, 0, false};
  const int begin = begin_of(r, pieces, blocks), end = begin_of(r + 1, pieces, blocks);
  const int start = (begin + blocks - 1) / blocks * blocks;  // of the first tile that begins in this share
  // Number of rounds since the whole tiles, times clusters: below `clusters` in the first round, because the number of
  // whole tiles is a multiple of the number of clusters.
  int later = tile - pieces.whole;
  if (start > begin) {
    if (later < clusters)
      return {pieces.whole + start / blocks - 1, begin - start + blocks, smaller(end - start, 0) + blocks, true};
    later -= clusters;
  }
  return {pieces.whole + start / blocks, 0, smaller(end - start, blocks), later < clusters && start < end};
}

// Number of contributors to a piece: of clusters, right before this one in the grid, that have the rest of a tile that
// this cluster owns. 0 for whole tiles and for pieces that are not a beginning.
__device__ __forceinline__ int contributors_of(const Piece& piece, const Pieces& pieces, int blocks) {
  if (piece.first > 0 || piece.last == blocks) return 0;
  const int r = gridDim.x / 2 - 1 - blockIdx.x / 2, end = (piece.tile - pieces.whole + 1) * blocks;
  int contributors = 1;
  while (begin_of(r + 1 + contributors, pieces, blocks) < end) ++contributors;
  return contributors;
}

// What contributors hand over are bytes of accumulators, 16 of a thread at a time. An accumulator array of N columns
// has N / 2 registers; piece (h, q) has, of row h (0: the thread's first row, 1: the row 8 below it), the groups 4 q ..
// 4 q + 3 of 16 columns each, of which the thread has 4 neighbours. Index of entry x (0 .. 3) of group z:
HD constexpr int accumulator(int h, int z, int x) { return (z * 2 + x / 2) * 4 + h * 2 + x % 2; }

// Byte j of each of the 16 accumulators of piece (h, q), masked with `bits`.
template <int N>
__device__ __forceinline__ uint4 bytes_of_groups(const uint32_t (&d)[N], int h, int q, int j, uint32_t bits) {
  uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int z = 4 * q + i;
    packed[i] = gather_bytes(d[accumulator(h, z, 0)], d[accumulator(h, z, 1)], d[accumulator(h, z, 2)],
                           d[accumulator(h, z, 3)], j);
    packed[i] &= bits;
  }
  return make_uint4(packed[0], packed[1], packed[2], packed[3]);
}
// Adds the 16 bytes at shared address `from`, each times `unit`, to the accumulators of piece (h, q).
template <int N>
__device__ __forceinline__ void add_to_groups(uint32_t (&d)[N], int h, int q, uint32_t from, uint32_t unit) {
  int packed[4];
  load_again(from, packed);
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int x = 0; x < 4; ++x)
      d[accumulator(h, 4 * q + i, x)] += byte_of(static_cast<uint32_t>(packed[i]), x) * unit;
}

// Called by all threads of a consumer warpgroup of a contributor after it has stored its part number `count` (1, 2,
// ...) for the owner: makes the stores visible and raises the warpgroup's flag.
__device__ __forceinline__ void signal_owner(uint32_t* flags, int warpgroup, int count) {
  __threadfence();
  named_barrier(1 + warpgroup, 128);
  if (threadIdx.x % 128 == 0) flag_raise(flags + 2 * blockIdx.x + warpgroup, count);
}
// Called by the owner's producer thread before it copies part number `count` of block `block`: returns when both
// warpgroups of that block have stored it, and makes their stores visible to bulk copies of this thread.
__device__ __forceinline__ void wait_for_contributor(const uint32_t* flags, int block, int count) {
  for (int i = 0; i < 2; ++i) flag_wait(flags + 2 * block + i, count);
  async_proxy_fence();
}
