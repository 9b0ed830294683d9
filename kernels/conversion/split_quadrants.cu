// Residues of the seven blocks of an operand that one level of Strassen's product, in Winograd's form, multiplies
// (docs/definitions.md, section 4): of its quadrants and of sums and differences of quadrants modulo m_t.
//
// Macros: those of split.cu but LARGEST, with DIGIT_BITS = 0 and TILE > 0; NEIGHBOURS > 0 for the right operand.
//
// x is a view (rows, k) of one matrix with element strides sr, sk of any sign. (Columns of B count as rows.) The two
// upper quadrants have upper_rows rows; the first quadrant of the upper and of the lower half has first_k elements of
// k. The other quadrants are no larger, and may be empty. `slices` holds, for each modulus, seven blocks of rows_padded
// x k_padded bytes in tiles (tiles.cuh), zeros where a block has no element, in the order of the products P1 .. P7:
//   left operand   A11, A12, S4, A22, S1, S2, S3
//   right operand  B11, B21, B22, T4, T1, T2, T3
//
// description is int64 [6][rows]; `statistic` is the field that the scaling reads. mu goes to mu_out[row].
//
// 128 threads; grid (rows_padded / ROWS) * (k_padded / 128), all on x. A block owns ROWS rows x 128 elements of each
// quadrant; a warp OWN of these rows. Phases:
// 1. Where rows are neighbours in memory, transpose the four parts in 64 KB of dynamic shared memory.
// 2. Exponents of the warp's rows, those of the upper and of the lower half.
// 3. For each half row: images of the four elements of a place, one in each quadrant; residues for eight moduli at a
//    time; sums; seven stores.
#include "conversion/cut.cuh"
#include "hardware/launch.cuh"
#include "arithmetic/winograd.cuh"

constexpr int THREADS = 128, ROWS = 128 / sizeof(INPUT), OWN = ROWS / (THREADS / 32);  // a warp cuts OWN rows

extern "C" __global__ void __launch_bounds__(THREADS, LIMBS > 1 ? 2 : ALONG_K ? 4 : 3)
split_quadrants(const INPUT* __restrict__ x, int64_t sr, int64_t sk, int64_t rows, int64_t k, int64_t upper_rows,
                int64_t first_k, int64_t rows_padded, int64_t k_padded, const int64_t* __restrict__ description,
                int statistic, int step, int base, int64_t threshold, int32_t* __restrict__ mu_out,
                int8_t* __restrict__ slices MORE_ARGUMENTS) {
  after_previous();
  fill_folds(THREADS MORE);

  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / BLOCK_K);
#if ALONG_K  // neighbouring blocks are neighbours in memory
  const uint32_t at_row = blockIdx.x / blocks_k, at_k = blockIdx.x % blocks_k;
#else
  const uint32_t blocks_row = static_cast<uint32_t>(rows_padded / ROWS);
  const uint32_t at_row = blockIdx.x % blocks_row, at_k = blockIdx.x / blocks_row;
#endif
  const int lane = threadIdx.x & 31, own = OWN * (threadIdx.x >> 5), g = lane >> 2, c = lane & 3;
  const int64_t row0 = static_cast<int64_t>(at_row) * ROWS, h0 = static_cast<int64_t>(at_k) * BLOCK_K;
  // Quadrant i (0, 1: upper, 2, 3: lower) has rows_left(i / 2) x k_left(i % 2) elements from the block's first one on;
  // not positive: none.
  const Bits* const origin = reinterpret_cast<const Bits*>(x) + (row0 * sr + h0 * sk);
  const int64_t down = upper_rows * sr, across = first_k * sk;
  const auto rows_left = [&](int half) {
    return static_cast<int>(smaller<int64_t>((half == 0 ? upper_rows : rows - upper_rows) - row0, ROWS));
  };
  const auto k_left = [&](int half) {
    return static_cast<int>(smaller<int64_t>((half == 0 ? first_k : k - first_k) - h0, BLOCK_K));
  };

#if !ALONG_K
  // 1. Transpose.
  extern __shared__ __align__(16) uint8_t dynamic[];
  Bits* const tile = reinterpret_cast<Bits*>(dynamic);
  {
    constexpr int STEP = THREADS / ROWS;
    const int row = threadIdx.x % ROWS, h = threadIdx.x / ROWS;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const Bits* from = origin + ((i >> 1) * down + (i & 1) * across + row * sr + h * sk);
      const int readable = row < rows_left(i >> 1) ? k_left(i & 1) : 0;
#pragma unroll 8
      for (int j = h; j < BLOCK_K; j += STEP, from += STEP * sk)
        copy_or_zero(tile + i * (ROWS * BLOCK_K) + turned<ROWS>(row, j), from, j < readable);
    }
    wait_for_copies();
  }
#endif
  __syncthreads();

  // 2. Lanes 0 .. OWN - 1 have the scales of the warp's rows of the upper half, the next OWN lanes those of the lower
  //    half.
  int scale = 0;
  {
    const int half = lane / OWN & 1, row = own + lane % OWN;
    if (row < rows_left(half)) {
      const int64_t index = half * upper_rows + row0 + row;
      scale = row_scale<false>(description, rows, index, statistic, step, base, threshold);
      if (at_k == 0 && lane < 2 * OWN) mu_out[index] = scale >> 1;
    }
  }

  // load(r, bits): elements 64 (r % 2) + 2 lane + {0, 1} of row r / 2 of the warp, two for each of the four quadrants.
#if ALONG_K
  // Second halves have no more elements left than first ones, so it is enough to ask for them.
  const bool whole = aligned_in_pairs(x, sr, sk) && ROWS <= rows_left(1) && BLOCK_K <= k_left(1);
  const Bits* at = origin + (own * sr + 2 * lane * sk);
  const auto load = [&](int r, Bits (&bits)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Bits* const from = at + (i / 2 * down + i % 2 * across);
      if (whole) {
        load_pair(reinterpret_cast<const INPUT*>(from), bits[2 * i], bits[2 * i + 1]);
      } else {
        const int left = own + r / 2 < rows_left(i / 2) ? k_left(i % 2) - 64 * (r % 2) - 2 * lane : 0;
        bits[2 * i] = left >= 1 ? *from : Bits(0);
        bits[2 * i + 1] = left >= 2 ? from[sk] : Bits(0);
      }
    }
    at += r % 2 == 0 ? 64 * sk : sr - 64 * sk;
  };
#else
  const auto load = [&](int r, Bits (&bits)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      bits[i] = tile[i / 2 * (ROWS * BLOCK_K) + turned<ROWS>(own + r / 2, 64 * (r % 2) + 2 * lane + i % 2)];
  };
#endif

  // 3. Images, residues, sums.
  const int64_t block = rows_padded * k_padded;
  const int first = static_cast<int>(at_row % (TILE / ROWS)) * ROWS + own;
  int8_t* const out = slices + (static_cast<int64_t>(at_row / (TILE / ROWS)) * blocks_k + at_k) * (TILE * BLOCK_K);
  Bits bits[8];
  load(0, bits);
#pragma unroll 1
  for (int r = 0; r < 2 * OWN; ++r) {
    uint32_t bytes[8][LENGTH];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      make_images<4>(bits + 4 * i, __shfl_sync(0xffffffffu, scale, OWN * i + r / 2), bytes + 4 * i);
    if (r + 1 < 2 * OWN) load(r + 1, bits);

    const int64_t offset = offset_of_row(first & ~7, (first & 7) + r / 2, 4 * (r % 2) + c, 0);
#pragma unroll 1
    for (int u = 0; u < EIGHTS; ++u) {
      const int s = 8 * u + g;
      const Cut cut(s, c);
      uint32_t quadrant[4][4], sum[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t slice[2][2][4];
        cut.apply(bytes + 2 * i, slice);
        gather(slice, quadrant[i]);
      }
      int8_t* const to = out + (s * (7 * block) + offset);
      const auto store = [&](int i, const uint32_t(&packed)[4]) { store_16_bytes(to + i * block, packed, s < count); };
      constexpr int places[4] = {4, 5, 6, NEIGHBOURS > 0 ? 3 : 2};
      // The quadrants themselves first: if they were stored later, their registers would be needed longer.
      store(0, quadrant[0]);
      store(1, quadrant[1]);
      store(5 - places[3], quadrant[3]);
      const Modulus m(cut.quotient.modulus);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        uint32_t sums[4];
        slice_sums<NEIGHBOURS == 0>(quadrant[0][w], quadrant[1][w], quadrant[2][w], quadrant[3][w], m, sums);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i][w] = sums[i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) store(places[i], sum[i]);
    }
  }
}
