// Residue products on Hopper, all moduli in one launch: y_t = (A_t B_t) mod m_t, with A_t and B_t the residue slices of
// modulus m_t as unsigned bytes. The 32-bit accumulators are reduced modulo m_t in registers and never reach memory.
//
// Shapes: A_t (rows x k), B_t (k x columns) in tiles (ring_sm90.cuh), batch entries and moduli in one list of matrices.
// y holds bytes in [0, m_t): y[t * y_stride + n * y_batch + row * ld + column], ld a multiple of 192 that covers whole
// pairs of tiles; rows below rows_stored are stored. With the macro ACCUMULATE = 1 the products are added to the y that
// is there, modulo m_t (a further part of k). k is limited by the host so that the sum of k products of two bytes stays
// below 2^32.
//
// With the macro PAIRS = 1 the moduli are above 256, slices are digits or sums of two digits, and what is stored or
// added is c_t (A_t B_t) mod m_t, c_t folded into the constants: low bytes in y as above, high bytes y_high further on.
//
// With the macro TRIANGLE = 1 both operands have the same rows, and tiles above the diagonal are left out.
//
// Launch, blocks, clusters, ring: see ring_sm90.cuh; wide and narrow tiles: see walk_sm90.cuh. Phases:
// 1. All threads: initialise barriers, wait for the kernel before, take a place in the order of tiles
//    (places_sm90.cuh).
// 2. Producer (one thread): copy the operand blocks of all wide tiles, then of all narrow ones.
// 3. Consumers: multiply them; of each finished half tile reduce the accumulators to bytes and store them, while the
//    tensor cores work on the other half.
#include "hardware/launch.cuh"
#include "products/places_sm90.cuh"
#include "arithmetic/residues.cuh"
#include "products/walk_sm90.cuh"

#if PAIRS
typedef PairModuli Moduli;
typedef PairModulus Modulus;

// Reduces four accumulators; `low` and `high` receive the bytes of the residues and, with ACCUMULATE, hold those of the
// residues to add before.
__device__ __forceinline__ void reduce_four(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3, const Modulus& m,
                                            uint32_t& low, uint32_t& high) {
  const uint32_t x[4] = {x0, x1, x2, x3};
  uint32_t r[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) r[i] = pair_residue(x[i], ACCUMULATE ? pair_of(low, high, i) : 0, m);
  const uint32_t first = interleaved_bytes(r[0], r[1], 0), second = interleaved_bytes(r[2], r[3], 0);
  low = (first & 0xffffu) | second << 16;
  high = first >> 16 | (second & 0xffff0000u);
}
#else
typedef AccumulatorModuli Moduli;
typedef AccumulatorModulus Modulus;
#endif

// Reduces the accumulators of one half of a tile modulo m and stores them. Thread (warp w, lane) has rows 16 w + lane /
// 4 + {0, 8} and, of every 64 columns, the 16 from 16 (lane % 4) on: one 16-byte store for each row and 64 columns. y
// points to the thread's first byte; `rows` rows are left from its first row on (may be <= 0).
template <int R>
__device__ __forceinline__ void reduce_half(const uint32_t (&d)[R], uint8_t* y, int64_t y_high, int64_t ld, int rows,
                                            const Modulus& m) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool stored = 8 * h < rows;
    uint8_t* const at = y + 8 * h * ld;
#pragma unroll
    for (int g = 0; g < R / 32; ++g) {
      uint32_t packed[4];
#if PAIRS
      uint4* const low = reinterpret_cast<uint4*>(at + g * 64);
      uint4* const high = reinterpret_cast<uint4*>(at + g * 64 + y_high);
      const uint4 zero = make_uint4(0, 0, 0, 0), old_low = ACCUMULATE && stored ? *low : zero;
      const uint4 old_high = ACCUMULATE && stored ? *high : zero;
      uint32_t packed_high[4] = {old_high.x, old_high.y, old_high.z, old_high.w};
      packed[0] = old_low.x, packed[1] = old_low.y, packed[2] = old_low.z, packed[3] = old_low.w;
#pragma unroll
      for (int z = 0; z < 4; ++z) {
        const int first = (g * 8 + z * 2) * 4 + h * 2;
        reduce_four(d[first], d[first + 1], d[first + 4], d[first + 5], m, packed[z], packed_high[z]);
      }
      if (stored) {
        __stcs(low, make_uint4(packed[0], packed[1], packed[2], packed[3]));
        __stcs(high, make_uint4(packed_high[0], packed_high[1], packed_high[2], packed_high[3]));
      }
#else
#pragma unroll
      for (int z = 0; z < 4; ++z) {
        const int first = (g * 8 + z * 2) * 4 + h * 2;
        packed[z] = four_residues(d[first], d[first + 1], d[first + 4], d[first + 5], m);
      }
      uint4* const out = reinterpret_cast<uint4*>(at + g * 64);
#if ACCUMULATE
      const uint4 old = stored ? *out : make_uint4(0, 0, 0, 0);
      const uint32_t before[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
      for (int z = 0; z < 4; ++z) packed[z] = add_four_residues(packed[z], before[z], m.modulus);
#endif
      if (stored) __stcs(out, make_uint4(packed[0], packed[1], packed[2], packed[3]));
#endif
    }
  }
}

// The epilogue of multiply_tiles. begin() computes the thread's address and modulus for a tile; consume() reduces and
// stores one half.
struct Store {
  uint8_t* y;
  int64_t y_stride, y_batch, ld, y_high;
  int rows_stored;
  const Moduli& moduli;
  Modulus m;      // of the tile at hand, as the two below
  int rows;       // left from the thread's first row on
  uint8_t* at;    // where the thread's first byte goes

  __device__ __forceinline__ void begin(int t, int n, int first_row, int j) {
    m = moduli.of[t];
    rows = rows_stored - first_row;
    at = y + t * y_stride + n * y_batch + first_row * ld + static_cast<int64_t>(j) * STRIP + threadIdx.x % 4 * 16;
  }
  template <int R> __device__ __forceinline__ void consume(const uint32_t (&d)[R], int first) const {
    reduce_half(d, at + first * ld, y_high, ld, rows - first, m);
  }
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
residue_gemm(const Operand a, const Operand b, uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld,
             int64_t y_high, int rows_stored, int blocks, int k_blocks, const Together together,
             const __grid_constant__ Places places, const Work work, const Tiles tiles, const Moduli moduli) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ __align__(16) Tile tile_of_stage[STAGES];
  __shared__ int place;
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();
  // 1. A place in the order of tiles.
  take_place(places, place);

  // 2. and 3. Producer and consumers.
  if (threadIdx.x / 128 == CONSUMERS) {
    keep_registers<56>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      const int cluster = place_of(places, place);
      copy_tiles(wide_tiles(work, tiles, cluster), stages, ring, tile_of_stage, a, b, blocks, k_blocks, together);
      copy_tiles(narrow_tiles(work, tiles, cluster), stages, ring, tile_of_stage, a, b, blocks, k_blocks, {nullptr, 0});
    }
  } else {
    take_registers<224>();
    Ring ring;
    Store store{y, y_stride, y_batch, ld, y_high, rows_stored, moduli};
    multiply_tiles(wide_tiles(work, tiles, place_of(places, place)), stages, ring, tile_of_stage, blocks, store);
    multiply_tiles(narrow_tiles(work, tiles, place_of(places, place)), stages, ring, tile_of_stage, blocks, store);
  }
  cluster_barrier();  // no block exits while the other one may still copy into its shared memory or signal its barriers
}
