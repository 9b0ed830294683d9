// The worst ratio of a componentwise proof on Hopper (docs/bounds.md, B7):
//
//   result = max over i, j of ((p0_i q0_j + p1_i q1_j) + p2_i q2_j) / L_ij,  L = (magnitudes of A) (magnitudes of B)
//
// L is a product of int8 magnitudes (0 .. 127), exact in int32. It stays in the accumulators of wgmma and never reaches
// memory; p and q are the error terms of rows and columns (worst.cuh).
//
// Launch, ring, blocks and clusters: see ring_sm90.cuh; wide and narrow tiles, producer and consumers: see
// walk_sm90.cuh. A launch makes one or two checks, each with its own terms, rows and result (the second one for another
// scheme, or for a sample of rows); the tiles of the second check come after those of the first. Phases for a finished
// half tile:
// 1. Float32, 16 columns at a time: an upper bound of their ratios, from the largest quotients q1 / q0 and q2 / q0
//    among them, against the worst ratio known so far. Most entries are dismissed here.
// 2. Float32 with an entry's own terms, for the groups of four columns that are left.
// 3. Float64, each operation rounded to nearest as NumPy does, for the entries that are left: so the result has the
//    same bits on every backend.
#include "hardware/launch.cuh"
#include "products/walk_sm90.cuh"
#include "arithmetic/worst.cuh"

// One check: the error terms p of rows and q of columns; the result as Worst::publish leaves it, zero before the
// kernel. Rows from `rows` on do not count; columns that do not count have terms of zero.
struct Check {
  Terms p, q;
  Atomic* result;
  int64_t rows;
};
struct Checks {
  Check of[2];
};

// The pairs of a cluster for both checks. Pairs below `of_first` belong to the first check, the others to the second
// one, whose tiles are `second`. The number of the check takes the place of the modulus.
template <int R> struct WalkOfChecks : Walk<R> {
  int of_first;  // pairs of the first check
  Tiles second;

  __device__ __forceinline__ void locate(int w, int& t, int& n, int& i, int& j) const {
    int column;
    t = w < of_first ? 0 : 1;
    ::locate(w - t * of_first, t == 0 ? this->tiles : second, n, i, column);
    j = this->first_strip(column);
  }
};
// The walk over the pairs of both checks. Both have the same columns of tiles.
template <int R> __device__ __forceinline__ WalkOfChecks<R> both(const Walk<R>& first, const Tiles& second) {
  const int matrices = first.tiles.batch * first.tiles.rows;
  return {first, matrices * first.tiles.columns, {second.rows, first.tiles.columns, second.group, second.batch}};
}

// The epilogue of multiply_tiles (the phases are those on top of this file). Entries in doubt after phase 1 are kept
// aside, four columns of a row together, until all 16 columns are through: only then are there registers for phases 2
// and 3.
struct Compare {
  const Checks& checks;
  int which = 0;    // the check of the tile at hand
  float below = 0;  // the worst ratio known so far, rounded down
  int entry, row, col;

  __device__ __forceinline__ void begin(int t, int n, int first_row, int j) {
    if (t != which) {
      which = t;
      Worst worst;
      worst.set(*static_cast<volatile Atomic*>(check().result));
      below = worst.below;
    }
    entry = n;
    row = first_row;
    col = j * STRIP + threadIdx.x % 4 * 16;
  }

  template <int R> __device__ __forceinline__ void consume(const uint32_t (&d)[R], int first) {
    float of_row[2][3];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool counts = row + first + 8 * h < check().rows;  // terms of zero are never in doubt
#pragma unroll
      for (int s = 0; s < 3; ++s) of_row[h][s] = counts ? row_term(row + first + 8 * h, s) : 0.0f;
    }
#pragma unroll
    for (int first_group = 0; first_group < R / 8; first_group += 4) {
      // 1. One bound for 16 columns: most[h] / least is no less than any of their ratios.
      const float slope = slope_of(below);
      float quotient[4], most[2];
      of_columns(first_group, QUOTIENTS, quotient);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        most[h] = __fmaf_ru(of_row[h][2], quotient[1], __fmaf_ru(of_row[h][1], quotient[0], of_row[h][0]));
      uint2 kept[2][8];       // L of the groups in doubt, pairs as the accumulators have them
      uint32_t doubtful = 0;  // a bit for each group: 2 z + h
      int worst = 0;          // the group with the largest bound: settled first, for it dismisses others
      float above = 0, least_there = 0;
#pragma unroll
      for (int z = 0; z < 4; ++z) {
        const int i = first_group + z;
        float inverse[4];
        of_columns(i, INVERSE, inverse);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float least = float_of_bits(0x7fffffffu);  // NaN: fminf ignores it. Columns of zeros have NaN as inverse
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

  // Phases 2 and 3 for the groups in `doubtful` of all lanes of the warp, one group (four columns of a row) of every
  // lane at a time, beginning with `group`. What one lane finds raises the known worst ratio for all lanes.
  __device__ __forceinline__ void settle(const uint2 (&kept)[2][8], uint32_t doubtful, int group, int first_row,
                                         int first_group) {
    Worst worst;
    worst.set(*static_cast<volatile Atomic*>(check().result));
    for (; !__all_sync(ALL, doubtful == 0); group = larger(__ffs(static_cast<int>(doubtful)) - 1, 0)) {
      const int r = first_row + 8 * (group & 1), c = col + column(first_group + (group >> 1));
      const uint32_t l[4] = {kept[0][group].x, kept[0][group].y, kept[1][group].x, kept[1][group].y};
      // 2. Each entry's own terms.
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
      // 3. The exact comparison.
      if (left != 0) {
        // Read in place of columns that are not in doubt, whose terms may lie beyond the array.
        const int any = __ffs(static_cast<int>(left)) - 1;
        const Check& now = check();
        double exact[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) exact[x] = numerator(now.p, now.q, entry, r, c + (left >> x & 1 ? x : any));
#pragma unroll
        for (int x = 0; x < 4; ++x)
          if (left >> x & 1) worst.include(exact[x], static_cast<int>(l[x]));
      }
      worst.share();
    }
    worst.publish(check().result);
    below = worst.below;
  }

  __device__ __forceinline__ const Check& check() const { return checks.of[which]; }
  // Term s of row r, rounded up.
  __device__ __forceinline__ float row_term(int r, int s) const {
    const Terms& p = check().p;
    return __ldg(p.rounded + entry * p.rounded_step + place_of(r, s));
  }
  // Term s of the i-th group of four columns of this thread.
  __device__ __forceinline__ void of_columns(int i, int s, float (&terms)[4]) const {
    const Terms& q = check().q;
    const float* const from = q.rounded + entry * q.rounded_step + place_of(col, s) + place_of(column(i), 0);
    const float4 v = __ldg(reinterpret_cast<const float4*>(from));
    terms[0] = v.x, terms[1] = v.y, terms[2] = v.z, terms[3] = v.w;
  }
  // Column of the i-th group of four, relative to the thread's first column.
  __device__ __forceinline__ static int column(int i) { return 64 * (i / 4) + 4 * (i % 4); }

  // L converted to float32 is rounded to nearest, which is the cheapest conversion, and so below L (1 + 2^-22);
  // slope_of makes up for that. Everything else is rounded in the direction that keeps an entry in doubt.
  __device__ __forceinline__ static float rounded(uint32_t l) { return static_cast<float>(static_cast<int>(l)); }
  __device__ __forceinline__ static float slope_of(float best) { return __fmul_rd(best, 1 - 0x1p-22f); }
  // The numerator of one entry, rounded up.
  __device__ __forceinline__ static float above(const float (&of_row)[3], const float (&of_col)[3][4], int x) {
    float sum = __fmul_ru(of_row[0], of_col[0][x]);
#pragma unroll
    for (int s = 1; s < 3; ++s) sum = __fmaf_ru(of_row[s], of_col[s][x], sum);
    return sum;
  }
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
proof_gemm(const Operand a, const Operand b, const __grid_constant__ Checks checks, int blocks, int k_blocks,
           const Work work, const Tiles tiles, const Tiles second) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ __align__(16) Tile tile_of_stage[STAGES];
  const int cluster = blockIdx.x / 2;
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();

  if (threadIdx.x / 128 == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      const Together alone = {nullptr, 0};
      copy_tiles(both(wide_tiles(work, tiles, cluster), second), stages, ring, tile_of_stage, a, b, blocks, k_blocks,
                 alone);
      copy_tiles(both(narrow_tiles(work, tiles, cluster), second), stages, ring, tile_of_stage, a, b, blocks, k_blocks,
                 alone);
    }
  } else {
    take_registers<232>();
    Ring ring;
    Compare compare{checks};
    multiply_tiles(wide_tiles(work, tiles, cluster), stages, ring, tile_of_stage, blocks, compare);
    multiply_tiles(narrow_tiles(work, tiles, cluster), stages, ring, tile_of_stage, blocks, compare);
  }
  cluster_barrier();  // no block exits while the other one may still copy into its shared memory or signal its barriers
}
