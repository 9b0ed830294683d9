// Residue products on Hopper: y_t = (A_t B_t) mod m_t for all moduli in one launch, int32 never leaves the registers.
//
// Tiles, ring and launch as walk_sm90.cuh has them.
//
// y: bytes, planes y_stride apart, batch entries y_batch, [rows][ld], ld a multiple of 192; rows < rows_stored are
// stored; with the macro ACCUMULATE added to what is there, modulo m_t.
#include "hardware/launch.cuh"
#include "products/places_sm90.cuh"
#include "arithmetic/residues.cuh"
#include "products/walk_sm90.cuh"

// Reduce one half and store it: thread (warp w, lane) has rows 16 w + lane / 4 + {0, 8} and, of every 64 columns, the
// 16 from 16 (lane % 4) on. `rows` are left from its first one on.
template <int R>
__device__ __forceinline__ void reduce_half(const uint32_t (&d)[R], uint8_t* y, int64_t ld, int rows,
                                            const AccumulatorModulus& m) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool stored = 8 * h < rows;
    uint8_t* const at = y + 8 * h * ld;
#pragma unroll
    for (int g = 0; g < R / 32; ++g) {
      uint32_t word[4];
#pragma unroll
      for (int z = 0; z < 4; ++z) {
        const int first = (g * 8 + z * 2) * 4 + h * 2;
        word[z] = four_residues(d[first], d[first + 1], d[first + 4], d[first + 5], m);
      }
      uint4* const out = reinterpret_cast<uint4*>(at + g * 64);
#if ACCUMULATE
      const uint4 old = stored ? *out : make_uint4(0, 0, 0, 0);
      const uint32_t before[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
      for (int z = 0; z < 4; ++z) word[z] = add_four_residues(word[z], before[z], m.modulus);
#endif
      if (stored) __stcs(out, make_uint4(word[0], word[1], word[2], word[3]));
    }
  }
}

// What happens to a tile's accumulators.
struct Store {
  uint8_t* y;
  int64_t y_stride, y_batch, ld;
  int rows_stored;
  const AccumulatorModuli& moduli;
  AccumulatorModulus m;
  int rows;
  uint8_t* at;

  __device__ __forceinline__ void begin(int t, int n, int first_row, int j) {
    m = moduli.of[t];
    rows = rows_stored - first_row;
    at = y + t * y_stride + n * y_batch + first_row * ld + static_cast<int64_t>(j) * STRIP + threadIdx.x % 4 * 16;
  }
  template <int R> __device__ __forceinline__ void look(const uint32_t (&d)[R], int first) const {
    reduce_half(d, at + first * ld, ld, rows - first, m);
  }
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
residue_gemm(const Operand a, const Operand b, uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld,
             int rows_stored, int blocks, int k_blocks, const Together together, const __grid_constant__ Places places,
             const Work work, const Tiles tiles, const AccumulatorModuli moduli) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ __align__(16) Told told[STAGES];
  __shared__ int place;
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();
  take_place(places, place);

  if (threadIdx.x / 128 == CONSUMERS) {
    keep_registers<56>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      const int cluster = place_of(places, place);
      copy_tiles(wide_tiles(work, tiles, cluster), stages, ring, told, a, b, blocks, k_blocks, together);
      copy_tiles(narrow_tiles(work, tiles, cluster), stages, ring, told, a, b, blocks, k_blocks, {nullptr, 0});
    }
  } else {
    take_registers<224>();
    Ring ring;
    Store store{y, y_stride, y_batch, ld, rows_stored, moduli};
    multiply_tiles(wide_tiles(work, tiles, place_of(places, place)), stages, ring, told, blocks, store);
    multiply_tiles(narrow_tiles(work, tiles, place_of(places, place)), stages, ring, told, blocks, store);
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
