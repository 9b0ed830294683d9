// Elements cut into words where a kernel multiplies them from (docs/design.md, section 10).
//
// Macros: WORD (FP16, BF16 or TF32); CONVERSION (RN, RNA or RZ); WORD_COUNT; SCALE_BITS; TILE: 0 for fragments (fragments.cuh),
// else the rows of a tile; TOGETHER: words that share a tile, all or one; PERMUTED: 1 permutes the rows of a tile as the
// columns of a right operand.
#pragma once
#include "fragments.cuh"
#include "word_tiles.cuh"
#include "words.cuh"

constexpr int WIDTH = WORD == TF32 ? 4 : 2;  // bytes of a word

// Eight words of one row in the bytes of their format.
__device__ __forceinline__ void pack(const float (&words)[8][WORD_COUNT], int s, uint32_t (&packed)[2 * WIDTH]) {
#pragma unroll
  for (int i = 0; i < 2 * WIDTH; ++i) {
    if (WORD == TF32) {
      packed[i] = bits_of(words[i][s]);
    } else {
      const float low = words[2 * (i % 4)][s], high = words[2 * (i % 4) + 1][s];
      packed[i] = WORD == FP16 ? pack_halves(low, high) : bits_of(low) >> 16 | (bits_of(high) & 0xffff0000u);
    }
  }
}

__device__ __forceinline__ void clear_nonfinite(uint32_t (&bits)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if ((bits[j] >> 23 & 0xff) == 0xff) bits[j] = 0;
}

// The words of elements h .. h + 7 of a row, scaled by 2^mu, to their places from `out` on.
__device__ __forceinline__ void cut_words(const uint32_t (&bits)[8], int mu, uint8_t* out, int64_t row, int64_t h,
                                          int64_t k_padded, int64_t word_stride) {
  const Scale scale(mu);
  float words[8][WORD_COUNT];
#pragma unroll
  for (int j = 0; j < 8; ++j) split_into_words<WORD, CONVERSION, SCALE_BITS>(scale(float_of_bits(bits[j])), words[j]);
#pragma unroll
  for (int s = 0; s < WORD_COUNT; ++s) {
    uint32_t packed[2 * WIDTH];
    pack(words, s, packed);
#pragma unroll
    for (int i = 0; i < 2 * WIDTH; i += 4) {
#if TILE
      uint8_t* const to = out + s / TOGETHER * word_stride +
                          word_tile_offset(row, h * WIDTH + 4 * i, k_padded * WIDTH, s % TOGETHER, TOGETHER, TILE, PERMUTED);
      *reinterpret_cast<uint4*>(to) = make_uint4(packed[i], packed[i + 1], packed[i + 2], packed[i + 3]);
#else
#pragma unroll
      for (int j = i; j < i + 4; ++j)
        *reinterpret_cast<uint32_t*>(out + s * word_stride + fragment_offset(row, h * WIDTH + 4 * j, k_padded * WIDTH)) =
            packed[j];
#endif
    }
  }
}
