// Residue products on Hopper: y_t = (A_t B_t) mod m_t for all moduli in one launch, int32 never leaves the registers.
//
// Tiles, ring and launch as ring_sm90.cuh has them; a tile's half is reduced and stored while the other half multiplies,
// at the end of a tile and at the beginning of the next. A last column tile of which no more than 128 columns are needed is
// multiplied as that: clusters have all their wide tiles first, then narrow ones.
//
// a and b point to the first of `blocks` blocks of k, two at least, of k_blocks that their tiles have; slices are those
// of the moduli.
//
// y: bytes, planes y_stride apart, batch entries y_batch, [rows][ld], ld a multiple of 192; rows < rows_stored are
// stored. With `accumulate`, added to what is there, modulo m_t.
#include "launch.cuh"
#include "residues.cuh"
#include "ring_sm90.cuh"

// The tiles of a cluster that are as wide as R accumulators of a thread and a half: first, first + step, ..., of those
// that `tiles` counts, from column tile `column` on.
template <int R> struct Walk {
  int first, end, step;
  Tiles tiles;
  int column;

  // Modulus t, batch entry n, row-tile pair i, column tile j of tile w.
  __device__ __forceinline__ void locate(int w, int& t, int& n, int& i, int& j) const {
    int matrix;
    ::locate(w, tiles, matrix, i, j);
    t = matrix / tiles.batch, n = matrix % tiles.batch, j += column;
  }
};

// Numbers of wide tiles and of narrow ones, `light` of which belong to the clusters with one wide tile less.
struct Work {
  int wide, narrow, light;
};

__device__ __forceinline__ Walk<96> wide_tiles(const Work& work, const Tiles& tiles) {
  return {static_cast<int>(blockIdx.x / 2), work.wide, static_cast<int>(gridDim.x / 2), tiles, 0};
}
__device__ __forceinline__ Walk<64> narrow_tiles(const Work& work, const Tiles& tiles) {
  const int clusters = gridDim.x / 2, cluster = blockIdx.x / 2, more = work.wide % clusters;
  const Tiles column = {tiles.pairs, 1, tiles.group, tiles.batch};
  if (cluster < more) return {work.light + cluster, work.narrow, more, column, tiles.columns};
  return {cluster - more, work.light, clusters - more, column, tiles.columns};
}

// Reduce one half and store it: thread (warp w, lane) has rows 16 w + lane / 4 + {0, 8} and, of every 64 columns, the 16 from
// 16 (lane % 4) on.
template <int R>
__device__ __forceinline__ void reduce_half(const uint32_t (&d)[R], uint8_t* y, int64_t ld, int64_t row, int64_t rows,
                                            const AccumulatorModulus& m, bool accumulate) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool stored = row + 8 * h < rows;
    uint8_t* const at = y + 8 * h * ld;
#pragma unroll
    for (int g = 0; g < R / 32; ++g) {
      uint32_t word[4];
#pragma unroll
      for (int z = 0; z < 4; ++z) {
        uint32_t r[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) r[x] = accumulator_residue(d[(g * 8 + z * 2 + x / 2) * 4 + h * 2 + x % 2], m);
        word[z] = gather_bytes(r[0], r[1], r[2], r[3], 0);
      }
      uint4* const out = reinterpret_cast<uint4*>(at + g * 64);
      if (stored) {
        if (accumulate) {
          const uint4 old = *out;
          const uint32_t before[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
          for (int z = 0; z < 4; ++z) {
            uint32_t r[4];
#pragma unroll
            for (int x = 0; x < 4; ++x) r[x] = add_residues(byte_of(word[z], x), byte_of(before[z], x), m.modulus);
            word[z] = gather_bytes(r[0], r[1], r[2], r[3], 0);
          }
        }
        __stcs(out, make_uint4(word[0], word[1], word[2], word[3]));
      }
    }
  }
}

// By the producer.
template <int R>
__device__ __forceinline__ void copy_tiles(const Walk<R>& walk, const Stages& stages, Ring& ring, const Operand& a,
                                           const Operand& b, int blocks, int k_blocks) {
  const int rank = cluster_rank();
  for (int w = walk.first; w < walk.end; w += walk.step) {
    int t, n, i, j;
    walk.locate(w, t, n, i, j);
    stages.copy<2 * R>(ring, a.slices + t * a.slice + n * a.batch + static_cast<int64_t>(2 * i + rank) * k_blocks * A_BYTES,
                       b.slices + t * b.slice + n * b.batch + static_cast<int64_t>(j) * k_blocks * B_BYTES, blocks, rank);
  }
}

// By a consumer. After the last tile this multiplies stale bytes, for nothing: a branch there would make the compiler
// wait for every wgmma in turn.
template <int R>
__device__ __forceinline__ void multiply_tiles(const Walk<R>& walk, const Stages& stages, Ring& ring, uint8_t* y,
                                               int64_t y_stride, int64_t y_batch, int64_t ld, int64_t rows_stored,
                                               int blocks, bool accumulate, const AccumulatorModuli& moduli) {
  uint32_t d0[R], d1[R];
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  uint64_t da, db;
  if (walk.first < walk.end) stages.wait(ring);
  stages.descriptors(ring, da, db);
  multiply_half(d0, da, db, true);
  multiply_half(d1, da + HALF, db, true);
  for (int w = walk.first; w < walk.end; w += walk.step) {
    int last;
    multiply_blocks(stages, ring, blocks, d0, d1, last);
    int t, n, i, j;
    walk.locate(w, t, n, i, j);
    const AccumulatorModulus m = moduli.of[t];
    const int64_t row = (2 * i + static_cast<int64_t>(cluster_rank())) * ROWS + warpgroup * 128 + thread / 32 * 16 + lane / 4;
    uint8_t* const at = y + t * y_stride + n * y_batch + row * ld + static_cast<int64_t>(j) * COLS + lane % 4 * 16;

    multiply_last_block(stages, ring, d0, d1, last);
    reduce_half(d0, at, ld, row, rows_stored, m, accumulate);
    if (w + walk.step < walk.end) stages.wait(ring);
    stages.descriptors(ring, da, db);
    multiply_half(d0, da, db, true);
    wgmma_wait<1>();
    registers_ready(d1);
    stages.release(last);
    reduce_half(d1, at + 64 * ld, ld, row + 64, rows_stored, m, accumulate);
    wgmma_wait<0>();  // else the compiler takes the reads of d1 above for reads in the stage that begins below
    multiply_half(d1, da + HALF, db, true);
  }
  wgmma_wait<0>();
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
residue_gemm(const Operand a, const Operand b, uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld,
             int64_t rows_stored, int blocks, int k_blocks, const Work work, const Tiles tiles, int accumulate,
             const AccumulatorModuli moduli) {
  after_previous();
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);

  if (threadIdx.x / 128 == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      copy_tiles(wide_tiles(work, tiles), stages, ring, a, b, blocks, k_blocks);
      copy_tiles(narrow_tiles(work, tiles), stages, ring, a, b, blocks, k_blocks);
    }
  } else {
    take_registers<232>();
    Ring ring;
    multiply_tiles(wide_tiles(work, tiles), stages, ring, y, y_stride, y_batch, ld, rows_stored, blocks, accumulate, moduli);
    multiply_tiles(narrow_tiles(work, tiles), stages, ring, y, y_stride, y_batch, ld, rows_stored, blocks, accumulate, moduli);
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
