// The main loop that all GEMM kernels for Hopper share: one tile of a slice product, accumulated by wgmma over the
// blocks of k. Operand tiles are copied into a ring of STAGES stages in shared memory; what happens to the finished
// accumulators is decided by the including kernel (its epilogue).
//
// Operands in global memory (written by split.cu with TILE > 0): A is [slice][row tile of ROWS][block of DEPTH = 128
// along k], B is [slice][column tile of COLS][block]. A tile block is contiguous, its rows are 128 bytes, and the eight
// 16-byte pieces of a row are swizzled as wgmma reads them, so one bulk copy brings a tile block into shared memory.
// The columns of a B tile are permuted so that the accumulators of a thread belong to neighbouring columns (tiles.cuh).
// The rows of A are padded to a multiple of 256: with tiles of 128 rows both tiles of a pair exist in memory, with
// tiles of 256 rows the second tile of the last pair may not.
//
// Launch: cluster (2, 1, 1), 384 threads, grid 2 * clusters, STAGES * STAGE_BYTES + 1024 bytes of dynamic shared memory
// (+ 1024: `Stages::init` aligns the ring). Blocks are persistent: each goes through many tiles.
//   block      a tile of ROWS x COLS entries of the result at a time (256 x 192 unless OTHER_TILE is defined)
//   warpgroup  2: the producer, of which one thread issues all copies; 0 and 1: the consumers, ROWS / 2 rows each
//   cluster    two neighbouring tiles: one column of tiles, two rows (they share the B tile), or with the macro
//              ACROSS = 1 one row, two columns (they share the A tile). Each block copies one half of the shared tile
//              block into the shared memory of both, so a cluster reads it from the second-level cache only once.
//
// How stage s of the ring is handed over; the picture is the same for both blocks of the cluster:
//
//   producer    wait empty[s]     expect A_BYTES + B_BYTES on full[s]
//               copy the own tile block      -> stage s of this block     \  bytes complete on full[s]
//               copy half of the shared one  -> stage s of both blocks    /   of the block that they land in
//   consumers   wait full[s]      wgmma reads stage s      wait until these wgmma are complete
//               release: every warpgroup adds 128 arrivals to empty[s] of both blocks
//   empty[s]    completes after 512 arrivals: two blocks x two warpgroups x 128. Before that neither producer may write
//               stage s again, because each of them also writes the other block's shared memory.
//
// The ROWS / 2 = 128 rows of a consumer are two halves of 64 rows with accumulators of their own, d0 and d1. At the end
// of a tile the kernel reads one half while the tensor cores work on the other one:
//
//   tensor cores   d0: block n-1 | d1: block n-1 | d0: next tile, block 0 | d1: next tile, block 0 | ...
//   registers                      read d0         read d1
//
// (Kernels that define OTHER_TILE with ROWS = 128 use one half only.)
#pragma once
#include "products/product.cuh"
#include "hardware/ptx.cuh"

#ifndef OTHER_TILE  // else the including kernel has defined ROWS, COLS and STAGES itself
constexpr int ROWS = 256, COLS = 192, STAGES = 4;
#endif
constexpr int DEPTH = 128;
constexpr int A_BYTES = ROWS * DEPTH, B_BYTES = COLS * DEPTH, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CONSUMERS = 2;
#ifndef ACROSS
#define ACROSS 0
#endif

// The pairs of tiles of a product. A cluster owns one pair at a time.
struct Tiles {
  int rows, columns;  // of pairs, in one matrix
  int group;          // rows of pairs that are walked together, column by column, so that the second-level cache serves
                      // the A tiles of a group and one B tile after the other
  int batch;          // matrices of one slice product
};

// Pair number w -> its matrix (0 .. batch - 1 for the first modulus, then those of the next one), row i and column j of
// pairs in it. The order: matrix by matrix, in it group by group of `tiles.group` rows, in a group column by column.
__device__ __forceinline__ void locate(uint32_t w, const Tiles& tiles, int& matrix, int& i, int& j) {
  const uint32_t each = tiles.rows * tiles.columns;
  matrix = w / each;
  const uint32_t rest = w % each;
  const uint32_t in_group = tiles.group * tiles.columns;
  const int first = rest / in_group * tiles.group;
  const int height = smaller(tiles.group, tiles.rows - first);
  const uint32_t q = rest % in_group;
  i = first + q % height;
  j = q / height;
}

// Global addresses of the next tile blocks of A and B. With ACROSS and fewer columns than COLS, the B tile block
// consists of two halves, the second one `second` bytes after the first.
struct From {
  const uint8_t *a, *b;
  int64_t second = 0;
};

// Position in the ring: the stage, and the parity of the phase that its barriers are in.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// A counter that makes all clusters begin their tiles at the same time. Without it clusters drift apart, and what one
// has copied has left the second-level cache when the last one needs it: three digits at n = 16384 then read 72 GB from
// memory and take 36.0 to 36.3 ms; begun together, 34 GB and 35.2 ms (both on one H200).
//
// A hint only: results do not depend on it. If a cluster does not arrive within the timeout, say because the device
// runs another kernel at the same time, the waiting thread raises the counter beyond SYNC_OFF, and from then on no
// cluster waits for any other.
struct Together {
  uint32_t* arrived;  // global counter of arrivals; zero when the kernel starts
  int64_t until;      // tiles below this number are begun together, a multiple of the number of clusters; 0: none

  // Called by one thread of each cluster (rank 0's producer) before it copies what tile w needs. Returns when all
  // clusters have arrived for their tile of the same round, or after LONGEST polls of 100 ns.
  __device__ __forceinline__ void begin(int w) const {
    if (until == 0 || w >= until) return;
    const uint32_t clusters = gridDim.x / 2, before = atomicAdd(arrived, 1u);
    const uint32_t all = before - before % clusters + clusters;
    for (int i = 0; before < SYNC_OFF && *static_cast<volatile uint32_t*>(arrived) < all; ++i) {
      if (i == LONGEST) atomicMax(arrived, SYNC_OFF);
      __nanosleep(100);
    }
  }
  static constexpr uint32_t SYNC_OFF = 1u << 31;
  static constexpr int LONGEST = 1000;  // polls
};

// Shared-memory addresses of the ring and its barriers. They are the same in both blocks of the cluster, so they also
// name the other block's (mapa).
//
// `warpgroup` is the calling thread's, as a value that the compiler knows to be uniform in a warp: descriptors are then
// computed once for a warp, and a block of k takes 71 instructions beside its eight wgmma instead of 95 (SASS of
// residue_gemm with 14 residues).
struct Stages {
  uint32_t data, full, empty, warpgroup;

  // Called by all threads of both blocks before anything else. Ends with a barrier of the cluster, so that no block
  // signals barriers of the other one before they are initialised.
  __device__ __forceinline__ void init(uint8_t* dynamic, uint64_t* full_barriers, uint64_t* empty_barriers) {
    data = (shared_address(dynamic) + 1023) & ~1023u;
    full = shared_address(full_barriers);
    empty = shared_address(empty_barriers);
    warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
      for (int s = 0; s < STAGES; ++s) {
        barrier_init(full + 8 * s, 1);
        barrier_init(empty + 8 * s, 2 * 128 * CONSUMERS);
      }
      barrier_init_fence();
    }
    cluster_barrier();
  }
  // Called by the producer's thread: copies `blocks` successive tile blocks (B with N columns) into the next stages of
  // the ring; with `back` from the last one to the first. Of the tile that the cluster shares, this block copies its
  // half into both blocks, and the other block copies the other half.
  template <int N = COLS>
  __device__ __forceinline__ void copy(Ring& ring, From from, int blocks, uint32_t rank, bool back = false) const {
    constexpr int PART = N * DEPTH / 2;
    const int64_t before = back ? blocks - 1 : 0, step = back ? -1 : 1;
    from.a += before * A_BYTES + (ACROSS ? rank * (A_BYTES / 2) : 0);
    from.b += before * B_BYTES + (ACROSS ? 0 : rank * PART);
#pragma unroll 1
    for (int k = 0; k < blocks; ++k, ring.next()) {
      const uint32_t to = data + ring.stage * STAGE_BYTES, barrier = full + 8 * ring.stage;
      wait_empty(ring);
      barrier_expect(barrier, A_BYTES + 2 * PART);
#if ACROSS
      bulk_copy_to_blocks(to + rank * (A_BYTES / 2), from.a, A_BYTES / 2, barrier, 3);
      if (N == COLS) {
        bulk_copy(to + A_BYTES, from.b, 2 * PART, barrier);
      } else {
        bulk_copy(to + A_BYTES, from.b, PART, barrier);
        bulk_copy(to + A_BYTES + PART, from.b + from.second, PART, barrier);
      }
#else
      bulk_copy(to, from.a, A_BYTES, barrier);
      bulk_copy_to_blocks(to + A_BYTES + rank * PART, from.b, PART, barrier, 3);
#endif
      from.a += step * A_BYTES;
      from.b += step * B_BYTES;
    }
  }
  // Called by the producer's thread: copies `bytes` bytes into the next stage of this block alone. Consumers must
  // release that stage to both blocks all the same, since empty[s] counts arrivals of both.
  __device__ __forceinline__ void copy_bytes(const Ring& ring, const void* from, int bytes) const {
    const uint32_t barrier = full + 8 * ring.stage;
    wait_empty(ring);
    barrier_expect(barrier, bytes);
    bulk_copy(data + ring.stage * STAGE_BYTES, from, bytes, barrier);
  }
  // Called by the producer's thread: returns when both blocks have released the stage, so it may be written.
  __device__ __forceinline__ void wait_empty(const Ring& ring) const {
    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
  }
  // Called by consumers: returns when all bytes of the stage have arrived.
  __device__ __forceinline__ void wait(const Ring& ring) const { barrier_wait(full + 8 * ring.stage, ring.parity); }
  // Called by all threads of a consumer warpgroup, whose wgmma on this stage must be complete: allows both producers to
  // overwrite it. Two threads arrive for all 128 in both blocks.
  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 128 < 2) barrier_arrive_in(empty + 8 * stage, threadIdx.x % 128, 128);
  }
  // The same for a stage that threads have read themselves instead of wgmma: each thread arrives for itself in both
  // blocks. (One arrival after a named barrier would be as correct and cheaper, but compute-sanitizer's racecheck only
  // recognises a hand-over where every reading thread arrives.)
  __device__ __forceinline__ void release_own(int stage) const {
    for (int rank = 0; rank < 2; ++rank) barrier_arrive_in(empty + 8 * stage, rank, 1);
  }
  // wgmma descriptors of this warpgroup's rows of A (the first half of them) and of B in the stage.
  __device__ __forceinline__ void descriptors(const Ring& ring, uint32_t& a, uint32_t& b) const {
    const uint32_t at = data + ring.stage * STAGE_BYTES;
    a = tile_descriptor(at + warpgroup * (A_BYTES / 2));
    b = tile_descriptor(at + A_BYTES);
  }
};
constexpr uint32_t HALF = 8192 >> 4;  // added to the descriptor of rows 0 .. 63 it gives that of rows 64 .. 127

// Issues the four wgmma of one half (64 rows) over one stage, with slices of type T, as one commit group. d = A B if
// `fresh`, else d += A B. The caller waits for the group and only then releases the stage or reads d.
template <typename T, int R>
__device__ __forceinline__ void multiply_half(uint32_t (&d)[R], uint32_t a, uint32_t b, bool fresh) {
  wgmma_fence();
#pragma unroll
  for (int z = 0; z < 4; ++z) wgmma_bytes<T>(d, a + 2 * z, b + 2 * z, !fresh || z > 0);
  wgmma_commit();
}

// The blocks 1 .. blocks - 2 of a tile; both halves of block 0 have been issued already and `ring` is still at its
// stage. A stage is released when the wgmma of the following block have been issued and its own are complete, so the
// tensor cores always have work queued. On return both halves of block blocks - 2 are in flight, `last` is its stage,
// and `ring` is at the stage of the last block. blocks >= 2.
template <typename T, int R>
__device__ __forceinline__ void multiply_blocks(const Stages& stages, Ring& ring, int blocks, uint32_t (&d0)[R],
                                                uint32_t (&d1)[R], int& last) {
  uint32_t a, b;
  last = ring.stage;
  ring.next();
  for (int k = 2; k < blocks; ++k) {
    stages.wait(ring);
    stages.descriptors(ring, a, b);
    multiply_half<T>(d0, a, b, false);
    multiply_half<T>(d1, a + HALF, b, false);
    wgmma_wait<2>();
    stages.release(last);
    last = ring.stage;
    ring.next();
  }
}
// Issues both halves of the last block of a tile, at the stage `ring`, which stays there.
template <typename T, int R>
__device__ __forceinline__ void multiply_last_block(const Stages& stages, const Ring& ring, uint32_t (&d0)[R],
                                                    uint32_t (&d1)[R]) {
  uint32_t a, b;
  stages.wait(ring);
  stages.descriptors(ring, a, b);
  multiply_half<T>(d0, a, b, false);
  multiply_half<T>(d1, a + HALF, b, false);
}
// After multiply_last_block: returns when d0 holds the finished sums of the first half, while the wgmma of d1 are still
// in flight. Releases the stage before (`last` on entry); `last` becomes the stage of the last block, which d1's wgmma
// still read, and `ring` moves on.
template <int R>
__device__ __forceinline__ void await_first_half(const Stages& stages, Ring& ring, uint32_t (&d0)[R], int& last) {
  wgmma_wait<1>();
  registers_ready(d0);
  stages.release(last);
  last = ring.stage;
  ring.next();
}
