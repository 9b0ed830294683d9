// A stack of small products by residues, from elements to rounded entries: C_b = RN(Cbar_b 2^-(mu_i + nu_j)) for all b.
// Nothing but A, B and C is read or written (docs/definitions.md, sections 1, 2 and 4 to 6).
//
// Macros: INPUT_A, INPUT_B, OUTPUT (double or float); MODULI, PLACE_COUNT and PLACES (grouped.cuh, a list in braces);
// QUOTIENTS: 1 if residues come from quotients in float64 (lines.cuh), 0 if from the limbs of images, LIMBS; IMAGE_BITS:
// abs(X) <= 2^IMAGE_BITS; UNSURE: the modulus for which not all quotients are sure, or -1; BLOCK_ROWS, BLOCK_COLS: of the tile of C
// that a block computes at a time, multiples of 16; WARPS, BLOCKS: of a block, of a multiprocessor; SHARED_BY, PIECES_HELD
// (lines.cuh): k <= 16 SHARED_BY PIECES_HELD.
//
// a(b, row, h) = a[b * a_batch + row * a_row + h * a_k], b likewise with columns for rows, strides in elements of any
// sign or 0, c likewise. k <= 256, so that a sum of products is below 2^24. A block takes every gridDim.x-th tile of all
// products. Dynamic shared memory: fragments, MODULI (BLOCK_ROWS + BLOCK_COLS) 16 SHARED_BY PIECES_HELD bytes; exponents, 4 bytes a line; if
// SHARED_BY > 1, 10 SHARED_BY bytes a line.
//
// 1. A warp reads 16 lines, finds their exponents, and makes their residues modulo all m_t, 16 bytes a lane: fragments
//    for mma.sync, which go to shared memory. (With one piece and tiles of 16 x 16 they stay in registers.)
// 2. A warp multiplies 16 x 16 of C, one modulus after the other, adds the accumulators to the sums of groups of
//    moduli, and rounds.
//
// An entry of a product of 64 x 64 x 64 takes some 240 instructions with 14 moduli: 2 (4 + 2 14) to describe and cut two
// elements, 14 (2 + 3/4 + 7/8) for the accumulators, 75 to recombine and round. Of 16 x 16 x 16 the same. At two
// instructions of three that the multiprocessors of an H100 can issue, these are 65536 products of 16 x 16 x 16 in 0.2 ms.
#include "arithmetic/grouped.cuh"
#include "hardware/launch.cuh"
#include "hardware/mma.cuh"
#include "stacks/lines.cuh"
#include "stacks/special.cuh"

constexpr int UNITS = (BLOCK_ROWS + BLOCK_COLS) / 16, STEPS = (PIECES_HELD + 1) / 2, OF_ROWS = BLOCK_ROWS / 16;  // a unit: 16 lines; a step: 32 of k
constexpr bool DIRECT = PIECES_HELD == 1;
static_assert(!DIRECT || (UNITS == 2 && WARPS == 1 && QUOTIENTS), "");

struct Places {
  static constexpr int at[PLACE_COUNT] = PLACES;
};
typedef GroupedConstants<MODULI, PLACE_COUNT> Grouped;
#if QUOTIENTS
typedef Cutting<MODULI> Constants;
#else
typedef ResidueConstants<MODULI, LIMBS> Constants;
#endif
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
__device__ __forceinline__ void load_from(Lines<PIECES_HELD>& lines, const Operand<T>& left, const Operand<T>& right,
                                          bool of_right, int64_t product, int first, int count, int from, int k) {
  const Operand<T> of = {of_right ? right.x : left.x, of_right ? right.batch : left.batch,
                         of_right ? right.line : left.line, of_right ? right.k : left.k};
  lines.load(of, product, first, count, from, k);
}
template <typename T, typename U>
__device__ __forceinline__ void load_from(Lines<PIECES_HELD>& lines, const Operand<T>& left, const Operand<U>& right,
                                          bool of_right, int64_t product, int first, int count, int from, int k) {
  if (of_right) lines.load(right, product, first, count, from, k);
  else lines.load(left, product, first, count, from, k);
}

#if !QUOTIENTS
// Residues of the elements of a step of lines, from the limbs of their images, to fragments; t-th ones `apart` limbs on.
__device__ __forceinline__ void cut(const Lines<PIECES_HELD>& lines, int step, bool right, uint32_t* to, int apart,
                                    const Constants& c) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t limbs[4][LIMBS];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        image<LIMBS>(bits_of(lines.x[r][4 * (2 * step + half) + j]), lines.exponent[r], limbs[j]);
        limbs[j][LIMBS - 1] ^= 0x80000000u;  // raised
      }
      uint32_t* const at = to + (right ? 2 * r + half : r + 2 * half);
#pragma unroll 2
      for (int t = 0; t < MODULI; ++t) {
        const Quotient& m = c.quotient[t];
        uint32_t residue[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          uint32_t sum = m.start;
#pragma unroll
          for (int w = 0; w < LIMBS; ++w) sum = dot_bytes(limbs[j][w], c.fold[t][w], sum);
          residue[j] = residue_of_sum(sum, m.inverse, m.addend, m.modulus);
        }
        at[t * apart] = gather_bytes(residue[0], residue[1], residue[2], residue[3], 0);
      }
    }
  }
}
#endif

// Rounds and stores 16 x 16 entries, of which a lane has the sums of eight: rows g and g + 8, columns 2 h and 2 h + 1, and
// the same 8 columns on. mu, nu: exponents, or flags, of the tile's rows and columns, from `row` and `col` of C on.
__device__ __forceinline__ void finish(const GroupSums<MODULI> (&sums)[8], const int* mu, const int* nu,
                                       const Operand<INPUT_A>& a, const Operand<INPUT_B>& b, const Result& to,
                                       int64_t product, int row, int col, int m, int n, int k, const Grouped& grouped) {
  constexpr int BITS = 8 * MODULI - 1;
  constexpr bool FEW = PLACE_COUNT <= 4;
  const int g = threadIdx.x >> 2 & 7, h = threadIdx.x & 3;
  mu += g, nu += 2 * h, row += g, col += 2 * h;
  OutputBits* const c = to.c + product * to.batch + row * to.row + col * to.col;
  const bool in_pairs = to.col == 1 && ((reinterpret_cast<uint64_t>(c) | static_cast<uint64_t>(to.row) * sizeof(OutputBits)) &
                                        (2 * sizeof(OutputBits) - 1)) == 0;
  bool usual = true;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int down = 8 * (i / 2 % 2), over = 8 * (i / 4);
    OutputBits bits[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int exponent = -mu[down] - nu[over + j];
      double s[PLACE_COUNT];
      digit_sums<MODULI>(sums[i + j].z, grouped, s);
      if constexpr (FEW) {
        bits[j] = bits_of(round_few_digits<OUTPUT, Places>(s, exponent));
        usual = is_usual<OUTPUT, BITS>(exponent) && usual;
      } else {
        bits[j] = bits_of(round_digits<OUTPUT, Places, BITS>(s, exponent));
        usual = exponent > FLAGGED / 2 && usual;
      }
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
    const int exponent = -mu[down] - nu[over];
    OutputBits bits;
    if (exponent > FLAGGED / 2) {
      uint32_t z[groups_of(MODULI)];
#pragma unroll
      for (int of = 0; of < groups_of(MODULI); ++of) {
        z[of] = sums[0].z[of];
#pragma unroll
        for (int j = 1; j < 8; ++j)
          if (i == j) z[of] = sums[j].z[of];
      }
      double s[PLACE_COUNT];
      digit_sums<MODULI>(z, grouped, s);
      bits = bits_of(round_digits<OUTPUT, Places, BITS>(s, exponent));
    } else {
      bits = special_entry<OUTPUT>(a.x + product * a.batch + (row + down) * a.line, a.k,
                                   b.x + product * b.batch + (col + over) * b.line, b.k, k);
    }
    c[down * to.row + over * to.col] = bits;
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
stack_residues(const INPUT_A* __restrict__ a, int64_t a_batch, int64_t a_row, int64_t a_k, const INPUT_B* __restrict__ b,
               int64_t b_batch, int64_t b_col, int64_t b_k, OUTPUT* __restrict__ c, int64_t c_batch, int64_t c_row,
               int64_t c_col, int64_t batch, int m, int n, int k, int base, int64_t threshold,
               const __grid_constant__ Constants constants, const __grid_constant__ Grouped grouped) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  constexpr int FRAGMENTS = DIRECT ? 0 : MODULI * UNITS * SHARED_BY * STEPS * 32;
  uint4* const fragments = reinterpret_cast<uint4*>(dynamic);  // [modulus][unit][SHARED_BY][STEPS][lane]
  uint64_t* const squares = reinterpret_cast<uint64_t*>(fragments + FRAGMENTS);
  int* const exponents = reinterpret_cast<int*>(squares + (SHARED_BY > 1 ? 16 * UNITS * SHARED_BY : 0));
  unsigned short* const tops = reinterpret_cast<unsigned short*>(exponents + 16 * UNITS);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, h = lane & 3;
  const Operand<INPUT_A> left = {reinterpret_cast<const BitsOf<INPUT_A>::type*>(a), a_batch, a_row, a_k};
  const Operand<INPUT_B> right = {reinterpret_cast<const BitsOf<INPUT_B>::type*>(b), b_batch, b_col, b_k};
  const Result result = {reinterpret_cast<OutputBits*>(c), c_batch, c_row, c_col};
  const int over = (n + BLOCK_COLS - 1) / BLOCK_COLS, tiles = (m + BLOCK_ROWS - 1) / BLOCK_ROWS * over;
  after_previous();

#pragma unroll 1
  for (int64_t job = blockIdx.x; job < batch * tiles; job += gridDim.x) {
    const int64_t product = tiles == 1 ? job : job / tiles;
    const int tile = tiles == 1 ? 0 : static_cast<int>(job - product * tiles);
    const int row0 = tile / over * BLOCK_ROWS, col0 = tile % over * BLOCK_COLS;

    // 1. Fragments of residues.
    Lines<PIECES_HELD> lines[DIRECT ? 2 : 1];
    const auto prepare = [&](Lines<PIECES_HELD>& of, int unit, int part) {
      const bool of_right = unit >= OF_ROWS;
      const int first = of_right ? col0 + 16 * (unit - OF_ROWS) : row0 + 16 * unit, count = of_right ? n : m;
      load_from(of, left, right, of_right, product, first, count, 16 * PIECES_HELD * part, k);
      const Exchange<SHARED_BY> exchange = {squares + 16 * SHARED_BY * unit, tops + 16 * SHARED_BY * unit};
      of.describe(exchange, part, base, threshold);
      if (part == 0 && h < 2) exponents[16 * unit + 8 * h + g] = of.exponent_or_flag(h);
#if QUOTIENTS
      of.scale(constants);
#endif
    };
    if constexpr (DIRECT) {
#pragma unroll
      for (int side = 0; side < 2; ++side) prepare(lines[side], side, 0);
    } else {
#pragma unroll 1
      for (int i = warp; i < UNITS * SHARED_BY; i += WARPS) {
        const int unit = i / SHARED_BY, part = i % SHARED_BY;
        prepare(lines[0], unit, part);
        uint4* const to = fragments + i * STEPS * 32 + lane;
        const bool of_right = unit >= OF_ROWS;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#if QUOTIENTS
#pragma unroll
          for (int t = 0; t < MODULI; ++t) {
            const Lines<PIECES_HELD>& of = lines[0];
            const uint32_t f00 = of.residues(0, 2 * step, t, constants), f01 = of.residues(0, 2 * step + 1, t, constants);
            const uint32_t f10 = of.residues(1, 2 * step, t, constants), f11 = of.residues(1, 2 * step + 1, t, constants);
            to[(t * UNITS * SHARED_BY * STEPS + step) * 32] = make_uint4(f00, of_right ? f01 : f10, of_right ? f10 : f01, f11);
          }
#else
          cut(lines[0], step, of_right, reinterpret_cast<uint32_t*>(to + 32 * step), 4 * UNITS * SHARED_BY * STEPS * 32, constants);
#endif
        }
      }
    }
    block_barrier();

    // 2. Products.
    const uint32_t zero[4] = {};
#pragma unroll 1
    for (int i = warp; i < OF_ROWS * (UNITS - OF_ROWS); i += WARPS) {
      const int down = i % OF_ROWS, across = OF_ROWS + i / OF_ROWS;
      const int row = row0 + 16 * down, col = col0 + 16 * (across - OF_ROWS);
      if (row >= m || col >= n) continue;
      GroupSums<MODULI> sums[8];
#pragma unroll
      for (int t = 0; t < MODULI; ++t) {
        uint32_t d[2][4];
        if constexpr (DIRECT) {
          const uint32_t first = lines[0].residues(0, 0, t, constants), second = lines[0].residues(1, 0, t, constants);
#pragma unroll
          for (int j = 0; j < 2; ++j)
            multiply_bytes(d[j], zero, first, second, lines[DIRECT].residues(j, 0, t, constants));
        } else {
          const uint4* const x = fragments + (t * UNITS + down) * SHARED_BY * STEPS * 32 + lane;
          const uint4* const y = fragments + (t * UNITS + across) * SHARED_BY * STEPS * 32 + lane;
#pragma unroll
          for (int step = 0; step < SHARED_BY * STEPS; ++step) {
            const uint4 u = x[32 * step], v = y[32 * step];
            if (step == 0) {
              multiply_bytes(d[0], zero, u.x, u.y, v.x, u.z, u.w, v.y);
              multiply_bytes(d[1], zero, u.x, u.y, v.z, u.z, u.w, v.w);
            } else {
              multiply_bytes(d[0], d[0], u.x, u.y, v.x, u.z, u.w, v.y);
              multiply_bytes(d[1], d[1], u.x, u.y, v.z, u.z, u.w, v.w);
            }
          }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[j].add(t, d[j / 4][j % 4], grouped);
      }
      finish(sums, exponents + 16 * down, exponents + 16 * across, left, right, result, product, row, col, m, n, k,
             grouped);
    }
    block_barrier();  // the next tile's residues take their place
  }
}
