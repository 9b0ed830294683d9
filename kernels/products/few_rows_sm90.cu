// The product of few rows of 16-bit floats, as digits, with the columns of B, on Hopper: rows of all kinds in one
// launch, and each entry rounded once to 16 bits (docs/definitions.md, 11).
//
//   C_ij = RN(V_ij 2^(8 (OF_COLUMNS - 1) - mu_i - nu_j)),  V = sum over the diagonals of row i's own number of digits;
//
// rows that no digits prove have exact inner products; with NaN and Inf, entries are what IEEE arithmetic gives.
//
// Macros: FORMAT (BFloat16 or Float16); FEWEST_DIGITS and MOST_DIGITS of a row, no fewer than OF_COLUMNS of a column;
// PADDED_ROWS: 8, 16, 32 or 64, the rows of A with padding; CLUSTER: blocks that share k; RING_STAGES. With ADDEND
// (double or float) the result is alpha times that number plus beta c, rounded once.
//
// B lies in tiles of 192 columns (tiles.cuh, 8 neighbours), the most significant digit last, as digit_gemm_sm90.cu
// reads it; A in one tile, the most significant digit first, each row where it is (row_digits.cu, neither COMPACTED nor
// COUNTED). digits[b * output.mu_batch + i] is the number of digits of row i, 0 if it is exact. `blocks`: blocks of 128
// along k, at least CLUSTER; `tiles`: of 128 columns. Exact as long as no diagonal overflows int32. k < 2^31.
//
// 256 threads; cluster (CLUSTER, 1, 1); grid CLUSTER * tiles * batch; RING_STAGES * STAGE_BYTES + 1024 bytes of dynamic
// shared memory. A cluster owns 128 columns of one matrix, each of its blocks a part of k. Columns take the part of the
// 64 rows that wgmma multiplies, so that few rows of A are not padded to 64. Phases of a block:
// 1. Copy digits of B into all stages of the ring, and of some more blocks of k into the second-level cache, while the
//    kernel before this one splits the rows of A.
// 2. Copy digits of A beside them; multiply; fill a stage again when both warpgroups have read it. Digits that rows of
//    FEWEST_DIGITS have not take part only where a row of the matrix has them.
// 3. Join the diagonals of each entry to V, an int64 in shared memory, where the ring was.
// 4. Add V over the blocks of the cluster, each for its part of the entries; round, store.
// 5. If some rows are exact, or there are NaN or Inf: warps compute such entries, each from the elements themselves.
//
// What an H200 needs (4.8 TB/s, about 5.5 from the second-level cache; 132 multiprocessors, 1.75 GHz, 4096 products of
// bytes a clock each), for bfloat16 with two digits, in microseconds. From memory come the digits of B; from the
// second-level cache also those of A, once for each tile of columns. A block of k takes 12 wgmma of each warpgroup.
//
//   B               memory   second-level cache, 8 / 16 / 64 rows   tensor cores, 64 rows   blocks, of which a cluster
//   4096 x 4096       7.0            6.5 / 6.9 / 9.2                        3.5                 128, 4
//   4096 x 14336     24.5             23 / 24 / 32                           14                 112, 1
//
// Phases 3 and 4 take about 1.5. Rows are split in about 5, in which time memory gives 180 KB to each block, of the
// 256 KB or 1 MB that it needs; phase 1 asks for up to 288 KB (of 64 rows 224 KB). Both kernels together are predicted to
// take 9, 9 and 13 microseconds for 1, 16 and 64 rows beside 4096 x 4096, and 26, 27 and 36 beside 4096 x 14336. Beside
// 8192 x 8192, where these counts give 30, 31 and 41, an H200 takes 39, 43 and 49 (docs/performance.md).
#define INPUT_A FORMAT
#define INPUT_B FORMAT
#define OUTPUT FORMAT
#define WHOLE_ROWS
#include "conversion/inner_sums.cuh"
#include "hardware/launch.cuh"
#include "hardware/ptx.cuh"
#include "hardware/tiles.cuh"
#include "products/product.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32, ROWS = PADDED_ROWS, COLS = 128, DEPTH = 128;
constexpr int STRIP_BYTES = 64 * DEPTH, STRIPS_OF_TILE = 3;  // columns of a warpgroup; in a tile of 192
constexpr int OF_B = COLS * DEPTH, OF_A = ROWS * DEPTH;       // bytes of a digit in a stage
constexpr int STAGE_BYTES = OF_COLUMNS * OF_B + MOST_DIGITS * OF_A;
constexpr int AHEAD = (128 << 10) / (OF_COLUMNS * OF_B);  // 17 MB of all blocks: a third of the second-level cache
constexpr int PITCH = COLS + 2;  // sums from one row to the next: the rows of four neighbouring lanes use other banks
static_assert(FEWEST_DIGITS >= OF_COLUMNS, "a diagonal of a row of few digits would have products of one it has not");
static_assert(RING_STAGES * STAGE_BYTES >= ROWS * PITCH * 8 + WARPS * static_cast<int>(sizeof(Superaccumulator)), "");

// Accumulators of a diagonal: with lane = 4 g + c, entry 4 j + 2 h + i is of column 16 (warp % 4) + g + 8 h of the
// warpgroup's 64, as they lie in memory, and of row 8 j + 2 c + i of A.
typedef uint32_t Diagonal[ROWS / 2];

// The elements of an operand, side by side along k, and the number of NaN and Inf of each row. Strides of batches are 0
// where all matrices share one.
struct Given {
  const FORMAT* elements;
  int64_t batch, row;
  const int64_t* nonfinite;
  int64_t nonfinite_batch;
};

// The ring in shared memory: a stage holds all digits of a block of k. Its barrier waits for two arrivals and the bytes
// that each expects, of B and of A.
struct Stages {
  uint32_t data, full;
  const uint8_t *columns[2], *rows;  // the first block of the most significant digit: of the strips of B, and of A
  int64_t column_slice, row_slice;

  // Strip h of digit t of the columns.
  __device__ __forceinline__ const uint8_t* strip(int h, int t, int block) const {
    return columns[h] - t * column_slice + static_cast<int64_t>(block) * (STRIPS_OF_TILE * STRIP_BYTES);
  }
  __device__ __forceinline__ void copy_columns(int stage, int block) const {
    const uint32_t to = data + stage * STAGE_BYTES, barrier = full + 8 * stage;
    barrier_expect(barrier, OF_COLUMNS * OF_B);
#pragma unroll
    for (int t = 0; t < OF_COLUMNS; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) bulk_copy(to + t * OF_B + h * STRIP_BYTES, strip(h, t, block), STRIP_BYTES, barrier);
  }
  __device__ __forceinline__ void prefetch_columns(int block) const {
#pragma unroll
    for (int t = 0; t < OF_COLUMNS; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) bulk_prefetch(strip(h, t, block), STRIP_BYTES);
  }
  __device__ __forceinline__ void copy_rows(int stage, int block, int digits) const {
    const uint32_t to = data + stage * STAGE_BYTES + OF_COLUMNS * OF_B, barrier = full + 8 * stage;
    barrier_expect(barrier, digits * OF_A);
    for (int s = 0; s < digits; ++s)
      bulk_copy(to + s * OF_A, rows + s * row_slice + static_cast<int64_t>(block) * OF_A, OF_A, barrier);
  }
};

// Adds the products of `count` blocks of k, with DIGITS digits of A, to d; the first RING_STAGES are being copied.
template <int DIGITS>
__device__ __forceinline__ void multiply(Diagonal (&d)[MOST_DIGITS], const Stages& stages, uint32_t warpgroup,
                                         int count) {
  int stage = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int block = 0; block < count; ++block) {
    barrier_wait(stages.full + 8 * stage, parity);
    const uint32_t at = stages.data + stage * STAGE_BYTES;
    const uint32_t of_columns = tile_descriptor(at + warpgroup * STRIP_BYTES);
    const uint32_t of_rows = tile_descriptor(at + OF_COLUMNS * OF_B);
    __syncwarp();  // the thread that copies, too
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < DIGITS; ++s)
#pragma unroll
      for (int t = 0; t < OF_COLUMNS; ++t) {
        if (s + t >= DIGITS) continue;
#pragma unroll
        for (int z = 0; z < DEPTH / 32; ++z)
          wgmma_bytes<int8_t>(d[s + t], of_columns + t * (OF_B >> 4) + 2 * z, of_rows + s * (OF_A >> 4) + 2 * z, 1);
      }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int s = 0; s < DIGITS; ++s) registers_ready(d[s]);
    __syncthreads();  // both warpgroups are through with the stage
    if (threadIdx.x == 0 && block + RING_STAGES < count) {
      stages.copy_columns(stage, block + RING_STAGES);
      stages.copy_rows(stage, block + RING_STAGES, DIGITS);
    }
    if (++stage == RING_STAGES) stage = 0, parity ^= 1;
  }
}

// RN(V 2^exponent). V of up to three diagonals is a float64, which takes few instructions to round.
__device__ __forceinline__ uint16_t rounded_sum(int64_t v, int exponent) {
  if (MOST_DIGITS > 3) return round_joined<FORMAT>(v, exponent);
  const float odd = added_to_odd(v, exponent, 0.0f);
  return static_cast<uint16_t>(rounded_pair<FORMAT>(odd, odd));
}

// What IEEE arithmetic gives for sum_h s(x_h) s(y_h), with s(x) = x for NaN and Inf, else the sign of x; a row of both
// has such elements (docs/definitions.md, 6). By a warp.
__device__ __forceinline__ uint16_t special_entry(const FORMAT* x, const FORMAT* y, int64_t k, int lane) {
  bool nan = false, positive = false, negative = false;
  for (int64_t h = lane; h < k; h += 32) {
    const uint32_t u = x[h].bits, v = y[h].bits, of_u = u & 0x7fffu, of_v = v & 0x7fffu;
    if (larger(of_u, of_v) < FORMAT::INFINITE) continue;
    const bool invalid = larger(of_u, of_v) > FORMAT::INFINITE || of_u == 0 || of_v == 0;
    const bool below = ((u ^ v) & 0x8000u) != 0;
    nan = nan || invalid;
    positive = positive || (!invalid && !below);
    negative = negative || (!invalid && below);
  }
  nan = __any_sync(ALL, nan), positive = __any_sync(ALL, positive), negative = __any_sync(ALL, negative);
  return nan || (positive && negative) ? Special<FORMAT>::nan() : Special<FORMAT>::infinite(negative);
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
few_rows(const Operand a, const Operand b, const Output<FORMAT> output, const int32_t* __restrict__ digits,
         const Given x, const Given y, int blocks, int tiles, int64_t k COMBINATION) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t barriers[RING_STAGES];
  __shared__ int32_t mu[ROWS], nu[COLS];
  __shared__ int kinds[ROWS];     // digits of each row; 0: exact; -1: with NaN or Inf
  __shared__ bool flagged[COLS];  // columns with NaN or Inf
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, m = output.m;
  const uint32_t warpgroup = __shfl_sync(ALL, static_cast<uint32_t>(thread) / 128, 0), rank = cluster_rank();
  const int cluster = blockIdx.x / CLUSTER, tile = cluster % tiles, entry = cluster / tiles;
  const int col = tile * COLS, cols = smaller(output.n - col, COLS);  // the first one, and how many there are
  const int first = static_cast<int>(static_cast<int64_t>(rank) * blocks / CLUSTER);
  const int count = static_cast<int>(static_cast<int64_t>(rank + 1) * blocks / CLUSTER) - first;

  // 1. Digits of B.
  Stages stages;
  stages.data = (shared_address(dynamic) + 1023) & ~1023u;
  stages.full = shared_address(barriers);
  stages.column_slice = b.slice, stages.row_slice = a.slice;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int strip = 2 * tile + h;
    const int64_t of_tile = (static_cast<int64_t>(strip / STRIPS_OF_TILE) * blocks + first) * STRIPS_OF_TILE;
    stages.columns[h] = b.slices + entry * b.batch + (OF_COLUMNS - 1) * b.slice +
                        (of_tile + strip % STRIPS_OF_TILE) * STRIP_BYTES;
  }
  stages.rows = a.slices + entry * a.batch + static_cast<int64_t>(first) * OF_A;
  if (thread == 0) {
    for (int s = 0; s < RING_STAGES; ++s) barrier_init(stages.full + 8 * s, 2);
    barrier_init_fence();
    shared_proxy_fence();
    for (int s = 0; s < smaller(RING_STAGES, count); ++s) stages.copy_columns(s, s);
    for (int s = RING_STAGES; s < smaller(RING_STAGES + AHEAD, count); ++s) stages.prefetch_columns(s);
  }
  after_previous();  // the digits of B are older than the kernel before this one, so they may be read without waiting

  // 2. Digits of A, and the products.
  if (thread == 0)
    for (int s = 0; s < smaller(RING_STAGES, count); ++s) stages.copy_rows(s, s, MOST_DIGITS);
  int own = 1;  // a row's kind
  bool special = false;
  if (thread < ROWS) {
    own = thread < m ? digits[entry * output.mu_batch + thread] : FEWEST_DIGITS;
    mu[thread] = thread < m ? output.mu[entry * output.mu_batch + thread] : 0;
    if (thread < m && x.nonfinite[entry * x.nonfinite_batch + thread] != 0) own = -1;
    kinds[thread] = own;
  }
  if (thread < cols) {
    nu[thread] = output.nu[entry * output.nu_batch + col + thread];
    flagged[thread] = special = y.nonfinite[entry * y.nonfinite_batch + col + thread] != 0;
  }
  const bool apart = __syncthreads_or(own <= 0 || special) != 0;  // whether phase 5 has anything to do
  const bool more = __syncthreads_or(own > FEWEST_DIGITS) != 0;
  Diagonal d[MOST_DIGITS] = {};
  if (MOST_DIGITS > FEWEST_DIGITS && more)
    multiply<MOST_DIGITS>(d, stages, warpgroup, count);
  else
    multiply<FEWEST_DIGITS>(d, stages, warpgroup, count);
#pragma unroll
  for (int s = 0; s < MOST_DIGITS; ++s) registers_ready(d[s]);  // V of all entries at once would take 234 registers

  // 3. V of each entry. Nothing is copied into the ring any more, and nothing reads it.
  const uint32_t sums = stages.data;
  int64_t* const own_sums = reinterpret_cast<int64_t*>(dynamic + (sums - shared_address(dynamic)));
#pragma unroll
  for (int j = 0; j < ROWS / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 8 * j + lane % 4 * 2 + i, number = kinds[row];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int64_t v = 0;
#pragma unroll
        for (int s = 0; s < MOST_DIGITS; ++s)
          if (s < FEWEST_DIGITS || s < number) v = v * 256 + static_cast<int32_t>(d[s][4 * j + 2 * h + i]);
        const int place = static_cast<int>(warpgroup) * 64 + warp % 4 * 16 + lane / 4 + 8 * h;
        own_sums[row * PITCH + column_of_permuted<8>(place)] = v;
      }
    }
  __syncwarp();
  cluster_barrier();

  // 4. Their sums over the cluster.
  BitsOf<FORMAT>::type* const c = reinterpret_cast<BitsOf<FORMAT>::type*>(output.c) + entry * output.batch + col;
#ifdef ADDEND
  const auto addend_of = [&](int row, int at) {
    const ADDEND* const of_row = combination.c + entry * combination.batch + row * combination.row_stride;
    return combination.beta != 0.0 ? of_row[(col + at) * combination.col_stride] : ADDEND(0);
  };
#endif
  for (int i = static_cast<int>(rank) * THREADS + thread; i < m * COLS; i += CLUSTER * THREADS) {
    const int row = i / COLS, at = i % COLS;
    if (at >= cols || kinds[row] <= 0 || flagged[at]) continue;
    int64_t v = 0;
#pragma unroll
    for (int r = 0; r < CLUSTER; ++r) v += read_long_from_block(sums + 8 * (row * PITCH + at), r);
    const int exponent = 8 * (OF_COLUMNS - 1) - mu[row] - nu[at];
#ifdef ADDEND
    const uint32_t limbs[2] = {low_limb(static_cast<uint64_t>(v)), high_limb(static_cast<uint64_t>(v))};
    c[row * output.row_stride + at] = combined_or_special<FORMAT>(limbs, exponent, combination.alpha, combination.beta,
                                                                  addend_of(row, at));
#else
    c[row * output.row_stride + at] = rounded_sum(v, exponent);
#endif
  }

  __syncwarp();

  // 5. Entries that digits do not give.
  if (apart) {
    Superaccumulator& exact = reinterpret_cast<Superaccumulator*>(own_sums + ROWS * PITCH)[warp];
#pragma unroll 1
    for (int i = static_cast<int>(rank) * WARPS + warp; i < m * cols; i += CLUSTER * WARPS) {
      const int row = i / cols, at = i % cols;
      if (kinds[row] > 0 && !flagged[at]) continue;
      const FORMAT* const of_x = x.elements + entry * x.batch + row * x.row;
      const FORMAT* const of_y = y.elements + entry * y.batch + (col + at) * y.row;
      BitsOf<FORMAT>::type bits;
      if (kinds[row] < 0 || flagged[at]) {
        bits = special_entry(of_x, of_y, k, lane);
#ifdef ADDEND
        if (lane == 0 && bits != Special<FORMAT>::nan()) {
          if (combination.alpha < 0.0) bits ^= 0x8000u;
          // Inf + Inf is Inf; NaN, and an Inf of the other sign, make NaN.
          const ADDEND addend = addend_of(row, at);
          if (!is_finite(addend) && special_addend<FORMAT>(combination.beta, addend) != bits)
            bits = Special<FORMAT>::nan();
        }
#endif
      } else {
#ifdef ADDEND
        exact_sum(of_x, 1, of_y, 1, k, lane, exact);
        if (lane == 0) bits = rounded_with(exact, combination.alpha, combination.beta, addend_of(row, at));
#else
        const InnerSum sum = sum_of_products(of_x, 1, of_y, 1, k, lane);
        if (!sum.decides<FORMAT>((k + 31) / 32, bits)) bits = exact_sum(of_x, 1, of_y, 1, k, lane, exact);
#endif
      }
      if (lane == 0) c[row * output.row_stride + at] = bits;
    }
  }
  __syncwarp();
  cluster_barrier();  // no block exits while another one may still read its sums
}
