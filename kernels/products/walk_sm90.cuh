// Wide and narrow tiles of a product, walked by clusters: what residue_gemm_sm90.cu and proof_gemm_sm90.cu do with a
// tile's accumulators differs, how they come about does not.
//
// Tiles, ring and launch as ring_sm90.cuh has them, a cluster's two tiles side by side; a tile's half is looked at
// while the other half multiplies, at the end of a tile and at the beginning of the next. Column tiles are three strips
// of 64 columns wide, the last ones two, as many as the host finds to end soonest: clusters have all their wide tiles
// first, then narrow ones.
//
// a and b point to the first of `blocks` blocks of k, two at least, of k_blocks that their tiles have; slices are those
// of the moduli.
#pragma once
#define ACROSS 1
#include "products/ring_sm90.cuh"

constexpr int STRIP = 64, STRIPS = COLS / STRIP;

// The tiles of a cluster, by its place among them, that are as wide as WIDTH accumulators of a thread and a half:
// first, first + step, ..., of those that `tiles` counts, from that strip on.
template <int WIDTH> struct Walk {
  static constexpr int R = WIDTH;
  int first, end, step;
  Tiles tiles;
  int strip;

  // Modulus t, batch entry n, row tile i, first strip j of this block's tile of pair w.
  __device__ __forceinline__ void locate(int w, int& t, int& n, int& i, int& j) const {
    int matrix, column;
    ::locate(w, tiles, matrix, i, column);
    t = matrix / tiles.batch, n = matrix % tiles.batch, j = first_strip(column);
  }
  __device__ __forceinline__ int first_strip(int column) const {
    return strip + 2 * R / STRIP * (2 * column + static_cast<int>(cluster_rank()));
  }
};

// Numbers of wide pairs and of narrow ones, `light` of which belong to the clusters with one wide pair less; columns of
// narrow pairs.
struct Work {
  int wide, narrow, light, columns;
};

__device__ __forceinline__ Walk<96> wide_tiles(const Work& work, const Tiles& tiles, int cluster) {
  return {cluster, work.wide, static_cast<int>(gridDim.x / 2), tiles, 0};
}
__device__ __forceinline__ Walk<64> narrow_tiles(const Work& work, const Tiles& tiles, int cluster) {
  const int clusters = gridDim.x / 2, more = work.wide % clusters;
  const Tiles columns = {tiles.rows, work.columns, tiles.group, tiles.batch};
  const int strip = 2 * STRIPS * tiles.columns;  // after those of wide tiles
  if (cluster < more) return {work.light + cluster, work.narrow, more, columns, strip};
  return {cluster - more, work.light, clusters - more, columns, strip};
}

// Which tile, j its first strip, a stage is the last one of: told by the producer before that stage is full, so that no
// consumer has to divide while the tensor cores wait.
struct Told {
  int t, n, i, j;
};

// Where strip j of the right operand begins. The second one of a narrow tile may lie in the next tile of the operand.
__device__ __forceinline__ int64_t begin_of_strip(int j, int k_blocks) {
  return static_cast<int64_t>(j / STRIPS) * k_blocks * B_BYTES + j % STRIPS * (STRIP * DEPTH);
}

// By the producer. Every other tile is gone through from the end of k, where the second-level cache still has what
// clusters side by side have copied last.
template <typename Walk>
__device__ __forceinline__ void copy_tiles(const Walk& walk, const Stages& stages, Ring& ring, Told* told,
                                           const Operand& a, const Operand& b, int blocks, int k_blocks,
                                           const Together& together) {
  const int rank = cluster_rank();
  bool back = false;
  for (int w = walk.first; w < walk.end; w += walk.step, back = !back) {
    if (rank == 0) together.begin(w);
    Told tile;
    walk.locate(w, tile.t, tile.n, tile.i, tile.j);
    const int64_t strip = begin_of_strip(tile.j, k_blocks), second = begin_of_strip(tile.j + 1, k_blocks) - strip;
    const uint8_t* const from_a = a.slices + tile.t * a.slice + tile.n * a.batch +
                                  static_cast<int64_t>(tile.i) * k_blocks * A_BYTES;
    const uint8_t* const from_b = b.slices + tile.t * b.slice + tile.n * b.batch + strip;
    const int most = back ? 1 : 0, last = back ? 0 : blocks - 1;
    stages.copy<2 * Walk::R>(ring, {from_a + most * A_BYTES, from_b + most * B_BYTES, second}, blocks - 1, rank, back);
    stages.wait_empty(ring);
    told[ring.stage] = tile;
    stages.copy<2 * Walk::R>(ring, {from_a + last * A_BYTES, from_b + last * B_BYTES, second}, 1, rank);
  }
}

// By a consumer. `epilogue.begin(t, n, row, j)` is told the tile, row being the thread's first; then
// `epilogue.look(d, first)` is given the accumulators of rows row + first + {0, 8}, and of each strip from j on the 16
// columns from 16 (lane % 4) on. After the last tile this multiplies stale bytes, for nothing: a branch there would
// make the compiler wait for every wgmma in turn.
template <typename Walk, typename Epilogue>
__device__ __forceinline__ void multiply_tiles(const Walk& walk, const Stages& stages, Ring& ring, const Told* told,
                                               int blocks, Epilogue& epilogue) {
  uint32_t d0[Walk::R], d1[Walk::R];
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  uint32_t da, db;
  if (walk.first < walk.end) stages.wait(ring);
  stages.descriptors(ring, da, db);
  multiply_half<uint8_t>(d0, da, db, true);
  multiply_half<uint8_t>(d1, da + HALF, db, true);
  for (int w = walk.first; w < walk.end; w += walk.step) {
    int last;
    multiply_blocks<uint8_t>(stages, ring, blocks, d0, d1, last);
    multiply_last_block<uint8_t>(stages, ring, d0, d1);
    const Told tile = told[ring.stage];
    epilogue.begin(tile.t, tile.n, tile.i * ROWS + warpgroup * 128 + thread / 32 * 16 + lane / 4, tile.j);
    await_first_half(stages, ring, d0, last);
    if (w + walk.step < walk.end) stages.wait(ring);
    epilogue.look(d0, 0);
    stages.descriptors(ring, da, db);
    multiply_half<uint8_t>(d0, da, db, true);
    wgmma_wait<1>();
    registers_ready(d1);
    stages.release_own(last);  // every thread has read which tile that was
    epilogue.look(d1, 64);
    __syncwarp();     // else the compiler waits before it has looked
    wgmma_wait<0>();  // else it takes the reads of d1 above for reads in the stage that begins below
    multiply_half<uint8_t>(d1, da + HALF, db, true);
  }
  wgmma_wait<0>();
}
