// Entries of C from exact integers, four neighbouring columns of a row by a thread.
#pragma once
#include "arithmetic/rounding.cuh"

__device__ __forceinline__ void store_four(uint64_t* c, const uint64_t (&bits)[4]) {
  ulonglong2* const out = reinterpret_cast<ulonglong2*>(c);
  out[0] = make_ulonglong2(bits[0], bits[1]);
  out[1] = make_ulonglong2(bits[2], bits[3]);
}
__device__ __forceinline__ void store_four(uint32_t* c, const uint32_t (&bits)[4]) {
  *reinterpret_cast<uint4*>(c) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
}

// integer(j, words) 2^(exponent - nu[col + j]), j = 0 .. 3, col + j < cols, each rounded once, from place() on,
// col_stride apart. The integers and their sign need no more than SIZE + 1 bits.
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
    store_four(out, bits);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (col + j < cols) out[j * col_stride] = bits[j];
  }
}
