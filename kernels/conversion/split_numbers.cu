// The residues of fixed-point images of any width, and the slices that are made of them (docs/definitions.md, sections
// 2 and 4): of multiprecision numbers, and of floating-point ones whose images are wider than split.cu takes.
//
// Macros:
// - MULTIPRECISION: 1 if x holds multiprecision numbers, 0 if it holds floating-point ones, of type INPUT (double,
//   float)
// - GROUPS: 8 or 2: a block owns 8 GROUPS neighbours along k of each of its rows
// - ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows
// - SHORT: limbs of an image that are computed at a time, if it has no more: 4 or 8; 0 for longer images
// - UNSIGNED: 1 for residues and digits in [0, m), 0 for symmetric ones
// - TILE: 0 for plain rows, or the rows of a tile, with NEIGHBOURS (tiles.cuh)
// - INNER: 1 if rows of floating-point numbers are scaled along k: x stands for its products by factors[batch][k], powers
//   of two or 0
//
// x is a view (batch, rows, k). Slice s of element (b, row, h) goes to slices + b * batch_stride + s * slice_stride
// plus row * row_stride + h or, in tiles, the offset of (row, h) that tiles.cuh gives; zeros for rows <= row <
// rows_padded and k <= h < k_padded. description is int64 [6][batch * rows], of multiprecision numbers that of their
// leading bits (leading.cu), and `tops` their tops, a row each. statistic, step, base, threshold: as in split.cu. The
// exponent mu of row (b, row), which scales 2^-top x, goes to mu_out[b * rows + row].
//
// An image is raised by 2^(32 limbs - 1), so that it is nonnegative, and takes `words` words, a multiple of 8: `limbs`
// limbs, of a negative one those of its complement; a word whose lowest byte says whether the image is one more; and
// words whose folds are zero, so that they may hold anything. Its residue modulo m is start + sum_p b_p fold_p, b_p its
// bytes, fold_p = c 2^(8 p) mod m or, of the byte that says whether it is one more, c. With fold_p in digits of eight
// bits these are sums of products of bytes, products of small matrices by the tensor cores: rows are digits of folds,
// columns images. `folds` holds 16 rows at a time, a piece, as mma.sync reads them: [piece][words / 8][lane][4] words.
// First come the pieces of counts.ones moduli up to 2^8, a row each; then those of counts.twos moduli below 2^14, eight
// in a piece, rows 0 .. 7 the low digits and rows 8 .. 15 the high ones; then those of counts.threes moduli below 2^21,
// two pieces for eight: the high digits; the low and the middle ones. `moduli` has the constants of all, in this order:
// of images that are SHORT those up to 2^8 as Quotient (residues.cuh), all others as Modulus.
//
// 128 threads; a block has runs = 2^run_bits rows; grid batch * ceil(rows_padded / runs) * (k_padded / (8 GROUPS)), all
// on x; dynamic shared memory of 8 runs + 4 runs * (8 GROUPS pitch + 4) bytes. Phases: 1. how far the rows are shifted;
// 2. images, to shared memory; 3. each warp takes pieces with rows of images: residues, slices, stores.
//
// Column 2 c + i of group j of eight columns is element 2 GROUPS c + 2 j + i of a run, so that a lane has 2 GROUPS
// neighbours. `pitch`, limbs from one image to the next, is an odd multiple of 4: eight images that are read together
// lie in different banks.
#include "arithmetic/modulus.cuh"
#include "arithmetic/numbers.cuh"
#include "conversion/factors.cuh"
#include "hardware/launch.cuh"
#include "hardware/mma.cuh"
#include "hardware/tiles.cuh"

#if MULTIPRECISION
typedef NumbersView Source;
typedef Number Element;
typedef uint64_t Bits;
#else
typedef FloatsView<INPUT> Source;
typedef FloatNumber Element;
typedef BitsOf<INPUT>::type Bits;
#endif

constexpr int THREADS = 128, RUN = 8 * GROUPS, OWN = 2 * GROUPS;  // OWN: neighbours of a lane

struct Counts {
  int64_t ones, twos, threes;
};

// Where slices go, and how far apart they are.
struct Target {
  int8_t* slices;
  int64_t batch_stride, row_stride, slice_stride;
};

__device__ __forceinline__ int64_t offset_of(const Target& to, int64_t row, int64_t h, int64_t k_padded) {
#if TILE
  const int in_tile = permuted_column<NEIGHBOURS>(static_cast<int>(row % TILE));
  return (row / TILE * (k_padded / TILE_K) + h / TILE_K) * (TILE * TILE_K) +
         tile_offset(in_tile, static_cast<int>(h % TILE_K) >> 4) + (h & 15);
#else
  return row * to.row_stride + h;
#endif
}

// Stores OWN bytes, packed, at an address aligned to OWN bytes.
__device__ __forceinline__ void store_bytes(int8_t* to, const uint32_t (&packed)[OWN / 4]) {
  if constexpr (OWN == 16)
    *reinterpret_cast<uint4*>(to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  else
    *reinterpret_cast<uint32_t*>(to) = packed[0];
}

// Stores the low bytes of OWN integers.
__device__ __forceinline__ void store_low_bytes(const uint32_t (&r)[OWN], int8_t* at) {
  uint32_t packed[OWN / 4];
#pragma unroll
  for (int w = 0; w < OWN / 4; ++w) packed[w] = gather_bytes(r[4 * w], r[4 * w + 1], r[4 * w + 2], r[4 * w + 3], 0);
  store_bytes(at, packed);
}

// Stores the slices of OWN residues modulo m, `at` the address of the first slice.
template <int DIGITS>
__device__ __forceinline__ void store_slices(const uint32_t (&r)[OWN], uint32_t modulus, int8_t* at,
                                             int64_t slice_stride) {
  uint32_t packed[slices_of_digits(DIGITS)][OWN / 4];
#pragma unroll
  for (int w = 0; w < OWN / 4; ++w) {
    if constexpr (DIGITS == 2 && UNSIGNED) {  // two residues in a register
      uint32_t half[3][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t both = r[4 * w + 2 * i] | r[4 * w + 2 * i + 1] << 16;
        half[0][i] = both & 0x7f007fu, half[1][i] = both >> 7 & 0x7f007fu, half[2][i] = half[0][i] + half[1][i];
      }
#pragma unroll
      for (int s = 0; s < 3; ++s) packed[s][w] = even_bytes(half[s][0], half[s][1]);
    } else {
      int digit[4][DIGITS];
#pragma unroll
      for (int i = 0; i < 4; ++i) digits_of<DIGITS, UNSIGNED>(r[4 * w + i], modulus, digit[i]);
#pragma unroll
      for (int s = 0; s < slices_of_digits(DIGITS); ++s) {
        const auto byte = [&](int i) { return static_cast<uint32_t>(slice_of_digits<DIGITS>(digit[i], s)); };
        packed[s][w] = gather_bytes(byte(0), byte(1), byte(2), byte(3), 0);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < slices_of_digits(DIGITS); ++s, at += slice_stride) store_bytes(at, packed[s]);
}

// Sums of AT_ONCE pieces: sum[p][j][i] of row g of piece p and column 2 c + i of group j, sum[p][j][2 + i] of row g +
// 8. They begin with begin[p][0] and begin[p][1]. Pieces are `length` fours of limbs apart.
constexpr int AT_ONCE = 2;
typedef uint32_t Sums[AT_ONCE][GROUPS][4];

__device__ __forceinline__ void load_pieces(const uint4* folds, int64_t length, uint4 (&fold)[AT_ONCE]) {
#pragma unroll
  for (int p = 0; p < AT_ONCE; ++p) fold[p] = __ldg(folds + p * length);
}

__device__ __forceinline__ void sum_pieces(const uint4* folds, int64_t length, const uint32_t* images, int pitch,
                                           int steps, const uint32_t (&begin)[AT_ONCE][2], Sums& sum) {
  const int lane = threadIdx.x & 31;
  // Lane 8 i + j reads limbs 4 (i % 2) and up of image j of the first or, from i = 2 on, of the second of two groups.
  const uint32_t* at = images + ((lane & 7) + (lane >> 4) * 8) * pitch + (lane >> 3 & 1) * 4;
  const auto multiply = [&](const uint4 (&fold)[AT_ONCE], bool first) {
#pragma unroll
    for (int j = 0; j < GROUPS; j += 2) {
      uint32_t part[4];
      load_matrices(part, at + 8 * j * pitch);
#pragma unroll
      for (int p = 0; p < AT_ONCE; ++p)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t(&of)[4] = sum[p][j + i];
          if (first) of[0] = of[1] = begin[p][0], of[2] = of[3] = begin[p][1];
          multiply_bytes(of, of, fold[p].x, fold[p].y, part[2 * i], fold[p].z, fold[p].w, part[2 * i + 1]);
        }
    }
  };
  folds += lane;
  uint4 fold[AT_ONCE], next[AT_ONCE], after[AT_ONCE];  // of this step and of the two after it
  load_pieces(folds, length, fold);
  if (steps > 1) load_pieces(folds += 32, length, next);
  if (steps > 2) load_pieces(folds += 32, length, after);
  multiply(fold, true);
  for (int step = 1; step < steps; ++step) {
    at += 8;
#pragma unroll
    for (int p = 0; p < AT_ONCE; ++p) fold[p] = next[p], next[p] = after[p];
    if (step + 2 < steps) load_pieces(folds += 32, length, after);
    multiply(fold, false);
  }
}

#if __CUDA_ARCH__ >= 1000  // where the compiler needs more registers
constexpr int BLOCKS = 3;
#else
constexpr int BLOCKS = 4;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
split_numbers(const Source x, int64_t rows, int64_t k, int64_t rows_padded, int64_t k_padded,
              const int64_t* __restrict__ description, const int64_t* __restrict__ tops, int64_t batch_rows,
              int statistic, int step, int base, int64_t threshold, int32_t* __restrict__ mu_out, const Target to,
              const uint4* __restrict__ folds, const Modulus* __restrict__ moduli, const Counts counts, int limbs,
              int words, int pitch, int run_bits FACTORS) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  after_previous();
  const int runs = 1 << run_bits;
  const int run_pitch = RUN * pitch + 4;
  uint32_t* const images = reinterpret_cast<uint32_t*>(dynamic);
  int64_t* const shifts = reinterpret_cast<int64_t*>(images + runs * run_pitch);
  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / RUN);
  const uint32_t blocks_row = static_cast<uint32_t>((rows_padded + runs - 1) >> run_bits);
  const uint32_t inner = ALONG_K ? blocks_k : blocks_row, outer = ALONG_K ? blocks_row : blocks_k;
  const uint32_t rest = blockIdx.x / inner, first = blockIdx.x % inner, second = rest % outer, b = rest / outer;
  const int64_t row0 = static_cast<int64_t>(ALONG_K ? second : first) * runs;
  const int64_t h0 = static_cast<int64_t>(ALONG_K ? first : second) * RUN;

  // 1. Shifts.
  if (threadIdx.x < runs && row0 + threadIdx.x < rows) {
    const int64_t index = b * rows + row0 + threadIdx.x;
    const int mu = described_exponent<Bits, false>(description, batch_rows, index, statistic, step, base, threshold);
    shifts[threadIdx.x] = MULTIPRECISION ? mu - tops[index] : mu;
    if (h0 == 0) mu_out[index] = mu;
  }
  __syncthreads();

  // 2. Images, of several elements at a time.
  constexpr int SOME = SHORT == 4 ? 4 : 2;
  for (int first = threadIdx.x; first < runs * RUN; first += SOME * THREADS) {
    Element number[SOME];
    int64_t shift[SOME];
    uint32_t* image[SOME];
    uint32_t more[SOME];
    int run[SOME];
#pragma unroll
    for (int n = 0; n < SOME; ++n) {
      const int i = first + n * THREADS, element = ALONG_K ? i % RUN : i >> run_bits;
      run[n] = ALONG_K ? i / RUN : i & (runs - 1);
      const int64_t row = row0 + run[n], h = h0 + element;
      image[n] = images + run[n] * run_pitch + (8 * (element % OWN / 2) + 2 * (element / OWN) + element % 2) * pitch;
      if (i < runs * RUN && row < rows && h < k) {
        number[n] = Element(x, b * x.sb + row * x.sr + h * x.sk);
#if INNER
        const int64_t field = __double_as_longlong(factors[b * k + h]) >> 52;  // 0 of a factor 0
        number[n].exponent += field - 1023;
        if (field == 0) number[n].sign = 0;
#endif
      }
    }
#pragma unroll
    for (int n = 0; n < SOME; ++n) shift[n] = number[n].exponent + (number[n].sign == 0 ? 0 : shifts[run[n]]);
    const auto sign = [&](int n) { return number[n].sign < 0 ? ~0u : 0u; };
    const auto store = [&](int n, int w, uint32_t limb) {
      if (first + n * THREADS < runs * RUN) image[n][w] = limb;
    };
    const auto take = [&](int n, int w, uint32_t limb) {
      store(n, w, limb ^ sign(n) ^ (w == limbs - 1 ? 0x80000000u : 0u));
    };
    round_fractions<SHORT == 4 ? 4 : 8>(number, shift, limbs, take, more);
#pragma unroll
    for (int n = 0; n < SOME; ++n) store(n, limbs, more[n] ^ (sign(n) & 1));  // -(x + 1) is the complement of x
  }
  __syncthreads();

  // 3. Residues and slices, of two pieces at a time; of the last one twice, if their number is odd.
  const int lane = threadIdx.x & 31, g = lane >> 2, steps = words / 8;
  const int ones = static_cast<int>(counts.ones), twos = static_cast<int>(counts.twos);
  const int threes = static_cast<int>(counts.threes);
  const int pairs_of_ones = (ones + 31) / 32, pairs_of_twos = (twos + 15) / 16, pairs_of_threes = (threes + 7) / 8;
  const int64_t length = 32 * steps, stride = to.slice_stride;  // `length` of a piece, in fours of limbs
  const int items = runs * (pairs_of_ones + pairs_of_twos + pairs_of_threes);
  for (int item = threadIdx.x / 32; item < items; item += THREADS / 32) {
    const int run = item & (runs - 1);
    int pair = item >> run_bits;
    const int64_t row = row0 + run;
    if (row >= rows_padded) continue;
    const uint32_t* const own = images + run * run_pitch;
    int8_t* out = to.slices + b * to.batch_stride + offset_of(to, row, h0 + OWN * (lane & 3), k_padded);
    Sums sum;
    uint32_t r[OWN], begin[AT_ONCE][2];
    if (pair < pairs_of_ones) {
      const int t = 32 * pair + g;
      const bool both = 32 * pair + 16 < ones;
#if SHORT
      Quotient of[4];
      const Quotient* const constants = reinterpret_cast<const Quotient*>(moduli);
#else
      Modulus of[4];
      const Modulus* const constants = moduli;
#endif
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        of[i] = constants[smaller(t + 8 * i, ones - 1)];
        begin[i / 2][i % 2] = of[i].start;
      }
      sum_pieces(folds + 2 * pair * length, both ? length : 0, own, pitch, steps, begin, sum);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int e = 0; e < OWN; ++e) {
          const uint32_t f = sum[i / 2][e / 2][2 * (i % 2) + e % 2];
#if SHORT
          r[e] = residue_of_sum(f, of[i].inverse, of[i].addend, of[i].modulus);  // in the low byte
#else
          r[e] = residue(f, of[i].modulus, of[i].inverse);
#endif
        }
        if (t + 8 * i >= ones) continue;
        int8_t* const to_slice = out + (t + 8 * i) * stride;
#if SHORT
        store_low_bytes(r, to_slice);
#else
        store_slices<1>(r, of[i].modulus, to_slice, stride);
#endif
      }
      continue;
    }
    pair -= pairs_of_ones;
    const uint4* from = folds + (ones + 15) / 16 * length;
    out += ones * stride;
    if (pair < pairs_of_twos) {
      const int t = 16 * pair + g;
      const bool both = 16 * pair + 8 < twos;
      Modulus of[2];
#pragma unroll
      for (int p = 0; p < AT_ONCE; ++p) {
        of[p] = moduli[ones + smaller(t + 8 * p, twos - 1)];
        begin[p][0] = of[p].start, begin[p][1] = 0;
      }
      sum_pieces(from + 2 * pair * length, both ? length : 0, own, pitch, steps, begin, sum);
#pragma unroll
      for (int p = 0; p < AT_ONCE; ++p) {
        const bool exact = SHORT || words <= 256;  // upper sums, of digits of six bits, are below 2^14 4 words
#pragma unroll
        for (int e = 0; e < OWN; ++e) {
          uint32_t upper = sum[p][e / 2][2 + e % 2];
          if (!exact) upper = residue(upper, of[p].modulus, of[p].inverse);
          r[e] = residue((upper << 8) + sum[p][e / 2][e % 2], of[p].modulus, of[p].inverse);
        }
        if (t + 8 * p < twos) store_slices<2>(r, of[p].modulus, out + 3 * (t + 8 * p) * stride, stride);
      }
      continue;
    }
    pair -= pairs_of_twos;
    const int t = 8 * pair + g;
    const Modulus m = moduli[ones + twos + smaller(t, threes - 1)];
    begin[0][0] = begin[0][1] = begin[1][1] = 0, begin[1][0] = m.start;
    sum_pieces(from + ((twos + 7) / 8 + 2 * pair) * length, length, own, pitch, steps, begin, sum);
#pragma unroll
    for (int e = 0; e < OWN; ++e) {  // (high 2^8 + middle) 2^8 + low; sums of bytes are below 2^30
      r[e] = residue(sum[0][e / 2][e % 2], m.modulus, m.inverse);
      r[e] = residue((r[e] << 8) + sum[1][e / 2][2 + e % 2], m.modulus, m.inverse);
      r[e] = residue((r[e] << 8) + sum[1][e / 2][e % 2], m.modulus, m.inverse);
    }
    if (t < threes) store_slices<3>(r, m.modulus, out + (3 * twos + 6 * t) * stride, stride);
  }
}
