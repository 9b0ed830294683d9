// The worst ratio over a product of magnitudes that never leaves the registers (docs/design.md, section 9), on Hopper.
//
// Tiles, ring and launch as walk_sm90.cuh has them. result as Worst tells it; the caller sets it to zero
// first. Rows below `rows` and columns below `cols` count.
#include "launch.cuh"
#include "walk_sm90.cuh"
#include "worst.cuh"

// What happens to a tile's accumulators: float32 looks at all of them. Those that it leaves in doubt are kept aside, four
// columns of a row together, until it is through; then their registers are free for the exact comparison.
struct Compare {
  const Terms &p, &q;
  Atomic* result;
  int rows, cols;
  float below = 0;  // the worst ratio that is known, rounded down
  int entry, row, col;

  __device__ __forceinline__ void begin(int, int n, int64_t first_row, int j) {
    entry = n;
    row = static_cast<int>(first_row);
    col = j * COLS + threadIdx.x % 4 * 16;
  }

  template <int R> __device__ __forceinline__ void look(const uint32_t (&d)[R], int first) {
    const float* const p_above = p.above + entry * p.above_step;
    float of_row[2][3];
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int s = 0; s < 3; ++s) {
        const int r = row + first + 8 * h;
        of_row[h][s] = r < rows ? p_above[place_above(r, s)] : 0.0f;
      }

    // above - below L <= 0, all but L rounded up; L rounded to nearest, the cheapest way, is less than L (1 + 2^-22).
    const float factor = __fmul_rd(below, 1 - 0x1p-22f);
    const float* const q_above = q.above + entry * q.above_step + place_above(col, 0);
    uint2 kept[2][R / 4];  // pairs as the accumulators have them
    uint32_t doubtful = 0;
#pragma unroll
    for (int i = 0; i < R / 8; ++i) {
      float of_col[3][4];
#pragma unroll
      for (int s = 0; s < 3; ++s) {
        const float4 v = __ldg(reinterpret_cast<const float4*>(q_above + place_above(column(i), s)));
        of_col[s][0] = v.x, of_col[s][1] = v.y, of_col[s][2] = v.z, of_col[s][3] = v.w;
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        bool seen = true;
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          const uint32_t l = d[8 * i + 4 * (x / 2) + 2 * h + x % 2];
          float over = __fmul_ru(-factor, static_cast<float>(static_cast<int>(l)));
#pragma unroll
          for (int s = 0; s < 3; ++s) over = __fmaf_ru(of_row[h][s], of_col[s][x], over);
          seen = seen && over <= 0.0f;  // NaN is not
        }
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

  // Compute what is in doubt, four entries of every lane at a time, with what the warp has found meanwhile.
  template <int R>
  __device__ __forceinline__ void settle(const uint2 (&kept)[2][R / 4], uint32_t doubtful, int first_row) {
    Worst worst;
    worst.set(*static_cast<volatile Atomic*>(result));
    while (!__all_sync(ALL, doubtful == 0)) {
      if (doubtful != 0) {
        const int which = __ffs(static_cast<int>(doubtful)) - 1;
        doubtful &= doubtful - 1;
        const int r = first_row + 8 * (which & 1), c = col + column(which >> 1);
#pragma unroll 1
        for (int x = 0; x < 4 && r < rows; ++x) {
          const int l = static_cast<int>(x % 2 == 0 ? kept[x / 2][which].x : kept[x / 2][which].y);
          float above = 0;
#pragma unroll
          for (int s = 0; s < 3; ++s)
            above = __fmaf_ru(p.above[entry * p.above_step + place_above(r, s)],
                              q.above[entry * q.above_step + place_above(c + x, s)], above);
          if (above <= __fmul_rd(worst.below, __int2float_rd(l)) || c + x >= cols) continue;
          worst.see(numerator(p, q, entry, r, c + x), l);
        }
      }
      worst.share();
    }
    worst.tell(result);
    below = worst.below;
  }

  // Four columns of a thread, from `col` on.
  __device__ __forceinline__ static int column(int i) { return 64 * (i / 4) + 4 * (i % 4); }
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
proof_gemm(const Operand a, const Operand b, const Terms p, const Terms q, Atomic* result, int rows, int cols, int blocks,
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
    Compare compare{p, q, result, rows, cols};
    multiply_tiles(wide_tiles(work, tiles), stages, ring, blocks, compare);
    multiply_tiles(narrow_tiles(work, tiles), stages, ring, blocks, compare);
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
