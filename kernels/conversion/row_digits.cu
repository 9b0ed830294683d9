// Rows of 16-bit floats to digits: described, proven to be enough, and written (docs/definitions.md, 11).
//
// Macros:
// - FORMAT: BFloat16 or Float16
// - COLUMNS: 1 for the columns of B, all of which have OF_COLUMNS digits, and whose summary is made; 0 for the rows of A,
//   which have FEWEST_DIGITS digits or, if these are not proven, MOST_DIGITS, if these are not, none: the row is listed as exact
// - REVERSED: 1 stores the most significant digit last
// - TILE: 0 for plain rows, where rows are, or the rows of a tile (tiles.cuh), with NEIGHBOURS. In tiles the rows of A
//   that have FEWEST_DIGITS digits stand one after the other from the first place on, in any order, and those of MOST_DIGITS digits
//   from the last place down
//
// Row (b, row) begins at x + b sb + row sr (in elements) and has k elements side by side. Digit s (1 the most
// significant) of element h of the row at `place` goes to slices + b batch_stride + (s - 1) slice_stride (REVERSED:
// digits - s) plus
//   TILE = 0:  place row_stride + (h / slab) slab_stride + h % slab
//   else:      the offset of (place, h) that tiles.cuh gives,
// with zeros for k <= h < k_padded, a multiple of 128; rows in tiles beyond those that there are stay as they are.
//
// mu[b places + place] is the image exponent, nonfinite[b rows + row] the number of NaN and Inf, which count as zeros, for
// b < own_batch: the matrices that the operand itself has.
// Of A, tiled: row_of[b places + place] = row, and counts[2 b], counts[2 b + 1] the rows of FEWEST_DIGITS and of MOST_DIGITS digits;
// not tiled: row_of[b rows + row] is the number of digits, 0 if the row is exact. `exact` lists b rows + row of all exact
// rows, exact_count is their number; worst[0] the largest proven error of a row, the bits of a float64. All counts, the
// summary and `worst` are zero before.
//
// 256 threads; grid batch * rows: a block for each row. What it reads again after the first time is in the first-level
// cache. 16.8 million elements take about 25 instructions each, 15 microseconds of an H100, and 64 MB of memory, 22.
//
// Phases:
// 1. The largest magnitude, and NaN and Inf.
// 2. Sums and counts of the image with the fewest digits.
// 3. Columns: into the summary. Rows: the proof; if it fails, sums of the image with more digits, and the proof.
// 4. Digits, of a row of A where its kind has room.
#include "arithmetic/row_proof.cuh"
#include "hardware/launch.cuh"
#include "hardware/tiles.cuh"

typedef unsigned long long Count;

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int FIRST_DIGITS = COLUMNS ? OF_COLUMNS : FEWEST_DIGITS;

// A scaling rule (docs/definitions.md, 2).
struct Rule {
  int64_t base, threshold;
};

// Where digits go.
struct Slices {
  uint8_t* slices;
  int64_t batch_stride, row_stride, slice_stride, slab, slab_stride;
};

// The sums of a thread, or of the block.
struct Sums {
  uint64_t value[4];  // inexact, squares, those of digits 2, 3

  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] += __shfl_xor_sync(ALL, value[i], mask);
  }
};

// Loads eight elements from h on as the bits of float32 numbers; zeros for NaN, Inf and from k on. What is `raw` keeps
// its bits.
__device__ __forceinline__ void load_eight(const uint16_t* row, int64_t h, int64_t k, bool aligned, uint32_t (&raw)[8]) {
  if (aligned && h + 8 <= k) {
    const uint4 v = *reinterpret_cast<const uint4*>(row + h);
    const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) raw[2 * i] = pairs[i] & 0xffffu, raw[2 * i + 1] = pairs[i] >> 16;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) raw[i] = h + i < k ? row[h + i] : 0u;
  }
}

// Eight digits of one number, two limbs of four bytes each.
template <int DIGITS>
__device__ __forceinline__ void digits_of(const uint32_t (&raw)[8], int mu, uint32_t (&digits)[DIGITS][2],
                                          uint32_t& inexact) {
  const bool usual = usual_power(mu);
  const float power = power_of_two(usual ? mu : 0), inverse = power_of_two(usual ? -mu : 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t bytes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Image image = image_of<DIGITS>(finite_element<FORMAT>(raw[4 * half + i]), mu, power, inverse, usual);
      bytes[i] = digit_bytes(image.value);
      inexact += image.inexact ? 1 : 0;
    }
#pragma unroll
    for (int s = 0; s < DIGITS; ++s)
      digits[s][half] = gather_bytes(bytes[0], bytes[1], bytes[2], bytes[3], DIGITS - 1 - s);
  }
}

// Writes the digits of a row.
template <int DIGITS>
__device__ __forceinline__ void write_digits(const uint16_t* row, int64_t k, int64_t k_padded, bool aligned, int mu,
                                             const Slices& to, int64_t b, int64_t place) {
  uint8_t* const out = to.slices + b * to.batch_stride;
  for (int64_t h = 8 * static_cast<int64_t>(threadIdx.x); h < k_padded; h += 8 * THREADS) {
    uint32_t raw[8], digits[DIGITS][2], inexact = 0;
    load_eight(row, h, k, aligned, raw);
    digits_of<DIGITS>(raw, mu, digits, inexact);
#if TILE
    const int r = permuted_column<NEIGHBOURS>(static_cast<int>(place % TILE));
    const int64_t at = ((place / TILE) * (k_padded / 128) + h / 128) * (TILE * 128) +
                       tile_offset(r, static_cast<int>(h % 128 / 16)) + h % 16;
#else
    const int64_t at = place * to.row_stride + h / to.slab * to.slab_stride + h % to.slab;
#endif
#pragma unroll
    for (int s = 0; s < DIGITS; ++s)
      *reinterpret_cast<uint2*>(out + at + (REVERSED ? DIGITS - 1 - s : s) * to.slice_stride) =
          make_uint2(digits[s][0], digits[s][1]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
row_digits(const uint16_t* __restrict__ x, int64_t sb, int64_t sr, int64_t rows, int64_t k, int64_t k_padded,
           int64_t places, int64_t own_batch, int width, const Rule first_rule, const Rule second_rule, const Slices to,
           int32_t* __restrict__ mu_out, int64_t* __restrict__ nonfinite_out, Columns* columns, int64_t columns_step,
           int32_t* __restrict__ row_of, uint32_t* __restrict__ counts, int64_t* __restrict__ exact,
           Count* __restrict__ exact_count, Count* __restrict__ worst) {
  after_previous();
  __shared__ uint32_t histogram[THRESHOLDS][32], reached[THRESHOLDS];
  __shared__ Sums shared[WARPS];
  __shared__ uint32_t largest[WARPS], special[WARPS];
#if !COLUMNS
  __shared__ uint64_t terms[WARPS];
  __shared__ int chosen[3];  // digits, mu, place
#endif
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int64_t b = blockIdx.x / rows, row = blockIdx.x % rows;
  const uint16_t* const from = x + b * sb + row * sr;
  const bool aligned = (reinterpret_cast<uint64_t>(from) & 15) == 0;
  columns += b * columns_step;

  // 1. The largest magnitude.
  uint32_t most = 0, specials = 0;
  for (int64_t h = 8 * static_cast<int64_t>(thread); h < k; h += 8 * THREADS) {
    uint32_t raw[8];
    load_eight(from, h, k, aligned, raw);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t magnitude = raw[i] & 0x7fffu;
      const bool finite = magnitude < FORMAT::INFINITE;
      most = larger(most, finite ? magnitude : 0u);
      specials += finite ? 0 : 1;
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    most = larger(most, __shfl_xor_sync(ALL, most, mask));
    specials += __shfl_xor_sync(ALL, specials, mask);
  }
  if (lane == 0) largest[warp] = most, special[warp] = specials;
  for (int i = thread; i < THRESHOLDS * 32; i += THREADS) histogram[i / 32][i % 32] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < WARPS; ++i) most = larger(most, largest[i]);
  if (thread == 0) {
    specials = 0;
    for (int i = 0; i < WARPS; ++i) specials += special[i];
    if (b < own_batch) nonfinite_out[b * rows + row] = specials;
  }
  const Parts of_largest = parts(widened<FORMAT>(most));
  const int top = top_exponent(of_largest);
  const int64_t peak = ceil_magnitude(of_largest, width, top).value;
  const auto exponent = [&](const Rule& rule) {
    return row_exponent(top, peak, 2, static_cast<int>(rule.base), rule.threshold);
  };
  // The sum of each number over all threads, those of digits in their units; for all threads.
  const auto of_block = [&](Sums& sums, int digits, int mu) {
    sums.add_lanes();
    __syncthreads();
    if (lane == 0) shared[warp] = sums;
    __syncthreads();
    OfRow found = {0, 0, {0, 0}};
    for (int i = 0; i < WARPS; ++i) {
      found.inexact += shared[i].value[0], found.squares += shared[i].value[1];
      found.low[0] += shared[i].value[2], found.low[1] += shared[i].value[3];
    }
    const int h = top == EMPTY_TOP ? 0 : 2 * (8 * digits - 1 - (mu + top));
    found.inexact <<= h;
    found.low[0] <<= h + (digits == 3 ? 16 : 0);
    found.low[1] <<= h;
    return found;
  };

  // 2. Sums and counts.
  int mu = exponent(first_rule);
  Sums sums = {{0, 0, 0, 0}};
  {
    const bool fast = top > FastTop<uint32_t>::value;
    const FastCeiling<uint32_t> ceiling(width, fast ? top : 0);
    uint32_t inexact = 0, low[2] = {0, 0};
    for (int64_t h = 8 * static_cast<int64_t>(thread); h < k; h += 8 * THREADS) {
      uint32_t raw[8], digits[FIRST_DIGITS][2];
      load_eight(from, h, k, aligned, raw);
      digits_of<FIRST_DIGITS>(raw, mu, digits, inexact);
#pragma unroll
      for (int s = 1; s < FIRST_DIGITS; ++s) low[s - 1] = add_squares(digits[s][1], add_squares(digits[s][0], low[s - 1]));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t bits = finite_element<FORMAT>(raw[i]);
        const uint32_t y = fast ? ceiling(bits) : ceil_magnitude(parts(bits), width, top).value;
        sums.value[1] += static_cast<uint64_t>(y) * y;
        const int bucket = first_threshold(bits, top);
        if (bucket < THRESHOLDS) atomicAdd(&histogram[bucket][lane], 1u);
      }
    }
    sums.value[0] = inexact, sums.value[2] = low[0], sums.value[3] = low[1];
  }
  OfRow of_row = of_block(sums, FIRST_DIGITS, mu);  // which is a barrier for the histogram, too
  {
    constexpr int SHARED = THREADS / THRESHOLDS;  // threads of a threshold
    uint32_t count = 0;
#pragma unroll
    for (int i = 0; i < 32 / SHARED; ++i)
      count += histogram[thread / SHARED][(thread + SHARED * i) % 32];
#pragma unroll
    for (int mask = SHARED / 2; mask > 0; mask /= 2) count += __shfl_xor_sync(ALL, count, mask);
    if (thread % SHARED == 0) reached[thread / SHARED] = count;
  }
  __syncthreads();
  if (warp == 0) {  // sums of the counts so far: two neighbours for each lane
    const uint32_t first = reached[2 * lane], second = reached[2 * lane + 1];
    uint32_t before = first + second;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const uint32_t other = __shfl_sync(ALL, before, lane - offset);
      if (lane >= offset) before += other;
    }
    reached[2 * lane] = before - second;
    reached[2 * lane + 1] = before;
  }
  __syncthreads();

#if COLUMNS
  // 3. Into the summary.
  if (top != EMPTY_TOP) {
    const auto merge = [](uint64_t& to, uint64_t value) {
      if (value > *static_cast<volatile uint64_t*>(&to)) atomicMax(reinterpret_cast<Count*>(&to), static_cast<Count>(value));
    };
    if (thread < THRESHOLDS) {
      const uint32_t missing = static_cast<uint32_t>(k) - reached[thread];
      if (missing > *static_cast<volatile uint32_t*>(&columns->missing[thread]))
        atomicMax(&columns->missing[thread], missing);
    } else if (thread == THRESHOLDS) {
      merge(columns->inexact, of_row.inexact);
      merge(columns->squares, of_row.squares);
      merge(columns->low[0], of_row.low[0]);
      merge(columns->low[1], of_row.low[1]);
    }
  }
  if (thread == 0) mu_out[b * places + row] = mu;
  // 4. Digits.
  write_digits<OF_COLUMNS>(from, k, k_padded, aligned, mu, to, b, row);
#else
  // 3. The proof.
  uint64_t least = 0;
  if (k <= LONGEST_PROVEN) {
    const int own = thread % THRESHOLDS;
    const uint32_t count = reached[own];
#pragma unroll 4
    for (int other = thread / THRESHOLDS; other < THRESHOLDS; other += THREADS / THRESHOLDS)
      least += least_term(own, other, count, columns->missing[other]);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) least += __shfl_xor_sync(ALL, least, mask);
  if (lane == 0) terms[warp] = least;
  __syncthreads();
  const auto prove = [&](double error, int digits) {  // by one thread
    uint64_t sum = 0;
    for (int i = 0; i < WARPS; ++i) sum += terms[i];
    const double of_least = least_entry(sum);
    const bool proven = k <= LONGEST_PROVEN && error <= rounded_product(double_power(-FORMAT::PRECISION), of_least);
    chosen[0] = proven ? digits : 0;
    if (!proven) return;
    chosen[1] = mu;
    if (error > 0.0)
      atomicMax(worst, static_cast<Count>(bits_of(error / of_least)));
#if TILE
    const bool few = digits == FEWEST_DIGITS;
    const int64_t at = atomicAdd(&counts[2 * b + (few ? 0 : 1)], 1u), place = few ? at : places - 1 - at;
    row_of[b * places + place] = static_cast<int32_t>(row);
    chosen[2] = static_cast<int>(place);
    mu_out[b * places + place] = mu;
#else
    atomicAdd(&counts[2 * b + (digits == FEWEST_DIGITS ? 0 : 1)], 1u);
    row_of[b * rows + row] = digits;
    chosen[2] = static_cast<int>(row);
    mu_out[b * places + row] = mu;
#endif
  };
  if (thread == 0) prove(row_error<FEWEST_DIGITS, OF_COLUMNS>(of_row, *columns, width), FEWEST_DIGITS);
  __syncthreads();
#if MOST_DIGITS > FEWEST_DIGITS
  if (chosen[0] == 0) {
    mu = exponent(second_rule);
    Sums more = {{0, 0, 0, 0}};
    uint32_t inexact = 0, low[2] = {0, 0};
    for (int64_t h = 8 * static_cast<int64_t>(thread); h < k; h += 8 * THREADS) {
      uint32_t raw[8], digits[MOST_DIGITS][2];
      load_eight(from, h, k, aligned, raw);
      digits_of<MOST_DIGITS>(raw, mu, digits, inexact);
#pragma unroll
      for (int s = 1; s < MOST_DIGITS; ++s) low[s - 1] = add_squares(digits[s][1], add_squares(digits[s][0], low[s - 1]));
    }
    more.value[0] = inexact, more.value[2] = low[0], more.value[3] = low[1];
    const uint64_t squares = of_row.squares;
    of_row = of_block(more, MOST_DIGITS, mu);
    of_row.squares = squares;
    if (thread == 0) prove(row_error<MOST_DIGITS, OF_COLUMNS>(of_row, *columns, width), MOST_DIGITS);
    __syncthreads();
  }
#endif
  if (chosen[0] == 0) {
    if (thread == 0) {
#if !TILE
      row_of[b * rows + row] = 0;
      mu_out[b * places + row] = 0;
#endif
      exact[atomicAdd(exact_count, Count(1))] = b * rows + row;
    }
#if TILE
    return;
#endif
  }
  // 4. Digits; those of exact rows that are not compacted are never read.
  if (chosen[0] == FEWEST_DIGITS) write_digits<FEWEST_DIGITS>(from, k, k_padded, aligned, chosen[1], to, b, chosen[2]);
#if MOST_DIGITS > FEWEST_DIGITS
  if (chosen[0] == MOST_DIGITS) write_digits<MOST_DIGITS>(from, k, k_padded, aligned, chosen[1], to, b, chosen[2]);
#endif
#endif
}
