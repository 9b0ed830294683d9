// Residue products on Hopper: y_t = (A_t B_t) mod m_t for all moduli in one launch, int32 never leaves the registers.
//
// Operands lie in tiles (split.cu with TILE): A [t][row tile of 256][block of 128 along k], B [t][column tile of
// 192][block], each tile block contiguous, rows of 128 bytes, the eight 16-byte pieces of a row swizzled as wgmma reads
// them. The columns of a B tile are permuted (permuted_column in tiles.cuh) so that a thread's accumulators are 16
// neighbouring columns.
//
// A block of 384 threads owns a tile of 256 x 192 of y at a time: warpgroup 2 copies tile blocks into a ring of STAGES
// in shared memory, warpgroups 0 and 1 multiply 128 rows each. Two blocks of a cluster own neighbouring row tiles and share the B tile:
// each copies half of it into both. Blocks are persistent; tiles are walked in groups of `group` row-tile pairs, so
// that what is copied stays in the second-level cache.
//
// A warpgroup's 128 rows are two halves of 64, each with its own accumulators: while one half is reduced and stored,
// the tensor cores work on the other, at the end of a tile and at the beginning of the next.
//
// a and b point to the first of `blocks` blocks of k, two at least, of k_blocks that their tiles have; moduli are a_stride and
// b_stride bytes apart, batch entries a_batch and b_batch (0: the same for all).
//
// y: bytes, planes y_stride apart, batch entries y_batch, [rows][ld], ld a multiple of 192; rows < rows_stored are
// stored. With `accumulate`, added to what is there, modulo m_t.
//
// Launch: cluster (2, 1, 1), 384 threads, grid 2 * clusters, dynamic shared memory STAGES * 57344 + 1024 bytes.
#include "ptx.cuh"
#include "residues.cuh"

constexpr int ROWS = 256, COLS = 192, DEPTH = 128;
constexpr int STAGES = 4;
constexpr int A_BYTES = ROWS * DEPTH, B_BYTES = COLS * DEPTH, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CONSUMERS = 2;

struct Tiles {
  int pairs;    // row tiles / 2
  int columns;  // column tiles
  int group;    // row-tile pairs walked together
  int batch;
};

// Work item w -> modulus t, batch entry n, row-tile pair i, column tile j.
__device__ __forceinline__ void locate(uint32_t w, const Tiles& tiles, int& t, int& n, int& i, int& j) {
  const uint32_t each = tiles.pairs * tiles.columns;
  const uint32_t matrix = w / each;
  t = matrix / tiles.batch;
  n = matrix % tiles.batch;
  const uint32_t rest = w % each;
  const uint32_t in_group = tiles.group * tiles.columns;
  const int first = rest / in_group * tiles.group;
  const int height = smaller(tiles.group, tiles.pairs - first);
  const uint32_t q = rest % in_group;
  i = first + q % height;
  j = q / height;
}

// Ring position: stage and the parity of its use.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Four wgmma over one stage, for one half; the first clears the accumulators if `fresh`.
__device__ __forceinline__ void multiply_half(uint32_t (&d)[96], uint64_t a, uint64_t b, bool fresh) {
  wgmma_fence();
#pragma unroll
  for (int z = 0; z < 4; ++z) wgmma_64x192x32(d, a + 2 * z, b + 2 * z, !fresh || z > 0);
  wgmma_commit();
}

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

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
residue_gemm(const uint8_t* __restrict__ a, int64_t a_stride, int64_t a_batch, const uint8_t* __restrict__ b,
             int64_t b_stride, int64_t b_batch, uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld,
             int64_t rows_stored, int blocks, int k_blocks, int work, const Tiles tiles, int accumulate,
             const AccumulatorModuli moduli) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  const uint32_t ring_address = (shared_address(dynamic) + 1023) & ~1023u;
  const uint32_t full = shared_address(full_barriers), empty = shared_address(empty_barriers);
  const uint32_t rank = cluster_rank();
  const int cluster = blockIdx.x / 2, clusters = gridDim.x / 2;
  const int warpgroup = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, 2 * CONSUMERS);
    }
    barrier_init_fence();
  }
  cluster_barrier();

  if (warpgroup == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      for (int w = cluster; w < work; w += clusters) {
        int t, n, i, j;
        locate(w, tiles, t, n, i, j);
        const uint8_t* from_a = a + t * a_stride + n * a_batch + static_cast<int64_t>(2 * i + rank) * k_blocks * A_BYTES;
        const uint8_t* from_b = b + t * b_stride + n * b_batch + static_cast<int64_t>(j) * k_blocks * B_BYTES + rank * (B_BYTES / 2);
        for (int k = 0; k < blocks; ++k, ring.next()) {
          const uint32_t to = ring_address + ring.stage * STAGE_BYTES, barrier = full + 8 * ring.stage;
          barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
          barrier_expect(barrier, STAGE_BYTES);
          bulk_copy(to, from_a, A_BYTES, barrier);
          bulk_copy_to_blocks(to + A_BYTES + rank * (B_BYTES / 2), from_b, B_BYTES / 2, barrier, 3);
          from_a += A_BYTES;
          from_b += B_BYTES;
        }
      }
    }
  } else {
    take_registers<232>();
    uint32_t d0[96], d1[96];
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    Ring ring;
    const auto release = [&](int stage) {  // to both blocks, whose copies write here
      if (thread < 2) barrier_arrive_in(empty + 8 * stage, thread);
    };
    const auto descriptors = [&](uint64_t& da, uint64_t& db) {
      const uint32_t at = ring_address + ring.stage * STAGE_BYTES;
      da = tile_descriptor(at + warpgroup * (A_BYTES / 2));
      db = tile_descriptor(at + A_BYTES);
    };
    constexpr uint64_t HALF = 8192 >> 4;

    uint64_t da, db;
    if (cluster < work) barrier_wait(full + 8 * ring.stage, ring.parity);
    descriptors(da, db);
    multiply_half(d0, da, db, true);
    multiply_half(d1, da + HALF, db, true);
    for (int w = cluster; w < work; w += clusters) {
      int last = ring.stage;
      ring.next();
      for (int k = 2; k < blocks; ++k) {
        barrier_wait(full + 8 * ring.stage, ring.parity);
        descriptors(da, db);
        multiply_half(d0, da, db, false);
        multiply_half(d1, da + HALF, db, false);
        wgmma_wait<2>();
        release(last);
        last = ring.stage;
        ring.next();
      }
      int t, n, i, j;
      locate(w, tiles, t, n, i, j);
      const AccumulatorModulus m = moduli.of[t];
      const int64_t row = (2 * i + static_cast<int64_t>(rank)) * ROWS + warpgroup * 128 + thread / 32 * 16 + lane / 4;
      uint8_t* const at = y + t * y_stride + n * y_batch + row * ld + static_cast<int64_t>(j) * COLS + lane % 4 * 16;

      barrier_wait(full + 8 * ring.stage, ring.parity);
      descriptors(da, db);
      multiply_half(d0, da, db, false);
      multiply_half(d1, da + HALF, db, false);
      wgmma_wait<1>();
      registers_ready(d0);
      release(last);
      last = ring.stage;
      ring.next();
      reduce_half(d0, at, ld, row, rows_stored, m, accumulate);
      // After the last tile this multiplies stale bytes, for nothing: a branch here would make the compiler wait for
      // every wgmma in turn.
      if (w + clusters < work) barrier_wait(full + 8 * ring.stage, ring.parity);
      descriptors(da, db);
      multiply_half(d0, da, db, true);
      wgmma_wait<1>();
      registers_ready(d1);
      release(last);
      reduce_half(d1, at + 64 * ld, ld, row + 64, rows_stored, m, accumulate);
      wgmma_wait<0>();  // else the compiler takes the reads of d1 above for reads in the stage that begins below
      multiply_half(d1, da + HALF, db, true);
    }
    wgmma_wait<0>();
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
