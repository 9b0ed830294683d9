// What planning asks of a stack of small products, in one read of both operands: the worst ratios of error bound to lower
// bound over all entries of all matrices, at the narrow level (docs/bounds.md, B1, B7), and extremes of the descriptions
// of rows (docs/definitions.md, section 1). They are the numbers that describe.cu and proof.cu find in six launches, but
// nothing of what is made on the way goes to memory.
//
// Per element about 25 instructions, most of them for the two directed roundings that give the description's integer and
// the 7-bit magnitude: 65536 products of 16 x 16 x 16 are 34 million elements, 270 MB and 0.04 ms of issue slots on an
// H100, so memory (0.09 ms) is what it waits for. mma.sync takes 1 in 50 of the slots there.
//
// Macros: INPUT (double or float); REALS: 1, or 2 if elements are complex; ALONG_A, ALONG_B: 1 if neighbours along k lie
// closer together in memory than neighbouring rows of that operand; THREADS: of a block, a multiple of 64.
//
// Any grid on x. A block takes items blockIdx.x, blockIdx.x + gridDim.x, ...: an item is `matrices` products, or (then
// matrices = 1) a tile of one, a.tile rows of A by b.tile columns of B. Their rows are staged, `staged` rows at a time, in
// two buffers in turn: while one part is described, the next one, also of the next item, is on its way.
//
//   describe  a group of `lanes` lanes has a row, each eight elements: top, then sums and magnitudes
//   terms     a thread has a row: its error terms, for one scheme
//   compare   a warp has 16 rows and 32 columns: products of magnitudes, exact sums below 2^23, and their ratios
//
// Dynamic shared memory, with R = matrices (a.tile + b.tile) rows, D = k rounded up to 32, plus 16 (rows of bytes without
// bank conflicts), and S bytes in a buffer of staged rows:
//   magnitudes R D | error terms 24 R | descriptions 24 R | error terms, rounded up, 12 R | staged rows 2 S
#include "conversion/describing.cuh"
#include "hardware/launch.cuh"
#include "hardware/mma.cuh"
#include "arithmetic/worst.cuh"

// An operand: element h of row r of matrix i at i * sb + r * sr + h * sk, in real numbers.
struct Rows {
  const INPUT* x;
  int64_t sb, sr, sk;
  int64_t rows;    // of a matrix
  int64_t tile;    // of them in an item, with padding: a multiple of 16
  int64_t staged;  // at a time
};
// A scheme: the scaling rule (row_exponent), the rows of A in each matrix that are compared, and what is dropped.
struct Wanted {
  int64_t of_peak;  // whether the rule reads `peak`, else `squares`
  int64_t step, base, threshold, compared;
  double dropped;
};
struct AllWanted {
  Wanted of[2];
};

// Where the caller finds the results, all maxima of nonnegative numbers, zero before. A `span` is the top - bottom of a
// row that is not all zeros, and LEAST is `Description.least`.
enum Found {
  WORST,                        // of each scheme, as the bits of a double
  WIDEST = WORST + 2,           // largest span of a row of A, and of a column of B
  SPARE = WIDEST + 2,           // no_span - smallest span
  HIGHEST = SPARE + 1,          // RAISED + largest top of a row of A, and of a column of B
  LOWEST = HIGHEST + 2,         // RAISED - least LEAST, of both
  BLOCKS = LOWEST + 2           // blocks that are done
};
constexpr int RAISED = 8192;

constexpr int PACK = 16 / sizeof(INPUT);
constexpr int WARPS = THREADS / 32;
constexpr int UNIT = 4, UNITS = 2;  // a lane has UNITS times UNIT neighbouring elements of a row
constexpr int COLUMNS = 16;         // of a warp, in comparisons

struct Described {
  uint64_t squares;
  int top, bottom;
  uint32_t peak, magnitudes;
};

// The part of the stack that a block works on.
struct Item {
  int64_t entry;       // the first matrix
  int matrices;
  int row_a, row_b, each_a, each_b;  // first row, and rows, of each operand in a matrix
};

struct Stack {
  int64_t batch;
  uint32_t items, across, tiles;  // tiles of a product along n, and in all
  int matrices;

  __device__ __forceinline__ Item item(uint32_t i, const Rows& a, const Rows& b) const {
    uint32_t group = i, down = 0, over = 0;
    if (tiles > 1) {
      group = i / tiles;
      down = (i - group * tiles) / across;
      over = i - group * tiles - down * across;
    }
    Item item;
    item.entry = static_cast<int64_t>(group) * matrices;
    item.matrices = static_cast<int>(smaller<int64_t>(matrices, batch - item.entry));
    item.row_a = static_cast<int>(down * a.tile);
    item.row_b = static_cast<int>(over * b.tile);
    item.each_a = static_cast<int>(smaller<int64_t>(a.tile, a.rows - item.row_a));
    item.each_b = static_cast<int>(smaller<int64_t>(b.tile, b.rows - item.row_b));
    return item;
  }
};

// The matrix of an item to which its row q belongs; `inverse` = ceil(2^16 / rows of a matrix), exact for 256 rows.
__device__ __forceinline__ int matrix_of(int q, uint32_t inverse) { return static_cast<int>(q * inverse >> 16); }

// Starts to copy rows first .. first + count - 1 of an item, `each` of a matrix from row0 on, to shared memory, rows of
// `ld` numbers.
template <bool ALONG>
__device__ __forceinline__ void stage(const Rows& from, int64_t entry, int row0, int each, int first, int count, Bits* to,
                                      int ld, int k, uint32_t inverse) {
  const int tid = static_cast<int>(threadIdx.x);
  const int numbers = REALS * k;
  const auto row_at = [&](int q) {
    const int matrix = matrix_of(q, inverse);
    return reinterpret_cast<const Bits*>(from.x) + (entry + matrix) * from.sb +
           static_cast<int64_t>(row0 + q - matrix * each) * from.sr;
  };
  if (ALONG) {
    const uint64_t bytes = reinterpret_cast<uint64_t>(from.x) | static_cast<uint64_t>(from.sb) * sizeof(INPUT) |
                           static_cast<uint64_t>(from.sr) * sizeof(INPUT);
    const bool packs = from.sk == REALS && (bytes & 15) == 0;
    const int pieces = packs ? (numbers + PACK - 1) / PACK : numbers;
    const int width = pieces > 1 ? smaller(32, 1 << bit_length(static_cast<uint64_t>(pieces - 1))) : 1;
    const int begin = tid & (width - 1);
    for (int q = tid / width; q < count; q += THREADS / width) {
      const Bits* const row = row_at(first + q);
      if (packs) {
        for (int p = begin; p < pieces; p += width)
          copy_16_bytes(to + q * ld + p * PACK, row + p * PACK,
                        smaller<int>(16, (numbers - p * PACK) * static_cast<int>(sizeof(INPUT))));
      } else {
        for (int p = begin; p < pieces; p += width)
          copy_or_zero(to + q * ld + p, row + p / REALS * from.sk + p % REALS, true);
      }
    }
  } else {
    const int width = count > 1 ? smaller(THREADS, 1 << bit_length(static_cast<uint64_t>(count - 1))) : 1;
    for (int q = tid & (width - 1); q < count; q += width) {
      const Bits* const row = row_at(first + q);
      for (int h = tid / width; h < k; h += THREADS / width)
#pragma unroll
        for (int part = 0; part < REALS; ++part)
          copy_or_zero(to + q * ld + h * REALS + part, row + h * from.sk + part, true);
    }
  }
}

// Loads UNIT elements, from number `h` of a row of `numbers` on; zeros beyond its end.
__device__ __forceinline__ void load_unit(const Bits* row, int h, int numbers, Bits (&held)[UNIT * REALS]) {
  if (h + UNIT * REALS <= numbers) {
#pragma unroll
    for (int i = 0; i < UNIT * REALS; i += PACK) load_16_bytes(reinterpret_cast<const INPUT*>(row) + h + i, held + i);
  } else {
#pragma unroll
    for (int i = 0; i < UNIT * REALS; ++i) held[i] = h + i < numbers ? row[h + i] : Bits(0);
  }
}

// Describes `count` staged rows, rows `first` and up of an operand in an item. `at` is the place of the operand's first
// row among all rows of the item.
__device__ __forceinline__ void describe(const Bits* staged, int ld, int first, int count, int each, int tile, int at,
                                         uint32_t inverse, int k, int lanes, int width, uint8_t* magnitudes, int depth,
                                         Described* described) {
  const int lane = static_cast<int>(threadIdx.x) & 31, l = lane & (lanes - 1);
  const int group = static_cast<int>(threadIdx.x) / lanes, groups = THREADS / lanes;
  for (int q0 = 0; q0 < count; q0 += groups) {
    const int q = q0 + group;
    const bool valid = q < count;
    const int numbers = valid ? REALS * k : 0;
    const Bits* const row = staged + (valid ? q : 0) * ld;

    // 1. The row's top.
    Bits held[UNITS][UNIT * REALS];
    Extremes extremes;
#pragma unroll
    for (int j = 0; j < UNITS; ++j) {
      load_unit(row, (l + j * lanes) * (UNIT * REALS), numbers, held[j]);
#pragma unroll
      for (int i = 0; i < UNIT * REALS; ++i) extremes.include(held[j][i]);
    }
    Tops t;
    if (extremes.sufficient()) {
      t = extremes.tops();
    } else {  // NaN and Inf count as zeros from now on
      t = NOTHING;
#pragma unroll
      for (int j = 0; j < UNITS; ++j)
#pragma unroll
        for (int i = 0; i < UNIT * REALS; ++i) {
          const Parts p = parts(held[j][i]);
          note(t, p);
          if (!p.finite) held[j][i] = 0;
        }
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      t.top = larger(t.top, __shfl_xor_sync(ALL, t.top, offset));
      t.smallest = smaller(t.smallest, __shfl_xor_sync(ALL, t.smallest, offset));
    }

    // 2. Its sums, and the magnitudes of its elements.
    Adding<1> sum;
    uint32_t value[UNITS][UNIT * REALS] = {};
    if (t.top > FastTop<Bits>::value) {
      const FastCeiling<Bits> ceiling(width, t.top);
#pragma unroll
      for (int j = 0; j < UNITS; ++j)
#pragma unroll
        for (int i = 0; i < UNIT * REALS; ++i) {
          const uint32_t above = ceiling(held[j][i]), below = ceiling.below(held[j][i]);
          sum.inexact |= above ^ below;
          sum.add(above);
          value[j][i] = below >> (width - 7);
        }
    } else if (t.top != EMPTY_TOP) {
#pragma unroll
      for (int j = 0; j < UNITS; ++j)
#pragma unroll
        for (int i = 0; i < UNIT * REALS; ++i) {
          const Parts p = parts(held[j][i]);
          const Rounded r = ceil_magnitude(p, width, t.top);
          sum.inexact |= r.inexact ? 1u : 0u;
          sum.add(r.value);
          value[j][i] = low_limb(floor_scaled(p.mantissa, p.exponent + 7 - t.top));
        }
    }
    const int matrix = matrix_of(first + q, inverse), place = at + matrix * tile + (first + q - matrix * each);
#pragma unroll
    for (int j = 0; j < UNITS; ++j) {
      const int h = (l + j * lanes) * UNIT;
      if (!valid || h >= k) continue;
      uint32_t of[UNIT];
#pragma unroll
      for (int i = 0; i < UNIT; ++i)  // of a complex element the larger part
        of[i] = REALS == 1 ? value[j][i] : larger(value[j][i * REALS], value[j][i * REALS + REALS - 1]);
      *reinterpret_cast<uint32_t*>(magnitudes + place * depth + h) = gather_bytes(of[0], of[1], of[2], of[3], 0);
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      sum.peak = larger(sum.peak, __shfl_xor_sync(ALL, sum.peak, offset));
      sum.magnitudes[0] += __shfl_xor_sync(ALL, sum.magnitudes[0], offset);
      sum.squares[0] += __shfl_xor_sync(ALL, sum.squares[0], offset);
    }
    const uint32_t inexact = __ballot_sync(ALL, sum.inexact != 0) >> (lane - l) & (ALL >> (32 - lanes));
    if (valid && l == 0) {
      const int bottom = t.top == EMPTY_TOP ? EMPTY_TOP
                         : inexact != 0     ? t.smallest - (sizeof(INPUT) == 8 ? 53 : 24)
                                            : t.top - width;
      described[place] = {sum.squares[0], t.top, bottom, sum.peak, sum.magnitudes[0]};
    }
  }
}

// The extremes of a thread's rows, all of one operand.
struct Extent {
  uint32_t widest = 0, spare = 0, highest = 0, lowest = 0;

  __device__ __forceinline__ void include(const Described& row, int width, int no_span) {
    if (row.top == EMPTY_TOP) return;
    const int span = row.top - row.bottom, least = span <= width ? row.bottom : row.bottom + 23;
    widest = larger(widest, static_cast<uint32_t>(span));
    spare = larger(spare, static_cast<uint32_t>(no_span - span));
    highest = larger(highest, static_cast<uint32_t>(RAISED + row.top));
    lowest = larger(lowest, static_cast<uint32_t>(RAISED - least));
  }
};

// The largest ratio of 16 rows of p and `columns` (a multiple of 16, at most COLUMNS) of q. `p`, `q`: the places of the first
// ones among `all` rows; `magnitudes` in rows of `depth` bytes, of which `inner` are read.
__device__ __forceinline__ void compare(Worst& worst, const uint8_t* magnitudes, int depth, int inner, const double* exact,
                                        const float* rounded, int all, int p, int q, int columns) {
  const int lane = static_cast<int>(threadIdx.x) & 31, g = lane >> 2, c = 2 * (lane & 3);
  const uint8_t* const of_rows = magnitudes + (p + (lane & 15)) * depth + 16 * (lane >> 4);
  const uint8_t* const of_columns = magnitudes + (q + (lane & 7) + 8 * (lane >> 4)) * depth + 16 * (lane >> 3 & 1);
  uint32_t sums[COLUMNS / 8][4] = {};
  for (int h = 0; h < inner; h += 32) {
    uint32_t a[4];
    load_matrices(a, reinterpret_cast<const uint32_t*>(of_rows + h));
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
      if (8 * j >= columns) break;
      uint32_t b[4];
      load_matrices(b, reinterpret_cast<const uint32_t*>(of_columns + 8 * j * depth + h));
      multiply_bytes(sums[j], sums[j], a[0], a[1], b[0], a[2], a[3], b[1]);
      multiply_bytes(sums[j + 1], sums[j + 1], a[0], a[1], b[2], a[2], a[3], b[3]);
    }
  }
  float of_row[2][3];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int t = 0; t < 3; ++t) of_row[i][t] = rounded[t * all + p + g + 8 * i];
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j) {
    if (8 * j >= columns) break;
    const int column = q + 8 * j + c;
    float2 of_column[3];
#pragma unroll
    for (int t = 0; t < 3; ++t) of_column[t] = *reinterpret_cast<const float2*>(rounded + t * all + column);
    // float32 shows of most entries, rounded up in the numerator and down in best L, that they do not raise the maximum.
    bool dismissed = true;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float(&of)[3] = of_row[e >> 1];
      const float q0 = (e & 1) != 0 ? of_column[0].y : of_column[0].x, q1 = (e & 1) != 0 ? of_column[1].y : of_column[1].x,
                  q2 = (e & 1) != 0 ? of_column[2].y : of_column[2].x;
      const float above = __fmaf_ru(of[0], q0, __fmaf_ru(of[1], q1, __fmul_ru(of[2], q2)));
      dismissed = dismissed & !(above > __fmul_rd(worst.below, __int2float_rd(static_cast<int>(sums[j][e]))));
    }
    if (__all_sync(ALL, dismissed)) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const double *const x = exact + p + g + 8 * (e >> 1), *const y = exact + column + (e & 1);
      const double first = __dmul_rn(x[0], y[0]), second = __dmul_rn(x[all], y[all]);
      worst.include(__dadd_rn(__dadd_rn(first, second), __dmul_rn(x[2 * all], y[2 * all])), sums[j][e]);
    }
    worst.share();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, THREADS > 256 ? 1 : 3)
stack_facts(const Rows a, const Rows b, const __grid_constant__ AllWanted all_wanted, int wanted, Atomic* found,
            Atomic* on_host, int64_t batch, uint32_t items, uint32_t across, uint32_t tiles, int matrices, int k, int lanes,
            int width, double length, int no_span) {
  after_previous();
  extern __shared__ __align__(16) uint8_t dynamic[];
  const int tile_a = static_cast<int>(a.tile), tile_b = static_cast<int>(b.tile);
  const int rows_a = matrices * tile_a, all = rows_a + matrices * tile_b;
  const int inner = (k + 31) / 32 * 32, depth = inner + 16;
  const int ld = (REALS * k + PACK - 1) / PACK * PACK + PACK;
  uint8_t* const magnitudes = dynamic;
  double* const exact = reinterpret_cast<double*>(magnitudes + all * depth);
  Described* const described = reinterpret_cast<Described*>(exact + 3 * all);
  float* const rounded = reinterpret_cast<float*>(described + all);
  Bits* const staged = reinterpret_cast<Bits*>(rounded + 3 * all);
  const int buffer = static_cast<int>(larger(a.staged, b.staged)) * ld;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const Stack stack = {batch, items, across, tiles, matrices};
  const int of_a = smaller(tile_a, static_cast<int>(a.rows)), of_b = smaller(tile_b, static_cast<int>(b.rows));
  const uint32_t inverse_a = (65535u + of_a) / of_a, inverse_b = (65535u + of_b) / of_b;
  const int staged_a = static_cast<int>(a.staged), staged_b = static_cast<int>(b.staged);

  // What is to be staged next.
  uint32_t next_item = blockIdx.x;
  bool next_right = false;
  int next_first = 0;
  const auto stage_next = [&](int slot) {
    if (next_item < items) {
      Bits* const to = staged + slot * buffer;
      const Item next = stack.item(next_item, a, b);
      const int total = next.matrices * (next_right ? next.each_b : next.each_a);
      if (!next_right)
        stage<ALONG_A>(a, next.entry, next.row_a, next.each_a, next_first, smaller(staged_a, total - next_first), to, ld, k,
                       inverse_a);
      else
        stage<ALONG_B>(b, next.entry, next.row_b, next.each_b, next_first, smaller(staged_b, total - next_first), to, ld, k,
                       inverse_b);
      next_first += next_right ? staged_b : staged_a;
      if (next_first >= total) {
        next_first = 0;
        if (next_right) next_item += gridDim.x;
        next_right = !next_right;
      }
    }
    end_group_of_copies();
  };
  stage_next(0);
  stage_next(1);

  // Magnitudes beyond k stay zero, and rows that an item lacks are all zeros: they have no errors.
  for (int i = tid; i < all * depth / 16; i += THREADS) reinterpret_cast<uint4*>(magnitudes)[i] = make_uint4(0, 0, 0, 0);
  for (int i = tid; i < all; i += THREADS) described[i] = {0, EMPTY_TOP, EMPTY_TOP, 0, 0};

  Atomic best[2] = {0, 0};
  if (wanted > 0) best[0] = static_cast<volatile Atomic*>(found)[WORST];
  if (wanted > 1) best[1] = static_cast<volatile Atomic*>(found)[WORST + 1];
  // Threads of the first half have rows of A, the others columns of B.
  const bool left = tid < THREADS / 2;
  const int own = left ? tid : tid - THREADS / 2 + rows_a, end = left ? rows_a : all;
  Extent extent;
  int slot = 0;
  for (uint32_t i = blockIdx.x; i < items; i += gridDim.x) {
    const Item item = stack.item(i, a, b);
    // 1. Describe all rows.
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
      const int each = side == 0 ? item.each_a : item.each_b, total = item.matrices * each;
      const int at_a_time = side == 0 ? staged_a : staged_b;
#pragma unroll 1
      for (int first = 0; first < total; first += at_a_time) {
        wait_for_older_copies();
        __syncthreads();
        describe(staged + slot * buffer, ld, first, smaller(at_a_time, total - first), each,
                 side == 0 ? tile_a : tile_b, side == 0 ? 0 : rows_a, side == 0 ? inverse_a : inverse_b, k, lanes,
                 width, magnitudes, depth, described);
        __syncthreads();
        stage_next(slot);
        slot ^= 1;
      }
    }
#pragma unroll 1
    for (int w = 0; w < larger(wanted, 1); ++w) {
      // 2. Error terms.
      const Wanted& scheme = all_wanted.of[w];
      for (int r = own; r < end; r += THREADS / 2) {
        const Described row = described[r];
        if (w == 0) extent.include(row, width, no_span);
        if (w + 1 >= wanted) described[r] = {0, EMPTY_TOP, EMPTY_TOP, 0, 0};
        if (wanted == 0) continue;
        const int64_t statistic = scheme.of_peak != 0 ? static_cast<int64_t>(row.peak) : static_cast<int64_t>(row.squares);
        const int mu = row_exponent(row.top, statistic, static_cast<int>(scheme.step), static_cast<int>(scheme.base),
                                    scheme.threshold);
        double term[3];
        terms_of_row(left, row.top, row.bottom, row.magnitudes, mu, width, length, scheme.dropped, term);
        const bool counts = !left || item.row_a + r % tile_a < scheme.compared;
#pragma unroll
        for (int t = 0; t < 3; ++t) {
          exact[t * all + r] = counts ? term[t] : 0.0;
          rounded[t * all + r] = counts ? __double2float_ru(term[t]) : 0.0f;
        }
      }
      if (wanted == 0) break;
      __syncthreads();
      // 3. Ratios.
      Worst worst;
      worst.set(w == 0 ? best[0] : best[1]);
      const int down = (item.each_a + 15) / 16, over = (item.each_b + COLUMNS - 1) / COLUMNS;
      for (int part = warp; part < item.matrices * down * over; part += WARPS) {
        const int strip = part / over, matrix = strip / down, column = COLUMNS * (part - strip * over);
        compare(worst, magnitudes, depth, inner, exact, rounded, all, matrix * tile_a + 16 * (strip - matrix * down),
                rows_a + matrix * tile_b + column, smaller(COLUMNS, (item.each_b - column + 15) / 16 * 16));
      }
      worst.share();
      const Atomic bits = static_cast<Atomic>(__double_as_longlong(worst.best));
      if (w == 0) best[0] = bits; else best[1] = bits;
      __syncthreads();
    }
  }

  // 4. Lanes of each warp raise the results side by side; the last block brings them to the host.
  const Atomic of_rows[4] = {largest_of_warp(extent.widest), largest_of_warp(extent.spare), largest_of_warp(extent.highest),
                             largest_of_warp(extent.lowest)};
  const int further = left ? 0 : 1;
  const int place[6] = {WORST, WORST + 1, WIDEST + further, SPARE, HIGHEST + further, LOWEST + further};
  const Atomic value[6] = {best[0], best[1], of_rows[0], of_rows[1], of_rows[2], of_rows[3]};
#pragma unroll
  for (int j = 0; j < 6; ++j)
    if (lane == j) raise(found + place[j], value[j]);
  __threadfence();
  __syncthreads();
  if (tid == 0 && atomicAdd(found + BLOCKS, Atomic(1)) == gridDim.x - 1) {
    __threadfence();
#pragma unroll
    for (int j = 0; j < BLOCKS; ++j) on_host[j] = static_cast<volatile Atomic*>(found)[j];
  }
}
