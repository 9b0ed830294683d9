// Residue products on Hopper: y_t = (A_t B_t) mod m_t for all moduli in one launch, int32 never leaves the registers.
//
// Tiles, ring and launch as ring_sm90.cuh has them; a tile's half is reduced and stored while the other half multiplies,
// at the end of a tile and at the beginning of the next.
//
// a and b point to the first of `blocks` blocks of k, two at least, of k_blocks that their tiles have; slices are those
// of the moduli.
//
// y: bytes, planes y_stride apart, batch entries y_batch, [rows][ld], ld a multiple of 192; rows < rows_stored are
// stored. With `accumulate`, added to what is there, modulo m_t.
//
// The last tiles may be split along k (pieces.cuh): of the clusters with pieces of a tile, each adds to what the one
// before has stored, and waits for its flag. `flags`: two for each block, zero before.
#include "launch.cuh"
#include "pieces.cuh"
#include "residues.cuh"
#include "ring_sm90.cuh"

// Reduce one half and store it: thread (warp w, lane) has rows 16 w + lane / 4 + {0, 8} and, of every 64 columns, the 16 from
// 16 (lane % 4) on.
__device__ __forceinline__ void reduce_half(const uint32_t (&d)[96], uint8_t* y, int64_t ld, int64_t row, int64_t rows,
                                            const AccumulatorModulus& m, bool accumulate) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool stored = row + 8 * h < rows;
    uint8_t* const at = y + 8 * h * ld;
#pragma unroll
    for (int g = 0; g < COLS / 64; ++g) {
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
          const uint4 old = __ldcg(out);
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

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
residue_gemm(const Operand a, const Operand b, uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld,
             int64_t rows_stored, int blocks, int k_blocks, const Pieces pieces, uint32_t* flags, const Tiles tiles,
             int accumulate, const AccumulatorModuli moduli) {
  after_previous();
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  const uint32_t rank = cluster_rank();
  const int warpgroup = threadIdx.x / 128;

  if (warpgroup == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      Piece piece = piece_of(0, pieces, blocks);
      for (int w = 1; piece.exists; piece = piece_of(w++, pieces, blocks)) {
        int matrix, i, j;
        locate(piece.tile, tiles, matrix, i, j);
        const int t = matrix / tiles.batch, n = matrix % tiles.batch;
        const int64_t at_a = static_cast<int64_t>(2 * i + rank) * k_blocks + piece.first;
        const int64_t at_b = static_cast<int64_t>(j) * k_blocks + piece.first;
        stages.copy(ring, a.slices + t * a.slice + n * a.batch + at_a * A_BYTES,
                    b.slices + t * b.slice + n * b.batch + at_b * B_BYTES, piece.last - piece.first, rank);
      }
    }
  } else {
    take_registers<232>();
    uint32_t d0[96], d1[96];
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    Ring ring;
    uint64_t da, db;
    Piece piece = piece_of(0, pieces, blocks);
    if (piece.exists) stages.wait(ring);
    stages.descriptors(ring, da, db);
    multiply_half(d0, da, db, true);
    multiply_half(d1, da + HALF, db, true);
    for (int w = 1; piece.exists; ++w) {
      int last;
      multiply_blocks(stages, ring, piece.last - piece.first, d0, d1, last);
      int matrix, i, j;
      locate(piece.tile, tiles, matrix, i, j);
      const int t = matrix / tiles.batch, n = matrix % tiles.batch;
      const AccumulatorModulus m = moduli.of[t];
      const bool goes_on = piece.last < blocks, raises = piece.first > 0;
      const int64_t row = (2 * i + static_cast<int64_t>(rank)) * ROWS + warpgroup * 128 + thread / 32 * 16 + lane / 4;
      uint8_t* const at = y + t * y_stride + n * y_batch + row * ld + static_cast<int64_t>(j) * COLS + lane % 4 * 16;

      multiply_last_block(stages, ring, d0, d1, last);
      if (goes_on) flag_wait(flags + 2 * (blockIdx.x - 2) + warpgroup, 1);
      reduce_half(d0, at, ld, row, rows_stored, m, accumulate || goes_on);
      piece = piece_of(w, pieces, blocks);
      // After the last tile this multiplies stale bytes, for nothing: a branch here would make the compiler wait for
      // every wgmma in turn.
      if (piece.exists) stages.wait(ring);
      stages.descriptors(ring, da, db);
      multiply_half(d0, da, db, true);
      wgmma_wait<1>();
      registers_ready(d1);
      stages.release(last);
      reduce_half(d1, at + 64 * ld, ld, row + 64, rows_stored, m, accumulate || goes_on);
      wgmma_wait<0>();  // else the compiler takes the reads of d1 above for reads in the stage that begins below
      multiply_half(d1, da + HALF, db, true);
      if (raises) {
        __threadfence();
        named_barrier(1 + warpgroup, 128);
        if (thread == 0) flag_raise(flags + 2 * blockIdx.x + warpgroup, 1);
      }
    }
    wgmma_wait<0>();
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
