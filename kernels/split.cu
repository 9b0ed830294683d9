// The fixed-point image of an operand, cut into int8 slices (docs/design.md, sections 4 to 6).
//
// Macros: INPUT (double or float); SLICES; WORDS (32-bit words of the image); DIGIT_BITS (0: residues; 8 or 7:
// balanced digits); ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows; REVERSED: 1 stores slice s as
// SLICES - 1 - s; TILE: 0, or the rows of a tile, whose order tiles.cuh gives; PERMUTED: 1 permutes the rows of a tile.
//
// x is a view (batch, rows, k) with element strides sb, sr, sk of any sign. Slice s of element (b, row, h) goes to
//   slices + b * batch_stride + row * row_stride + s * slice_stride + (h / slab) * slab_stride + h % slab,
// zeros for rows <= row < rows_padded and k <= h < k_padded. slab is a multiple of 128, k_padded, the strides and the
// address of slices multiples of 8.
//
// description is int64 [6][batch * rows]; `statistic` is the field that the scaling reads (1: peak, 3: squares). mu of
// row (b, row) goes to mu[b * rows + row].
//
// 256 threads; grid batch * ceil(rows_padded / 32) * ceil(k_padded / 128), all on x. A block owns 32 rows x 128
// elements, a thread twice 8 neighbouring elements of a row: it holds their images and stores 8 bytes per slice.
#include "digits.cuh"
#include "fixed_point.cuh"
#include "residues.cuh"
#include "tiles.cuh"

typedef BitsOf<INPUT>::type Bits;

#if DIGIT_BITS == 0
typedef ResidueConstants<SLICES, WORDS> Constants;
#define MORE_ARGUMENTS , const Constants constants
#else
struct Constants {};
#define MORE_ARGUMENTS
#endif

// What the slices are cut from, made once for each image.
__device__ __forceinline__ void prepare(uint32_t (&words)[WORDS]) {
#if DIGIT_BITS == 0
  words[WORDS - 1] ^= 0x80000000u;  // + 2^(32 WORDS - 1)
#elif DIGIT_BITS == 8
  balanced_bytes(words);
#else
  add_halves_7<SLICES>(words);
#endif
}

// Digits need a constant s, to stay in registers; many residues unrolled would only hoard constants.
constexpr int UNROLL = DIGIT_BITS != 0 || SLICES <= 16 ? SLICES : 5;

// Slice s (0 the most significant digit) of four prepared images, one byte each.
__device__ __forceinline__ uint32_t slice_of_four(const uint32_t (*words)[WORDS], int s, const Constants& c) {
#if DIGIT_BITS == 0
  uint32_t residue[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) residue[j] = symmetric_residue<SLICES, WORDS>(words[j], c, s);
  return gather_bytes(residue[0], residue[1], residue[2], residue[3], 0);
#elif DIGIT_BITS == 8
  const int digit = SLICES - 1 - s, w = digit / 4;
  return gather_bytes(words[0][w], words[1][w], words[2][w], words[3][w], digit % 4);
#else
  const int digit = SLICES - 1 - s;
  return lower_digits_7(gather_bytes(raised_digit_7(words[0], digit), raised_digit_7(words[1], digit),
                                     raised_digit_7(words[2], digit), raised_digit_7(words[3], digit), 0));
#endif
}

extern "C" __global__ void __launch_bounds__(256, WORDS <= 2 ? 4 : 2)
split(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k, int64_t rows_padded,
      int64_t k_padded, const int64_t* __restrict__ description, int64_t batch_rows, int statistic, int step, int base,
      int64_t threshold, int32_t* __restrict__ mu_out, int8_t* __restrict__ slices, int64_t batch_stride,
      int64_t row_stride, int64_t slice_stride, int64_t slab, int64_t slab_stride MORE_ARGUMENTS) {
#if DIGIT_BITS != 0
  const Constants constants;
#endif
  const uint32_t tiles_k = static_cast<uint32_t>((k_padded + TILE_K - 1) / TILE_K);
  const uint32_t tiles_row = static_cast<uint32_t>((rows_padded + TILE_ROWS - 1) / TILE_ROWS);
#if ALONG_K  // neighbouring blocks are neighbours in memory
  const uint32_t at_k = blockIdx.x % tiles_k, rest = blockIdx.x / tiles_k;
  const uint32_t at_row = rest % tiles_row, b = rest / tiles_row;
#else
  const uint32_t at_row = blockIdx.x % tiles_row, rest = blockIdx.x / tiles_row;
  const uint32_t at_k = rest % tiles_k, b = rest / tiles_k;
#endif
  const int64_t row0 = static_cast<int64_t>(at_row) * TILE_ROWS;
  const int64_t h = static_cast<int64_t>(at_k) * TILE_K + tile_h();
  x += b * sb;

#if ALONG_K
  const bool aligned = aligned_along_k(x, 0, sr, sk);
#else
  __shared__ Bits tile[TILE_K * TILE_ROWS];
  stage_along_rows(tile, x, sr, sk, row0, static_cast<int64_t>(at_k) * TILE_K, rows, k, false);
  __syncthreads();
#endif
  if (h >= k_padded) return;

#if TILE
  int8_t* const out = slices + b * batch_stride;
#else
  // A tile lies within one slab.
  const uint32_t at_slab = at_k / static_cast<uint32_t>(slab / TILE_K);
  int8_t* const out = slices + b * batch_stride + at_slab * slab_stride + (h - at_slab * slab);
#endif

#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const int64_t row = row0 + tile_row(i);
    if (row >= rows_padded) continue;
    const bool valid = row < rows;

    Bits bits[8];
#if ALONG_K
    load_along_k(x + row * sr, sk, h, k, valid, aligned, bits);
#else
    read_staged(tile, tile_row(i), bits);
#endif

    int mu = 0;
    if (valid) {
      const int64_t index = b * rows + row;
      mu = row_exponent(description[index], description[statistic * batch_rows + index], step, base, threshold);
      if (h == 0) mu_out[index] = mu;
    }

    uint32_t words[8][WORDS];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      image<WORDS>(bits[j], mu, words[j]);
      prepare(words[j]);
    }

#if TILE
    const int in_tile = static_cast<int>(row % TILE);
    const int r = PERMUTED ? permuted_column(in_tile) : in_tile;
    int8_t* const at = out + (row / TILE * (k_padded / TILE_K) + at_k) * (TILE * TILE_K) +
                       tile_offset(r, tile_h() / 16) + tile_h() % 16;
#else
    int8_t* const at = out + row * row_stride;
#endif
#pragma unroll UNROLL
    for (int s = 0; s < SLICES; ++s) {
      const int64_t place = REVERSED ? SLICES - 1 - s : s;
      *reinterpret_cast<uint2*>(at + place * slice_stride) =
          make_uint2(slice_of_four(words, s, constants), slice_of_four(words + 4, s, constants));
    }
  }
}
