// The worst ratio over a product of magnitudes that never leaves the registers (docs/design.md, section 9), on Hopper.
//
// Tiles, ring and launch as walk_sm90.cuh has them. result as Worst tells it; the caller sets it to zero
// first. Rows below `rows` count; the terms of columns that do not are zero.
#include "launch.cuh"
#include "walk_sm90.cuh"
#include "worst.cuh"

// What happens to a tile's accumulators: float32 looks at all of them. Those that it leaves in doubt are kept aside,
// four columns of a row together, until it is through; then their registers are free for the exact comparison.
struct Compare {
  const Terms &p, &q;
  Atomic* result;
  int rows;
  float below = 0;  // the worst ratio that is known, rounded down
  int entry, row, col;

  __device__ __forceinline__ void begin(int, int n, int64_t first_row, int j) {
    entry = n;
    row = static_cast<int>(first_row);
    col = j * COLS + threadIdx.x % 4 * 16;
  }

  template <int R> __device__ __forceinline__ void look(const uint32_t (&d)[R], int first) {
    float of_row[2][3], of_col[3][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool counts = row + first + 8 * h < rows;  // else nothing there will be in doubt
#pragma unroll
      for (int s = 0; s < 3; ++s) of_row[h][s] = counts ? row_term(row + first + 8 * h, s) : 0.0f;
    }
    const float slope = slope_of(below);
    uint2 kept[2][R / 4];  // pairs as the accumulators have them
    uint32_t doubtful = 0;
#pragma unroll
    for (int i = 0; i < R / 8; ++i) {
      column_terms(i, of_col);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        bool seen = true;
#pragma unroll
        for (int x = 0; x < 4; ++x)
          seen = seen & shown(of_row[h], of_col, x, d[8 * i + 4 * (x / 2) + 2 * h + x % 2], slope);  // all of them at once
        if (!seen) {
#pragma unroll
          for (int x = 0; x < 2; ++x)
            kept[x][2 * i + h] = make_uint2(d[8 * i + 4 * x + 2 * h], d[8 * i + 4 * x + 2 * h + 1]);
          doubtful |= 1u << (2 * i + h);
        }
      }
    }
    if (!__all_sync(ALL, doubtful == 0)) settle<R>(kept, doubtful, row + first);
  }

  // Four entries of every lane at a time: compute what is still in doubt with what the warp has found meanwhile.
  template <int R>
  __device__ __forceinline__ void settle(const uint2 (&kept)[2][R / 4], uint32_t doubtful, int first_row) {
    Worst worst;
    worst.set(*static_cast<volatile Atomic*>(result));
    while (!__all_sync(ALL, doubtful == 0)) {
      const int which = doubtful != 0 ? __ffs(static_cast<int>(doubtful)) - 1 : 0;
      const int r = first_row + 8 * (which & 1), c = col + column(which >> 1);
      const uint32_t l[4] = {kept[0][which].x, kept[0][which].y, kept[1][which].x, kept[1][which].y};
      uint32_t left = 0;
      if (doubtful != 0) {
        float of_row[3], of_col[3][4];
        column_terms(which >> 1, of_col);
#pragma unroll
        for (int s = 0; s < 3; ++s) of_row[s] = row_term(r, s);
        const float slope = slope_of(worst.below);
#pragma unroll
        for (int x = 0; x < 4; ++x)
          if (!shown(of_row, of_col, x, l[x], slope)) left |= 1u << x;
        doubtful &= doubtful - 1;
      }
      if (__all_sync(ALL, left == 0)) continue;
#pragma unroll 1
      for (; left != 0; left &= left - 1) {
        const int x = __ffs(static_cast<int>(left)) - 1;
        worst.see(numerator(p, q, entry, r, c + x), static_cast<int>(x < 2 ? x == 0 ? l[0] : l[1] : x == 2 ? l[2] : l[3]));
      }
      worst.share();
    }
    worst.tell(result);
    below = worst.below;
  }

  __device__ __forceinline__ float row_term(int r, int s) const {
    return __ldg(p.above + entry * p.above_step + place_above(r, s));
  }
  // Of the i-th four columns of a thread.
  __device__ __forceinline__ void column_terms(int i, float (&terms)[3][4]) const {
    const float* const from = q.above + entry * q.above_step + place_above(col, 0) + place_above(column(i), 0);
#pragma unroll
    for (int s = 0; s < 3; ++s) {
      const float4 v = __ldg(reinterpret_cast<const float4*>(from) + s);
      terms[s][0] = v.x, terms[s][1] = v.y, terms[s][2] = v.z, terms[s][3] = v.w;
    }
  }
  __device__ __forceinline__ static int column(int i) { return 64 * (i / 4) + 4 * (i % 4); }

  // L is rounded to nearest, the cheapest way, to less than L (1 + 2^-22); all else of above - best L is rounded up.
  __device__ __forceinline__ static float slope_of(float best) { return -__fmul_rd(best, 1 - 0x1p-22f); }
  __device__ __forceinline__ static bool shown(const float (&of_row)[3], const float (&of_col)[3][4], int x, uint32_t l,
                                               float slope) {
    float over = __fmul_ru(slope, static_cast<float>(static_cast<int>(l)));
#pragma unroll
    for (int s = 0; s < 3; ++s) over = __fmaf_ru(of_row[s], of_col[s][x], over);
    return over <= 0.0f;  // NaN is not
  }
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
proof_gemm(const Operand a, const Operand b, const Terms p, const Terms q, Atomic* result, int rows, int blocks,
           int k_blocks, const Work work, const Tiles tiles) {
  after_previous();
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);

  if (threadIdx.x / 128 == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      copy_tiles(wide_tiles(work, tiles), stages, ring, a, b, blocks, k_blocks);
      copy_tiles(narrow_tiles(work, tiles), stages, ring, a, b, blocks, k_blocks);
    }
  } else {
    take_registers<232>();
    Ring ring;
    Compare compare{p, q, result, rows};
    multiply_tiles(wide_tiles(work, tiles), stages, ring, blocks, compare);
    multiply_tiles(narrow_tiles(work, tiles), stages, ring, blocks, compare);
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
