// The residues of fixed-point images of any width, and the slices that are made of them (docs/definitions.md, sections 2
// and 4): of multiprecision numbers, and of floating-point ones whose images are wider than split.cu takes.
//
// Macros:
// - MULTIPRECISION: 1 if x holds multiprecision numbers, 0 if it holds floating-point ones, of type INPUT (double, float)
// - GROUPS: 8 or 2: a block owns 8 GROUPS neighbours along k of each of its rows
// - ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows
// - UNSIGNED: 1 for residues and digits in [0, m), 0 for symmetric ones
// - TILE: 0 for plain rows, or the rows of a tile, with NEIGHBOURS (tiles.cuh)
//
// x is a view (batch, rows, k). Slice s of element (b, row, h) goes to slices + b * batch_stride + s * slice_stride plus
// row * row_stride + h or, in tiles, the offset of (row, h) that tiles.cuh gives; zeros for rows <= row < rows_padded and
// k <= h < k_padded. description is int64 [6][batch * rows], of multiprecision numbers that of their leading bits
// (leading.cu), and `tops` their tops, a row each. statistic, step, base, threshold: as in split.cu. The exponent mu of
// row (b, row), which scales 2^-top x, goes to mu_out[b * rows + row].
//
// An image is a sign, `words` limbs, a multiple of 8, and a bit that says whether its magnitude is one more. The residue
// of its bytes b_p modulo m is sum_p b_p fold_p, fold_p = c 2^(8 p) mod m. With fold_p in digits of eight bits these are
// sums of products of bytes, products of small matrices by the tensor cores: rows are digits of folds, columns images.
// `folds` holds 16 rows at a time, a piece, as mma.sync reads them: [piece][words / 8][lane][4] limbs. First come the
// pieces of counts.ones moduli up to 2^8, a row each; then those of counts.twos moduli below 2^14, eight in a piece, rows
// 0 .. 7 the low digits and rows 8 .. 15 the high ones; then those of counts.threes moduli below 2^21, two pieces for
// eight: the high digits; the low and the middle ones. `moduli` has the constants of all, in this order.
//
// 128 threads; grid batch * ceil(rows_padded / runs) * (k_padded / (8 GROUPS)), all on x; dynamic shared memory of runs *
// 8 GROUPS * (4 pitch + 1) bytes. Phases: 1. images of `runs` rows, to shared memory; 2. each warp takes pieces with rows
// of images: residues, slices, stores. Column 2 c + i of group j of eight columns is element 2 GROUPS c + 2 j + i of a
// run, so that a lane has 2 GROUPS neighbours. `pitch`, limbs from one image to the next, is an odd multiple of 4, so that
// lanes read from different banks.
#include "arithmetic/modulus.cuh"
#include "arithmetic/numbers.cuh"
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

// Stores the low bytes of OWN integers at an address aligned to OWN bytes.
__device__ __forceinline__ void store_bytes(int8_t* to, const int (&value)[OWN]) {
  uint32_t packed[OWN / 4];
#pragma unroll
  for (int w = 0; w < OWN / 4; ++w)
    packed[w] = gather_bytes(value[4 * w], value[4 * w + 1], value[4 * w + 2], value[4 * w + 3], 0);
  if constexpr (OWN == 16)
    *reinterpret_cast<uint4*>(to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  else
    *reinterpret_cast<uint32_t*>(to) = packed[0];
}

// Sums of a piece: sum[j][i] of row g and column 2 c + i of group j, sum[j][2 + i] of row g + 8.
typedef uint32_t Sums[GROUPS][4];

__device__ __forceinline__ void sums_of(const uint4* folds, const uint32_t* images, int pitch, int steps, Sums& sum) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int j = 0; j < GROUPS; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j][i] = 0;
  const uint32_t* at = images + (lane >> 2) * pitch + (lane & 3);
  for (int step = 0; step < steps; ++step, at += 8) {
    const uint4 fold = __ldg(folds + step * 32 + lane);
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) {
      const uint32_t* const own = at + 8 * j * pitch;
      multiply_bytes(sum[j], sum[j], fold.x, fold.y, own[0], fold.z, fold.w, own[4]);
    }
  }
}

// What a lane's own images are beside their limbs, a byte each: 1 if negative, and 2 if the magnitude is one more.
struct Flags {
  uint8_t of[OWN];

  __device__ __forceinline__ Flags(const uint8_t* flags) {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) of[2 * j + i] = flags[8 * j + 2 * (threadIdx.x & 3) + i];
  }
  // The residue of an image whose magnitude, without the one, has residue r.
  __device__ __forceinline__ uint32_t settle(uint32_t r, int element, const Modulus& m) const {
    if (of[element] & 2) r += m.one, r = smaller(r, r - m.modulus);
    return (of[element] & 1) != 0 && r != 0 ? m.modulus - r : r;
  }
};

// Stores the slices of a modulus, `at` the address of the first one for the lane's first element.
template <int DIGITS>
__device__ __forceinline__ void store_slices(const uint32_t (&r)[OWN], const Modulus& m, int8_t* at, int64_t slice_stride) {
#pragma unroll
  for (int s = 0; s < slices_of_digits(DIGITS); ++s) {
    int value[OWN];
#pragma unroll
    for (int e = 0; e < OWN; ++e) {
      int digit[DIGITS];
      digits_of<DIGITS, UNSIGNED>(r[e], m.modulus, digit);
      value[e] = slice_of_digits<DIGITS>(digit, s);
    }
    store_bytes(at + s * slice_stride, value);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
split_numbers(const Source x, int64_t rows, int64_t k, int64_t rows_padded, int64_t k_padded,
              const int64_t* __restrict__ description, const int64_t* __restrict__ tops, int64_t batch_rows,
              int statistic, int step, int base, int64_t threshold, int32_t* __restrict__ mu_out, const Target to,
              const uint4* __restrict__ folds, const Modulus* __restrict__ moduli, const Counts counts, int words,
              int pitch, int runs) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  after_previous();
  uint32_t* const images = reinterpret_cast<uint32_t*>(dynamic);
  uint8_t* const flags = dynamic + runs * RUN * pitch * 4;
  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / RUN);
  const uint32_t blocks_row = static_cast<uint32_t>((rows_padded + runs - 1) / runs);
  const uint32_t inner = ALONG_K ? blocks_k : blocks_row, outer = ALONG_K ? blocks_row : blocks_k;
  const uint32_t rest = blockIdx.x / inner, first = blockIdx.x % inner, second = rest % outer, b = rest / outer;
  const int64_t row0 = static_cast<int64_t>(ALONG_K ? second : first) * runs;
  const int64_t h0 = static_cast<int64_t>(ALONG_K ? first : second) * RUN;

  // 1. Images.
  for (int i = threadIdx.x; i < runs * RUN; i += THREADS) {
    const int run = ALONG_K ? i / RUN : i % runs, element = ALONG_K ? i % RUN : i / runs;
    const int64_t row = row0 + run, h = h0 + element;
    const int column = 8 * (element % OWN / 2) + 2 * (element / OWN) + element % 2;
    uint32_t* const image = images + (run * RUN + column) * pitch;
    uint8_t flag = 0;
    if (row < rows && h < k) {
      const int64_t index = b * rows + row;
      const int mu = described_exponent<Bits, false>(description, batch_rows, index, statistic, step, base, threshold);
      const Element number(x, b * x.sb + row * x.sr + h * x.sk);
      const int64_t top = MULTIPRECISION ? tops[index] : 0;
      const bool more = round_fraction(number, number.exponent - top + mu, words, [&](int w, uint32_t limb) { image[w] = limb; });
      flag = (number.sign < 0 ? 1 : 0) | (more ? 2 : 0);
      if (h == 0) mu_out[index] = mu;
    } else {
      for (int w = 0; w < words; ++w) image[w] = 0;
    }
    flags[run * RUN + column] = flag;
  }
  __syncthreads();

  // 2. Residues and slices.
  const int lane = threadIdx.x & 31, g = lane >> 2, steps = words / 8;
  const int ones = static_cast<int>(counts.ones), twos = static_cast<int>(counts.twos);
  const int threes = static_cast<int>(counts.threes);
  const int of_ones = (ones + 15) / 16, of_twos = (twos + 7) / 8, of_threes = (threes + 7) / 8;
  const int64_t length = 32 * steps;  // uint4 of a piece
  for (int item = threadIdx.x / 32; item < runs * (of_ones + of_twos + of_threes); item += THREADS / 32) {
    const int run = item % runs, piece = item / runs;
    const int64_t row = row0 + run;
    if (row >= rows_padded) continue;
    const uint32_t* const own = images + run * RUN * pitch;
    const Flags flag(flags + run * RUN);
    int8_t* const out = to.slices + b * to.batch_stride + offset_of(to, row, h0 + OWN * (lane & 3), k_padded);
    Sums sum;
    uint32_t r[OWN];
    if (piece < of_ones) {
      sums_of(folds + piece * length, own, pitch, steps, sum);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = 16 * piece + g + 8 * half;
        if (t >= ones) continue;
        const Modulus m = moduli[t];
#pragma unroll
        for (int e = 0; e < OWN; ++e)
          r[e] = flag.settle(residue(sum[e / 2][2 * half + e % 2], m.modulus, m.inverse), e, m);
        store_slices<1>(r, m, out + t * to.slice_stride, to.slice_stride);
      }
      continue;
    }
    const bool two = piece < of_ones + of_twos;
    const int t = (two ? 0 : twos) + 8 * (piece - of_ones - (two ? 0 : of_twos)) + g;  // beyond `ones`
    const bool wanted = t < (two ? twos : twos + threes);
    const Modulus m = moduli[ones + (wanted ? t : 0)];
    const uint4* from = folds + (two ? piece : 2 * piece - of_ones - of_twos) * length;
#pragma unroll
    for (int e = 0; e < OWN; ++e) r[e] = 0;
    if (!two) {
      sums_of(from, own, pitch, steps, sum);
#pragma unroll
      for (int e = 0; e < OWN; ++e) r[e] = residue(sum[e / 2][e % 2], m.modulus, m.inverse);
      from += length;
    }
    sums_of(from, own, pitch, steps, sum);
#pragma unroll
    for (int e = 0; e < OWN; ++e) {  // (r 2^8 + high) 2^8 + low; sums of bytes are below 2^30
      const uint32_t high = residue((r[e] << 8) + sum[e / 2][2 + e % 2], m.modulus, m.inverse);
      r[e] = flag.settle(residue((high << 8) + sum[e / 2][e % 2], m.modulus, m.inverse), e, m);
    }
    if (!wanted) continue;
    if (two)
      store_slices<2>(r, m, out + (ones + 3 * t) * to.slice_stride, to.slice_stride);
    else
      store_slices<3>(r, m, out + (ones + 3 * twos + 6 * (t - twos)) * to.slice_stride, to.slice_stride);
  }
}
