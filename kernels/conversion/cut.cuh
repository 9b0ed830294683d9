// From elements to slices, by one warp: the fixed-point image of each element, and the residues or digits cut from it.
// For the kernels that split operands.
//
// Macros, as in split.cu: INPUT, REALS, ROOM, LIMBS (32-bit limbs of an image), DIGIT_BITS, REVERSED, TILE, NEIGHBOURS,
// SHARED.
//
// An image is LIMBS limbs, four bytes b_j each. Its residue modulo m_t is sum_j b_j fold_j + start, reduced
// (residues.cuh), with fold_j = 2^(8 j) times a constant modulo m_t; a digit is a sum with a single fold of 1 (it picks
// a byte). A complex element has the images of its real and of its imaginary part, 2 LIMBS limbs together, and its
// slice number t is such a sum over the bytes of both: a linear form in the parts, modulo m_t. These sums of bytes are
// products of small matrices, which the tensor cores compute by mma.sync, for eight slices at a time:
//
//   elements in registers            mma.sync                         one lane, after reduction
//   lane l: elements 2 l, 2 l + 1    slices x images (fold_pair)      lane 4 g + c: slice g of the images of lanes
//                                                                     8 c .. 8 c + 7 = 16 neighbouring bytes, one store
#pragma once
#include "arithmetic/digits.cuh"
#include "arithmetic/fixed_point.cuh"
#include "hardware/mma.cuh"
#include "arithmetic/residues.cuh"
#include "hardware/tiles.cuh"

#ifndef SHARED
#define SHARED 1
#endif

typedef BitsOf<INPUT>::type Bits;

#if DIGIT_BITS == 0
typedef ResidueConstants<ROOM, REALS * LIMBS> Constants;
#define MORE_ARGUMENTS , const __grid_constant__ Constants constants, int count
#define MORE , constants
#else
#define MORE_ARGUMENTS , int count
#define MORE , count
#endif

constexpr int BLOCK_K = TILE_K;
constexpr int LENGTH = DIGIT_BITS == 7 ? (ROOM + 3) / 4 : REALS * LIMBS;  // limbs whose bytes slices are cut from
constexpr int EIGHTS = (ROOM + 7) / 8;  // passes of eight slices

// The bytes that slices are cut from: those of the raised image for residues; one balanced digit in each for digits.
// Of a complex element `part` says which of its two images this is.
__device__ __forceinline__ void bytes_of_image(uint32_t (&limbs)[LIMBS], int part, uint32_t (&bytes)[LENGTH]) {
#if DIGIT_BITS == 7
  add_halves<7, ROOM>(limbs);
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) {
    uint32_t digit[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) digit[j] = 4 * w + j < ROOM ? raised_digit<7>(limbs, 4 * w + j) : 64u;
    bytes[w] = lower_digits_7(gather_bytes(digit[0], digit[1], digit[2], digit[3], 0));
  }
#else
#if DIGIT_BITS == 8
  balanced_bytes(limbs);
#endif
#pragma unroll
  for (int w = 0; w < LIMBS; ++w) bytes[part * LIMBS + w] = limbs[w];
#endif
}

// An exponent mu and a flag in one integer, 2 mu + flag. The flag is set if the row's elements have to be tamed before
// float64 arithmetic makes images of them: NaN and Inf become zero, unusual exponents are brought into range.
__device__ __forceinline__ int scale_of(int mu, bool nonfinite) {
  return 2 * mu + (nonfinite || !usual_scale(mu) ? 1 : 0);
}

// The same from row `index` of a description.
template <bool OF_LARGEST>
__device__ __forceinline__ int row_scale(const int64_t* description, int64_t batch_rows, int64_t index, int statistic,
                                         int step, int base, int64_t threshold) {
  const int mu = described_exponent<Bits, OF_LARGEST>(description, batch_rows, index, statistic, step, base, threshold);
  return scale_of(mu, description[5 * batch_rows + index] != 0);
}

// The images of COUNT elements of a row with this scale, as bytes for the slices; a complex element has its two parts
// one after the other in `bits`. Images fit LIMBS limbs by the choice of mu. Up to two limbs float64 arithmetic is
// exact; more are shifted as integers.
template <int COUNT>
__device__ __forceinline__ void make_images(Bits* bits, int scale, uint32_t (*bytes)[LENGTH]) {
  const int mu = scale >> 1;
  if (LIMBS <= 2 && (scale & 1) != 0) {
#pragma unroll
    for (int j = 0; j < COUNT * REALS; ++j) bits[j] = tame(bits[j], mu);
  }
  const double factor = factor_of(mu);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
#pragma unroll
    for (int part = 0; part < REALS; ++part) {
      const Bits x = bits[j * REALS + part];
      uint32_t limbs[LIMBS];
      if (LIMBS <= 2) {
        image_by_doubles<DIGIT_BITS == 0>(double_of(x), factor, limbs);
      } else {
        image<LIMBS>(x, mu, limbs);
        if (DIGIT_BITS == 0) limbs[LIMBS - 1] ^= 0x80000000u;  // + 2^(32 LIMBS - 1)
      }
      bytes_of_image(limbs, part, bytes[j]);
    }
#ifdef __CUDA_ARCH__
    if (DIGIT_BITS == 0) {  // an opaque copy: else the compiler computes them anew for each eight slices
#pragma unroll
      for (int w = 0; w < LENGTH; ++w) asm("" : "+r"(bytes[j][w]));
    }
#endif
  }
}

// Constants of all slices in shared memory, written by fill_folds.
__shared__ uint32_t folds[8 * EIGHTS][LENGTH];
__shared__ __align__(16) uint32_t starts[8 * EIGHTS][4];  // four times the same: a sum starts with four registers
__shared__ __align__(16) Quotient quotients[8 * EIGHTS];

// The constants for eight slices; lane 4 g + c has those of slice s = 8 u + g.
struct Cut {
  uint32_t fold[2][2][LENGTH];  // [p][i]: the fold where c is 2 p + i, else zero: the sum then picks one lane's image
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

  // This lane's slice of the images of lanes 8 c + {2 p, 2 p + 4, 2 p + 1, 2 p + 5}, p = 0 or 1, in the low bytes of
  // slice[0 .. 3]. Called by all lanes.
  __device__ __forceinline__ void apply(const uint32_t (&bytes)[LENGTH], int p, uint32_t (&slice)[4]) const {
    fold_pair<LENGTH>(slice, start, fold[p][0], fold[p][1], bytes);
#if DIGIT_BITS == 0
#pragma unroll
    for (int i = 0; i < 4; ++i)
      slice[i] = residue_of_sum(slice[i], quotient.inverse, quotient.addend, quotient.modulus);
#endif
  }

  // The same for both p and for two elements e of each lane: slice[p][e].
  __device__ __forceinline__ void apply(const uint32_t (*bytes)[LENGTH], uint32_t (&slice)[2][2][4]) const {
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
      for (int e = 0; e < 2; ++e) apply(bytes[e], p, slice[p][e]);
  }
};

// Writes the constants of all slices to shared memory; called by all `threads` threads of the block, which synchronise
// before they use them. Residues: from the host's constants. Digits: slice t picks the byte of digit count - 1 - t.
#if DIGIT_BITS == 0
__device__ __forceinline__ void fill_folds(int threads, const Constants& constants) {
#else
__device__ __forceinline__ void fill_folds(int threads, int count) {
#endif
  for (int i = threadIdx.x; i < 8 * EIGHTS * LENGTH; i += threads) {
    const int t = i / LENGTH, w = i % LENGTH;
#if DIGIT_BITS == 0
    folds[t][w] = constants.fold[t][w];
    if (w != 0) continue;
    quotients[t] = constants.quotient[t];
    for (int j = 0; j < 4; ++j) starts[t][j] = quotients[t].start;
#else
    const int digit = count - 1 - t;
    folds[t][w] = digit >= 0 && digit / 4 == w ? 1u << (8 * (digit % 4)) : 0u;
#endif
  }
}

// The bytes of 16 neighbouring elements in order, if element e of lane l is element 2 l + e: byte 2 j + e is that of
// element e of lane 8 c + j.
__device__ __forceinline__ void gather(const uint32_t (&slice)[2][2][4], uint32_t (&packed)[4]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const auto& half = slice[w & 1];
    packed[w] = gather_bytes(half[0][w >> 1], half[1][w >> 1], half[0][2 + (w >> 1)], half[1][2 + (w >> 1)], 0);
  }
}

// Byte offset of 16-byte piece `piece` in row first + j of a tile (or of plain rows), first a multiple of a power of
// two above j.
__device__ __forceinline__ int64_t offset_of_row(int first, int j, int piece, int64_t row_stride) {
#if TILE  // permuted_column and the swizzle act on bits of `first` and of j separately
  const int base = permuted_column<NEIGHBOURS>(first), swizzle = base & 7;
  const int from_base = permuted_column<NEIGHBOURS>(j);
  return (base + from_base) * 128 + ((piece ^ swizzle ^ (from_base & 7)) << 4);
#else
  return j * row_stride + 16 * piece;
#endif
}

// Cuts two runs of 128 elements and stores their slices; called by all lanes of a warp. bytes[4 r + 2 half + e] is the
// image of element 64 half + 2 lane + e of run r. place(run, piece) is the offset of 16-byte piece `piece` of a run in
// each of `count` slices; slice s begins s * slice_stride bytes after `out`. The second run is stored if `second`. With
// the macro SHARED = 2 or 4 only the first 64 or 32 elements of each run are cut and stored, and so many slices share the
// 128 bytes of a run, one after the other, as if they were one.
template <typename Place>
__device__ __forceinline__ void cut_two(const uint32_t (&bytes)[8][LENGTH], int8_t* out, int64_t slice_stride,
                                        int count, bool second, Place place) {
  const int g = (threadIdx.x & 31) >> 2, c = threadIdx.x & 3;
#pragma unroll 1
  for (int u = 0; u < EIGHTS; ++u) {
    const int s = 8 * u + g;
    const Cut cut(s, c);
    const int number = REVERSED ? count - 1 - s : s;
    int8_t* const to = out + number / SHARED * slice_stride;
    const int first = number % SHARED * (8 / SHARED);  // piece
    const bool stored = s < count && (SHARED < 4 || c < 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // run i / 2, half i % 2
      if (SHARED > 1 && i % 2 == 1) continue;
      uint32_t slice[2][2][4];
      cut.apply(bytes + 2 * i, slice);
      uint32_t packed[4];
      gather(slice, packed);
      store_16_bytes(to + place(i / 2, first + 4 * (i % 2) + c), packed, stored && (i < 2 || second));
    }
  }
}

// Cuts ROWS rows x 128 elements and stores their slices; called by all lanes of a warp. Lane r has the scale of row r.
// Two rows r, r + 1 at a time: load(r, bits) gives a lane 8 elements, four of each row, and is called for the next two
// rows before these are cut, unless elements are complex. `first` is the number of the first row in its tile, `out` its
// place in slice 0.
template <int ROWS, typename Load>
__device__ __forceinline__ void cut_rows(int scale, int8_t* out, int first, int64_t row_stride,
                                         int64_t slice_stride, int count, Load load) {
  constexpr bool AHEAD = REALS == 1;  // else registers are too few
  Bits bits[8 * REALS];
  if (AHEAD) load(0, bits);
#pragma unroll 1
  for (int r = 0; r < ROWS; r += 2) {
    if (!AHEAD) load(r, bits);
    uint32_t bytes[8][LENGTH];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      make_images<4>(bits + 4 * REALS * i, __shfl_sync(0xffffffffu, scale, r + i), bytes + 4 * i);
    }
    if (AHEAD && r + 2 < ROWS) load(r + 2, bits);
    cut_two(bytes, out, slice_stride, count, true,
            [&](int run, int piece) { return offset_of_row(first, r + run, piece, row_stride); });
  }
}
