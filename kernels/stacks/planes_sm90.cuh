// Slices in shared memory as wgmma reads them, and products of 64 x (8 EIGHTS) of C by a warpgroup.
//
// Macros: those of stack.cu.
//
// A plane has 128 bytes of each line, rows of C before columns, swizzled by 128 bytes: of one modulus, or with k = 64
// of two. A lane has 4 bytes of each of four pieces, 16 in all, which it stores at a time: so the bytes of 64 inner
// indices, of A and of B, are in the order of lanes, and then of pieces. Reading fragments for mma.sync takes three
// times the bandwidth of shared memory, which is what stopped products with k = 128.
#pragma once
#include "hardware/ptx.cuh"
#include "stacks/residue_slices.cuh"

struct Planes {
  static constexpr int LENGTH = 64 * SHARED_BY, OF_PLANE = 128 / LENGTH, COUNT = (SLICES + OF_PLANE - 1) / OF_PLANE;
  static constexpr int BYTES = 128 * (BLOCK_ROWS + BLOCK_COLS);

  // By one warp: its part of the lines of a unit, one half of them after the other, which need not be held any longer
  // then.
  template <typename OfLines>
  static __device__ __forceinline__ void write(uint8_t* planes, const OfLines& lines, int unit, int part,
                                               const Constants& constants) {
    const int line = line_of_lane(), h = threadIdx.x & 3;
    uint8_t* const to = planes + 2048 * unit + 128 * line;
    const int own = 16 * (h ^ line), first = own ^ 64 * part, second = own ^ 64;  // of moduli of odd index if k = 64
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int t = 0; t < SLICES; ++t) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = lines.slice(r, i, t, constants);
        uint8_t* const at = to + t / OF_PLANE * BYTES + 1024 * r + (t % OF_PLANE == 0 ? first : second);
        *reinterpret_cast<uint4*>(at) = make_uint4(x[0], x[1], x[2], x[3]);
      }
  }

  // By a warpgroup: the products of all rows and of the columns from `col` on, while the accumulators of the modulus
  // before are added to what is kept of entries.
  static __device__ __forceinline__ void multiply(Entry (&entries)[4 * EIGHTS], const uint8_t* planes, int col,
                                                  const Constants& constants) {
    const uint32_t a = tile_descriptor(shared_address(planes)), b = a + 8 * (BLOCK_ROWS + col);
    uint32_t d[2][4 * EIGHTS];
    const auto begin = [&](int t) {
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < LENGTH / 32; ++step) {
        const uint32_t at = (t / OF_PLANE * BYTES + t % OF_PLANE * LENGTH + 32 * step) / 16;
        wgmma_bytes<uint8_t>(d[t % 2], a + at, b + at, step > 0);
      }
      wgmma_commit();
    };
    begin(0);
#pragma unroll
    for (int t = 0; t < SLICES; ++t) {
      if (t + 1 < SLICES) {
        begin(t + 1);
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      registers_ready(d[t % 2]);
#pragma unroll
      for (int j = 0; j < 4 * EIGHTS; ++j) entries[j].sums[0].add(t, d[t % 2][j], constants.grouped);
    }
  }
};
