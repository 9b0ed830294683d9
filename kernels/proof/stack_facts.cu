// What planning asks of a stack of small products, in one read of both operands: the worst ratios of error bound to lower
// bound over all entries of all matrices, at the narrow level (docs/bounds.md, B1, B7), and extremes of the descriptions
// of rows (docs/definitions.md, section 1). They are the numbers that describe.cu and proof.cu find in six launches, but
// nothing of what is made on the way goes to memory.
//
// Per element of 16 x 16 matrices about 40 instructions: 23 describe it, 4 copy it to shared memory, and 6 and 8 are what
// error terms and comparisons of entries come to. 65536 products of them are 34 million elements: 0.05 ms of the issue
// slots of an H100, and 0.09 ms of its memory's time, which is what the kernel waits for if its warps issue two
// instructions in three clocks. mma.sync takes 1 in 60 of the slots.
//
// Macros: INPUT (double or float); REALS: 1, or 2 if elements are complex; ALONG_A, ALONG_B: 1 if neighbours along k lie
// closer together in memory than neighbouring rows of that operand; UNITS: a lane has so many times UNIT elements of a
// row; THREADS: of a block, a multiple of 64; BLOCKS: of a multiprocessor, as registers are to allow.
//
// Any grid on x. A block takes items blockIdx.x, blockIdx.x + gridDim.x, ...: an item is `matrices` products, or (then
// matrices = 1) a tile of one, a.tile rows of A by b.tile columns of B. Its rows, those of A before the columns of B, are
// staged, `at_a_time` of them, in two buffers in turn: while one part is described, the next one, also of the next item,
// is on its way.
//
//   describe  a group of `lanes` lanes has a row: top, then sums and magnitudes
//   terms     a thread has a row: its error terms for one scheme, in float32, rounded up
//   compare   a warp has 16 rows and 16 columns: products of magnitudes, exact sums below 2^23, and their ratios; in
//             float64 only where float32 does not show that an entry is no larger than the worst one
//
// Dynamic shared memory, with R = matrices (a.tile + b.tile) rows, D = k rounded up to 32, plus 16 (rows of bytes without
// bank conflicts), and S bytes in a buffer of staged rows:
//   magnitudes R D | descriptions 24 R | error terms 12 R | staged rows 2 S
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
  DONE = LOWEST + 2             // blocks that are done
};
constexpr int RAISED = 8192;

constexpr int PACK = 16 / sizeof(INPUT);
constexpr int WARPS = THREADS / 32;
constexpr int UNIT = 4;      // neighbouring elements of a row that a lane has

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

// Starts to copy rows first .. first + count - 1 of an operand in an item, `each` of a matrix from row0 on, to shared
// memory, rows of `ld` numbers.
template <bool ALONG>
__device__ __forceinline__ void stage(const Rows& from, int64_t entry, int row0, int each, int first, int count, Bits* to,
                                      int ld, int k, uint32_t inverse) {
  const int tid = static_cast<int>(threadIdx.x), numbers = REALS * k;
  const Bits* const x = reinterpret_cast<const Bits*>(from.x) + entry * from.sb + row0 * from.sr;
  const auto row_at = [&](int q) {
    const int matrix = matrix_of(q, inverse);
    return x + matrix * from.sb + (q - matrix * each) * from.sr;
  };
  if (ALONG) {
    const uint64_t bytes = reinterpret_cast<uint64_t>(from.x) | static_cast<uint64_t>(from.sb) * sizeof(INPUT) |
                           static_cast<uint64_t>(from.sr) * sizeof(INPUT);
    const bool packs = from.sk == REALS && (bytes & 15) == 0;
    const int pieces = packs ? (numbers + PACK - 1) / PACK : numbers;
    const int width = pieces > 1 ? smaller(32, 1 << bit_length(static_cast<uint64_t>(pieces - 1))) : 1;
    const int begin = tid & (width - 1), q0 = tid / width, rows = THREADS / width;
    if (packs && width >= pieces && from.sb == each * from.sr) {  // rows of all matrices lie one behind the other
      if (begin >= pieces) return;
      const int readable = smaller<int>(16, (numbers - begin * PACK) * static_cast<int>(sizeof(INPUT)));
      const Bits* at = x + (first + q0) * from.sr + begin * PACK;
      Bits* into = to + q0 * ld + begin * PACK;
      for (int q = q0; q < count; q += rows, at += rows * from.sr, into += rows * ld) copy_16_bytes(into, at, readable);
      return;
    }
    for (int q = q0; q < count; q += rows) {
      const Bits* const row = row_at(first + q);
      Bits* const into = to + q * ld;
      if (packs) {
        for (int p = begin; p < pieces; p += width)
          copy_16_bytes(into + p * PACK, row + p * PACK,
                        smaller<int>(16, (numbers - p * PACK) * static_cast<int>(sizeof(INPUT))));
      } else {
        for (int p = begin; p < pieces; p += width) copy_or_zero(into + p, row + p / REALS * from.sk + p % REALS, true);
      }
    }
  } else {
    const int width = count > 1 ? smaller(THREADS, 1 << bit_length(static_cast<uint64_t>(count - 1))) : 1;
    const int h0 = tid / width, steps = THREADS / width;
    for (int q = tid & (width - 1); q < count; q += width) {
      const Bits* at = row_at(first + q) + h0 * from.sk;
      Bits* into = to + q * ld + h0 * REALS;
#pragma unroll 4
      for (int h = h0; h < k; h += steps, at += steps * from.sk, into += steps * REALS)
#pragma unroll
        for (int part = 0; part < REALS; ++part) copy_or_zero(into + part, at + part, true);
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

// The upper limb of a float64, or the bits of a float32, without sign; and the least one of a normal number, and that of
// Inf.
__device__ __forceinline__ uint32_t upper(uint64_t bits) { return high_limb(bits) & NO_SIGN; }
__device__ __forceinline__ uint32_t upper(uint32_t bits) { return bits & NO_SIGN; }
constexpr uint32_t LEAST_NORMAL = sizeof(INPUT) == 8 ? 1u << 20 : 1u << 23;
constexpr uint32_t INFINITE = sizeof(INPUT) == 8 ? 0x7ffu << 20 : 0xffu << 23;

// The tops of the elements that a lane holds; NaN and Inf become zeros. `numbers` of its row from its first unit on, the
// next one `step` numbers further.
__device__ __forceinline__ Tops tops_of(Bits (&held)[UNITS][UNIT * REALS], int numbers, int step) {
  // Most often all elements are normal numbers.
  uint32_t largest = 0, least = INFINITE;
#pragma unroll
  for (int j = 0; j < UNITS; ++j)
    if (j * step < numbers)
#pragma unroll
      for (int i = 0; i < UNIT * REALS; ++i) {
        largest = larger(largest, upper(held[j][i]));
        least = smaller(least, upper(held[j][i]));
      }
  if (largest < INFINITE && least >= LEAST_NORMAL)
    return largest == 0 ? NOTHING : Tops{exponent_of(Bits(0), largest), exponent_of(Bits(0), least), 0};
  Extremes extremes;
#pragma unroll
  for (int j = 0; j < UNITS; ++j)
#pragma unroll
    for (int i = 0; i < UNIT * REALS; ++i) extremes.include(held[j][i]);
  if (extremes.sufficient()) return extremes.tops();
  Tops t = NOTHING;
#pragma unroll
  for (int j = 0; j < UNITS; ++j)
#pragma unroll
    for (int i = 0; i < UNIT * REALS; ++i) {
      const Parts p = parts(held[j][i]);
      note(t, p);
      if (!p.finite) held[j][i] = 0;
    }
  return t;
}

// Where the rows of an item stand: `rows_a` places for those of A, `each` in a matrix of `tile` places; then those of B.
struct Places {
  int total_a, each_a, each_b, tile_a, tile_b, rows_a;
  uint32_t inverse_a, inverse_b;

  // The place of row q of all.
  __device__ __forceinline__ int of(int q) const {
    const bool right = q >= total_a;
    if (right) q -= total_a;
    const int matrix = matrix_of(q, right ? inverse_b : inverse_a);
    return (right ? rows_a : 0) + q + matrix * (right ? tile_b - each_b : tile_a - each_a);
  }
};

// Describes `count` staged rows, row `first` of the item and up.
__device__ __forceinline__ void describe(const Bits* staged, int ld, int first, int count, const Places& places, int k,
                                         int lanes, int width, uint8_t* magnitudes, int depth, Described* described) {
  const int lane = static_cast<int>(threadIdx.x) & 31, l = lane & (lanes - 1);
  const int group = static_cast<int>(threadIdx.x) / lanes, groups = THREADS / lanes;
  for (int q0 = 0; q0 < count; q0 += groups) {
    const int q = q0 + group;
    const bool valid = q < count;
    const int numbers = valid ? REALS * k : 0;
    const Bits* const row = staged + (valid ? q : 0) * ld;

    // 1. The row's top.
    Bits held[UNITS][UNIT * REALS];
#pragma unroll
    for (int j = 0; j < UNITS; ++j) load_unit(row, (l + j * lanes) * (UNIT * REALS), numbers, held[j]);
    Tops t = tops_of(held, numbers - l * (UNIT * REALS), lanes * (UNIT * REALS));
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
    const int place = places.of(first + (valid ? q : 0));
    uint8_t* const to = magnitudes + place * depth;
#pragma unroll
    for (int j = 0; j < UNITS; ++j) {
      const int h = (l + j * lanes) * UNIT;
      if (h * REALS >= numbers) continue;
      uint32_t of[UNIT];
#pragma unroll
      for (int i = 0; i < UNIT; ++i)  // of a complex element the larger part
        of[i] = REALS == 1 ? value[j][i] : larger(value[j][i * REALS], value[j][i * REALS + REALS - 1]);
      *reinterpret_cast<uint32_t*>(to + h) = gather_bytes(of[0], of[1], of[2], of[3], 0);
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      sum.peak = larger(sum.peak, __shfl_xor_sync(ALL, sum.peak, offset));
      sum.magnitudes[0] += __shfl_xor_sync(ALL, sum.magnitudes[0], offset);
      sum.squares[0] += __shfl_xor_sync(ALL, sum.squares[0], offset);
      sum.inexact |= __shfl_xor_sync(ALL, sum.inexact, offset);
    }
    if (valid && l == 0) {
      const int bottom = t.top == EMPTY_TOP ? EMPTY_TOP
                         : sum.inexact != 0 ? t.smallest - (sizeof(INPUT) == 8 ? 53 : 24)
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

// The errors of a scheme.
struct Errors {
  const Wanted& scheme;
  int width;
  double length;

  __device__ __forceinline__ int exponent(const Described& row) const {
    const int64_t statistic = scheme.of_peak != 0 ? static_cast<int64_t>(row.peak) : static_cast<int64_t>(row.squares);
    return row_exponent(row.top, statistic, static_cast<int>(scheme.step), static_cast<int>(scheme.base), scheme.threshold);
  }
  // The numerator of an entry: the definition, to the bit.
  __device__ __forceinline__ double numerator(const Described& row, const Described& column) const {
    double p[3], q[3];
    terms_of_row(true, row.top, row.bottom, row.magnitudes, exponent(row), width, length, scheme.dropped, p);
    terms_of_row(false, column.top, column.bottom, column.magnitudes, exponent(column), width, length, 0, q);
    return __dadd_rn(__dadd_rn(__dmul_rn(p[0], q[0]), __dmul_rn(p[1], q[1])), __dmul_rn(p[2], q[2]));
  }
  // Float32 numbers that are no less than the terms of a row (terms_of_row), and zero where these are.
  __device__ __forceinline__ void above(bool left, const Described& row, float (&term)[3]) const {
    float s = 0, u = 0, ulp = 0;
    if (row.top != EMPTY_TOP) {
      const int mu = exponent(row);
      s = __fmul_ru(__int2float_ru(static_cast<int>(row.magnitudes)), power(-width));
      ulp = power(larger(-(mu + row.top), -125));  // more, where float32 does not hold it
      if (mu + row.bottom < 0) u = ulp * 0.5f;
    }
    constexpr float UP = 1.0f + 0x1p-22f;
    term[0] = __fmul_ru(left ? u : s, UP);
    term[1] = __fmul_ru(left ? __fmaf_ru(static_cast<float>(length), u, s) : u, UP);
    term[2] = __fmul_ru(left ? __fmul_ru(__double2float_ru(scheme.dropped), ulp) : ulp, UP);
  }
  __device__ __forceinline__ static float power(int e) { return float_of_bits(static_cast<uint32_t>(e + 127) << 23); }
};

// Includes the ratios of 16 rows of p and 16 of q; `p`, `q`: the places of the first ones among `all` rows; `magnitudes`
// in rows of `depth` bytes, of which `inner` are read.
__device__ __forceinline__ void compare(Worst& worst, const uint8_t* magnitudes, int depth, int inner, const float* above,
                                        const Described* described, const Errors& errors, int all, int p, int q) {
  const int lane = static_cast<int>(threadIdx.x) & 31, g = lane >> 2, c = 2 * (lane & 3);
  const uint8_t* const of_rows = magnitudes + (p + (lane & 15)) * depth + 16 * (lane >> 4);
  const uint8_t* const of_columns = magnitudes + (q + (lane & 7) + 8 * (lane >> 4)) * depth + 16 * (lane >> 3 & 1);
  uint32_t sums[2][4] = {};
  for (int h = 0; h < inner; h += 32) {
    uint32_t a[4], b[4];
    load_matrices(a, reinterpret_cast<const uint32_t*>(of_rows + h));
    load_matrices(b, reinterpret_cast<const uint32_t*>(of_columns + h));
    multiply_bytes(sums[0], sums[0], a[0], a[1], b[0], a[2], a[3], b[1]);
    multiply_bytes(sums[1], sums[1], a[0], a[1], b[2], a[2], a[3], b[3]);
  }
  float row[2][3];
#pragma unroll
  for (int t = 0; t < 3; ++t) row[0][t] = above[t * all + p + g], row[1][t] = above[t * all + p + g + 8];
  // Float32 shows of most entries, rounded up in the numerator and down in best L, that they do not raise the maximum.
  uint32_t doubts = 0;
  float numerator[8];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float2 column[3];
#pragma unroll
    for (int t = 0; t < 3; ++t) column[t] = *reinterpret_cast<const float2*>(above + t * all + q + 8 * j + c);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float(&x)[3] = row[e >> 1];
      const float y0 = (e & 1) != 0 ? column[0].y : column[0].x, y1 = (e & 1) != 0 ? column[1].y : column[1].x,
                  y2 = (e & 1) != 0 ? column[2].y : column[2].x;
      numerator[4 * j + e] = __fmaf_ru(x[0], y0, __fmaf_ru(x[1], y1, __fmul_ru(x[2], y2)));
      const float least = __fmul_rd(worst.below, __int2float_rd(static_cast<int>(sums[j][e])));
      if (numerator[4 * j + e] > least) doubts |= 1u << (4 * j + e);
    }
  }
  // Of those in doubt the one whose ratio is about the largest is compared first: then few others are left.
#pragma unroll 1
  while (__any_sync(ALL, doubts != 0)) {
    float about = 0;
    uint32_t sum = 0, which = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const uint32_t of = sums[e / 4][e % 4];
      const float ratio = numerator[e] / static_cast<float>(of);
      if ((doubts >> e & 1) != 0 && ratio >= about) about = ratio, sum = of, which = e;
    }
    const uint32_t bits = doubts != 0 ? bits_of(about) : 0;
    const Atomic largest = largest_of_warp(bits);
    const int first = __ffs(static_cast<int>(__ballot_sync(ALL, doubts != 0 && bits == largest))) - 1;
    if (lane == first) {
      doubts &= ~(1u << which);
      worst.include(errors.numerator(described[p + g + 8 * (which >> 1 & 1)], described[q + 8 * (which >> 2) + c + (which & 1)]),
                    sum);
    }
    worst.set(__shfl_sync(ALL, static_cast<Atomic>(__double_as_longlong(worst.best)), first));
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (!(numerator[e] > __fmul_rd(worst.below, __int2float_rd(static_cast<int>(sums[e / 4][e % 4])))))
        doubts &= ~(1u << e);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
stack_facts(const Rows a, const Rows b, const __grid_constant__ AllWanted all_wanted, int wanted, Atomic* found,
            Atomic* on_host, int64_t batch, uint32_t items, uint32_t across, uint32_t tiles, int matrices, int at_a_time,
            int k, int lanes, int width, double length, int no_span) {
  after_previous();
  extern __shared__ __align__(16) uint8_t dynamic[];
  const int tile_a = static_cast<int>(a.tile), tile_b = static_cast<int>(b.tile);
  const int rows_a = matrices * tile_a, all = rows_a + matrices * tile_b;
  const int inner = (k + 31) / 32 * 32, depth = inner + 16;
  const int ld = (REALS * k + PACK - 1) / PACK * PACK + PACK;
  uint8_t* const magnitudes = dynamic;
  Described* const described = reinterpret_cast<Described*>(magnitudes + all * depth);
  float* const above = reinterpret_cast<float*>(described + all);
  Bits* const staged = reinterpret_cast<Bits*>(above + 3 * all);
  const int buffer = at_a_time * ld;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const Stack stack = {batch, items, across, tiles, matrices};
  // An item whose tile ends beyond its matrix has one matrix, whose number is 0 for any of these.
  const int of_a = smaller(tile_a, static_cast<int>(a.rows)), of_b = smaller(tile_b, static_cast<int>(b.rows));
  const uint32_t inverse_a = (65535u + of_a) / of_a, inverse_b = (65535u + of_b) / of_b;

  // What is to be staged next.
  uint32_t next_item = blockIdx.x;
  int next_first = 0;
  const auto stage_next = [&](int slot) {
    if (next_item < items) {
      Bits* const to = staged + slot * buffer;
      const Item next = stack.item(next_item, a, b);
      const int total_a = next.matrices * next.each_a, total = total_a + next.matrices * next.each_b;
      const int end = smaller(next_first + at_a_time, total), count_a = smaller(end, total_a) - next_first;
      if (count_a > 0)
        stage<ALONG_A>(a, next.entry, next.row_a, next.each_a, next_first, count_a, to, ld, k, inverse_a);
      if (end > total_a) {
        const int begin = larger(next_first, total_a);
        stage<ALONG_B>(b, next.entry, next.row_b, next.each_b, begin - total_a, end - begin,
                       to + (begin - next_first) * ld, ld, k, inverse_b);
      }
      next_first = end;
      if (end == total) next_first = 0, next_item += gridDim.x;
    }
    end_group_of_copies();
  };
  stage_next(0);
  stage_next(1);

  // Magnitudes beyond k stay zero.
  for (int i = tid; i < all * depth / 16; i += THREADS) reinterpret_cast<uint4*>(magnitudes)[i] = make_uint4(0, 0, 0, 0);

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
    const int total_a = item.matrices * item.each_a, total = total_a + item.matrices * item.each_b;
    const Places places = {total_a, item.each_a, item.each_b, tile_a, tile_b, rows_a, inverse_a, inverse_b};
    // Rows that an item lacks are all zeros: they have no errors.
    if (total < all)
      for (int r = tid; r < all; r += THREADS) described[r] = {0, EMPTY_TOP, EMPTY_TOP, 0, 0};
    // 1. Describe all rows.
#pragma unroll 1
    for (int first = 0; first < total; first += at_a_time) {
      wait_for_older_copies();
      __syncthreads();
      describe(staged + slot * buffer, ld, first, smaller(at_a_time, total - first), places, k, lanes, width, magnitudes,
               depth, described);
      __syncthreads();
      stage_next(slot);
      slot ^= 1;
    }
#pragma unroll 1
    for (int w = 0; w < larger(wanted, 1); ++w) {
      // 2. Error terms.
      const Errors errors = {all_wanted.of[w], width, length};
      for (int r = own; r < end; r += THREADS / 2) {
        const Described row = described[r];
        if (w == 0) extent.include(row, width, no_span);
        if (wanted == 0) continue;
        float term[3];
        errors.above(left, row, term);
        const int compared = static_cast<int>(errors.scheme.compared);
        const bool counts = !left || compared >= static_cast<int>(a.rows) || item.row_a + r % tile_a < compared;
#pragma unroll
        for (int t = 0; t < 3; ++t) above[t * all + r] = counts ? term[t] : 0.0f;
      }
      if (wanted == 0) {
        __syncthreads();
        break;
      }
      __syncthreads();
      // 3. Ratios.
      Worst worst;
      worst.set(w == 0 ? best[0] : best[1]);
      const int down = (item.each_a + 15) / 16, over = (item.each_b + 15) / 16;
      for (int part = warp; part < item.matrices * down * over; part += WARPS) {
        const int strip = part / over, matrix = strip / down;
        compare(worst, magnitudes, depth, inner, above, described, errors, all,
                matrix * tile_a + 16 * (strip - matrix * down), rows_a + matrix * tile_b + 16 * (part - strip * over));
      }
      const Atomic bits = static_cast<Atomic>(__double_as_longlong(worst.best));  // the same in all lanes
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
  if (tid == 0 && atomicAdd(found + DONE, Atomic(1)) == gridDim.x - 1) {
    __threadfence();
#pragma unroll
    for (int j = 0; j < DONE; ++j) on_host[j] = static_cast<volatile Atomic*>(found)[j];
  }
}
