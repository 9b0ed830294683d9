// Images of elements, and the slices cut from them, for the kernels that split operands.
//
// Macros, as split.cu has them: INPUT, SLICES, WORDS, DIGIT_BITS, REVERSED, TILE, NEIGHBOURS.
//
// The sums over the bytes of an image that give its residues are a product of small matrices: the tensor cores form
// them, eight slices at a time, from the images as the lanes of a warp hold them. Lane 4 g + c then has slice g of the
// images of lanes 8 c .. 8 c + 7, reduces them and stores 8 or 16 neighbouring bytes. Digits go the same way: a sum
// with a single one picks a byte.
#pragma once
#include "arithmetic/digits.cuh"
#include "arithmetic/fixed_point.cuh"
#include "hardware/mma.cuh"
#include "arithmetic/residues.cuh"
#include "hardware/tiles.cuh"

typedef BitsOf<INPUT>::type Bits;

#if DIGIT_BITS == 0
typedef ResidueConstants<SLICES, WORDS> Constants;
#define MORE_ARGUMENTS , const __grid_constant__ Constants constants
#define MORE , constants
#else
#define MORE_ARGUMENTS
#define MORE
#endif

constexpr int BLOCK_K = TILE_K;
constexpr int LENGTH = DIGIT_BITS == 7 ? (SLICES + 3) / 4 : WORDS;  // words of bytes that the slices are cut from
constexpr int EIGHTS = (SLICES + 7) / 8;

// What the slices are cut from: the raised image, or its digits.
__device__ __forceinline__ void bytes_of_image(uint32_t (&words)[WORDS], uint32_t (&bytes)[LENGTH]) {
#if DIGIT_BITS == 7
  add_halves<7, SLICES>(words);
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) {
    uint32_t digit[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) digit[j] = 4 * w + j < SLICES ? raised_digit<7>(words, 4 * w + j) : 64u;
    bytes[w] = lower_digits_7(gather_bytes(digit[0], digit[1], digit[2], digit[3], 0));
  }
#else
#if DIGIT_BITS == 8
  balanced_bytes(words);
#endif
#pragma unroll
  for (int w = 0; w < WORDS; ++w) bytes[w] = words[w];
#endif
}

// An exponent, twice, plus 1 if the elements need a closer look before they become images.
__device__ __forceinline__ int scale_of(int mu, bool nonfinite) {
  return 2 * mu + (nonfinite || !usual_scale(mu) ? 1 : 0);
}

template <bool OF_LARGEST>
__device__ __forceinline__ int row_scale(const int64_t* description, int64_t batch_rows, int64_t index, int statistic,
                                         int step, int base, int64_t threshold) {
  const int mu = described_exponent<Bits, OF_LARGEST>(description, batch_rows, index, statistic, step, base, threshold);
  return scale_of(mu, description[5 * batch_rows + index] != 0);
}

// The images of COUNT elements of a row.
template <int COUNT>
__device__ __forceinline__ void make_images(Bits* bits, int scale, uint32_t (*bytes)[LENGTH]) {
  const int mu = scale >> 1;
  if (WORDS <= 2 && (scale & 1) != 0) {
#pragma unroll
    for (int j = 0; j < COUNT; ++j) bits[j] = tame(bits[j], mu);
  }
  const double factor = factor_of(mu);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
    uint32_t words[WORDS];
    if (WORDS <= 2) {
      image_by_doubles<DIGIT_BITS == 0>(double_of(bits[j]), factor, words);
    } else {
      image<WORDS>(bits[j], mu, words);
      if (DIGIT_BITS == 0) words[WORDS - 1] ^= 0x80000000u;  // + 2^(32 WORDS - 1)
    }
    bytes_of_image(words, bytes[j]);
#ifdef __CUDA_ARCH__
    if (DIGIT_BITS == 0) {  // made once, not for each eight slices, and where the products find them
#pragma unroll
      for (int w = 0; w < LENGTH; ++w) asm("" : "+r"(bytes[j][w]));
    }
#endif
  }
}

// What the slices are folded with and reduced by, in shared memory.
__shared__ uint32_t folds[8 * EIGHTS][LENGTH];
__shared__ __align__(16) uint32_t starts[8 * EIGHTS][4];  // a sum begins with four registers in a row
__shared__ __align__(16) Quotient quotients[8 * EIGHTS];

// Eight slices, of which lane 4 g + c has number s = 8 u + g.
struct Cut {
  uint32_t fold[2][2][LENGTH];  // [p][i]: the fold where c is 2 p + i, else zero
  uint32_t start[4];
  Quotient quotient;

  __device__ __forceinline__ Cut(int s, int c) {
#pragma unroll
    for (int w = 0; w < LENGTH; ++w) {
      const uint32_t own = folds[s][w];
#pragma unroll
      for (int i = 0; i < 4; ++i) fold[i / 2][i % 2][w] = c == i ? own : 0u;
    }
    quotient = quotients[s];
#pragma unroll
    for (int i = 0; i < 4; ++i) start[i] = DIGIT_BITS == 0 ? starts[s][i] : 0u;
  }

  // Slices of the images of lanes 8 c + {2 p, 2 p + 4, 2 p + 1, 2 p + 5}, p = 0 or 1, in the low bytes.
  __device__ __forceinline__ void apply(const uint32_t (&bytes)[LENGTH], int p, uint32_t (&slice)[4]) const {
    fold_pair<LENGTH>(slice, start, fold[p][0], fold[p][1], bytes);
#if DIGIT_BITS == 0
#pragma unroll
    for (int i = 0; i < 4; ++i)
      slice[i] = residue_of_sum(slice[i], quotient.inverse, quotient.addend, quotient.modulus);
#endif
  }

  // The same for both p, of two elements e of each lane.
  __device__ __forceinline__ void apply(const uint32_t (*bytes)[LENGTH], uint32_t (&slice)[2][2][4]) const {
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
      for (int e = 0; e < 2; ++e) apply(bytes[e], p, slice[p][e]);
  }
};

#if DIGIT_BITS == 0
__device__ __forceinline__ void fill_folds(int threads, const Constants& constants) {
#else
__device__ __forceinline__ void fill_folds(int threads) {
#endif
  for (int i = threadIdx.x; i < 8 * EIGHTS * LENGTH; i += threads) {
    const int t = i / LENGTH, w = i % LENGTH;
#if DIGIT_BITS == 0
    const int known = smaller(t, SLICES - 1);
    folds[t][w] = constants.fold[known][w];
    if (w != 0) continue;
    quotients[t] = constants.quotient[known];
    for (int j = 0; j < 4; ++j) starts[t][j] = quotients[t].start;
#else
    const int digit = SLICES - 1 - t;
    folds[t][w] = digit >= 0 && digit / 4 == w ? 1u << (8 * (digit % 4)) : 0u;
#endif
  }
}

// Of these, if they are of elements 2 lane + e, a lane has 16 neighbours: byte 2 j + e is element e of lane 8 c + j.
__device__ __forceinline__ void gather(const uint32_t (&slice)[2][2][4], uint32_t (&word)[4]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const auto& half = slice[w & 1];
    word[w] = gather_bytes(half[0][w >> 1], half[1][w >> 1], half[0][2 + (w >> 1)], half[1][2 + (w >> 1)], 0);
  }
}

// Byte offset of a 16-byte piece in row `first` + j, j < 8, for `first` a multiple of 8.
__device__ __forceinline__ int64_t offset_of_row(int first, int j, int piece, int64_t row_stride) {
#if TILE  // a bit of the row's place comes from first or from j
  const int base = permuted_column<NEIGHBOURS>(first), swizzle = NEIGHBOURS == 0 ? 0 : base & 7;
  const int from_base = permuted_column<NEIGHBOURS>(j);
  return (base + from_base) * 128 + ((piece ^ swizzle ^ (from_base & 7)) << 4);
#else
  return j * row_stride + 16 * piece;
#endif
}

// The slices of two runs of 128 elements by a warp, of which a lane has elements 64 half + 2 lane + {0, 1}: place(run,
// piece) is where 16 bytes of a slice go, from that of slice 0 on.
template <typename Place>
__device__ __forceinline__ void cut_two(const uint32_t (&bytes)[8][LENGTH], int8_t* out, int64_t slice_stride,
                                        bool second, Place place) {
  const int g = (threadIdx.x & 31) >> 2, c = threadIdx.x & 3;
#pragma unroll 1
  for (int u = 0; u < EIGHTS; ++u) {
    const int s = 8 * u + g;
    const Cut now(s, c);
    int8_t* const to = out + (REVERSED ? SLICES - 1 - s : s) * slice_stride;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // run i / 2, half i % 2
      uint32_t slice[2][2][4];
      now.apply(bytes + 2 * i, slice);
      uint32_t word[4];
      gather(slice, word);
      store_16_bytes(to + place(i / 2, 4 * (i % 2) + c), word, s < SLICES && (i < 2 || second));
    }
  }
}

// The slices of 8 rows x 128 elements by a warp, `first` the number of the first row in its tile, out its place for
// slice 0: two rows r, r + 1 at a time, of which load(r, bits) gives a lane its elements, 8 in all. Lane r has the
// scale of row r.
template <typename Load>
__device__ __forceinline__ void cut_rows(int scale, int8_t* out, int first, int64_t row_stride,
                                         int64_t slice_stride, Load load) {
  Bits bits[8];
  load(0, bits);
#pragma unroll 1
  for (int r = 0; r < 8; r += 2) {
    uint32_t bytes[8][LENGTH];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      make_images<4>(bits + 4 * i, __shfl_sync(0xffffffffu, scale, r + i), bytes + 4 * i);
    }
    if (r + 2 < 8) load(r + 2, bits);
    cut_two(bytes, out, slice_stride, true,
            [&](int run, int piece) { return offset_of_row(first, r + run, piece, row_stride); });
  }
}
