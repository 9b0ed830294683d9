// The loop over tiles of wide and narrow columns that residue_gemm_sm90.cu and proof_gemm_sm90.cu share. The two differ
// only in the epilogue: what they do with the accumulators of a finished tile.
//
// Tiles, ring and launch are those of ring_sm90.cuh with ACROSS = 1: the two tiles of a cluster lie in one row of tiles
// and share the A tile. Slices are unsigned bytes, one slice for each modulus.
//
// A column of tiles is wide (three strips of STRIP = 64 columns, 96 accumulators a thread and half) or narrow (two
// strips, 64 accumulators). The host picks the mixture with which the last cluster ends soonest. In the order of work
// all wide pairs come first; a cluster that has one wide pair less gets more of the narrow ones:
//
//   columns of C   | wide | wide | ... | wide | narrow | narrow | ...
//   strips           0..2   3..5          ...   2 strips each
//
// a and b point to the first of `blocks` blocks of k that are multiplied (at least two), out of `k_blocks` blocks that
// each operand tile has in memory.
//
// With the macro TRIANGLE = 1, of a matrix times its own transpose, only the pairs with an entry on or below the
// diagonal are multiplied, and all of them are wide; tiles.columns is then their number in one matrix.
//
// Both sides go through the same tiles in the same order:
//
//   producer (copy_tiles)      writes tile_of_stage[s] before it fills the last stage s of a tile
//   consumers (multiply_tiles) wait for that stage, read tile_of_stage[s], run the epilogue, then release the stage
//
// so the position in C is computed by one thread, and no consumer divides while the tensor cores wait.
#pragma once
#define ACROSS 1
#include "products/ring_sm90.cuh"

#ifndef TRIANGLE
#define TRIANGLE 0
#endif

constexpr int STRIP = 64, STRIPS = COLS / STRIP;

// What `locate` (ring_sm90.cuh) does, for the pairs of tiles with an entry on or below the diagonal, in the same order.
__device__ __forceinline__ void locate_in_triangle(uint32_t w, const Tiles& tiles, int& matrix, int& i, int& j) {
  matrix = w / tiles.columns;
  int rest = w % tiles.columns;
  for (int first = 0;; first += tiles.group) {  // groups of rows
    const int end = smaller(first + tiles.group, tiles.rows);
    for (j = 0;; ++j) {
      const int top = larger(first, 2 * COLS * j / ROWS), height = end - top;  // the first row of this column
      if (height <= 0) break;
      if (rest < height) {
        i = top + rest;
        return;
      }
      rest -= height;
    }
  }
}

// The pairs that one cluster multiplies: first, first + step, ... below `end`. R is the number of accumulators of a
// thread for one half of a tile, 96 (wide) or 64 (narrow). `tiles` counts the pairs of this width, whose columns begin
// at strip `strip`.
template <int WIDTH> struct Walk {
  static constexpr int R = WIDTH;
  int first, end, step;
  Tiles tiles;
  int strip;

  // Pair w -> modulus t, batch entry n, row tile i, and first strip j of the tile that belongs to this block.
  __device__ __forceinline__ void locate(int w, int& t, int& n, int& i, int& j) const {
    int matrix, column;
#if TRIANGLE
    locate_in_triangle(w, tiles, matrix, i, column);
#else
    ::locate(w, tiles, matrix, i, column);
#endif
    t = matrix / tiles.batch, n = matrix % tiles.batch, j = first_strip(column);
  }
  // First strip of this block's tile in column `column` of pairs: the two blocks of a cluster have neighbouring tiles.
  __device__ __forceinline__ int first_strip(int column) const {
    return strip + 2 * R / STRIP * (2 * column + static_cast<int>(cluster_rank()));
  }
};

// Number of wide pairs and of narrow pairs. Pairs are dealt out in turn, so some clusters have one wide pair less than
// others; the first `light` narrow pairs belong to those clusters, the remaining ones to the others. `columns`: columns
// of narrow pairs.
struct Work {
  int wide, narrow, light, columns;
};

// The wide pairs, and the narrow pairs, of cluster number `cluster` in the order of tiles.
__device__ __forceinline__ Walk<96> wide_tiles(const Work& work, const Tiles& tiles, int cluster) {
  return {cluster, work.wide, static_cast<int>(gridDim.x / 2), tiles, 0};
}
__device__ __forceinline__ Walk<64> narrow_tiles(const Work& work, const Tiles& tiles, int cluster) {
  const int clusters = gridDim.x / 2, more = work.wide % clusters;
  const Tiles columns = {tiles.rows, work.columns, tiles.group, tiles.batch};
  const int strip = 2 * STRIPS * tiles.columns;  // narrow columns begin after the wide ones
  if (cluster < more) return {work.light + cluster, work.narrow, more, columns, strip};
  return {cluster - more, work.light, clusters - more, columns, strip};
}

// Position of a tile: modulus t, batch entry n, row tile i, first strip j. The producer writes it for the stage that
// holds the last block of the tile, before that stage becomes full.
struct Tile {
  int t, n, i, j;
};

// Byte offset of strip j of the right operand, whose tiles in memory always have three strips. So the second strip of a
// narrow tile may lie in the next tile of the operand.
__device__ __forceinline__ int64_t begin_of_strip(int j, int k_blocks) {
  return static_cast<int64_t>(j / STRIPS) * k_blocks * B_BYTES + j % STRIPS * (STRIP * DEPTH);
}

// Called by the producer's thread: copies all blocks of all tiles of `walk`. Every second tile is copied from the end
// of k to its beginning: the second-level cache still holds the end of k, which neighbouring clusters have copied last.
template <typename Walk>
__device__ __forceinline__ void copy_tiles(const Walk& walk, const Stages& stages, Ring& ring, Tile* tile_of_stage,
                                           const Operand& a, const Operand& b, int blocks, int k_blocks,
                                           const Together& together) {
  const int rank = cluster_rank();
  bool back = false;
  for (int w = walk.first; w < walk.end; w += walk.step, back = !back) {
    if (rank == 0) together.begin(w);
    Tile tile;
    walk.locate(w, tile.t, tile.n, tile.i, tile.j);
    const int64_t strip = begin_of_strip(tile.j, k_blocks), second = begin_of_strip(tile.j + 1, k_blocks) - strip;
    const uint8_t* const from_a = a.slices + tile.t * a.slice + tile.n * a.batch +
                                  static_cast<int64_t>(tile.i) * k_blocks * A_BYTES;
    const uint8_t* const from_b = b.slices + tile.t * b.slice + tile.n * b.batch + strip;
    const int most = back ? 1 : 0, last = back ? 0 : blocks - 1;
    stages.copy<2 * Walk::R>(ring, {from_a + most * A_BYTES, from_b + most * B_BYTES, second}, blocks - 1, rank, back);
    stages.wait_empty(ring);
    tile_of_stage[ring.stage] = tile;
    stages.copy<2 * Walk::R>(ring, {from_a + last * A_BYTES, from_b + last * B_BYTES, second}, 1, rank);
  }
}

// Called by all threads of the consumers: multiplies all tiles of `walk` and passes the sums to the epilogue.
// epilogue.begin(t, n, row, j) announces a tile, `row` being the first row of the thread. Then epilogue.consume(d,
// first) is called for first = 0 and 64 with the accumulators of rows row + first + {0, 8} and, of every strip from j
// on, of the 16 columns from 16 (lane % 4) on.
//
// The wgmma of the next tile's first block are issued in between: d0's after consume(d0), d1's after consume(d1). After
// the last tile they multiply stale bytes of the ring, and nobody reads the result: with a branch here the compiler
// would serialise all wgmma.
template <typename Walk, typename Epilogue>
__device__ __forceinline__ void multiply_tiles(const Walk& walk, const Stages& stages, Ring& ring,
                                               const Tile* tile_of_stage, int blocks, Epilogue& epilogue) {
  // 1. Issue block 0 of the first tile.
  uint32_t d0[Walk::R], d1[Walk::R];
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  uint32_t da, db;
  if (walk.first < walk.end) stages.wait(ring);
  stages.descriptors(ring, da, db);
  multiply_half<uint8_t>(d0, da, db, true);
  multiply_half<uint8_t>(d1, da + HALF, db, true);
  for (int w = walk.first; w < walk.end; w += walk.step) {
    // 2. The other blocks of k.
    int last;
    multiply_blocks<uint8_t>(stages, ring, blocks, d0, d1, last);
    multiply_last_block<uint8_t>(stages, ring, d0, d1);
    // 3. Where is this tile? The last stage is full, so its entry has been written.
    const Tile tile = tile_of_stage[ring.stage];
    epilogue.begin(tile.t, tile.n, tile.i * ROWS + warpgroup * 128 + thread / 32 * 16 + lane / 4, tile.j);
    await_first_half(stages, ring, d0, last);
    // 4. Consume d0 while d1's last wgmma run; then issue block 0 of the next tile for d0.
    if (w + walk.step < walk.end) stages.wait(ring);
    epilogue.consume(d0, 0);
    stages.descriptors(ring, da, db);
    multiply_half<uint8_t>(d0, da, db, true);
    // 5. Consume d1 while d0's wgmma of the next tile run; then issue block 0 of the next tile for d1.
    wgmma_wait<1>();
    registers_ready(d1);
    stages.release_own(last);  // each thread arrives for itself: each has read tile_of_stage[last], too
    epilogue.consume(d1, 64);
    __syncwarp();     // else the compiler moves the wait below before the epilogue
    wgmma_wait<0>();  // else it takes the reads of d1 above for reads during the wgmma below, and serialises them
    multiply_half<uint8_t>(d1, da + HALF, db, true);
  }
  wgmma_wait<0>();
}
