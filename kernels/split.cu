// The fixed-point image of an operand, cut into int8 slices (docs/design.md, sections 4 to 6).
//
// Macros: INPUT (double or float); SLICES; WORDS (32-bit words of the image); DIGIT_BITS (0: residues; 8 or 7:
// balanced digits); ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows; REVERSED: 1 stores slice s as
// SLICES - 1 - s; TILE: 0, or the rows of a tile (tiles.cuh); PERMUTED: 1 permutes the rows of a tile as the columns of
// a right operand; LARGEST: 1 if field 0 of the description is the largest element itself (tops.cu).
//
// x is a view (batch, rows, k) with element strides sb, sr, sk of any sign. Slice s of element (b, row, h) goes to
// slices + b * batch_stride + s * slice_stride plus
//   TILE = 0:  row * row_stride + (h / slab) * slab_stride + h % slab
//   else:      the place of (row, h) that tiles.cuh gives (row_stride, slab and slab_stride do not matter),
// zeros for rows <= row < rows_padded and k <= h < k_padded. slab and k_padded are multiples of 128, the strides and
// the address of slices multiples of 16, rows_padded a multiple of 8 and of TILE.
//
// description is int64 [6][batch * rows]; `statistic` is the field that the scaling reads (1: peak, 3: squares), if
// LARGEST the bits W of the peak, as described_exponent has it. mu of row (b, row) goes to mu[b * rows + row].
//
// 128 threads; grid batch * ceil(rows_padded / 32) * (k_padded / 128), all on x. A block owns 32 rows x 128 elements.
// Where rows are neighbours in memory, it turns them in shared memory first.
//
// The sums over the bytes of an image that give its residues are a product of small matrices: the tensor cores form
// them, eight slices at a time, from the images as the lanes of a warp hold them. Lane 4 g + c then has slice g of the
// images of lanes 8 c .. 8 c + 7, reduces them and stores 8 or 16 neighbouring bytes. Digits go the same way: a sum with a
// single one picks a byte.
#include "digits.cuh"
#include "fixed_point.cuh"
#include "launch.cuh"
#include "mma.cuh"
#include "residues.cuh"
#include "tiles.cuh"

typedef BitsOf<INPUT>::type Bits;

#if DIGIT_BITS == 0
typedef ResidueConstants<SLICES, WORDS> Constants;
#define MORE_ARGUMENTS , const __grid_constant__ Constants constants
#else
#define MORE_ARGUMENTS
#endif

constexpr int THREADS = 128, BLOCK_ROWS = 32, BLOCK_K = 128;
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

// The exponent of a row, twice, plus 1 if its elements need a closer look before they become images.
__device__ __forceinline__ int row_scale(const int64_t* description, int64_t batch_rows, int64_t index, int statistic,
                                         int step, int base, int64_t threshold) {
  const int mu = described_exponent<Bits, LARGEST>(description, batch_rows, index, statistic, step, base, threshold);
  return 2 * mu + (description[5 * batch_rows + index] != 0 || !usual_scale(mu) ? 1 : 0);
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
  }
}

// Eight slices: for lane 4 g + c, what slice number 8 u + g is folded with and reduced by. A further word of the images
// is 1 for residues, and its fold the start of the sum: cheaper than to bring it into the registers of every sum.
constexpr int FOLDS = LENGTH + (DIGIT_BITS == 0 ? 1 : 0);
struct Cut {
  uint32_t fold[FOLDS];
  float inverse;
  uint32_t modulus;
  int c;

  // Slices of the images of lanes 8 c + {2 p, 2 p + 4, 2 p + 1, 2 p + 5}, p = 0 or 1, in the low bytes.
  __device__ __forceinline__ void apply(const uint32_t (&bytes)[LENGTH], int p, uint32_t (&slice)[4]) const {
    uint32_t first[FOLDS], second[FOLDS], words[FOLDS];
#pragma unroll
    for (int w = 0; w < FOLDS; ++w) {
      first[w] = c == 2 * p ? fold[w] : 0u;
      second[w] = c == 2 * p + 1 ? fold[w] : 0u;
      words[w] = w < LENGTH ? bytes[w < LENGTH ? w : 0] : 1u;
    }
    fold_pair<FOLDS>(slice, first, second, words);
#if DIGIT_BITS == 0
#pragma unroll
    for (int i = 0; i < 4; ++i) slice[i] = residue_of_sum(slice[i], inverse, SYMMETRIC, modulus);
#endif
  }
};

// Element (row, h) of a block whose rows are neighbours in memory: writing neighbouring rows and reading neighbouring pairs
// of h both meet every bank once.
__device__ __forceinline__ int turned(int row, int h) { return h * BLOCK_ROWS + (row ^ (h >> 1 & 31)); }

// Byte offset of a 16-byte piece in row `first` + j, j < 8, for `first` a multiple of 8.
__device__ __forceinline__ int64_t offset_of_row(int first, int j, int piece, int64_t row_stride) {
#if TILE && PERMUTED  // of the permuted row, only bit 0 comes from j among the lowest three
  const int base = permuted_column(first);
  return (base + permuted_column(j)) * 128 + ((piece ^ (base & 7) ^ (j & 1)) << 4);
#elif TILE
  return (first + j) * 128 + ((piece ^ j) << 4);
#else
  return j * row_stride + 16 * piece;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, WORDS <= 4 ? 4 : 3)
split(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k, int64_t rows_padded,
      int64_t k_padded, const int64_t* __restrict__ description, int64_t batch_rows, int statistic, int step, int base,
      int64_t threshold, int32_t* __restrict__ mu_out, int8_t* __restrict__ slices, int64_t batch_stride,
      int64_t row_stride, int64_t slice_stride, int64_t slab, int64_t slab_stride MORE_ARGUMENTS) {
  after_previous();
  __shared__ uint32_t folds[8 * EIGHTS][FOLDS];
  __shared__ uint2 quotients[8 * EIGHTS];
  for (int i = threadIdx.x; i < 8 * EIGHTS * FOLDS; i += THREADS) {
    const int t = i / FOLDS, w = i % FOLDS;
#if DIGIT_BITS == 0
    const int known = smaller(t, SLICES - 1);
    folds[t][w] = w < LENGTH ? constants.fold[known][w] : constants.quotient[known].start;
    if (w == 0)
      quotients[t] = make_uint2(bits_of(constants.quotient[known].inverse), constants.quotient[known].modulus);
#else
    const int digit = SLICES - 1 - t;
    folds[t][w] = digit >= 0 && digit / 4 == w ? 1u << (8 * (digit % 4)) : 0u;
#endif
  }

  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / BLOCK_K);
  const uint32_t blocks_row = static_cast<uint32_t>((rows_padded + BLOCK_ROWS - 1) / BLOCK_ROWS);
#if ALONG_K  // neighbouring blocks are neighbours in memory
  const uint32_t at_k = blockIdx.x % blocks_k, rest = blockIdx.x / blocks_k;
  const uint32_t at_row = rest % blocks_row, b = rest / blocks_row;
#else
  const uint32_t at_row = blockIdx.x % blocks_row, rest = blockIdx.x / blocks_row;
  const uint32_t at_k = rest % blocks_k, b = rest / blocks_k;
#endif
  const int64_t row0 = static_cast<int64_t>(at_row) * BLOCK_ROWS, h0 = static_cast<int64_t>(at_k) * BLOCK_K;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
  x += b * sb;

  int8_t* out = slices + b * batch_stride;
#if TILE
  const int first = static_cast<int>(at_row % (TILE / BLOCK_ROWS)) * BLOCK_ROWS + 8 * warp;
  out += (static_cast<int64_t>(at_row / (TILE / BLOCK_ROWS)) * blocks_k + at_k) * (TILE * BLOCK_K);
#else
  const int first = 0;
  const uint32_t at_slab = at_k / static_cast<uint32_t>(slab / BLOCK_K);  // a block lies within one slab
  out += (row0 + 8 * warp) * row_stride + at_slab * slab_stride + (h0 - at_slab * slab);
#endif
  const auto cut = [&](int u) {
    Cut cut;
    cut.c = c;
#pragma unroll
    for (int w = 0; w < FOLDS; ++w) cut.fold[w] = folds[8 * u + g][w];
    cut.inverse = float_of_bits(quotients[8 * u + g].x);
    cut.modulus = quotients[8 * u + g].y;
    return cut;
  };
  const auto place = [&](int s) { return out + (REVERSED ? SLICES - 1 - s : s) * slice_stride; };
#if !ALONG_K
  __shared__ Bits tile[BLOCK_ROWS * BLOCK_K];
  {
    const bool inside = row0 + lane < rows;
    const Bits* from = reinterpret_cast<const Bits*>(x) + ((row0 + lane) * sr + (h0 + warp) * sk);
#pragma unroll 8
    for (int i = 0; i < BLOCK_K / 4; ++i, from += 4 * sk)
      copy_or_zero(tile + turned(lane, 4 * i + warp), from, inside && h0 + 4 * i + warp < k);
    wait_for_copies();
  }
#endif
  __syncthreads();

  // A warp owns 8 rows.
  const int64_t own_row = row0 + 8 * warp + (lane & 7);
  int scale = 0;
  if (own_row < rows) {
    scale = row_scale(description, batch_rows, b * rows + own_row, statistic, step, base, threshold);
    if (at_k == 0 && lane < 8) mu_out[b * rows + own_row] = scale >> 1;
  }
  if (row0 + 8 * warp >= rows_padded) return;

  // Two rows at a time: a lane has elements 64 half + 2 lane + {0, 1} of both, 8 in all.
  Bits bits[8];
#if ALONG_K
  const bool whole = aligned_in_pairs(x, sr, sk) && h0 + BLOCK_K <= k;
  const INPUT* at = x + ((row0 + 8 * warp) * sr + (h0 + 2 * lane) * sk);
  const int left = static_cast<int>(smaller<int64_t>(k - h0 - 2 * lane, BLOCK_K));
  int rows_left = static_cast<int>(smaller<int64_t>(rows - row0 - 8 * warp, 8));
  const auto load = [&](int) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits[2 * i] = bits[2 * i + 1] = 0;
      if (i / 2 < rows_left) {
        if (whole) {
          load_pair(at + 64 * (i % 2), bits[2 * i], bits[2 * i + 1]);
        } else {
          const Bits* const words = reinterpret_cast<const Bits*>(at);
          if (64 * (i % 2) < left) bits[2 * i] = words[64 * (i % 2) * sk];
          if (64 * (i % 2) + 1 < left) bits[2 * i + 1] = words[(64 * (i % 2) + 1) * sk];
        }
      }
      if (i % 2 == 1) at += sr;
    }
    rows_left -= 2;
  };
#else
  const auto load = [&](int r) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      bits[i] = tile[turned(8 * warp + r + i / 4, 64 * (i / 2 % 2) + 2 * lane + i % 2)];
  };
#endif
  load(0);
#pragma unroll 1
  for (int r = 0; r < 8; r += 2) {
    uint32_t bytes[8][LENGTH];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      make_images<4>(bits + 4 * i, __shfl_sync(0xffffffffu, scale, r + i), bytes + 4 * i);
    }
    if (r + 2 < 8) load(r + 2);

#pragma unroll 1
    for (int u = 0; u < EIGHTS; ++u) {
      const Cut now = cut(u);
      int8_t* const to = place(8 * u + g);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // row i / 2, half i % 2
        // Byte 2 j + e is element e of lane 8 c + j.
        uint32_t slice[2][2][4];  // p, e
#pragma unroll
        for (int p = 0; p < 2; ++p)
#pragma unroll
          for (int e = 0; e < 2; ++e) now.apply(bytes[2 * i + e], p, slice[p][e]);
        uint32_t word[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const auto& s = slice[w & 1];
          word[w] = gather_bytes(s[0][w >> 1], s[1][w >> 1], s[0][2 + (w >> 1)], s[1][2 + (w >> 1)], 0);
        }
        if (8 * u + g < SLICES)
          *reinterpret_cast<uint4*>(to + offset_of_row(first, r + i / 2, 4 * (i % 2) + c, row_stride)) =
              make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
  }
}
