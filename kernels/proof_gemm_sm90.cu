// The worst ratio over a product of magnitudes that never leaves the registers (docs/design.md, section 9), on Hopper.
//
// Macros: TERMS: 3, or 2 where all third terms of p are zero.
//
// Tiles, ring and launch as walk_sm90.cuh has them. result as Worst tells it; the caller sets it to zero
// first. Rows below `rows` count; the terms of columns that do not are zero.
#include "launch.cuh"
#include "walk_sm90.cuh"
#include "worst.cuh"

// What happens to a tile's accumulators: float32 looks at all of them. Those that it leaves in doubt are kept aside, four
// columns of a row together, until it is through; then their registers are free for the exact comparison.
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
    float of_row[2][TERMS], of_col[TERMS][4];
    row_terms(row + first, of_row);
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

  // AT_ONCE times four entries of every lane: compute what is still in doubt with what the warp has found meanwhile.
  template <int R>
  __device__ __forceinline__ void settle(const uint2 (&kept)[2][R / 4], uint32_t doubtful, int first_row) {
    Worst worst;
    worst.set(*static_cast<volatile Atomic*>(result));
    float of_row[2][TERMS];
    row_terms(first_row, of_row);
    while (!__all_sync(ALL, doubtful == 0)) {
      int which[AT_ONCE];
      uint32_t l[AT_ONCE][4] = {};
      float of_col[AT_ONCE][TERMS][4] = {};
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u, doubtful &= doubtful - 1) {
        which[u] = __ffs(static_cast<int>(doubtful)) - 1;
        if (which[u] < 0) continue;
        column_terms(which[u] >> 1, of_col[u]);
#pragma unroll
        for (int x = 0; x < 4; ++x) l[u][x] = kept_entry<R>(kept, which[u], x);
      }
      if (worst.below == 0) {  // all are in doubt: first the one that float32 takes for the worst
        float most = 0, of = 1;
        int where = -1;
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
#pragma unroll
          for (int x = 0; x < 4; ++x) {
            const float above = over(of_row[which[u] & 1], of_col[u], x, 0, 0.0f);
            const float other = static_cast<float>(static_cast<int>(l[u][x]));
            if (other > 0 && above * of > most * other) most = above, of = other, where = 4 * u + x;
          }
        if (where >= 0) see<R>(worst, kept, which, where, first_row);
        worst.share();
      }
      const float slope = slope_of(worst.below);
      uint32_t left = 0;
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u)
#pragma unroll
        for (int x = 0; x < 4; ++x)
          if (which[u] >= 0 && !shown(of_row[which[u] & 1], of_col[u], x, l[u][x], slope)) left |= 1u << (4 * u + x);
      if (__all_sync(ALL, left == 0)) continue;
#pragma unroll 1
      for (; left != 0; left &= left - 1) see<R>(worst, kept, which, __ffs(static_cast<int>(left)) - 1, first_row);
      worst.share();
    }
    worst.tell(result);
    below = worst.below;
  }
  static constexpr int AT_ONCE = 4;

  template <int R>
  __device__ __forceinline__ static uint32_t kept_entry(const uint2 (&kept)[2][R / 4], int which, int x) {
    const uint2 pair = kept[x >> 1][which];
    return x & 1 ? pair.y : pair.x;
  }
  // Number `where` of those that are looked at at once.
  template <int R>
  __device__ __forceinline__ void see(Worst& worst, const uint2 (&kept)[2][R / 4], const int (&which)[AT_ONCE], int where,
                                      int first_row) const {
    int of = which[0];
#pragma unroll
    for (int u = 1; u < AT_ONCE; ++u) of = where / 4 == u ? which[u] : of;
    worst.see(numerator(p, q, entry, first_row + 8 * (of & 1), col + column(of >> 1) + where % 4),
              static_cast<int>(kept_entry<R>(kept, of, where % 4)));
  }

  // Of rows r and r + 8; zero where they do not count, so that nothing there is in doubt.
  __device__ __forceinline__ void row_terms(int r, float (&terms)[2][TERMS]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int s = 0; s < TERMS; ++s)
        terms[h][s] = r + 8 * h < rows ? __ldg(p.above + entry * p.above_step + place_above(r + 8 * h, s)) : 0.0f;
  }
  // Of the i-th four columns of a thread.
  __device__ __forceinline__ void column_terms(int i, float (&terms)[TERMS][4]) const {
    const float* const from = q.above + entry * q.above_step + place_above(col, 0) + place_above(column(i), 0);
#pragma unroll
    for (int s = 0; s < TERMS; ++s) {
      const float4 v = __ldg(reinterpret_cast<const float4*>(from) + s);
      terms[s][0] = v.x, terms[s][1] = v.y, terms[s][2] = v.z, terms[s][3] = v.w;
    }
  }
  __device__ __forceinline__ static int column(int i) { return 64 * (i / 4) + 4 * (i % 4); }

  // L is rounded to nearest, the cheapest way, to less than L (1 + 2^-22); all else of above - best L is rounded up.
  __device__ __forceinline__ static float slope_of(float best) { return -__fmul_rd(best, 1 - 0x1p-22f); }
  __device__ __forceinline__ static float over(const float (&of_row)[TERMS], const float (&of_col)[TERMS][4], int x, uint32_t l,
                                               float slope) {
    float sum = __fmul_ru(slope, static_cast<float>(static_cast<int>(l)));
#pragma unroll
    for (int s = 0; s < TERMS; ++s) sum = __fmaf_ru(of_row[s], of_col[s][x], sum);
    return sum;
  }
  __device__ __forceinline__ static bool shown(const float (&of_row)[TERMS], const float (&of_col)[TERMS][4], int x, uint32_t l,
                                               float slope) {
    return over(of_row, of_col, x, l, slope) <= 0.0f;  // NaN is not
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
