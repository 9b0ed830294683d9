// The last tiles split along k, so that every cluster of a persistent grid has its share of them.
//
// A tile's pieces belong to clusters that follow one another, the one with the beginning of k last: a cluster waits
// only for those before it in the grid. Each works on whole tiles first, then on the end of a tile, at last on a
// beginning, so that the piece which others wait for comes first. Whole tiles go on in step, and share what the cache
// holds.
#pragma once
#include "hardware/ptx.cuh"

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
__device__ __forceinline__ int contributors_of(const Piece& piece, const Pieces& pieces, int blocks) {
  if (piece.first > 0 || piece.last == blocks) return 0;
  const int r = gridDim.x / 2 - 1 - blockIdx.x / 2, end = (piece.tile - pieces.whole + 1) * blocks;
  int contributors = 1;
  while (begin_of(r + 1 + contributors, pieces, blocks) < end) ++contributors;
  return contributors;
}

// What is handed over are bytes of accumulators of N / 2 columns, 16 of a thread at a time: of row h, 0 or 8 below a
// thread's first one, groups 4 q .. 4 q + 3 of 16 columns, of which a thread has 4 neighbours. Entry x of group z:
HD constexpr int accumulator(int h, int z, int x) { return (z * 2 + x / 2) * 4 + h * 2 + x % 2; }

// Byte `j` of each, with these bits.
template <int N>
__device__ __forceinline__ uint4 bytes_of_groups(const uint32_t (&d)[N], int h, int q, int j, uint32_t bits) {
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int z = 4 * q + i;
    word[i] = gather_bytes(d[accumulator(h, z, 0)], d[accumulator(h, z, 1)], d[accumulator(h, z, 2)],
                           d[accumulator(h, z, 3)], j);
    word[i] &= bits;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}
// Such bytes, in shared memory, are added `unit` times.
template <int N>
__device__ __forceinline__ void add_to_groups(uint32_t (&d)[N], int h, int q, uint32_t from, uint32_t unit) {
  int word[4];
  load_again(from, word);
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int x = 0; x < 4; ++x)
      d[accumulator(h, 4 * q + i, x)] += byte_of(static_cast<uint32_t>(word[i]), x) * unit;
}

// By one of the two warpgroups that multiply: it has stored what it leaves for the owner, for the time `count`. And by
// one thread of the owner, before it copies what `block` has left.
__device__ __forceinline__ void tell_owner(uint32_t* flags, int warpgroup, int count) {
  __threadfence();
  named_barrier(1 + warpgroup, 128);
  if (threadIdx.x % 128 == 0) flag_raise(flags + 2 * blockIdx.x + warpgroup, count);
}
__device__ __forceinline__ void wait_for_contributor(const uint32_t* flags, int block, int count) {
  for (int i = 0; i < 2; ++i) flag_wait(flags + 2 * block + i, count);
  async_proxy_fence();
}
