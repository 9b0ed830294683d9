// The product of two operands in words, of any number, format and order, by mma.sync: C = 2^-(mu_i + nu_j) V with V as
// docs/design.md, section 10, defines it (the order of groups, turns, blocks, instructions and pairs included).
//
// Macros: WORD (FP16, BF16 or TF32); HALF_SUMS: 1 for accumulators in FP16, which are promoted; PROMOTION (float or
// double): of sums outside the tensor core.
//
// Operands lie in fragments (fragments.cuh), of `units` fragments along k. Rows are padded to multiples of 128 with
// zeros.
//
// 256 threads, grid batch * row tiles * column tiles, all on x. A block owns 128 x COLS entries of the result, a warp
// 32 x COLS / 2. No shared memory: fragments come through the first-level cache, 16 bytes a lane.
#include "fragments.cuh"
#include "launch.cuh"
#include "mma_words.cuh"
#include "product.cuh"
#include "word_program.cuh"

constexpr int EIGHTS = sizeof(PROMOTION) == 8 ? 4 : 8;  // of columns of a warp
constexpr int WARP_ROWS = 32, WARP_COLS = 8 * EIGHTS, ROWS = 4 * WARP_ROWS, COLS = 2 * WARP_COLS;
constexpr int GROUP = 8;  // row tiles walked together

// A warp's accumulators of the tensor core.
struct Accumulators {
#if HALF_SUMS
  uint32_t d[2][EIGHTS][2];
  __device__ __forceinline__ float get(int i, int j, int x) const { return half_to_float(d[i][j][x / 2], x % 2); }
  __device__ __forceinline__ void scale(int) {}
#else
  float d[2][EIGHTS][4];
  __device__ __forceinline__ float get(int i, int j, int x) const { return d[i][j][x]; }
  __device__ __forceinline__ void scale(int e) {
    const Scale scale(e);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
        for (int x = 0; x < 4; ++x) d[i][j][x] = scale(d[i][j][x]);
  }
#endif
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
        for (int x = 0; x < static_cast<int>(sizeof(d[0][0]) / 4); ++x) d[i][j][x] = 0;
  }
  // One fragment along k.
  __device__ __forceinline__ void multiply(const uint4* a, const uint4* b, int64_t units) {
    uint4 left[2], right[EIGHTS / 2];
#pragma unroll
    for (int i = 0; i < 2; ++i) left[i] = a[i * units * 32];
#pragma unroll
    for (int j = 0; j < EIGHTS / 2; ++j) right[j] = b[j * units * 32];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < EIGHTS; ++j) {
        const uint4& v = right[j / 2];
        const uint32_t b0 = j % 2 == 0 ? v.x : v.y, b1 = j % 2 == 0 ? v.z : v.w;
#if HALF_SUMS
        multiply_words(d[i][j], left[i], b0, b1);
#else
        multiply_words<WORD>(d[i][j], left[i], b0, b1);
#endif
      }
  }
};

typedef PROMOTION Sums[2][EIGHTS][4];

template <typename Use> __device__ __forceinline__ void each(const Use& use) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
      for (int x = 0; x < 4; ++x) use(i, j, x);
}

extern "C" __global__ void __launch_bounds__(256, 1)
word_mma(const Operand a, const Operand b, const Output<float> to, int units, const __grid_constant__ Program program) {
  after_previous();
  const uint32_t row_tiles = (to.m + ROWS - 1) / ROWS, col_tiles = (to.n + COLS - 1) / COLS;
  const uint32_t entry = blockIdx.x / (row_tiles * col_tiles), rest = blockIdx.x % (row_tiles * col_tiles);
  const uint32_t first_tile = rest / (GROUP * col_tiles) * GROUP, within = rest % (GROUP * col_tiles);
  const uint32_t height = smaller<uint32_t>(GROUP, row_tiles - first_tile);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = (first_tile + within % height) * ROWS + warp % 4 * WARP_ROWS;
  const int col0 = within / height * COLS + warp / 4 * WARP_COLS;
  const uint4* const left = reinterpret_cast<const uint4*>(a.slices + entry * a.batch) +
                            static_cast<int64_t>(row0 / 16) * units * 32 + lane;
  const uint4* const right = reinterpret_cast<const uint4*>(b.slices + entry * b.batch) +
                             static_cast<int64_t>(col0 / 16) * units * 32 + lane;

  Accumulators d;
  Sums total;
  each([&](int i, int j, int x) { total[i][j][x] = 0; });
  for (int g = 0, begin = 0; g < program.groups; begin = program.group_end[g++]) {
    const bool promoted = program.block > 0 && g + 1 == program.groups;
    const int block = promoted ? program.block : units;
    Sums sum;
    each([&](int i, int j, int x) { sum[i][j][x] = 0; });
    for (int first = 0; first < units; first += block) {
      const int last = smaller(first + block, units);
      d.clear();
      for (int turn = begin; turn < program.group_end[g]; ++turn) {
        if (turn > begin && program.down[turn] != 0) d.scale(-program.down[turn]);
        const int from = turn > 0 ? program.turn_end[turn - 1] : 0, end = program.turn_end[turn];
        for (int u = first; u < last; ++u)
          for (int pair = from; pair < end; ++pair)
            d.multiply(left + program.left[pair] * (a.slice / 16) + u * 32,
                       right + program.right[pair] * (b.slice / 16) + u * 32, units);
      }
      each([&](int i, int j, int x) { sum[i][j][x] += static_cast<PROMOTION>(d.get(i, j, x)); });
    }
    const Power<PROMOTION> power(-program.weight[g]);
    each([&](int i, int j, int x) { total[i][j][x] += power(sum[i][j][x]); });
  }

  float* const c = to.c + entry * to.batch;
  each([&](int i, int j, int x) {
    const int row = row0 + 16 * i + lane / 4 + 8 * (x / 2), col = col0 + 8 * j + lane % 4 * 2 + x % 2;
    if (row < to.m && col < to.n)
      c[row * to.row_stride + col] =
          Power<PROMOTION>(-(to.mu[entry * to.mu_batch + row] + to.nu[entry * to.nu_batch + col]))(total[i][j][x]);
  });
}
