// From elements to low-precision words, by one thread (docs/definitions.md, section 7).
//
// Macros: WORD (FP16, BF16 or TF32); CONVERSION (RN, RNA or RZ); WORD_COUNT; SCALE_BITS; TILE: 0 for fragments
// (fragments.cuh), else the rows of a tile, with NEIGHBOURS (tiles.cuh); TOGETHER: words that share a tile, all or one.
#pragma once
#include "words/fragments.cuh"
#include "words/word_tiles.cuh"
#include "arithmetic/words.cuh"

constexpr int WIDTH = WORD == TF32 ? 4 : 2;  // bytes of a word

// Replaces NaN and Inf by zero.
__device__ __forceinline__ void clear_nonfinite(uint32_t (&bits)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if ((bits[j] >> 23 & 0xff) == 0xff) bits[j] = 0;
}

// Rounds two numbers to words, in place, and packs the words' bytes: into one 32-bit register, or two of TF32.
__device__ __forceinline__ void round_and_pack(float (&x)[2], uint32_t* packed) {
  if (WORD == FP16 && CONVERSION == RN) {  // one instruction does both
    packed[0] = pack_halves(x[0], x[1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) x[i] = half_to_float(packed[0], i);
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) x[i] = round_to_word<WORD, CONVERSION>(x[i]);
    if (WORD == FP16) packed[0] = pack_halves(x[0], x[1]);
    if (WORD == BF16) packed[0] = bits_of(x[0]) >> 16 | (bits_of(x[1]) & 0xffff0000u);
    if (WORD == TF32) packed[0] = bits_of(x[0]), packed[WIDTH / 4] = bits_of(x[1]);
  }
}

// Cuts eight elements of a row, scaled by 2^mu, into words and stores them, as split_into_words defines them. place(s,
// byte) is the address of bytes byte .. of word s of these elements, called for each 16 bytes (fragments: each 4).
template <typename Place> __device__ __forceinline__ void cut_words(const uint32_t (&bits)[8], int mu, Place place) {
  const Scale scale(mu);
  float left[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) left[j] = scale(float_of_bits(bits[j]));
#pragma unroll
  for (int s = 0; s < WORD_COUNT; ++s) {
    uint32_t packed[2 * WIDTH];
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      float word[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) word[i] = left[j + i] * power_of_two(SCALE_BITS * s);
      round_and_pack(word, packed + j * WIDTH / 4);
#pragma unroll
      for (int i = 0; i < 2; ++i) left[j + i] -= word[i] * power_of_two(-SCALE_BITS * s);
    }
#pragma unroll
    for (int i = 0; i < 2 * WIDTH; i += 4) {
#if TILE
      *reinterpret_cast<uint4*>(place(s, 4 * i)) = make_uint4(packed[i], packed[i + 1], packed[i + 2], packed[i + 3]);
#else
#pragma unroll
      for (int j = i; j < i + 4; ++j) *reinterpret_cast<uint32_t*>(place(s, 4 * j)) = packed[j];
#endif
    }
  }
}
