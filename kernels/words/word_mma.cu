// The product of two operands in low-precision words of any number, format and order, by mma.sync: C_ij = RN(V_ij
// 2^-(mu_i + nu_j)), V as docs/definitions.md, section 7, defines it: the order of groups, turns, blocks, instructions
// and pairs is part of the definition, since sums in floating point depend on it.
//
// Macros:
// - WORD (FP16, BF16 or TF32); WORD_COUNT; PROGRAM: the value of a Program (word_program.cuh)
// - HALF_SUMS: 1 for accumulators in FP16, which are promoted; PROMOTION (float or double): of sums outside the tensor
//   core
// - WARPS of a block (4, then two blocks fit a multiprocessor, or 8), each of which owns WARP_ROWS x WARP_COLS entries
// - HELD: units of k (32 bytes of a row) that shared memory holds at a time
//
// Operands are fragments (fragments.cuh), `stride` fragments along k for each 16 rows, of which the first `units` are
// not padding. Rows are padded with zeros to multiples of a tile's. `group` row tiles are walked together, column by
// column, so that their fragments stay in the second-level cache.
//
// 32 * WARPS threads, grid batch * row tiles * column tiles, all on x. A block owns 128 x COLS entries of C. Dynamic
// shared memory: 2 * HELD * WORD_COUNT * FRAGMENTS * 512 bytes in two halves. Phases:
// 1. Start to copy the first part of k (word_parts.cuh) into half 0.
// 2. For each part: wait until its copies are complete in all warps, start to copy the next part into the other half,
//    multiply; at the end of a block add the accumulators to `sum`, at the end of a group to `total`.
//
//   half 0   | copy part 0 | multiply 0 | copy part 2 | multiply 2 | ...
//   half 1                 | copy 1     | multiply 1  | copy 3     | ...
//
// 3. Add the last group, scale, store.
#include "words/fragments.cuh"
#include "hardware/launch.cuh"
#include "hardware/mma_words.cuh"
#include "products/product.cuh"
#include "words/word_parts.cuh"

constexpr int ROWS = 128, DOWN = ROWS / WARP_ROWS, COLS = WARPS / DOWN * WARP_COLS;
constexpr int SIXTEENS = WARP_ROWS / 16, EIGHTS = WARP_COLS / 8;  // of rows and of columns of a warp
constexpr int LEFT = ROWS / 16, FRAGMENTS = LEFT + COLS / 16;

// One unit of k of one word of A and one of B, in the registers of a warp.
struct Fragments {
  uint4 left[SIXTEENS], right[EIGHTS / 2];

  // Reads the fragments of a warp from shared memory; a and b point to this lane's part of the first ones.
  __device__ __forceinline__ void read(const uint4* a, const uint4* b) {
#pragma unroll
    for (int i = 0; i < SIXTEENS; ++i) left[i] = a[i * 32];
#pragma unroll
    for (int j = 0; j < EIGHTS / 2; ++j) right[j] = b[j * 32];
  }
};

// A lane's accumulators of the tensor core: entry x of rows 16 i .. and columns 8 j ..; FP16 ones two in a register.
struct Accumulators {
#if HALF_SUMS
  uint32_t d[SIXTEENS][EIGHTS][2];
  __device__ __forceinline__ float get(int i, int j, int x) const { return half_to_float(d[i][j][x / 2], x % 2); }
  __device__ __forceinline__ void scale(int) {}
#else
  float d[SIXTEENS][EIGHTS][4];
  __device__ __forceinline__ float get(int i, int j, int x) const { return d[i][j][x]; }
  __device__ __forceinline__ void scale(int e) {
    const Scale scale(e);
#pragma unroll
    for (int i = 0; i < SIXTEENS; ++i)
#pragma unroll
      for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
        for (int x = 0; x < 4; ++x) d[i][j][x] = scale(d[i][j][x]);
  }
#endif
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < SIXTEENS; ++i)
#pragma unroll
      for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
        for (int x = 0; x < static_cast<int>(sizeof(d[0][0]) / 4); ++x) d[i][j][x] = 0;
  }
  // Adds the products of one unit of k, by mma.sync.
  __device__ __forceinline__ void multiply(const Fragments& at) {
#pragma unroll
    for (int i = 0; i < SIXTEENS; ++i)
#pragma unroll
      for (int j = 0; j < EIGHTS; ++j) {
        const uint4& v = at.right[j / 2];
        const uint32_t b0 = j % 2 == 0 ? v.x : v.z, b1 = j % 2 == 0 ? v.y : v.w;
#if HALF_SUMS
        multiply_words(d[i][j], at.left[i], b0, b1);
#else
        multiply_words<WORD>(d[i][j], at.left[i], b0, b1);
#endif
      }
  }
};

typedef PROMOTION Sums[SIXTEENS][EIGHTS][4];

// Calls use(i, j, x) for each accumulator.
template <typename Use> __device__ __forceinline__ void each(const Use& use) {
#pragma unroll
  for (int i = 0; i < SIXTEENS; ++i)
#pragma unroll
    for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
      for (int x = 0; x < 4; ++x) use(i, j, x);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 8 / WARPS)
word_mma(const Operand a, const Operand b, const Output<float> to, int units, int stride, int group) {
  after_previous();
  extern __shared__ __align__(16) uint8_t dynamic[];
  const uint32_t row_tiles = (to.m + ROWS - 1) / ROWS, col_tiles = (to.n + COLS - 1) / COLS;
  const uint32_t entry = blockIdx.x / (row_tiles * col_tiles), rest = blockIdx.x % (row_tiles * col_tiles);
  const uint32_t first_tile = rest / (group * col_tiles) * group, within = rest % (group * col_tiles);
  const uint32_t height = smaller<uint32_t>(group, row_tiles - first_tile);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = (first_tile + within % height) * ROWS, col0 = within / height * COLS;

  // Layout of shared memory: [half][unit of HELD][word][fragments of A, then of B].
  constexpr int WORD_STEP = FRAGMENTS * 32, UNIT_STEP = WORD_COUNT * WORD_STEP;
  uint4* const held = reinterpret_cast<uint4*>(dynamic) + lane;
  // Warps share the copies: warp w copies fragments w, w + WARPS, ... of A and B.
  constexpr int EACH = (FRAGMENTS + WARPS - 1) / WARPS;
  const uint4* from[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int f = i * WARPS + warp;
    const uint8_t* const slices = f < LEFT ? a.slices + entry * a.batch : b.slices + entry * b.batch;
    const int64_t row = f < LEFT ? row0 / 16 + f : col0 / 16 + f - LEFT;
    from[i] = reinterpret_cast<const uint4*>(slices) + row * stride * 32 + lane;
  }
  const Destination to_held(held);
  const auto start_copies = [&](const Part& part, int half) {
    const int count = part.last - part.first;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int f = i * WARPS + warp;
      if (f >= FRAGMENTS) break;
#pragma unroll
      for (int word = 0; word < WORD_COUNT; ++word) {
        if (!(f < LEFT ? part.needs(program.left, word) : part.needs(program.right, word))) continue;
        const uint4* const next = from[i] + word * ((f < LEFT ? a.slice : b.slice) / 16) + part.first * 32;
        const int at = half * HELD * UNIT_STEP + word * WORD_STEP + f * 32;
#pragma unroll
        for (int u = 0; u < HELD; ++u)
          if (u < count) copy_16_bytes(to_held, 16 * (at + u * UNIT_STEP), next + u * 32);
      }
    }
  };

  const uint4* const of_a = held + warp % DOWN * SIXTEENS * 32;
  const uint4* const of_b = held + (LEFT + warp / DOWN * (EIGHTS / 2)) * 32;
  Accumulators d;
  d.clear();
  Sums sum, total;  // sum: over the blocks of the promoted group; total: over groups
  each([&](int i, int j, int x) { sum[i][j][x] = total[i][j][x] = 0; });
  // 1. The first part.
  Part part = {};
  part.begin(units);
  start_copies(part, 0);
  // 2. Part by part.
  for (int half = 0; part.group < program.groups; half ^= 1) {
    const Part next = part.next(units);
    wait_for_copies();
    __syncthreads();  // all warps have copied `half` and no longer read the other one
    start_copies(next, half ^ 1);
    for (int first = part.first, last; first < part.last; first = last) {
      last = part.of_short_blocks() ? smaller(first + program.block, part.last) : part.last;
      const bool opens = part.of_short_blocks() || first == part.block;
      const bool closes = part.of_short_blocks() || last == part.block_end(units);
#pragma unroll
      for (int turn = 0; turn < TURNS; ++turn) {
        if (!part.has(turn)) continue;
        if (opens && program.down[turn] != 0) d.scale(-program.down[turn]);
        const int at = (half * HELD + first - part.first) * UNIT_STEP, begin = turn_begin(turn);
        const int pairs = program.turn_end[turn] - begin;
        const auto read = [&](Fragments& to, int u, int pair) {
          to.read(of_a + at + u * UNIT_STEP + program.left[begin + pair] * WORD_STEP,
                  of_b + at + u * UNIT_STEP + program.right[begin + pair] * WORD_STEP);
        };
        if (last - first == AT_A_TIME) {  // unrolled: the next fragments are read while the tensor cores work
          if (CLEARED_FIRST && turn == 0) d.clear();
          Fragments fragments[2];
          read(fragments[0], 0, 0);
#pragma unroll
          for (int i = 0; i < AT_A_TIME * pairs; ++i) {
            if (i + 1 < AT_A_TIME * pairs) read(fragments[(i + 1) % 2], (i + 1) / pairs, (i + 1) % pairs);
            d.multiply(fragments[i % 2]);
          }
        } else {
          if (CLEARED_FIRST && turn == 0) d.clear();
#pragma unroll 1
          for (int u = 0; u < last - first; ++u)
#pragma unroll
            for (int pair = 0; pair < pairs; ++pair) {
              Fragments fragments;
              read(fragments, u, pair);
              d.multiply(fragments);
            }
        }
      }
      if (part.promoted() && closes && part.end == TURNS) {
        each([&](int i, int j, int x) { sum[i][j][x] += static_cast<PROMOTION>(d.get(i, j, x)); });
        if (!CLEARED_FIRST) d.clear();
      }
    }
    if (program.groups > 1 && next.group != part.group && next.group < program.groups) {
      const Power<PROMOTION> power(-program.weight[part.group]);
      each([&](int i, int j, int x) { total[i][j][x] += power(static_cast<PROMOTION>(d.get(i, j, x))); });
      d.clear();
    }
    part = next;
  }

  // 3. The last group, and the store.
  const Power<PROMOTION> power(-program.weight[program.groups - 1]);
  const int32_t *const mu = to.mu + entry * to.mu_batch, *const nu = to.nu + entry * to.nu_batch;
  float* const c = to.c + entry * to.batch;
  each([&](int i, int j, int x) {
    const int row = row0 + warp % DOWN * WARP_ROWS + 16 * i + lane / 4 + 8 * (x / 2);
    const int col = col0 + warp / DOWN * WARP_COLS + 8 * j + lane % 4 * 2 + x % 2;
    const PROMOTION last = power(PROMOTED ? sum[i][j][x] : static_cast<PROMOTION>(d.get(i, j, x)));
    if (row < to.m && col < to.n)
      c[row * to.row_stride + col] = Power<PROMOTION>(-(mu[row] + nu[col]))(total[i][j][x] + last);
  });
}
