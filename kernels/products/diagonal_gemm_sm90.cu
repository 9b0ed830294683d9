// The product of two operands in many digits on Hopper, rounded: C = RN(V 2^(factor - mu_i - nu_j)), factor =
// DIGIT_BITS (SLICES - 1). Neither diagonals nor digits of the product reach memory.
//
// Macros: OUTPUT (double or float); SLICES, 4 to 7; DIGIT_BITS (8 or 7).
//
// Tiles, ring and launch as ring_sm90.cuh has them; slices are digits, the most significant first on the left, last on
// the right. A tile is multiplied diagonal by diagonal, the least significant first; between them the accumulators are
// carried on (diagonals.cuh), and the digits left behind go to `low`: 16-byte pieces, 12 for each diagonal but the last
// and each of 256 threads, of every block of the grid. A half is carried, or rounded and stored, while the other one
// multiplies.
//
// The last tiles may be split along k (pieces.cuh). The cluster with the beginning of a tile is its owner. The others
// leave what they have in `partial`, as digits and at last accumulators, (12 for each diagonal but the last) + 48
// pieces of 16 bytes for each thread of every block, and count diagonals in `flags`, two for each block, zero before.
// The owner's producer copies them into the ring, in the order in which they are added.
//
// Float64 results that may not be normal numbers are left to digit_far_sm90.cu.
//
// `blocks`: blocks of k, two at least. SLICES (2^DIGIT_BITS)^2 / 4 * 128 blocks must stay below
// 2^31 (1 - 2^-DIGIT_BITS).
#include "arithmetic/diagonals.cuh"
#include "hardware/launch.cuh"
#include "products/pieces.cuh"
#include "products/ring_sm90.cuh"

constexpr int LOWS = low_words(SLICES);

// One half of the accumulators of a thread: of rows 16 warp + lane / 4 + {0, 8}, and of every 16 columns the 4 from
// 4 (lane % 4) on (`accumulator` in pieces.cuh). Of piece (h, g): row h, groups 4 g .. 4 g + 3.
__device__ __forceinline__ uint4* partial_of(uint4* partial, int block, int diagonal) {
  return partial + (block * (12 * (SLICES - 1) + 48) + 12 * diagonal) * 256;
}
__device__ __forceinline__ uint4* own_digits(uint4* low, int diagonal) {
  return low + (blockIdx.x * (12 * LOWS) + 12 * diagonal) * 256 + this_thread();
}

// Store byte `j` (a constant) of each accumulator of one half; its digit below the unit of the next diagonal, if
// `digit`.
__device__ __forceinline__ void store_bytes(const uint32_t (&d)[96], uint4* to, int j, bool digit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int g = 0; g < 3; ++g)
      __stcg(to + (h * 3 + g) * 256, bytes_of_groups(d, h, g, j, DIGIT_BITS == 7 && digit ? 0x7f7f7f7fu : ~0u));
}
constexpr int PARTIAL = 12 * 256 * 16;  // bytes of a tile, one for each entry, those of the first half first

// Add bytes times `unit` that lie in a stage as another cluster stored those of one half.
__device__ __forceinline__ void add_bytes(uint32_t (&d)[96], uint32_t from, uint32_t unit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int g = 0; g < 3; ++g) add_to_groups(d, h, g, from + (h * 3 + g) * (256 * 16), unit);
}
// What a cluster leaves of one half for the owner: a digit of each entry, or four bytes of the last diagonal.
__device__ __forceinline__ void hand_over(const uint32_t (&d)[96], uint4* to, bool over) {
  store_bytes(d, to, 0, !over);
  if (!over) return;
#pragma unroll
  for (int j = 1; j < 4; ++j) store_bytes(d, to + j * (12 * 256), j, false);
}
__device__ __forceinline__ constexpr int bytes_handed_over(bool over) { return over ? 4 : 1; }
__device__ __forceinline__ void take_over(uint32_t (&d0)[96], uint32_t (&d1)[96], const Stages& stages, Ring& ring,
                                          int contributors, bool over) {
  const int each = bytes_handed_over(over);
#pragma unroll 1
  for (int i = 0; i < contributors * each; ++i, ring.next()) {
    const uint32_t from = stages.data + ring.stage * STAGE_BYTES + 16 * this_thread(), unit = 1u << (8 * (i % each));
    stages.wait(ring);
    add_bytes(d0, from, unit);
    add_bytes(d1, from + PARTIAL / 2, unit);
    stages.release_own(ring.stage);
  }
}
// By the producer: the same bytes, to the stages that come next in the ring.
__device__ __forceinline__ void copy_partial(const Stages& stages, Ring& ring, uint4* partial, const uint32_t* flags,
                                             int contributors, int diagonal) {
  for (int h = 1; h <= contributors; ++h) {
    const int block = blockIdx.x - 2 * h;
    wait_for_contributor(flags, block, diagonal + 1);
    for (int j = 0; j < bytes_handed_over(diagonal == SLICES - 1); ++j, ring.next())
      stages.copy_bytes(ring, partial_of(partial, block, diagonal + j), PARTIAL);
  }
}

// Carry the rest to the next diagonal.
__device__ __forceinline__ void carry(uint32_t (&d)[96]) {
#pragma unroll
  for (int i = 0; i < 96; ++i) d[i] = static_cast<uint32_t>(static_cast<int32_t>(d[i]) >> DIGIT_BITS);
}

// Where a thread's part of a tile goes.
struct Result {
  OUTPUT* c;           // its first entry
  int64_t row_stride;
  int rows, columns;   // that are left from there on
  int exponents[4];    // of its rows 0, 8, 64, 72, in the place of the exponent of a float64
  uint32_t nu;         // of its columns, likewise, in shared memory
};

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

// Round and store half `half`.
__device__ __forceinline__ void round_half(const uint32_t (&d)[96], const uint4* low, const Result& result, int half) {
#pragma unroll
  for (int piece = 0; piece < 6; ++piece) {
    const int h = piece / 3, g = piece % 3, row = 64 * half + 8 * h;
    const uint4* const from = low + (half * 6 + piece) * 256;
    const auto round_four = [&](int z, OUTPUT (&value)[4]) {
      uint32_t four[LOWS];  // (no registers for all of a piece)
#pragma unroll
      for (int i = 0; i < LOWS; ++i)
        four[i] = load_word(reinterpret_cast<const uint32_t*>(from + i * (12 * 256)) + z);
      int exponents[4];
      load_again(result.nu + 4 * (64 * g + 16 * z), exponents);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int32_t top = static_cast<int32_t>(d[accumulator(h, 4 * g + z, x)]);
        const double power = double_of_words(static_cast<uint32_t>(result.exponents[2 * half + h] - exponents[x]), 0);
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
        const int64_t row = smaller(2 * i + static_cast<int>(rank), (output.m - 1) / ROWS);  // if not there, not stored
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
      named_barrier(1 + warpgroup, 128);
      for (int x = threadIdx.x % 128; x < COLS; x += 128)
        exponents[warpgroup][x] = output.nu[entry * output.nu_batch + smaller(j * COLS + x, output.n - 1)] * (1 << 20);
      named_barrier(1 + warpgroup, 128);
      const bool owner = piece.first == 0;
      const int contributors = contributors_of(piece, pieces, blocks);
#pragma unroll 1
      for (int pairs = SLICES; pairs > 0; --pairs) {  // a diagonal, whose first block is under way
        const bool over = pairs == 1;
        int last;
        multiply_blocks<int8_t>(stages, ring, pairs * (piece.last - piece.first), d0, d1, last);
        multiply_last_block<int8_t>(stages, ring, d0, d1);
        await_first_half(stages, ring, d0, last);
        const int diagonal = SLICES - pairs;
        if (contributors > 0) {  // all stages that are under way are needed
          wgmma_wait<0>();
          registers_ready(d1);
          stages.release(last);
          take_over(d0, d1, stages, ring, contributors, over);
        }
        uint4* const to =
            owner ? own_digits(low, over ? 0 : diagonal) : partial_of(partial, blockIdx.x, diagonal) + this_thread();
        if (!owner) hand_over(d0, to, over);
        else if (!over) store_bytes(d0, to, 0, true);
        else round_half(d0, to, result_of(piece.tile, tiles, output, exponents[warpgroup]), 0);
        carry(d0);
        // After the last tile this multiplies stale bytes, for nothing: a branch here would make the compiler wait for
        // every wgmma in turn.
        if (!over || next.exists) stages.wait(ring);
        stages.descriptors(ring, da, db);
        multiply_half<int8_t>(d0, da, db, over);
        wgmma_wait<1>();
        registers_ready(d1);
        if (contributors == 0) stages.release(last);
        if (!owner) hand_over(d1, to + 6 * 256, over);
        else if (!over) store_bytes(d1, to + 6 * 256, 0, true);
        else round_half(d1, to, result_of(piece.tile, tiles, output, exponents[warpgroup]), 1);
        carry(d1);
        wgmma_wait<0>();  // else the compiler takes the reads of d1 above for reads in the stage that begins below
        multiply_half<int8_t>(d1, da + HALF, db, over);
        if (!owner) tell_owner(flags, warpgroup, diagonal + 1);
      }
      piece = next;
    }
    wgmma_wait<0>();
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
