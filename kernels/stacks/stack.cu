// A stack of small products, from elements to rounded entries: C_b = RN(A_b B_b) by slices of scaled images, for all b.
// Nothing but A, B and C is read or written (docs/definitions.md, sections 1 to 6).
//
// Macros: PARTS: 2 of complex elements, else 1; INPUT_A, INPUT_B, OUTPUT (double or float): of real numbers or of
// parts; DIGIT_BITS: 0 for residues, 8 for digits; SLICES: digits, or moduli; LIMBS: 32-bit limbs of an image;
// BLOCK_ROWS, BLOCK_COLS: of the tile of C that a block computes at a time, multiples of 16; WARPS: of a block, a
// multiple of SHARED_BY; BLOCKS: of a multiprocessor; SHARED_BY, PIECES_HELD: k <= 16 SHARED_BY PIECES_HELD
// (lines.cuh); WHOLE: 1 if that is k, and tiles are full; WARPGROUPS: 1 if warpgroups multiply (planes_sm90.cuh), of a
// block that has two of them; EIGHTS: of columns that a warp, or a warpgroup, multiplies at a time, 1 or 2, of complex
// entries 1, of warpgroups 2 or 4; ONE_TILE: 1 if a product has no more than one; DIRECT: 1 if slices stay in
// registers, of a warp with a tile of 16 x 16 and one piece; AHEAD: 1 if there are registers to read lines before the
// products of the tile before. Of residues also PLACE_COUNT and PLACES, a list in braces (grouped.cuh); EVEN: 1 if the
// first modulus is 256; SPLIT: 1 if images are split; SURE; IMAGE_BITS: abs(X) <= 2^IMAGE_BITS; UNSURE: the modulus for
// which not all quotients are sure, or -1 (residue_slices.cuh).
//
// a(b, row, h) = a[b * a_batch + row * a_row + h * a_k], b likewise with columns for rows, strides in real numbers, of
// any sign or 0, c likewise. k <= 256, of complex elements 128: a sum of products of residues is below 2^24. A block
// takes every gridDim.x-th `run` of tiles of a product, in such an order that two neighbours have the same rows or the
// same columns, whose slices stay. Dynamic shared memory, none if DIRECT: fragments, PARTS SLICES (BLOCK_ROWS +
// BLOCK_COLS) bytes for each inner index of 16 or of SHARED_BY times as many as a warp has, a multiple of 32, or whole
// planes; exponents, 4 bytes a line; if SHARED_BY > 1, 160 bytes for each warp.
//
// 1. A warp reads 16 lines, finds their exponents, and cuts their slices, 16 bytes a lane: fragments for mma.sync,
//    which go to shared memory, or stay in registers; or rows of planes for wgmma. Before it stores the first ones it
//    waits until all warps have used those of the tile before: meanwhile others round.
// 2. A warp multiplies 16 x 16 of C, or 16 x 8, one modulus after the other, keeps of each entry what its rounding
//    needs, and rounds; or a warpgroup 64 x 16 or 64 x 32.
//
// With 14 residues an entry of a product of 64 x 64 x 64 takes some 240 instructions: 2 (10 + 2 14) to describe and cut
// two elements, 14 (2 + 3/4 + 7/8) for the accumulators, 61 to recombine and round, the rest to move data. An H100 can
// issue those of 4096 such products, or of 65536 products of 16 x 16 x 16, in 0.13 ms. A complex entry with 15 takes
// some 430: four products of parts in place of two of linear forms (docs/definitions.md, section 9), which would take
// 330 to cut two elements and not 120; with 20 real ones it is 390, of which 130 cut.
#include "hardware/launch.cuh"
#if DIGIT_BITS == 0
#include "stacks/residue_slices.cuh"
#else
#include "stacks/digit_slices.cuh"
#endif
#include "stacks/special.cuh"
#if WARPGROUPS
#include "stacks/planes_sm90.cuh"
#endif

// A unit: 16 lines; a step: 32 inner indices, or 16.
constexpr int UNITS = (BLOCK_ROWS + BLOCK_COLS) / 16, OF_ROWS = BLOCK_ROWS / 16, TEAMS = WARPS / SHARED_BY;
#if !WARPGROUPS
constexpr int STEPS = (PIECES_HELD + 1) / 2;
#endif
constexpr bool AT_ONCE = ONE_TILE && TEAMS == UNITS;  // whether each team cuts one unit of each tile
constexpr bool HALF = PIECES_HELD == 1;
static_assert(!HALF || SHARED_BY == 1, "");
static_assert(!DIRECT || (HALF && UNITS == 2 && WARPS == 1 && PARTS == 1 && !AHEAD), "");
static_assert(WARPS % SHARED_BY == 0 && (WARPGROUPS || EIGHTS == 1 || (EIGHTS == 2 && PARTS == 1)), "");
static_assert(!WARPGROUPS || (DIGIT_BITS == 0 && PARTS == 1 && PIECES_HELD == 4 && SHARED_BY <= 2), "");
static_assert(!WARPGROUPS || (WARPS == 8 && BLOCK_ROWS == 64 && BLOCK_COLS % (8 * EIGHTS) == 0), "");

// Entries of C that a lane has at a time.
constexpr int ENTRIES = 4 * EIGHTS;

typedef Slices<PARTS * PIECES_HELD> OfLines;
typedef BitsOf<OUTPUT>::type OutputBits;

// Where the result lies.
struct Result {
  OutputBits* c;
  int64_t batch, row, col;  // strides
  bool in_pairs;            // whether two neighbouring entries, or the parts of one, may be stored at a time
};

// Where a block is: at which tile of which product, and whether its rows and its columns are others than those of the
// tile before.
struct Walk {
  const int64_t jobs;
  const int over, tiles, run, runs;  // tiles across, and all; at most so many in turn: `runs` of a product
  int64_t job, product;
  int tile, last, row, col;
  bool new_rows, new_cols;

  __device__ __forceinline__ Walk(int64_t batch, int of_run, int m, int n)
      : jobs(batch * runs_of(of_run, m, n)), over((n + BLOCK_COLS - 1) / BLOCK_COLS), tiles(tiles_of(m, n)),
        run(of_run), runs(runs_of(of_run, m, n)), job(blockIdx.x) {
    begin_job();
  }
  static __device__ __forceinline__ int tiles_of(int m, int n) {
    return (m + BLOCK_ROWS - 1) / BLOCK_ROWS * ((n + BLOCK_COLS - 1) / BLOCK_COLS);
  }
  static __device__ __forceinline__ int runs_of(int run, int m, int n) {
    return ONE_TILE ? 1 : (tiles_of(m, n) + run - 1) / run;
  }
  __device__ __forceinline__ bool there() const { return job < jobs; }
  // Units of which slices are to be cut.
  __device__ __forceinline__ int begin() const { return new_rows ? 0 : OF_ROWS; }
  __device__ __forceinline__ int end() const { return new_cols ? UNITS : OF_ROWS; }

  __device__ __forceinline__ void begin_job() {
    product = runs == 1 ? job : job / runs;
    tile = ONE_TILE ? 0 : static_cast<int>(job - product * runs) * run;
    last = ONE_TILE ? 1 : smaller(tile + run, tiles);
    find();
    new_rows = new_cols = true;
  }
  // The next tile has the rows or the columns of this one.
  __device__ __forceinline__ void find() {
    const int tile_row = ONE_TILE ? 0 : tile / over, place = ONE_TILE ? 0 : tile - tile_row * over;
    row = tile_row * BLOCK_ROWS, col = (tile_row % 2 == 0 ? place : over - 1 - place) * BLOCK_COLS;
  }
  __device__ __forceinline__ void advance() {
    if (!ONE_TILE && ++tile < last) {
      const int row_before = row, col_before = col;
      find();
      new_rows = row != row_before, new_cols = col != col_before;
    } else {
      job += gridDim.x;
      begin_job();
    }
  }
};

__device__ __forceinline__ void block_barrier() {
  if constexpr (WARPS == 1) __syncwarp();
  else __syncthreads();
}

// Reads lines of one of two operands, with the same instructions if their types are the same.
template <typename T>
__device__ __forceinline__ void load_from(OfLines& lines, const Operand<T>& left, const Operand<T>& right,
                                          bool of_right, int64_t product, int first, int count, int from, int k) {
  lines.load(Operand<T>(left, right, of_right), product, first, count, from, k);
}
template <typename T, typename U>
__device__ __forceinline__ void load_from(OfLines& lines, const Operand<T>& left, const Operand<U>& right,
                                          bool of_right, int64_t product, int first, int count, int from, int k) {
  if (of_right) lines.load(right, product, first, count, from, k);
  else lines.load(left, product, first, count, from, k);
}

// Stores two neighbouring entries at once.
__device__ __forceinline__ void store_pair(uint64_t* to, const uint64_t (&bits)[2]) {
  *reinterpret_cast<ulonglong2*>(to) = make_ulonglong2(bits[0], bits[1]);
}
__device__ __forceinline__ void store_pair(uint32_t* to, const uint32_t (&bits)[2]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(bits[0], bits[1]);
}

// Rounds and stores 16 x (8 EIGHTS) entries, of which a lane has ENTRIES: of each 8 columns rows g and g + 8, columns
// 2 h and 2 h + 1. mu, nu: exponents, or flags, of the tile's rows and columns, from
// `row` and `col` of C on.
__device__ __forceinline__ void finish(const Entry (&entries)[ENTRIES], const int* mu, const int* nu,
                                       const Operand<INPUT_A>& a, const Operand<INPUT_B>& b, const Result& to,
                                       int64_t product, int row, int col, int m, int n, int k,
                                       const Constants& constants) {
  const int g = threadIdx.x >> 2 & 7, h = threadIdx.x & 3;
  mu += g, nu += 2 * h, row += g, col += 2 * h;
  OutputBits* const c = to.c + product * to.batch + row * to.row + col * to.col;
  // Without branches the compiler mixes all entries, for which it lacks registers where these are long.
  constexpr bool CERTAIN = WHOLE && DIRECT;
  // Upper limbs of 2^(SHIFT - mu) for rows and of 2^nu for columns, less a bias: their difference is that of a power.
  uint32_t of_row[2], of_col[2 * EIGHTS];
  int least_mu = mu[0], most_mu = mu[0], least_nu = nu[0], most_nu = nu[0];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    of_row[i] = static_cast<uint32_t>(SHIFT + 1023 - mu[8 * i]) << 20;
    least_mu = smaller(least_mu, mu[8 * i]), most_mu = larger(most_mu, mu[8 * i]);
  }
#pragma unroll
  for (int j = 0; j < 2 * EIGHTS; ++j) {
    const int at = nu[8 * (j / 2) + j % 2];
    of_col[j] = static_cast<uint32_t>(at) << 20;
    least_nu = smaller(least_nu, at), most_nu = larger(most_nu, at);
  }
  const bool usual = is_usual<OUTPUT, Entry::BITS>(SHIFT - least_mu - least_nu) &&
                     is_usual<OUTPUT, Entry::BITS>(SHIFT - most_mu - most_nu);
#pragma unroll
  for (int i = 0; i < ENTRIES; i += 2) {
    const int down = 8 * (i / 2 % 2), over = 8 * (i / 4);
    OutputBits bits[2][PARTS];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const double power = double_of_limbs(of_row[down / 8] - of_col[over / 4 + j], 0);
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        bits[j][part] = bits_of(entries[i + j].usually<OUTPUT>(part, power, constants));
    }
    if (!CERTAIN && row + down >= m) continue;
    OutputBits* const at = c + down * to.row + over * to.col;
    if constexpr (PARTS == 2) {
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (col + over + j < n) {
          OutputBits* const entry = at + j * to.col;
          const OutputBits pair[2] = {bits[j][0], bits[j][PARTS - 1]};
          if (to.in_pairs) store_pair(entry, pair);
          else entry[0] = pair[0], entry[1] = pair[1];
        }
    } else if (to.in_pairs && (CERTAIN || col + over + 1 < n)) {
      const OutputBits pair[2] = {bits[0][0], bits[1][0]};
      store_pair(at, pair);
    } else {
      if (col + over < n) at[0] = bits[0][0];
      if (col + over + 1 < n) at[to.col] = bits[1][0];
    }
  }
  if (usual) return;
  // Rare: a line has NaN or Inf, or some result may be near over- or underflow.
#pragma unroll 1
  for (int i = 0; i < ENTRIES * PARTS; ++i) {
    const int of = i / PARTS, part = i % PARTS, down = 8 * (of / 2 % 2), over = 8 * (of / 4) + of % 2;
    if (row + down >= m || col + over >= n) continue;
    const int exponent = SHIFT - mu[down] - nu[over];
    OutputBits bits;
    if (exponent > FLAGGED / 2) {
      Entry entry = entries[0];
#pragma unroll
      for (int j = 1; j < ENTRIES; ++j)
        if (of == j) entry = entries[j];
      bits = bits_of(entry.always<OUTPUT>(part, exponent, constants));
    } else {
      bits = special_entry<OUTPUT>(a.x + product * a.batch + (row + down) * a.line, a.k,
                                   b.x + product * b.batch + (col + over) * b.line, b.k, k, part);
    }
    c[down * to.row + over * to.col + part] = bits;
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
stack(const INPUT_A* __restrict__ a, int64_t a_batch, int64_t a_row, int64_t a_k, const INPUT_B* __restrict__ b,
      int64_t b_batch, int64_t b_col, int64_t b_k, OUTPUT* __restrict__ c, int64_t c_batch, int64_t c_row,
      int64_t c_col, int64_t batch, int run, int m, int n, int k, int base, int64_t threshold,
      const __grid_constant__ Constants constants) {
  extern __shared__ __align__(1024) uint8_t dynamic[];  // as wgmma has it
  after_previous();
  constexpr int LIMBS_HELD = HALF ? 2 : 4;  // of a fragment
#if WARPGROUPS
  constexpr int FRAGMENTS = Planes::COUNT * Planes::BYTES / (4 * LIMBS_HELD);
#else
  constexpr int FRAGMENTS = DIRECT ? 0 : PARTS * SLICES * UNITS * SHARED_BY * STEPS * 32;
#endif
  constexpr int EXCHANGED = SHARED_BY > 1 ? 16 * WARPS : 0;
  uint32_t* const fragments = reinterpret_cast<uint32_t*>(dynamic);  // or planes; [slice][unit][SHARED_BY][STEPS][lane]
  uint64_t* const statistics = reinterpret_cast<uint64_t*>(fragments + LIMBS_HELD * FRAGMENTS);
  int* const exponents = reinterpret_cast<int*>(statistics + EXCHANGED);
  unsigned short* const tops = reinterpret_cast<unsigned short*>(exponents + 16 * UNITS);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, h = lane & 3;
  const int team = warp / SHARED_BY, part = warp % SHARED_BY;
  const Operand<INPUT_A> left(a, a_batch, a_row, a_k);
  const Operand<INPUT_B> right(b, b_batch, b_col, b_k);
  const uint64_t places = reinterpret_cast<uint64_t>(c) | static_cast<uint64_t>(c_batch | c_row) * sizeof(OUTPUT);
  const bool in_pairs = (PARTS == 2 || c_col == 1) && (places & (2 * sizeof(OUTPUT) - 1)) == 0;
  const Result result = {reinterpret_cast<OutputBits*>(c), c_batch, c_row, c_col, in_pairs};
  Walk walk(batch, run, m, n);
  typedef OfLines Held[DIRECT ? 2 : 1];
  const auto read = [&](OfLines& of, int unit, const Walk& at) {
    const bool of_right = unit >= OF_ROWS;
    const int first = of_right ? at.col + 16 * (unit - OF_ROWS) : at.row + 16 * unit;
    load_from(of, left, right, of_right, at.product, first, of_right ? n : m, 16 * PIECES_HELD * part, k);
  };
  // Reads what this warp cuts first of a tile.
  const auto read_first = [&](Held& lines, const Walk& at) {
    if constexpr (DIRECT) {
#pragma unroll
      for (int side = 0; side < 2; ++side) read(lines[side], side, at);
    } else {
      const int unit = at.begin() + team;
      if (AT_ONCE || unit < at.end()) read(lines[0], unit, at);
    }
  };
  const auto describe = [&](OfLines& of) {
    const Exchange<SHARED_BY> exchange = {statistics + 16 * SHARED_BY * team, tops + 16 * SHARED_BY * team, 1 + team};
    of.template describe<STEP_BITS>(exchange, part, base, threshold);
  };
  const auto keep_exponents = [&](const OfLines& of, int unit) {
    if (part == 0 && h < 2) exponents[16 * unit + 8 * h + line_of_lane()] = of.exponent_or_flag(h);
  };

  Held next;
  if (AHEAD && walk.there()) read_first(next, walk);
#pragma unroll 1
  while (walk.there()) {
    // 1. Slices.
    Held lines;  // not those of the tile before, which would be kept meanwhile
    if (!AHEAD) read_first(lines, walk);
    if (AHEAD) lines[0] = next[0];
    if constexpr (DIRECT) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        describe(lines[side]);
        keep_exponents(lines[side], side);
        lines[side].cut(constants);
      }
    } else {
      // SHARED_BY warps, a team, have a unit.
      OfLines& of = lines[0];
      const int last = walk.end();
      bool used = false;  // whether the slices and exponents of the tile before have been
#pragma unroll 1
      for (int unit = walk.begin() + team;; read(of, unit, walk)) {
        if (AT_ONCE || unit < last) describe(of);
        if (!used) block_barrier();
        used = true;
        if (!AT_ONCE && unit >= last) break;
        keep_exponents(of, unit);
        of.cut(constants);
#if WARPGROUPS
        Planes::write(dynamic, of, unit, part, constants);
#else
        const bool of_right = unit >= OF_ROWS;
        uint32_t* const to = fragments + LIMBS_HELD * ((unit * SHARED_BY + part) * STEPS * 32 + lane);
        constexpr int APART = LIMBS_HELD * UNITS * SHARED_BY * STEPS * 32;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
          for (int t = 0; t < PARTS * SLICES; ++t) {
            uint32_t* const at = to + t * APART + LIMBS_HELD * 32 * step;
            const int piece = 2 * PARTS * step + t % PARTS;
            const uint32_t f00 = of.slice(0, piece, t / PARTS, constants);
            const uint32_t f10 = of.slice(1, piece, t / PARTS, constants);
            if constexpr (HALF) {
              *reinterpret_cast<uint2*>(at) = make_uint2(f00, f10);
            } else {
              const uint32_t f01 = of.slice(0, piece + PARTS, t / PARTS, constants);
              const uint32_t f11 = of.slice(1, piece + PARTS, t / PARTS, constants);
              *reinterpret_cast<uint4*>(at) = make_uint4(f00, of_right ? f01 : f10, of_right ? f10 : f01, f11);
            }
          }
        }
#endif
        unit += TEAMS;
        if (AT_ONCE || unit >= last) break;
      }
    }
    const int64_t product = walk.product;
    const int row0 = walk.row, col0 = walk.col;
    walk.advance();
    if (AHEAD && walk.there()) read_first(next, walk);
#if WARPGROUPS
    shared_proxy_fence();
#endif
    block_barrier();

    // 2. Products.
#if WARPGROUPS
#pragma unroll 1
    for (int i = warp / 4; i < BLOCK_COLS / (8 * EIGHTS); i += WARPS / 4) {
      const int down = warp % 4, row = row0 + 16 * down, col = col0 + 8 * EIGHTS * i;
      if (!WHOLE && col >= n) break;
      Entry entries[ENTRIES];
      Planes::multiply(entries, dynamic, 8 * EIGHTS * i, constants);
      const int *const mu = exponents + 16 * down, *const nu = exponents + BLOCK_ROWS + 8 * EIGHTS * i;
      finish(entries, mu, nu, left, right, result, product, row, col, m, n, k, constants);
    }
#else
#pragma unroll 1
    for (int i = warp; i < OF_ROWS * (UNITS - OF_ROWS) * (2 / EIGHTS); i += WARPS) {
      const int down = i % OF_ROWS, eight = i / OF_ROWS * EIGHTS, across = OF_ROWS + eight / 2;
      const int row = row0 + 16 * down, col = col0 + 8 * eight;
      if (!WHOLE && (row >= m || col >= n)) continue;
      Entry entries[ENTRIES];
      const auto load = [&](int side, int t, int step) {
        if constexpr (DIRECT) {
          const OfLines& of = lines[side];
          const uint32_t first = of.slice(0, 0, t, constants), second = of.slice(1, 0, t, constants);
          return make_uint4(first, second, second, 0);
        } else {
          const int unit = side == 0 ? down : across;
          const uint32_t* const at =
              fragments + LIMBS_HELD * (((t * UNITS + unit) * SHARED_BY * STEPS + step) * 32 + lane);
          if constexpr (HALF) {
            if (side == 1 && EIGHTS == 1) return make_uint4(at[eight % 2], 0, 0, 0);
            const uint2 v = *reinterpret_cast<const uint2*>(at);
            return make_uint4(v.x, v.y, v.y, 0);
          } else {
            if (side == 1 && EIGHTS == 1) {
              const uint2 v = *reinterpret_cast<const uint2*>(at + 2 * (eight % 2));
              return make_uint4(v.x, v.y, 0, 0);
            }
            return *reinterpret_cast<const uint4*>(at);
          }
        }
      };
      multiply<SHARED_BY * STEPS, HALF>(entries, load, constants);
      const int *const mu = exponents + 16 * down, *const nu = exponents + 16 * OF_ROWS + 8 * eight;
      finish(entries, mu, nu, left, right, result, product, row, col, m, n, k, constants);
    }
#endif
    if constexpr (DIRECT) block_barrier();  // the next tile's exponents take their place
  }
}
