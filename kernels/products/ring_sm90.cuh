// A tile of slice products on Hopper: operands copied into a ring of stages in shared memory, multiplied by wgmma.
//
// Operands lie in tiles (split.cu with TILE): A [slice][row tile of 256][block of 128 along k], B [slice][column tile
// of 192][block], each tile block contiguous, rows of 128 bytes, the eight 16-byte pieces of a row swizzled as wgmma
// reads them. The columns of a B tile are permuted, so that a thread's accumulators are of neighbouring ones
// (tiles.cuh).
//
// A block of 384 threads owns a tile of 256 x 192 of the result at a time: warpgroup 2 copies tile blocks into a ring
// of STAGES in shared memory, warpgroups 0 and 1 multiply 128 rows each. Two blocks of a cluster own neighbouring row
// tiles and share the B tile or, with ACROSS, neighbouring column tiles and share the A tile: each copies half of it
// into both. Blocks are persistent; pairs of tiles are walked in groups of `group` of a column, so that what is copied
// stays in the second-level cache.
//
// A warpgroup's 128 rows are two halves of 64, each with its own accumulators: while the accumulators of one half are
// read, the tensor cores work on the other.
//
// Macro: ACROSS, 0 unless given.
//
// Launch: cluster (2, 1, 1), 384 threads, grid 2 * clusters, dynamic shared memory STAGES * 57344 + 1024 bytes.
#pragma once
#include "products/product.cuh"
#include "hardware/ptx.cuh"

#ifndef OTHER_TILE  // else the kernel has said which before it included this
constexpr int ROWS = 256, COLS = 192, STAGES = 4;
#endif
constexpr int DEPTH = 128;
constexpr int A_BYTES = ROWS * DEPTH, B_BYTES = COLS * DEPTH, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CONSUMERS = 2;
#ifndef ACROSS
#define ACROSS 0
#endif

// What clusters own: pairs of tiles, in so many rows and columns.
struct Tiles {
  int rows, columns;
  int group;  // rows walked together
  int batch;
};

// Work item w -> matrix (of the batch entries, for one modulus after the other), row i and column j of pairs.
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

// Where blocks of k begin. With ACROSS, fewer columns than COLS are in two halves, the second one so many bytes after
// the first.
struct From {
  const uint8_t *a, *b;
  int64_t second = 0;
};

// Ring position: stage and the parity of its use.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Clusters begin tiles together. Each goes its own pace else, and what one has copied is no longer in the second-level
// cache when the last one needs it: three digits at 16384 read 72 GB from memory then and take 36.0 to 36.3 ms, begun
// together 34 GB and 35.2 ms (H200). Results do not hang on it: where one does not come, because the device has
// something else to do, none waits for long, and then never again.
struct Together {
  uint32_t* arrived;  // zero at first
  int64_t until;      // tiles, a multiple of the clusters

  // By one thread of each cluster, before it copies what tile w needs.
  __device__ __forceinline__ void begin(int w) const {
    if (until == 0 || w >= until) return;
    const uint32_t clusters = gridDim.x / 2, before = atomicAdd(arrived, 1u);
    const uint32_t all = before - before % clusters + clusters;
    for (int i = 0; before < NEVER_AGAIN && *static_cast<volatile uint32_t*>(arrived) < all; ++i) {
      if (i == LONGEST) atomicMax(arrived, NEVER_AGAIN);
      __nanosleep(100);
    }
  }
  static constexpr uint32_t NEVER_AGAIN = 1u << 31;
  static constexpr int LONGEST = 1000;
};

// The ring in shared memory and its barriers, of this block and, at the same addresses, of the other one. The thread's
// warpgroup is kept as a number that the compiler knows to be that of all threads of a warp: so descriptors are worked
// out once for a warp, and a block of k takes it 71 instructions beside its eight wgmma instead of 95 (14 residues).
struct Stages {
  uint32_t data, full, empty, warpgroup;

  // By all threads, before anything else.
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
  // By one thread of the producer: `blocks` tile blocks of N columns that follow one another, the last one first if
  // `back`; of the tile that is shared, this block's half.
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
  // By the same thread: bytes for this block alone.
  __device__ __forceinline__ void copy_bytes(const Ring& ring, const void* from, int bytes) const {
    const uint32_t barrier = full + 8 * ring.stage;
    wait_empty(ring);
    barrier_expect(barrier, bytes);
    bulk_copy(data + ring.stage * STAGE_BYTES, from, bytes, barrier);
  }
  // By the same thread: until the stage may be written.
  __device__ __forceinline__ void wait_empty(const Ring& ring) const {
    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
  }
  // By a consumer.
  __device__ __forceinline__ void wait(const Ring& ring) const { barrier_wait(full + 8 * ring.stage, ring.parity); }
  // To both blocks, whose copies write here, for the warpgroup, whose wgmma are over.
  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 128 < 2) barrier_arrive_in(empty + 8 * stage, threadIdx.x % 128, 128);
  }
  // For this thread, which has read: racecheck knows a hand-over by arrivals only, not by a named barrier before one.
  __device__ __forceinline__ void release_own(int stage) const {
    for (int rank = 0; rank < 2; ++rank) barrier_arrive_in(empty + 8 * stage, rank, 1);
  }
  __device__ __forceinline__ void descriptors(const Ring& ring, uint32_t& a, uint32_t& b) const {
    const uint32_t at = data + ring.stage * STAGE_BYTES;
    a = tile_descriptor(at + warpgroup * (A_BYTES / 2));
    b = tile_descriptor(at + A_BYTES);
  }
};
constexpr uint32_t HALF = 8192 >> 4;  // from the descriptor of the first 64 rows to that of the others

// Four wgmma over one stage, of slices of type T, for one half; the first clears the accumulators if `fresh`.
template <typename T, int R>
__device__ __forceinline__ void multiply_half(uint32_t (&d)[R], uint32_t a, uint32_t b, bool fresh) {
  wgmma_fence();
#pragma unroll
  for (int z = 0; z < 4; ++z) wgmma_bytes<T>(d, a + 2 * z, b + 2 * z, !fresh || z > 0);
  wgmma_commit();
}

// `blocks` blocks of k, the first of which is under way, but for the last one; `last`: the stage of the one that is
// under way then.
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
// The last one, which is under way then.
template <typename T, int R>
__device__ __forceinline__ void multiply_last_block(const Stages& stages, const Ring& ring, uint32_t (&d0)[R],
                                                    uint32_t (&d1)[R]) {
  uint32_t a, b;
  stages.wait(ring);
  stages.descriptors(ring, a, b);
  multiply_half<T>(d0, a, b, false);
  multiply_half<T>(d1, a + HALF, b, false);
}
// After it: d0 is ready then, d1 under way.
template <int R>
__device__ __forceinline__ void await_first_half(const Stages& stages, Ring& ring, uint32_t (&d0)[R], int& last) {
  wgmma_wait<1>();
  registers_ready(d0);
  stages.release(last);
  last = ring.stage;
  ring.next();
}
