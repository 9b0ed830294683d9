// Rows of 16-bit floats to digits: described, proven to be enough, and written (docs/definitions.md, 11).
//
// Macros:
// - FORMAT: BFloat16 or Float16
// - COLUMNS: 1 for the columns of B, all of which have OF_COLUMNS digits, and whose summary is made; 0 for the rows of
//   A, which have FEWEST_DIGITS digits or, if these are not proven, MOST_DIGITS, which are more, if these are not,
//   none: the row is exact
// - THREADS: of a block: 256 where rows are few; where they are many 128, since most of a row's time is what all of its
//   threads wait for one by one, and a multiprocessor has room for ten rows then
// - HELD: 1 if dynamic shared memory holds FEWEST_DIGITS (of columns OF_COLUMNS) bytes for each of the k_padded
//   elements
// - REVERSED: 1 stores the most significant digit last
// - TILE: 0 for plain rows, or the rows of a tile (tiles.cuh), with NEIGHBOURS
// - COMPACTED: 1 in tiles, where the rows of A that have FEWEST_DIGITS digits stand one after the other from the first
//   place on, in any order, and those of MOST_DIGITS digits from the last place down; 0 where rows stay where they are
// - COUNTED: 1 if rows of A are counted, and exact ones listed; 0 if not, as of few rows beside many columns, and each
//   row's error is written
//
// Row (b, row) begins at x + b sb + row sr (in elements) and has k elements side by side. Digit s (1 the most
// significant) of element h of the row at `place` goes to slices + b batch_stride + (s - 1) slice_stride (REVERSED:
// digits - s) plus
//   TILE = 0:  place row_stride + (h / slab) slab_stride + h % slab
//   else:      the offset of (place, h) that tiles.cuh gives,
// with zeros for k <= h < k_padded, a multiple of 128; rows in tiles beyond those that there are stay as they are, and
// so do digits that a row has not.
//
// mu[b places + place] is the image exponent, nonfinite[b rows + row] the number of NaN and Inf, which count as zeros,
// for b < own_batch: the matrices that the operand itself has.
// Of A, COMPACTED: row_of[b places + place] = row; else row_of[b rows + row] is the number of digits, 0 if the row is
// exact. COUNTED: counts[2 b], counts[2 b + 1] are the rows of FEWEST_DIGITS and of MOST_DIGITS digits, `exact` lists
// b rows + row of all exact rows, exact_count is their number; worst[0] the largest proven error of a row, the bits of
// a float64. Else worst[b rows + row] is that of the row, 0 of an exact one. All counts, the summary and, COUNTED,
// `worst` are zero before.
//
// k < 2^31. THREADS threads; grid batch * rows: a block for each row, which is read once where it is HELD; what is read
// again of others is in the caches. An element of bfloat16 takes about 22 instructions, and a row those of 1500 more:
// 4096 x 4096 of them 19 microseconds of an H100, which needs about 20 for their 64 MB.
//
// Few rows are waited for. By count the block of a row of 8192 takes 3 to 4 microseconds of an H200: for the row, which
// is on its way at once, and in the second-level cache if the kernel before ran for long enough, 0.3 to 1; phase 2 1.1
// to 1.5; the exponent, the proof and three barriers 0.8; and 0.9 until all digits are seen. A call for rows alone takes
// 4.3 to 4.5 there.
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

constexpr int WARPS = THREADS / 32;
#if __CUDA_ARCH__ == 900 && COUNTED
constexpr int RESIDENT = 1280;  // threads of a multiprocessor: 48 registers are enough
#else
constexpr int RESIDENT = 1024;
#endif
constexpr int AT_ONCE = COUNTED ? 4 : 8;  // loads of a thread on their way: of few rows as long as 16384 all at once
constexpr int FIRST_DIGITS = COLUMNS ? OF_COLUMNS : FEWEST_DIGITS;

static_assert(FIRST_DIGITS == 2 || FIRST_DIGITS == 3, "what is held of a row");

// A scaling rule (docs/definitions.md, 2).
struct Rule {
  int64_t base, threshold;
};

// Where digits go.
struct Slices {
  uint8_t* slices;
  int64_t batch_stride, row_stride, slice_stride, slab, slab_stride;
};

// The sums of a thread, or of a warp: inexact elements, squares, and the squares of the last OF_COLUMNS - 1 digits;
// below 2^52.
struct Sums {
  uint64_t value[4];

  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#if __CUDA_ARCH__ >= 800
      const uint32_t low = __reduce_add_sync(ALL, static_cast<uint32_t>(value[i]) & 0x3ffffffu);
      const uint32_t high = __reduce_add_sync(ALL, static_cast<uint32_t>(value[i] >> 26));
      value[i] = (static_cast<uint64_t>(high) << 26) + low;
#else
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) value[i] += __shfl_xor_sync(ALL, value[i], mask);
#endif
    }
  }
};

__device__ __forceinline__ uint32_t largest_of_warp(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(ALL, x);
#else
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = larger(x, __shfl_xor_sync(ALL, x, mask));
  return x;
#endif
}

// Eight elements from h on, zeros from k on, two in a limb.
__device__ __forceinline__ uint4 load_each(const uint16_t* row, int h, int k) {
  uint32_t raw[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    raw[i] = (h + 2 * i < k ? row[h + 2 * i] : 0u) |
             (h + 2 * i + 1 < k ? static_cast<uint32_t>(row[h + 2 * i + 1]) << 16 : 0u);
  return make_uint4(raw[0], raw[1], raw[2], raw[3]);
}
__device__ __forceinline__ uint4 load_eight(const uint16_t* row, int h, int k, bool aligned) {
  return aligned && h + 8 <= k ? *reinterpret_cast<const uint4*>(row + h) : load_each(row, h, k);
}
// use(h, eight elements from h on) of all that this thread has, AT_ONCE of which are on their way at the same time.
template <typename Use>
__device__ __forceinline__ void each_eight(const uint16_t* row, int k, bool aligned, const Use& use) {
  const int whole = aligned ? k & ~7 : 0;
  for (int first = 8 * static_cast<int>(threadIdx.x); first < whole; first += 8 * THREADS * AT_ONCE) {
    uint4 eight[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int h = first + 8 * THREADS * i;
      eight[i] = h < whole ? *reinterpret_cast<const uint4*>(row + h) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int h = first + 8 * THREADS * i;
      if (h < whole) use(h, eight[i]);
    }
  }
  for (int h = whole + 8 * static_cast<int>(threadIdx.x); h < k; h += 8 * THREADS) use(h, load_each(row, h, k));
}
// The bits of the float32 that element i of eight is; zero for NaN and Inf, of which ordinary rows have none.
template <bool ORDINARY> __device__ __forceinline__ uint32_t element(const uint4& raw, int i) {
  const uint32_t limb = i / 2 == 0 ? raw.x : i / 2 == 1 ? raw.y : i / 2 == 2 ? raw.z : raw.w;
  const uint32_t bits = i % 2 == 0 ? limb & 0xffffu : limb >> 16;
  return ORDINARY ? widened<FORMAT>(bits) : finite_element<FORMAT>(bits);
}

// The digits of eight elements, two limbs of four bytes for each of the FIRST-th and later ones; adds to the number of
// elements whose image is inexact.
template <int DIGITS, bool ORDINARY>
__device__ __forceinline__ void digits_of(const uint4& raw, int mu, uint32_t (&digits)[DIGITS][2],
                                          uint32_t& inexact) {
  const float power = power_of_two(ORDINARY ? mu : 0), inverse = power_of_two(ORDINARY ? -mu : 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t bytes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Image image = image_of<DIGITS, ORDINARY>(element<ORDINARY>(raw, 4 * half + i), mu, power, inverse);
      bytes[i] = digit_bytes(image.value);
      inexact += image.inexact ? 1 : 0;
    }
#pragma unroll
    for (int s = 0; s < DIGITS; ++s)
      digits[s][half] = gather_bytes(bytes[0], bytes[1], bytes[2], bytes[3], DIGITS - 1 - s);
  }
}

#if !COLUMNS
// The bound of the error of a row of P digits (row_proof.cuh), by a warp that knows all sums: a lane for each root.
template <int P> __device__ __forceinline__ double error_of_row(const OfRow& row, const Columns& columns, int width) {
  const int lane = threadIdx.x & 31;
  double root = 0.0, roots[ROOTS<OF_COLUMNS>];
  if (lane < ROOTS<OF_COLUMNS>) root = rounded_root(under_root<P, OF_COLUMNS>(lane, row, columns));
#pragma unroll
  for (int i = 0; i < ROOTS<OF_COLUMNS>; ++i) roots[i] = __shfl_sync(ALL, root, i);
  return row_error<P, OF_COLUMNS>(roots, width);
}
#endif

typedef uint32_t Histogram[THRESHOLDS + 1][32];  // the last one counts what no threshold does

// What a thread keeps for itself of the eight elements from h on, where rows are HELD: the elements themselves, then in
// their place the two most significant digits of the image with the fewest, and behind all elements the third digit.
struct Held {
  uint4* elements;
  uint2* thirds;

  template <int DIGITS> __device__ __forceinline__ void keep(int h, const uint32_t (&digits)[DIGITS][2]) const {
    elements[h / 8] = make_uint4(digits[0][0], digits[0][1], digits[1][0], digits[1][1]);
    if constexpr (DIGITS > 2) thirds[h / 8] = make_uint2(digits[2][0], digits[2][1]);
  }
  template <int DIGITS> __device__ __forceinline__ void find(int h, uint32_t (&digits)[DIGITS][2]) const {
    const uint4 two = elements[h / 8];
    digits[0][0] = two.x, digits[0][1] = two.y, digits[1][0] = two.z, digits[1][1] = two.w;
    if constexpr (DIGITS > 2) {
      const uint2 third = thirds[h / 8];
      digits[2][0] = third.x, digits[2][1] = third.y;
    }
  }
};

// A thread's share of the sums of a row; and, if it is the FIRST time, of squares of its elements and of counts.
template <int DIGITS, bool ORDINARY, bool FIRST>
__device__ __forceinline__ Sums sums_of(const uint16_t* row, int k, bool aligned, int top, int mu, int width,
                                        Histogram& histogram, const Held& held) {
  const FastCeiling<uint32_t> ceiling(width, ORDINARY ? top : 0);
  const int lane = threadIdx.x & 31;
  Sums sums = {{0, 0, 0, 0}};
  constexpr int BEFORE = DIGITS - (OF_COLUMNS - 1);  // digits whose squares nothing asks for
  uint32_t inexact = 0, low[MOST_LOW] = {};
  for (int h = 8 * static_cast<int>(threadIdx.x); h < k; h += 8 * THREADS) {
    const uint4 raw = FIRST && HELD ? held.elements[h / 8] : load_eight(row, h, k, aligned);
    uint32_t digits[DIGITS][2];
    digits_of<DIGITS, ORDINARY>(raw, mu, digits, inexact);
#pragma unroll
    for (int s = BEFORE; s < DIGITS; ++s)
      low[s - BEFORE] = add_squares(digits[s][1], add_squares(digits[s][0], low[s - BEFORE]));
    if constexpr (FIRST) {
      if constexpr (HELD) held.keep<DIGITS>(h, digits);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t bits = element<ORDINARY>(raw, i);
        const uint32_t y = ORDINARY ? ceiling(bits) : ceil_magnitude(parts(bits), width, top).value;
        sums.value[1] += static_cast<uint64_t>(y) * y;
        atomicAdd(&histogram[first_threshold<ORDINARY>(bits, top)][lane], 1u);
      }
    }
  }
  sums.value[0] = inexact, sums.value[2] = low[0], sums.value[3] = low[1];
  return sums;
}

// Writes the digits of a row, those that are HELD or found anew.
template <int DIGITS, bool ORDINARY, bool FIRST>
__device__ __forceinline__ void write_digits(const uint16_t* row, int k, int k_padded, bool aligned, int mu,
                                             const Slices& to, int64_t b, int place, const Held& held) {
#if TILE
  const int r = permuted_column<NEIGHBOURS>(place % TILE);
  const int64_t of_tile = static_cast<int64_t>(place / TILE) * (k_padded / 128) * (TILE * 128);
  uint8_t* const out = to.slices + b * to.batch_stride + of_tile;
#else
  uint8_t* const out = to.slices + b * to.batch_stride + place * to.row_stride;
#endif
  for (int h = 8 * static_cast<int>(threadIdx.x); h < k_padded; h += 8 * THREADS) {
    uint32_t digits[DIGITS][2] = {}, inexact = 0;
    if constexpr (FIRST && HELD) {
      if (h < k) held.find<DIGITS>(h, digits);
    } else {
      digits_of<DIGITS, ORDINARY>(load_eight(row, h, k, aligned), mu, digits, inexact);
    }
#if TILE
    const int64_t at = static_cast<int64_t>(h / 128) * (TILE * 128) + tile_offset(r, h % 128 / 16) + h % 16;
#else
    const int64_t at = h / to.slab * to.slab_stride + h % to.slab;
#endif
#pragma unroll
    for (int s = 0; s < DIGITS; ++s)
      *reinterpret_cast<uint2*>(out + at + (REVERSED ? DIGITS - 1 - s : s) * to.slice_stride) =
          make_uint2(digits[s][0], digits[s][1]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
row_digits(const uint16_t* __restrict__ x, int64_t sb, int64_t sr, int64_t rows, int k, int k_padded, int64_t places,
           int64_t own_batch, int width, const Rule first_rule, const Rule second_rule, const Slices to,
           int32_t* __restrict__ mu_out, int64_t* __restrict__ nonfinite_out, Columns* columns, int64_t columns_step,
           int32_t* __restrict__ row_of, uint32_t* __restrict__ counts, int64_t* __restrict__ exact,
           Count* __restrict__ exact_count, Count* __restrict__ worst) {
  __shared__ __align__(16) Histogram histogram;
  __shared__ Sums shared[WARPS];
  __shared__ uint32_t largest[WARPS], special[WARPS];
#if HELD
  extern __shared__ __align__(16) uint8_t dynamic[];
  const Held held = {reinterpret_cast<uint4*>(dynamic), reinterpret_cast<uint2*>(dynamic + 2 * k_padded)};
#else
  const Held held = {nullptr, nullptr};
#endif
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const uint32_t of_matrix = static_cast<uint32_t>(rows);
  const int64_t b = blockIdx.x / of_matrix, row = blockIdx.x % of_matrix;
  const uint16_t* const from = x + b * sb + row * sr;
  const bool aligned = (reinterpret_cast<uint64_t>(from) & 15) == 0;
  columns += b * columns_step;
#if !COUNTED
  // A few rows begin while the kernel before, of the product before, is busy with memory.
#pragma unroll 1
  for (int h = 64 * thread; h < k; h += 64 * THREADS) prefetch(from + h);
  const uint8_t* const summary = reinterpret_cast<const uint8_t*>(columns);
  if (128 * thread < static_cast<int>(sizeof(Columns))) prefetch(summary + 128 * thread);
#endif
#pragma unroll 1
  for (int i = thread; i < (THRESHOLDS + 1) * 8; i += THREADS)
    reinterpret_cast<uint4*>(histogram)[i] = make_uint4(0, 0, 0, 0);
  after_previous();

#if !COLUMNS
  // The summary of the columns comes beside the row.
  __shared__ Columns of_columns;
  __shared__ uint64_t beyond[THRESHOLDS];
  __shared__ double proof_error, proof_least, proof_limit;
  constexpr int LIMBS = sizeof(Columns) / 4;
  static_assert(LIMBS <= THREADS, "a thread for each limb of the summary");
  const uint32_t limb = thread < LIMBS ? reinterpret_cast<const uint32_t*>(columns)[thread] : 0u;
#endif
  if (thread == 0 && b < own_batch) nonfinite_out[b * rows + row] = 0;

  // 1. The largest magnitude; of rows with NaN or Inf once more, of the other elements.
  uint32_t most = 0, specials = 0;
  {
    uint32_t lower = 0, upper = 0;
    each_eight(from, k, aligned, [&](int h, const uint4& eight) {
      const uint32_t raw[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        lower = larger(lower, raw[i] & 0x7fffu);
        upper = larger(upper, raw[i] & 0x7fff0000u);
      }
      if constexpr (HELD) held.elements[h / 8] = eight;
    });
    most = larger(lower, upper >> 16);
  }
#if !COLUMNS
  if (thread < LIMBS) reinterpret_cast<uint32_t*>(&of_columns)[thread] = limb;
#endif
  const auto of_all = [&](uint32_t value, uint32_t (&shared)[WARPS]) {  // the largest value of all threads
    value = largest_of_warp(value);
    if (lane == 0) shared[warp] = value;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) value = larger(value, shared[i]);
    return value;
  };
  most = of_all(most, largest);
  const bool finite = most < FORMAT::INFINITE;
  if (!finite) {
    most = 0;
    for (int h = thread; h < k; h += THREADS) {
      const uint32_t magnitude = from[h] & 0x7fffu;
      if (magnitude < FORMAT::INFINITE)
        most = larger(most, magnitude);
      else
        ++specials;
    }
    most = of_all(most, special);
    if (specials != 0 && b < own_batch)
      atomicAdd(reinterpret_cast<Count*>(nonfinite_out + b * rows + row), static_cast<Count>(specials));
  }
  const Parts of_largest = parts(widened<FORMAT>(most));
  const int top = top_exponent(of_largest);
  const uint32_t peak = ceil_magnitude(of_largest, width, top).value;
  const auto exponent = [&](const Rule& rule) {
    return row_exponent(top, peak, 2, static_cast<int>(rule.base), rule.threshold);
  };
  // The sums of each warp in `shared`, for all; and their sums, those of digits in their units.
  const auto share = [&](Sums& sums) {
    sums.add_lanes();
    if (lane == 0) shared[warp] = sums;
    __syncthreads();
  };
  const auto of_block = [&](int digits, int mu) {
    OfRow found = {0, 0, {0, 0}};
#pragma unroll
    for (int i = 0; i < WARPS; ++i) {
      found.inexact += shared[i].value[0], found.squares += shared[i].value[1];
      found.low[0] += shared[i].value[2], found.low[1] += shared[i].value[3];
    }
    const int h = top == EMPTY_TOP ? 0 : 2 * (8 * digits - 1 - (mu + top));
    found.inexact <<= h;
    found.low[0] <<= h + (OF_COLUMNS == 3 ? 16 : 0);
    found.low[1] <<= h;
    return found;
  };

  // 2. Sums and counts.
  int mu = exponent(first_rule);
  bool ordinary = finite && is_ordinary(top, mu);
  Sums sums = ordinary ? sums_of<FIRST_DIGITS, true, true>(from, k, aligned, top, mu, width, histogram, held)
                       : sums_of<FIRST_DIGITS, false, true>(from, k, aligned, top, mu, width, histogram, held);
  share(sums);  // which is a barrier for the histogram, too
  uint32_t reached[2] = {0, 0};  // of the first warp: the elements that are no less than thresholds 2 lane, 2 lane + 1
  if (warp == 0) {
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll AT_ONCE
      for (int i = 0; i < 8; ++i) {  // eight neighbouring lanes read other banks
        const uint4 four = reinterpret_cast<const uint4*>(histogram[2 * lane + j])[(i + lane) % 8];
        reached[j] += four.x + four.y + four.z + four.w;
      }
    uint32_t before = reached[0] + reached[1];
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const uint32_t other = __shfl_sync(ALL, before, lane - offset);
      if (lane >= offset) before += other;
    }
    reached[0] = before - reached[1];
    reached[1] = before;
  }

#if COLUMNS
  // 3. Into the summary.
  if (top != EMPTY_TOP) {
    const auto merge = [](uint64_t& to, uint64_t value) {
      if (value > *static_cast<volatile uint64_t*>(&to))
        atomicMax(reinterpret_cast<Count*>(&to), static_cast<Count>(value));
    };
    if (warp == 0) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t missing = static_cast<uint32_t>(k) - reached[j];
        if (missing > *static_cast<volatile uint32_t*>(&columns->missing[2 * lane + j]))
          atomicMax(&columns->missing[2 * lane + j], missing);
      }
    }
    if (thread == 32) {
      const OfRow of_row = of_block(OF_COLUMNS, mu);
      merge(columns->inexact, of_row.inexact);
      merge(columns->squares, of_row.squares);
      merge(columns->low[0], of_row.low[0]);
      merge(columns->low[1], of_row.low[1]);
    }
  }
  if (thread == 0) mu_out[b * places + row] = mu;
  // 4. Digits.
  if (ordinary)
    write_digits<OF_COLUMNS, true, true>(from, k, k_padded, aligned, mu, to, b, static_cast<int>(row), held);
  else
    write_digits<OF_COLUMNS, false, true>(from, k, k_padded, aligned, mu, to, b, static_cast<int>(row), held);
#else
  // 3. The proof: the first warp finds the least entry, beside which the second one finds the error.
  uint64_t squares = 0;
  if (warp == 0) {
    const uint32_t of_first = of_columns.missing[2 * lane], of_second = of_columns.missing[2 * lane + 1];
    const uint64_t first = static_cast<uint64_t>(threshold_step(2 * lane)) * of_first;
    uint64_t after = first + static_cast<uint64_t>(threshold_step(2 * lane + 1)) * of_second;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {  // sums over the thresholds of columns from each one on
      const uint64_t other = __shfl_sync(ALL, after, lane + offset);
      if (lane + offset < 32) after += other;
    }
    beyond[2 * lane] = after, beyond[2 * lane + 1] = after - first;
    __syncwarp();
    uint64_t least = least_terms(2 * lane, reached[0], of_columns.missing, beyond) +
                     least_terms(2 * lane + 1, reached[1], of_columns.missing, beyond);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) least += __shfl_xor_sync(ALL, least, mask);
    if (lane == 0) {
      proof_least = least_entry(least);
      proof_limit = k <= LONGEST_PROVEN ? rounded_product(double_power(-FORMAT::PRECISION), proof_least) : -1.0;
    }
  }
  if (warp == 1) {
    const OfRow of_row = of_block(FEWEST_DIGITS, mu);
    squares = of_row.squares;
    const double error = error_of_row<FEWEST_DIGITS>(of_row, of_columns, width);
    if (lane == 0) proof_error = error;
  }
  __syncthreads();
  int digits = proof_error <= proof_limit ? FEWEST_DIGITS : 0;
  if (digits == 0) {
    mu = exponent(second_rule);
    ordinary = finite && is_ordinary(top, mu);
    Sums more = ordinary ? sums_of<MOST_DIGITS, true, false>(from, k, aligned, top, mu, width, histogram, held)
                         : sums_of<MOST_DIGITS, false, false>(from, k, aligned, top, mu, width, histogram, held);
    share(more);
    if (warp == 1) {
      OfRow of_row = of_block(MOST_DIGITS, mu);
      of_row.squares = squares;
      const double error = error_of_row<MOST_DIGITS>(of_row, of_columns, width);
      if (lane == 0) proof_error = error;
    }
    __syncthreads();
    if (proof_error <= proof_limit) digits = MOST_DIGITS;
  }
#if COUNTED
  if (thread == 0 && digits == 0) exact[atomicAdd(exact_count, Count(1))] = b * rows + row;
#endif
#if COMPACTED
  if (digits == 0) return;
  __shared__ int chosen;  // the place
  if (thread == 0) {
    const bool few = digits == FEWEST_DIGITS;
    const int64_t at = atomicAdd(&counts[2 * b + (few ? 0 : 1)], 1u), found = few ? at : places - 1 - at;
    row_of[b * places + found] = static_cast<int32_t>(row);
    mu_out[b * places + found] = mu;
    chosen = static_cast<int>(found);
  }
  __syncthreads();
  const int place = chosen;
#else
  const int place = static_cast<int>(row);
  if (thread == 0) {
#if COUNTED
    if (digits != 0) atomicAdd(&counts[2 * b + (digits == FEWEST_DIGITS ? 0 : 1)], 1u);
#endif
    row_of[b * rows + row] = digits;
    mu_out[b * places + row] = digits == 0 ? 0 : mu;
  }
#endif
  // 4. Digits; those of exact rows that are not compacted are never read.
  if (digits == FEWEST_DIGITS) {
    if (ordinary)
      write_digits<FEWEST_DIGITS, true, true>(from, k, k_padded, aligned, mu, to, b, place, held);
    else
      write_digits<FEWEST_DIGITS, false, true>(from, k, k_padded, aligned, mu, to, b, place, held);
  }
  if (digits == MOST_DIGITS) {
    if (ordinary)
      write_digits<MOST_DIGITS, true, false>(from, k, k_padded, aligned, mu, to, b, place, held);
    else
      write_digits<MOST_DIGITS, false, false>(from, k, k_padded, aligned, mu, to, b, place, held);
  }
  if (thread == 0) {  // for which no other thread waits any more; of an exact row, which is not proven, zero
    const bool inexact = digits != 0 && proof_error > 0.0;
    const Count relative = inexact ? static_cast<Count>(bits_of(proof_error / proof_least)) : 0;
#if COUNTED
    if (relative != 0) atomicMax(worst, relative);
#else
    worst[b * rows + row] = relative;
#endif
  }
#endif
}
