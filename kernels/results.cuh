// Entries of C from exact integers, four neighbouring columns of a row by a thread.
#pragma once
#include "rounding.cuh"

// Four numbers from c on. `all`: every lane of the warp is here, the next one with the next four. Two lanes then
// exchange two, so that a store of both writes sectors of 32 bytes as a whole: halves take as long.
__device__ __forceinline__ void store_four(uint64_t* c, uint64_t (&bits)[4], bool all) {
  int first = 0, second = 2;
  if (all) {
    const bool odd = (threadIdx.x & 1) != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint64_t got = __shfl_xor_sync(0xffffffffu, odd ? bits[i] : bits[2 + i], 1);
      if (odd) bits[i] = got;
      else bits[2 + i] = got;
    }
    first = odd ? -2 : 0, second = odd ? 2 : 4;
  }
  *reinterpret_cast<ulonglong2*>(c + first) = make_ulonglong2(bits[0], bits[1]);
  *reinterpret_cast<ulonglong2*>(c + second) = make_ulonglong2(bits[2], bits[3]);
}
__device__ __forceinline__ void store_four(uint32_t* c, const uint32_t (&bits)[4], bool) {
  *reinterpret_cast<uint4*>(c) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
}

// integer(j, words) 2^(exponent - nu[col + j]), j = 0 .. 3, col + j < cols, each rounded once, from place() on,
// col_stride apart. The integers and their sign need no more than SIZE + 1 bits. Lanes of a warp, numbered by
// threadIdx.x, have entries of one row.
template <typename Output, int SIZE, int LENGTH, typename Entries, typename Constants, typename Place>
__device__ __forceinline__ void round_and_store(const Entries& entries, const Constants& constants, int exponent,
                                                const int32_t* nu, int64_t col, int64_t cols, Place place,
                                                int64_t col_stride) {
  int nu_four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) nu_four[j] = nu[smaller(col + j, cols - 1)];

  typename BitsOf<Output>::type bits[4];
  uint32_t words[4][LENGTH];
  bool rounded = true;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    entries.integer(j, constants, words[j]);
    Output value;
    rounded = round_by_addition<SIZE>(words[j], exponent - nu_four[j], value) && rounded;
    bits[j] = bits_of(value);
  }
  if (!rounded) {  // rare
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = Rounding<Output>::bits(words[j], exponent - nu_four[j]);
  }

  typename BitsOf<Output>::type* const out = place();
  if (col_stride == 1 && col + 4 <= cols && (reinterpret_cast<uint64_t>(out) & 15) == 0) {
    store_four(out, bits, col - 4 * threadIdx.x + 128 <= cols);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (col + j < cols) out[j * col_stride] = bits[j];
  }
}
