// The product of two operands in four to seven digits on Hopper, rounded to the output format:
//
//   C_ij = RN(V_ij 2^(factor - mu_i - nu_j)),  V = sum over diagonals of digit products (docs/definitions.md, 3),
//   factor = DIGIT_BITS (SLICES - 1)
//
// Neither diagonals nor digits of the product reach memory, but for the digits kept aside in `low` (below).
//
// Macros: OUTPUT (double or float); SLICES, 4 to 7; DIGIT_BITS (8 or 7).
//
// Slices are signed bytes, stored most significant digit first for A and most significant digit last for B, so diagonal
// d (0: the least significant one) is the sum of A slice s times B slice d + s, s = 0 .. SLICES - 1 - d. Launch, tiles
// of 256 x 192 and ring are those of ring_sm90.cuh. There are registers for one set of accumulators only, so a tile
// goes through k once for each diagonal. Phases of a tile, or of a piece of k of one of the last tiles (pieces.cuh);
// `d` is each of the two halves of accumulators in turn, while the tensor cores work on the other half:
// 1. Multiply all pairs of the diagonal, over all blocks of k, on top of what the diagonal before has carried.
// 2. Owner of a split tile: add the bytes that contributors have left for this diagonal.
// 3. All diagonals but the last: put the lowest DIGIT_BITS bits of each accumulator aside as a digit; carry the rest to
//    the next diagonal by an arithmetic shift, which is exact (diagonals.cuh). Back to 1.
// 4. Last diagonal: join it with the digits kept aside, round, store. A contributor writes its bytes instead.
//
//   tensor cores   d0 diag. i | d1 diag. i | d0 diag. i+1 | d1 diag. i+1 | ...     (last and first block of k)
//   registers                   phase 3 d0   phase 3 d1
//
// Memory, in 16-byte pieces; 12 pieces of each of 256 threads hold one byte of each entry of a tile:
// - low [block of the grid][SLICES - 1 diagonals][12][256]: the digits of the tile that the block works on.
// - partial [block of the grid][(SLICES - 1) diagonals * 12 + 48][256]: what a contributor leaves for the owner, digits
//   and at last the four bytes of each accumulator.
// - flags: two counters of finished diagonals for each block, zero before the kernel. The owner's producer copies
//   contributions into the ring, in the order in which the consumers add them.
//
// Float64 results that may not be normal numbers are left to digit_far_sm90.cu.
//
// `blocks`: blocks of 128 along k, at least two. Exact as long as SLICES (2^DIGIT_BITS)^2 / 4 * 128 blocks < 2^31 (1 -
// 2^-DIGIT_BITS): then neither a diagonal nor the carry into it overflows int32.
#include "arithmetic/diagonals.cuh"
#include "hardware/launch.cuh"
#include "products/pieces.cuh"
#include "products/ring_sm90.cuh"

constexpr int LOWS = low_limbs(SLICES);

// Where block `block` leaves diagonal `diagonal` for an owner.
__device__ __forceinline__ uint4* partial_of(uint4* partial, int block, int diagonal) {
  return partial + (block * (12 * (SLICES - 1) + 48) + 12 * diagonal) * 256;
}
// Where this thread keeps the digits of diagonal `diagonal` of its own tile.
__device__ __forceinline__ uint4* own_digits(uint4* low, int diagonal) {
  return low + (blockIdx.x * (12 * LOWS) + 12 * diagonal) * 256 + this_thread();
}

// Stores byte j (a constant) of each accumulator of one half, 6 pieces of this thread from `to` on. With `digit` it is
// a digit below the unit of the next diagonal: DIGIT_BITS bits of it. A thread has the accumulators of rows 16 warp +
// lane / 4 + {0, 8} and, of every 16 columns, of the 4 from 4 (lane % 4) on (indexed by `accumulator` in pieces.cuh).
// Piece (h, g): row h, groups 4 g .. 4 g + 3.
__device__ __forceinline__ void store_bytes(const uint32_t (&d)[96], uint4* to, int j, bool digit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int g = 0; g < 3; ++g)
      __stcg(to + (h * 3 + g) * 256, bytes_of_groups(d, h, g, j, DIGIT_BITS == 7 && digit ? 0x7f7f7f7fu : ~0u));
}
constexpr int PARTIAL = 12 * 256 * 16;  // bytes: one for each entry of a tile, those of the first half first

// Adds the bytes of one half that store_bytes of another cluster has written, now in a stage, each times `unit`.
__device__ __forceinline__ void add_bytes(uint32_t (&d)[96], uint32_t from, uint32_t unit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int g = 0; g < 3; ++g) add_to_groups(d, h, g, from + (h * 3 + g) * (256 * 16), unit);
}
// A contributor leaves, of one half, a digit of each entry (diagonals but the last) or, if `finish`, the four bytes of
// each accumulator of the last diagonal.
__device__ __forceinline__ void hand_over(const uint32_t (&d)[96], uint4* to, bool finish) {
  store_bytes(d, to, 0, !finish);
  if (!finish) return;
#pragma unroll
  for (int j = 1; j < 4; ++j) store_bytes(d, to + j * (12 * 256), j, false);
}
// Bytes of each accumulator that a contributor leaves for a diagonal.
__device__ __forceinline__ constexpr int bytes_handed_over(bool finish) { return finish ? 4 : 1; }
// The owner's consumers add what `contributors` clusters have left for one diagonal, from the next stages of the ring.
__device__ __forceinline__ void take_over(uint32_t (&d0)[96], uint32_t (&d1)[96], const Stages& stages, Ring& ring,
                                          int contributors, bool finish) {
  const int each = bytes_handed_over(finish);
#pragma unroll 1
  for (int i = 0; i < contributors * each; ++i, ring.next()) {
    const uint32_t from = stages.data + ring.stage * STAGE_BYTES + 16 * this_thread(), unit = 1u << (8 * (i % each));
    stages.wait(ring);
    add_bytes(d0, from, unit);
    add_bytes(d1, from + PARTIAL / 2, unit);
    stages.release_own(ring.stage);
  }
}
// Called by the owner's producer thread: copies the same bytes of diagonal `diagonal` into the next stages, as soon as
// each contributor has raised its flags.
__device__ __forceinline__ void copy_partial(const Stages& stages, Ring& ring, uint4* partial, const uint32_t* flags,
                                             int contributors, int diagonal) {
  for (int h = 1; h <= contributors; ++h) {
    const int block = blockIdx.x - 2 * h;
    wait_for_contributor(flags, block, diagonal + 1);
    for (int j = 0; j < bytes_handed_over(diagonal == SLICES - 1); ++j, ring.next())
      stages.copy_bytes(ring, partial_of(partial, block, diagonal + j), PARTIAL);
  }
}

// Drops the digit that was put aside: what is left counts in units of the next diagonal. Exact.
__device__ __forceinline__ void carry(uint32_t (&d)[96]) {
#pragma unroll
  for (int i = 0; i < 96; ++i) d[i] = static_cast<uint32_t>(static_cast<int32_t>(d[i]) >> DIGIT_BITS);
}

// Where a thread's entries of a tile go, and their exponents as bits in the exponent field of a float64's upper limb.
struct Result {
  OUTPUT* c;           // address of the thread's first entry
  int64_t row_stride;
  int rows, columns;  // of C, from that entry on
  int exponents[4];   // factor - mu of the thread's rows 0, 8, 64, 72, in the exponent field
  uint32_t nu;        // shared address of nu of the thread's columns, in the exponent field
};

// The place and exponents of this thread's entries of tile w.
__device__ __forceinline__ Result result_of(uint32_t w, const Tiles& tiles, const Output<OUTPUT>& output,
                                            const int* exponents) {
  const int warpgroup = this_thread() / 128, thread = this_thread() % 128, lane = this_thread() % 32;
  int entry, i, j;
  locate(w, tiles, entry, i, j);
  const int row = (2 * i + static_cast<int>(cluster_rank())) * ROWS + warpgroup * 128 + thread / 32 * 16 + lane / 4;
  const int col = j * COLS + lane % 4 * 4;
  Result result;
  result.c = output.c + entry * output.batch + row * output.row_stride + col;
  result.row_stride = output.row_stride;
  result.rows = output.m - row;
  result.columns = output.n - col;
  result.nu = shared_address(exponents + lane % 4 * 4);
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const int32_t mu = output.mu[entry * output.mu_batch + smaller(row + x / 2 * 64 + x % 2 * 8, output.m - 1)];
    result.exponents[x] = (DIGIT_BITS * (SLICES - 1) + 1023 - mu) * (1 << 20);
  }
  return result;
}

// Joins the last diagonal of half `half` with the digits kept aside in `low`, rounds once, stores.
__device__ __forceinline__ void round_half(const uint32_t (&d)[96], const uint4* low, const Result& result, int half) {
#pragma unroll
  for (int piece = 0; piece < 6; ++piece) {
    const int h = piece / 3, g = piece % 3, row = 64 * half + 8 * h;
    const uint4* const from = low + (half * 6 + piece) * 256;
    const auto round_four = [&](int z, OUTPUT (&value)[4]) {
      uint32_t four[LOWS];  // loaded for four entries at a time: there are no registers for a whole piece
#pragma unroll
      for (int i = 0; i < LOWS; ++i)
        four[i] = load_u32(reinterpret_cast<const uint32_t*>(from + i * (12 * 256)) + z);
      int exponents[4];
      load_again(result.nu + 4 * (64 * g + 16 * z), exponents);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int32_t top = static_cast<int32_t>(d[accumulator(h, 4 * g + z, x)]);
        const double power = double_of_limbs(static_cast<uint32_t>(result.exponents[2 * half + h] - exponents[x]), 0);
        round_diagonals<SLICES, DIGIT_BITS>(top, four, x, power, value[x]);
      }
    };
    OUTPUT* const to = result.c + row * result.row_stride + 64 * g;
    const int columns = row < result.rows ? result.columns - 64 * g : 0;
    store_groups<4>(to, columns, round_four);
  }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
diagonal_gemm(const Operand a, const Operand b, const Output<OUTPUT> output, uint4* low, uint4* partial,
              uint32_t* flags, int blocks, const Pieces pieces, const Tiles tiles, const Together together) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ __align__(16) int exponents[CONSUMERS][COLS];
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();
  const uint32_t rank = cluster_rank();
  const int warpgroup = threadIdx.x / 128;

  if (warpgroup == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      Piece piece = piece_of(0, pieces, blocks);
      for (int w = 1; piece.exists; piece = piece_of(w++, pieces, blocks)) {
        int entry, i, j;
        locate(piece.tile, tiles, entry, i, j);
        // The second tile of a pair may not exist: multiply the last one instead, whose result is not stored.
        const int64_t row = smaller(2 * i + static_cast<int>(rank), (output.m - 1) / ROWS);
        const uint8_t* const from_a = a.slices + entry * a.batch + (row * blocks + piece.first) * A_BYTES;
        const uint8_t* const from_b =
            b.slices + entry * b.batch + (static_cast<int64_t>(j) * blocks + piece.first) * B_BYTES;
        const int contributors = contributors_of(piece, pieces, blocks);
        for (int diagonal = 0; diagonal < SLICES; ++diagonal) {
          for (int s = 0; s < SLICES - diagonal; ++s) {
            if (rank == 0) together.begin(piece.tile);
            const From from = {from_a + s * a.slice, from_b + (diagonal + s) * b.slice};
            stages.copy(ring, from, piece.last - piece.first, rank);
          }
          copy_partial(stages, ring, partial, flags, contributors, diagonal);
        }
      }
    }
  } else {
    take_registers<232>();
    uint32_t d0[96], d1[96];
    Ring ring;
    uint32_t da, db;
    Piece piece = piece_of(0, pieces, blocks);
    if (piece.exists) stages.wait(ring);
    stages.descriptors(ring, da, db);
    multiply_half<int8_t>(d0, da, db, true);
    multiply_half<int8_t>(d1, da + HALF, db, true);
    for (int w = 1; piece.exists; ++w) {
      const Piece next = piece_of(w, pieces, blocks);
      int entry, i, j;
      locate(piece.tile, tiles, entry, i, j);
      // The exponents of the tile's columns, after all threads have read those of the tile before.
      named_barrier(1 + warpgroup, 128);
      for (int x = threadIdx.x % 128; x < COLS; x += 128)
        exponents[warpgroup][x] = output.nu[entry * output.nu_batch + smaller(j * COLS + x, output.n - 1)] * (1 << 20);
      named_barrier(1 + warpgroup, 128);
      const bool owner = piece.first == 0;
      const int contributors = contributors_of(piece, pieces, blocks);
#pragma unroll 1
      for (int pairs = SLICES; pairs > 0; --pairs) {  // a diagonal; its first block of k has been issued
        const bool finish = pairs == 1;  // the last diagonal
        // 1. Multiply.
        int last;
        multiply_blocks<int8_t>(stages, ring, pairs * (piece.last - piece.first), d0, d1, last);
        multiply_last_block<int8_t>(stages, ring, d0, d1);
        await_first_half(stages, ring, d0, last);
        const int diagonal = SLICES - pairs;
        // 2. Add contributions. They arrive in the ring, so every stage that wgmma still read is released first.
        if (contributors > 0) {
          wgmma_wait<0>();
          registers_ready(d1);
          stages.release(last);
          take_over(d0, d1, stages, ring, contributors, finish);
        }
        // 3. and 4. First half: digits aside, or round and store; the tensor cores work on d1.
        uint4* const to =
            owner ? own_digits(low, finish ? 0 : diagonal) : partial_of(partial, blockIdx.x, diagonal) + this_thread();
        if (!owner) hand_over(d0, to, finish);
        else if (!finish) store_bytes(d0, to, 0, true);
        else round_half(d0, to, result_of(piece.tile, tiles, output, exponents[warpgroup]), 0);
        carry(d0);
        // Issue the first half of the next diagonal, or of the next tile. After the last tile this multiplies stale
        // bytes of the ring, and nobody reads the result: with a branch here the compiler would serialise all wgmma.
        if (!finish || next.exists) stages.wait(ring);
        stages.descriptors(ring, da, db);
        multiply_half<int8_t>(d0, da, db, finish);
        wgmma_wait<1>();
        registers_ready(d1);
        if (contributors == 0) stages.release(last);
        // 3. and 4. The same for the second half; the tensor cores work on d0.
        if (!owner) hand_over(d1, to + 6 * 256, finish);
        else if (!finish) store_bytes(d1, to + 6 * 256, 0, true);
        else round_half(d1, to, result_of(piece.tile, tiles, output, exponents[warpgroup]), 1);
        carry(d1);
        wgmma_wait<0>();  // else the compiler takes the reads of d1 above for reads during the wgmma below
        multiply_half<int8_t>(d1, da + HALF, db, finish);
        if (!owner) signal_owner(flags, warpgroup, diagonal + 1);
      }
      piece = next;
    }
    wgmma_wait<0>();
  }
  cluster_barrier();  // no block exits while the other one may still copy into its shared memory or signal its barriers
}
