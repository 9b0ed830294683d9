// The worst ratio over a product of magnitudes that never leaves the registers (docs/design.md, section 9), on Hopper.
//
// Ring and launch as walk_sm90.cuh has them; two looks, each with its tiles, the second one's after the first one's,
// or none.
#include "hardware/launch.cuh"
#include "products/walk_sm90.cuh"
#include "arithmetic/worst.cuh"

// result as Worst tells it; the caller sets it to zero first. Rows below `rows` count; the terms of columns that do not
// are zero.
struct Look {
  Terms p, q;
  Atomic* result;
  int64_t rows;
};
struct Looks {
  Look of[2];
};

// Where a tile's modulus would be, the number of its look.
template <int R> struct WalkOfLooks : Walk<R> {
  int of_first;  // tiles
  Tiles second;

  __device__ __forceinline__ void locate(int w, int& t, int& n, int& i, int& j) const {
    int column;
    t = w < of_first ? 0 : 1;
    ::locate(w - t * of_first, t == 0 ? this->tiles : second, n, i, column);
    j = this->first_strip(column);
  }
};
template <int R> __device__ __forceinline__ WalkOfLooks<R> both(const Walk<R>& first, const Tiles& second) {
  const int matrices = first.tiles.batch * first.tiles.rows;
  return {first, matrices * first.tiles.columns, {second.rows, first.tiles.columns, second.group, second.batch}};
}

// What happens to a tile's accumulators: float32 looks at all of them, 16 columns at a time with their largest
// quotients, which show no less than each column's own terms. Those that it leaves in doubt are kept aside, four
// columns of a row together, until the 16 are through; then registers are free for an entry's own terms, and for the
// exact comparison.
struct Compare {
  const Looks& looks;
  int which = 0;    // of them
  float below = 0;  // the worst ratio that is known, rounded down
  int entry, row, col;

  __device__ __forceinline__ void begin(int t, int n, int first_row, int j) {
    if (t != which) {
      which = t;
      Worst worst;
      worst.set(*static_cast<volatile Atomic*>(look_of().result));
      below = worst.below;
    }
    entry = n;
    row = first_row;
    col = j * STRIP + threadIdx.x % 4 * 16;
  }

  template <int R> __device__ __forceinline__ void look(const uint32_t (&d)[R], int first) {
    float of_row[2][3];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool counts = row + first + 8 * h < look_of().rows;  // else nothing there will be in doubt
#pragma unroll
      for (int s = 0; s < 3; ++s) of_row[h][s] = counts ? row_term(row + first + 8 * h, s) : 0.0f;
    }
#pragma unroll
    for (int first_group = 0; first_group < R / 8; first_group += 4) {
      const float slope = slope_of(below);
      float quotient[4], most[2];
      of_columns(first_group, QUOTIENTS, quotient);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        most[h] = __fmaf_ru(of_row[h][2], quotient[1], __fmaf_ru(of_row[h][1], quotient[0], of_row[h][0]));
      uint2 kept[2][8];  // pairs as the accumulators have them
      uint32_t doubtful = 0;
      int worst = 0;  // of those, it seems
      float above = 0, least_there = 0;
#pragma unroll
      for (int z = 0; z < 4; ++z) {
        const int i = first_group + z;
        float inverse[4];
        of_columns(i, INVERSE, inverse);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float least = float_of_bits(0x7fffffffu);  // NaN, as of columns that are all zeros: fminf takes the other one
#pragma unroll
          for (int x = 0; x < 4; ++x)
            least = fminf(least, __fmul_rd(inverse[x], rounded(d[8 * i + 4 * (x / 2) + 2 * h + x % 2])));
          if (most[h] > __fmul_rd(slope, least)) {
#pragma unroll
            for (int x = 0; x < 2; ++x)
              kept[x][2 * z + h] = make_uint2(d[8 * i + 4 * x + 2 * h], d[8 * i + 4 * x + 2 * h + 1]);
            doubtful |= 1u << (2 * z + h);
            if (above * least <= most[h] * least_there) above = most[h], least_there = least, worst = 2 * z + h;
          }
        }
      }
      if (!__all_sync(ALL, doubtful == 0)) settle(kept, doubtful, worst, row + first, first_group);
    }
  }

  // Four entries of every lane at a time, `group` first: compute what is still in doubt with what the warp has found
  // meanwhile.
  __device__ __forceinline__ void settle(const uint2 (&kept)[2][8], uint32_t doubtful, int group, int first_row,
                                         int first_group) {
    Worst worst;
    worst.set(*static_cast<volatile Atomic*>(look_of().result));
    for (; !__all_sync(ALL, doubtful == 0); group = larger(__ffs(static_cast<int>(doubtful)) - 1, 0)) {
      const int r = first_row + 8 * (group & 1), c = col + column(first_group + (group >> 1));
      const uint32_t l[4] = {kept[0][group].x, kept[0][group].y, kept[1][group].x, kept[1][group].y};
      uint32_t left = 0;
      if (doubtful != 0) {
        float of_row[3], of_col[3][4];
#pragma unroll
        for (int s = 0; s < 3; ++s) of_columns(first_group + (group >> 1), s, of_col[s]), of_row[s] = row_term(r, s);
        const float slope = slope_of(worst.below);
#pragma unroll
        for (int x = 0; x < 4; ++x)
          if (above(of_row, of_col, x) > __fmul_rd(slope, rounded(l[x]))) left |= 1u << x;
        doubtful &= ~(1u << group);
      }
      if (__all_sync(ALL, left == 0)) continue;
      if (left != 0) {
        const int any = __ffs(static_cast<int>(left)) - 1;  // in place of those that may lie beyond the terms
        const Look& look = look_of();
        double exact[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) exact[x] = numerator(look.p, look.q, entry, r, c + (left >> x & 1 ? x : any));
#pragma unroll
        for (int x = 0; x < 4; ++x)
          if (left >> x & 1) worst.see(exact[x], static_cast<int>(l[x]));
      }
      worst.share();
    }
    worst.tell(look_of().result);
    below = worst.below;
  }

  __device__ __forceinline__ const Look& look_of() const { return looks.of[which]; }
  __device__ __forceinline__ float row_term(int r, int s) const {
    const Terms& p = look_of().p;
    return __ldg(p.rounded + entry * p.rounded_step + place_of(r, s));
  }
  // Of the i-th four columns of a thread.
  __device__ __forceinline__ void of_columns(int i, int s, float (&terms)[4]) const {
    const Terms& q = look_of().q;
    const float* const from = q.rounded + entry * q.rounded_step + place_of(col, s) + place_of(column(i), 0);
    const float4 v = __ldg(reinterpret_cast<const float4*>(from));
    terms[0] = v.x, terms[1] = v.y, terms[2] = v.z, terms[3] = v.w;
  }
  __device__ __forceinline__ static int column(int i) { return 64 * (i / 4) + 4 * (i % 4); }

  // L is rounded to nearest, the cheapest way, to less than L (1 + 2^-22); all else is rounded so that less is shown.
  __device__ __forceinline__ static float rounded(uint32_t l) { return static_cast<float>(static_cast<int>(l)); }
  __device__ __forceinline__ static float slope_of(float best) { return __fmul_rd(best, 1 - 0x1p-22f); }
  __device__ __forceinline__ static float above(const float (&of_row)[3], const float (&of_col)[3][4], int x) {
    float sum = __fmul_ru(of_row[0], of_col[0][x]);
#pragma unroll
    for (int s = 1; s < 3; ++s) sum = __fmaf_ru(of_row[s], of_col[s][x], sum);
    return sum;
  }
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
proof_gemm(const Operand a, const Operand b, const __grid_constant__ Looks looks, int blocks, int k_blocks,
           const Work work, const Tiles tiles, const Tiles second) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ __align__(16) Told told[STAGES];
  const int cluster = blockIdx.x / 2;
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();

  if (threadIdx.x / 128 == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      const Together alone = {nullptr, 0};
      copy_tiles(both(wide_tiles(work, tiles, cluster), second), stages, ring, told, a, b, blocks, k_blocks, alone);
      copy_tiles(both(narrow_tiles(work, tiles, cluster), second), stages, ring, told, a, b, blocks, k_blocks, alone);
    }
  } else {
    take_registers<232>();
    Ring ring;
    Compare compare{looks};
    multiply_tiles(wide_tiles(work, tiles, cluster), stages, ring, told, blocks, compare);
    multiply_tiles(narrow_tiles(work, tiles, cluster), stages, ring, told, blocks, compare);
  }
  cluster_barrier();  // no block leaves while the other still copies into it or arrives there
}
