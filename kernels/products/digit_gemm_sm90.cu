// The product of two operands in few digits on Hopper, rounded: C = RN(V 2^(factor - mu_i - nu_j)), factor =
// DIGIT_BITS (SLICES - 1). Neither diagonals nor digits of the product reach memory.
//
// Macros: OUTPUT (double or float); SLICES <= 3; DIGIT_BITS (8 or 7).
//
// Ring and launch as ring_sm90.cuh has them, of tiles of 128 x 128; slices are digits, the most significant first on
// the left, last on the right. A thread has accumulators for all diagonals, so that a block of k is copied once for
// each digit, not for each pair (more digits: diagonal_gemm_sm90.cu).
//
// The last tiles may be split along k (pieces.cuh). The cluster with the beginning of a tile is its owner. The others
// leave V, of their part of k, in `partial`: SLICES - 1 digits and four bytes of each entry, a plane of PLANE bytes
// each, for every block of the grid; and raise `flags`, two for each block, zero before. The owner's producer copies
// them into the ring.
//
// Float64 results that may not be normal numbers are left to digit_far_sm90.cu.
//
// `blocks`: blocks of k. SLICES (2^DIGIT_BITS)^2 / 4 * 128 blocks must stay below 2^31 (1 - 2^-DIGIT_BITS).
#define OTHER_TILE
constexpr int ROWS = 128, COLS = 128, STAGES = 7;
#include "arithmetic/diagonals.cuh"
#include "hardware/launch.cuh"
#include "products/pieces.cuh"
#include "products/ring_sm90.cuh"

// Accumulators of a thread for one diagonal: of rows lane / 4 + {0, 8} of its warp's 16, of every 16 columns the 4 from
// 4 (lane % 4) on (`accumulator` in pieces.cuh).
typedef uint32_t Diagonal[COLS / 2];
constexpr int GROUPS = COLS / 16;

// The products of so many blocks of k: diagonal s has those of digits t and s - t.
__device__ __forceinline__ void multiply(Diagonal (&d)[SLICES], const Stages& stages, Ring& ring, int blocks) {
  int held[SLICES] = {};  // stages of the last block
#pragma unroll 1
  for (int k = 0; k < blocks; ++k) {
    uint32_t a[SLICES], b[SLICES];
    int now[SLICES];
#pragma unroll
    for (int s = 0; s < SLICES; ++s, ring.next()) {
      stages.wait(ring);
      stages.descriptors(ring, a[s], b[s]);
      now[s] = ring.stage;
      wgmma_fence();
#pragma unroll
      for (int t = 0; t <= s; ++t)
#pragma unroll
        for (int z = 0; z < 4; ++z)
          wgmma_bytes<int8_t>(d[s], a[t] + 2 * z, b[s - t] + 2 * z, k > 0 || t > 0 || z > 0);
      wgmma_commit();
      if (s == 0 && k > 0) {
        wgmma_wait<1>();
#pragma unroll
        for (int i = 0; i < SLICES; ++i) stages.release(held[i]);
      }
    }
#pragma unroll
    for (int s = 0; s < SLICES; ++s) held[s] = now[s];
  }
  wgmma_wait<0>();
#pragma unroll
  for (int s = 0; s < SLICES; ++s) {
    registers_ready(d[s]);
    stages.release(held[s]);
  }
}

// What a cluster leaves to a tile's owner, and how many stages that takes.
constexpr int PLANE = ROWS * COLS, PLANES = SLICES + 3, OF_STAGE = STAGE_BYTES / PLANE;
constexpr int STAGES_HANDED_OVER = (PLANES + OF_STAGE - 1) / OF_STAGE;

// Byte `j` of each accumulator to a plane, of a digit its DIGIT_BITS.
__device__ __forceinline__ void store_plane(const Diagonal& d, uint8_t* to, int j, bool digit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int q = 0; q < GROUPS / 4; ++q)
      __stcg(reinterpret_cast<uint4*>(to) + ((h * (GROUPS / 4) + q) * 256 + this_thread()),
             bytes_of_groups(d, h, q, j, DIGIT_BITS == 7 && digit ? 0x7f7f7f7fu : ~0u));
}
// The bytes of a plane in shared memory, times `unit`.
__device__ __forceinline__ void add_plane(Diagonal& d, uint32_t from, uint32_t unit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int q = 0; q < GROUPS / 4; ++q)
      add_to_groups(d, h, q, from + 16 * ((h * (GROUPS / 4) + q) * 256 + this_thread()), unit);
}
__device__ __forceinline__ void hand_over(Diagonal (&d)[SLICES], uint8_t* to) {
#pragma unroll
  for (int s = SLICES - 1; s > 0; --s) {
    store_plane(d[s], to + s * PLANE, 0, true);
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i)  // carried to the next diagonal
      d[s - 1][i] += static_cast<uint32_t>(static_cast<int32_t>(d[s][i]) >> DIGIT_BITS);
  }
  store_plane(d[0], to, 0, false);
#pragma unroll
  for (int j = 1; j < 4; ++j) store_plane(d[0], to + (SLICES - 1 + j) * PLANE, j, false);
}
// Planes are those of diagonals 0, 1, ... at first, then the upper bytes of diagonal 0.
__device__ __forceinline__ void take_over(Diagonal (&d)[SLICES], const Stages& stages, Ring& ring, int contributors) {
#pragma unroll 1
  for (int h = 0; h < contributors; ++h)
#pragma unroll
    for (int q = 0; q < STAGES_HANDED_OVER; ++q, ring.next()) {
      stages.wait(ring);
#pragma unroll
      for (int p = q * OF_STAGE; p < smaller((q + 1) * OF_STAGE, PLANES); ++p)
        add_plane(d[p < SLICES ? p : 0], stages.data + ring.stage * STAGE_BYTES + p % OF_STAGE * PLANE,
                  p < SLICES ? 1u : 1u << (8 * (p - SLICES + 1)));
      stages.release_own(ring.stage);
    }
}
// By the producer, to the stages that come next.
__device__ __forceinline__ void copy_partial(const Stages& stages, Ring& ring, const uint8_t* partial,
                                             const uint32_t* flags, int contributors) {
  for (int h = 1; h <= contributors; ++h) {
    const int block = blockIdx.x - 2 * h;
    wait_for_contributor(flags, block, 1);
    for (int p = 0; p < PLANES; p += OF_STAGE, ring.next())
      stages.copy_bytes(ring, partial + (block * PLANES + p) * PLANE, smaller(OF_STAGE, PLANES - p) * PLANE);
  }
}

// Exponents of a warpgroup's rows and columns.
struct __align__(16) Exponents {
  int32_t columns[COLS], rows[ROWS / CONSUMERS];
};

// What consumers have to do, told by the producer before the first stage of it is full, so that none of them has to
// divide while the tensor cores wait: so many blocks of a tile, and what so many contributors have left, or to leave
// that themselves (contributors < 0); whether there is more.
struct Told {
  int blocks, contributors, entry, row, col, more;
};
// Where a tile lies in the result: its first row, for this warpgroup, and column.
struct Place {
  int entry, row, col;
};
__device__ __forceinline__ Place place_of(const Told& told) {
  return {told.entry, told.row + static_cast<int>(this_thread()) / 128 * (ROWS / CONSUMERS), told.col};
}

// They are there after wait_for_copies and a barrier of the warpgroup.
__device__ __forceinline__ void fetch(Exponents& exponents, const Output<OUTPUT>& to, const Place& place) {
  const int x = threadIdx.x % 128;
  copy_or_zero(exponents.columns + x, to.nu + place.entry * to.nu_batch + smaller(place.col + x, to.n - 1), true);
  if (x < ROWS / CONSUMERS)
    copy_or_zero(exponents.rows + x, to.mu + place.entry * to.mu_batch + smaller(place.row + x, to.m - 1), true);
}

__device__ __forceinline__ void round_and_store(const Diagonal (&d)[SLICES], const Output<OUTPUT>& to,
                                                const Place& place, const Exponents& exponents) {
  const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16 + lane / 4, col = place.col + lane % 4 * 4;
  const uint32_t nu = shared_address(exponents.columns + lane % 4 * 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = place.row + first + 8 * h, left = row < to.m ? to.n - col : 0;  // columns
    const int exponent = DIGIT_BITS * (SLICES - 1) + 1023 - exponents.rows[first + 8 * h];
    OUTPUT* const c = to.c + place.entry * to.batch + row * to.row_stride + col;
    const auto round_four = [&](int z, OUTPUT (&value)[4]) {
      int of_columns[4];
      load_again(nu + 64 * z, of_columns);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        int32_t sums[SLICES];
#pragma unroll
        for (int s = 0; s < SLICES; ++s) sums[s] = static_cast<int32_t>(d[s][accumulator(h, z, x)]);
        const double power = double_of_words(static_cast<uint32_t>((exponent - of_columns[x]) * (1 << 20)), 0);
        round_few_diagonals<SLICES, DIGIT_BITS>(sums, power, value[x]);
      }
    };
    store_groups<GROUPS>(c, left, round_four);
  }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
digit_gemm(const Operand a, const Operand b, const Output<OUTPUT> output, uint8_t* partial, uint32_t* flags, int blocks,
           const Pieces pieces, const Tiles tiles, const Together together) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ Exponents exponents[CONSUMERS];
  __shared__ Told told[STAGES];
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();
  const uint32_t rank = cluster_rank();
  const int warpgroup = threadIdx.x / 128;

  if (warpgroup == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      Piece piece = piece_of(0, pieces, blocks), next;
      for (int w = 1; piece.exists; piece = next) {
        next = piece_of(w++, pieces, blocks);
        int entry, i, j;
        locate(piece.tile, tiles, entry, i, j);
        const int row = 2 * i + static_cast<int>(rank), contributors = contributors_of(piece, pieces, blocks);
        From from = {a.slices + entry * a.batch + (static_cast<int64_t>(row) * blocks + piece.first) * A_BYTES,
                     b.slices + entry * b.batch + (static_cast<int64_t>(j) * blocks + piece.first) * B_BYTES};
        if (rank == 0) together.begin(piece.tile);
        stages.wait_empty(ring);
        told[ring.stage] = {piece.last - piece.first, piece.first == 0 ? contributors : -1, entry, row * ROWS, j * COLS,
                            next.exists};
        for (int k = piece.first; k < piece.last; ++k, from.a += A_BYTES, from.b += B_BYTES)
          for (int s = 0; s < SLICES; ++s)
            stages.copy(ring, {from.a + s * a.slice, from.b + (SLICES - 1 - s) * b.slice}, 1, rank);
        copy_partial(stages, ring, partial, flags, contributors);
      }
    }
  } else {
    take_registers<232>();
    Diagonal d[SLICES];
    Ring ring;
    bool more = piece_of(0, pieces, blocks).exists;
    while (more) {
      stages.wait(ring);
      const Told here = told[ring.stage];
      more = here.more != 0;
      if (here.contributors >= 0) fetch(exponents[warpgroup], output, place_of(here));
      multiply(d, stages, ring, here.blocks);
      if (here.contributors >= 0) {
        take_over(d, stages, ring, here.contributors);
        wait_for_copies();
        named_barrier(1 + warpgroup, 128);
        round_and_store(d, output, place_of(here), exponents[warpgroup]);
        named_barrier(1 + warpgroup, 128);  // before others come here
      } else {
        hand_over(d, partial + static_cast<int64_t>(blockIdx.x) * (PLANES * PLANE));
        tell_owner(flags, warpgroup, 1);
      }
    }
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
