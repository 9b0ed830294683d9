// A stack of small products, from elements to rounded entries: C_b = RN(A_b B_b) by slices of scaled images, for all b.
// Nothing but A, B and C is read or written (docs/definitions.md, sections 1 to 6).
//
// Macros: INPUT_A, INPUT_B, OUTPUT (double or float); DIGIT_BITS: 0 for residues, 8 for digits; SLICES; LIMBS: 32-bit
// limbs of an image; BLOCK_ROWS, BLOCK_COLS: of the tile of C that a block computes at a time, multiples of 16; WARPS:
// of a block; BLOCKS: of a multiprocessor; SHARED_BY, PIECES_HELD: k <= 16 SHARED_BY PIECES_HELD (lines.cuh). Of
// residues also PLACE_COUNT and PLACES, a list in braces (grouped.cuh); QUOTIENTS: 1 if they come from quotients in
// float64, 0 if from the limbs of images; IMAGE_BITS: abs(X) <= 2^IMAGE_BITS; UNSURE: the modulus for which not all
// quotients are sure, or -1 (residue_slices.cuh).
//
// a(b, row, h) = a[b * a_batch + row * a_row + h * a_k], b likewise with columns for rows, strides in elements, of any
// sign or 0, c likewise. k <= 256: a sum of products of residues is below 2^24. A block takes every gridDim.x-th `run`
// of tiles of a product, in such an order that two neighbours have the same rows or the same columns, whose slices
// stay. Dynamic shared memory: fragments, SLICES (BLOCK_ROWS + BLOCK_COLS) 16 SHARED_BY PIECES_HELD bytes (none with
// one piece); exponents, 4 bytes a line; if SHARED_BY > 1, 10 SHARED_BY bytes for each of as many lines as the longer
// side has, all of which the warps have at a time.
//
// 1. A warp reads 16 lines, finds their exponents, and cuts their slices, 16 bytes a lane: fragments for mma.sync,
//    which go to shared memory. (With one piece, and so tiles of 16 x 16, they stay in registers.)
// 2. A warp multiplies 16 x 16 of C, one slice after the other, keeps of each entry what its rounding needs, and
//    rounds.
//
// With 14 residues an entry of a product of 64 x 64 x 64 takes some 240 instructions: 2 (10 + 2 14) to describe and cut
// two elements, 14 (2 + 3/4 + 7/8) for the accumulators, 65 to recombine and round, the rest to move data. An H100 can
// issue those of 4096 such products, or of 65536 products of 16 x 16 x 16, in 0.13 ms.
#include "hardware/launch.cuh"
#if DIGIT_BITS == 0
#include "stacks/residue_slices.cuh"
#else
#include "stacks/digit_slices.cuh"
#endif
#include "stacks/special.cuh"

// A unit: 16 lines; a step: 32 inner indices.
constexpr int UNITS = (BLOCK_ROWS + BLOCK_COLS) / 16, OF_ROWS = BLOCK_ROWS / 16, STEPS = (PIECES_HELD + 1) / 2;
constexpr bool DIRECT = PIECES_HELD == 1;
static_assert(!DIRECT || (UNITS == 2 && WARPS == 1 && SHARED_BY == 1), "");

typedef Slices<PIECES_HELD> OfLines;
typedef BitsOf<OUTPUT>::type OutputBits;

// Where the result lies.
struct Result {
  OutputBits* c;
  int64_t batch, row, col;  // strides
};

__device__ __forceinline__ void block_barrier() {
  if constexpr (WARPS == 1) __syncwarp();
  else __syncthreads();
}

// Reads lines of one of two operands, with the same instructions if their types are the same.
template <typename T>
__device__ __forceinline__ void load_from(OfLines& lines, const Operand<T>& left, const Operand<T>& right,
                                          bool of_right, int64_t product, int first, int count, int from, int k) {
  const Operand<T> of = {of_right ? right.x : left.x, of_right ? right.batch : left.batch,
                         of_right ? right.line : left.line, of_right ? right.k : left.k};
  lines.load(of, product, first, count, from, k);
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

// Rounds and stores 16 x 16 entries, of which a lane has eight: rows g and g + 8, columns 2 h and 2 h + 1, and the same
// 8 columns on. mu, nu: exponents, or flags, of the tile's rows and columns, from `row` and `col` of C on.
__device__ __forceinline__ void finish(const Entry (&entries)[8], const int* mu, const int* nu,
                                       const Operand<INPUT_A>& a, const Operand<INPUT_B>& b, const Result& to,
                                       int64_t product, int row, int col, int m, int n, int k,
                                       const Constants& constants) {
  const int g = threadIdx.x >> 2 & 7, h = threadIdx.x & 3;
  mu += g, nu += 2 * h, row += g, col += 2 * h;
  OutputBits* const c = to.c + product * to.batch + row * to.row + col * to.col;
  constexpr int PAIR = 2 * sizeof(OutputBits);
  const uint64_t places = reinterpret_cast<uint64_t>(c) | static_cast<uint64_t>(to.row) * sizeof(OutputBits);
  const bool in_pairs = to.col == 1 && (places & (PAIR - 1)) == 0;
  bool usual = true;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int down = 8 * (i / 2 % 2), over = 8 * (i / 4);
    OutputBits bits[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int exponent = SHIFT - mu[down] - nu[over + j];
      bits[j] = bits_of(entries[i + j].usually<OUTPUT>(exponent, constants));
      usual = (Entry::ALWAYS ? exponent > FLAGGED / 2 : is_usual<OUTPUT, Entry::BITS>(exponent)) && usual;
    }
    if (row + down >= m) continue;
    OutputBits* const at = c + down * to.row + over * to.col;
    if (in_pairs && col + over + 1 < n) {
      store_pair(at, bits);
    } else {
      if (col + over < n) at[0] = bits[0];
      if (col + over + 1 < n) at[to.col] = bits[1];
    }
  }
  if (usual) return;
  // Rare: a line has NaN or Inf, or some result may be near over- or underflow.
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const int down = 8 * (i / 2 % 2), over = 8 * (i / 4) + i % 2;
    if (row + down >= m || col + over >= n) continue;
    const int exponent = SHIFT - mu[down] - nu[over];
    OutputBits bits;
    if (exponent > FLAGGED / 2) {
      Entry entry = entries[0];
#pragma unroll
      for (int j = 1; j < 8; ++j)
        if (i == j) entry = entries[j];
      bits = bits_of(entry.always<OUTPUT>(exponent, constants));
    } else {
      bits = special_entry<OUTPUT>(a.x + product * a.batch + (row + down) * a.line, a.k,
                                   b.x + product * b.batch + (col + over) * b.line, b.k, k);
    }
    c[down * to.row + over * to.col] = bits;
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
stack(const INPUT_A* __restrict__ a, int64_t a_batch, int64_t a_row, int64_t a_k, const INPUT_B* __restrict__ b,
      int64_t b_batch, int64_t b_col, int64_t b_k, OUTPUT* __restrict__ c, int64_t c_batch, int64_t c_row,
      int64_t c_col, int64_t batch, int run, int m, int n, int k, int base, int64_t threshold,
      const __grid_constant__ Constants constants) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  after_previous();
  constexpr int FRAGMENTS = DIRECT ? 0 : SLICES * UNITS * SHARED_BY * STEPS * 32;
  constexpr int EXCHANGED = SHARED_BY > 1 ? 16 * larger(OF_ROWS, UNITS - OF_ROWS) * SHARED_BY : 0;
  uint4* const fragments = reinterpret_cast<uint4*>(dynamic);  // [slice][unit][SHARED_BY][STEPS][lane]
  uint64_t* const statistics = reinterpret_cast<uint64_t*>(fragments + FRAGMENTS);
  int* const exponents = reinterpret_cast<int*>(statistics + EXCHANGED);
  unsigned short* const tops = reinterpret_cast<unsigned short*>(exponents + 16 * UNITS);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, h = lane & 3;
  const Operand<INPUT_A> left = {reinterpret_cast<const BitsOf<INPUT_A>::type*>(a), a_batch, a_row, a_k};
  const Operand<INPUT_B> right = {reinterpret_cast<const BitsOf<INPUT_B>::type*>(b), b_batch, b_col, b_k};
  const Result result = {reinterpret_cast<OutputBits*>(c), c_batch, c_row, c_col};
  const int over = (n + BLOCK_COLS - 1) / BLOCK_COLS, tiles = (m + BLOCK_ROWS - 1) / BLOCK_ROWS * over;
  const int runs = (tiles + run - 1) / run;  // of a product

#pragma unroll 1
  for (int64_t job = blockIdx.x; job < batch * runs; job += gridDim.x) {
    const int64_t product = runs == 1 ? job : job / runs;
    const int begin = static_cast<int>(job - product * runs) * run, end = smaller(begin + run, tiles);
    if (runs == 1 && job + gridDim.x < batch) {
      left.prefetch(job + gridDim.x, m, k, 32 * WARPS);
      right.prefetch(job + gridDim.x, n, k, 32 * WARPS);
    }
    int row0 = -1, col0 = -1;
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile) {
      // The next tile has the rows or the columns of this one.
      const int tile_row = tile / over, place = tile - tile_row * over;
      const int next_row = tile_row * BLOCK_ROWS;
      const int next_col = (tile_row % 2 == 0 ? place : over - 1 - place) * BLOCK_COLS;
      const bool new_rows = next_row != row0, new_cols = next_col != col0;
      row0 = next_row, col0 = next_col;

      // 1. Slices.
      OfLines lines[DIRECT ? 2 : 1];
      const auto read = [&](OfLines& of, int unit, int part, bool active) {
        const bool of_right = unit >= OF_ROWS;
        const int first = of_right ? col0 + 16 * (unit - OF_ROWS) : row0 + 16 * unit, count = of_right ? n : m;
        load_from(of, left, right, of_right, product, active ? first : count, count, 16 * PIECES_HELD * part, k);
      };
      const auto prepare = [&](OfLines& of, int unit, int part, bool active) {
        const bool of_right = unit >= OF_ROWS;
        const int among = 16 * SHARED_BY * (of_right ? unit - OF_ROWS : unit);
        const Exchange<SHARED_BY> exchange = {statistics + among, tops + among, active};
        of.template describe<STEP_BITS>(exchange, part, base, threshold);
        if (active && part == 0 && h < 2) exponents[16 * unit + 8 * h + g] = of.exponent_or_flag(h);
        of.cut(constants);
      };
      const auto store = [&](const OfLines& of, int unit, int part) {
        const bool of_right = unit >= OF_ROWS;
        uint4* const to = fragments + (unit * SHARED_BY + part) * STEPS * 32 + lane;
        constexpr int APART = UNITS * SHARED_BY * STEPS * 32;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#if DIGIT_BITS == 0 && !QUOTIENTS
          of.store(step, of_right, reinterpret_cast<uint32_t*>(to + 32 * step), 4 * APART, constants);
#else
          if constexpr (!DIRECT) {
#pragma unroll
            for (int t = 0; t < SLICES; ++t) {
              const uint32_t f00 = of.slice(0, 2 * step, t, constants), f01 = of.slice(0, 2 * step + 1, t, constants);
              const uint32_t f10 = of.slice(1, 2 * step, t, constants), f11 = of.slice(1, 2 * step + 1, t, constants);
              to[t * APART + 32 * step] = make_uint4(f00, of_right ? f01 : f10, of_right ? f10 : f01, f11);
            }
          }
#endif
        }
      };
      if constexpr (DIRECT) {
#pragma unroll
        for (int side = 0; side < 2; ++side) read(lines[side], side, 0, true);  // both before either is waited for
#pragma unroll
        for (int side = 0; side < 2; ++side) prepare(lines[side], side, 0, true);
      } else if constexpr (SHARED_BY == 1) {
        const int last = new_cols ? UNITS : OF_ROWS;
#pragma unroll 1
        for (int unit = (new_rows ? 0 : OF_ROWS) + warp; unit < last; unit += WARPS) {
          read(lines[0], unit, 0, true);
          prepare(lines[0], unit, 0, true);
          store(lines[0], unit, 0);
        }
      } else {
#pragma unroll 1
        for (int side = 0; side < 2; ++side) {  // one after the other, each by all warps
          if (!(side == 0 ? new_rows : new_cols)) continue;
          const bool active = warp < (side == 0 ? OF_ROWS : UNITS - OF_ROWS) * SHARED_BY;
          const int unit = (side == 0 ? 0 : OF_ROWS) + (active ? warp / SHARED_BY : 0), part = warp % SHARED_BY;
          read(lines[0], unit, part, active);
          prepare(lines[0], unit, part, active);
          if (active) store(lines[0], unit, part);
        }
      }
      block_barrier();

      // 2. Products.
#pragma unroll 1
      for (int i = warp; i < OF_ROWS * (UNITS - OF_ROWS); i += WARPS) {
        const int down = i % OF_ROWS, across = OF_ROWS + i / OF_ROWS;
        const int row = row0 + 16 * down, col = col0 + 16 * (across - OF_ROWS);
        if (row >= m || col >= n) continue;
        Entry entries[8];
        const auto load = [&](int side, int t, int step) {
#if DIGIT_BITS != 0 || QUOTIENTS
          if constexpr (DIRECT) {
            const OfLines& of = lines[side];
            const uint32_t first = of.slice(0, 0, t, constants), second = of.slice(1, 0, t, constants);
            return make_uint4(first, second, second, 0);
          }
#endif
          return fragments[((t * UNITS + (side == 0 ? down : across)) * SHARED_BY * STEPS + step) * 32 + lane];
        };
        multiply<SHARED_BY * STEPS, DIRECT>(entries, load, constants);
        finish(entries, exponents + 16 * down, exponents + 16 * across, left, right, result, product, row, col, m, n, k,
               constants);
      }
      block_barrier();  // the next tile's slices take their place
    }
  }
}
