// Entries of C from exact integers: a thread rounds and stores four neighbouring columns of a row.
#pragma once
#include "arithmetic/combination.cuh"

__device__ __forceinline__ void store_four(uint64_t* c, const uint64_t (&bits)[4]) {
  ulonglong2* const out = reinterpret_cast<ulonglong2*>(c);
  out[0] = make_ulonglong2(bits[0], bits[1]);
  out[1] = make_ulonglong2(bits[2], bits[3]);
}
__device__ __forceinline__ void store_four(uint32_t* c, const uint32_t (&bits)[4]) {
  *reinterpret_cast<uint4*>(c) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
}

// Stores four neighbouring columns from `col` on, as far as there are so many, `col_stride` elements apart.
template <typename Bits>
__device__ __forceinline__ void store_columns(Bits* out, const Bits (&bits)[4], int64_t col, int64_t cols,
                                              int64_t col_stride) {
  if (col_stride == 1 && col + 4 <= cols && (reinterpret_cast<uint64_t>(out) & 15) == 0) {
    store_four(out, bits);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (col + j < cols) out[j * col_stride] = bits[j];
  }
}

// The bits of RN(integer_j 2^(exponent - nu[col + j])), j = 0 .. 3, where col + j < cols; each is rounded once.
// entries.integer(j, constants, limbs) gives integer_j in two's complement, abs < 2^SIZE.
template <typename Output, int SIZE, int LENGTH, typename Entries, typename Constants, typename Bits>
__device__ __forceinline__ void round_four(const Entries& entries, const Constants& constants, int exponent,
                                           const int32_t* nu, int64_t col, int64_t cols, Bits (&bits)[4]) {
  int nu_four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) nu_four[j] = nu[smaller(col + j, cols - 1)];

  uint32_t limbs[4][LENGTH];
  bool rounded = true;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    entries.integer(j, constants, limbs[j]);
    Output value;
    rounded = round_by_addition<SIZE>(limbs[j], exponent - nu_four[j], value) && rounded;
    bits[j] = bits_of(value);
  }
  if (!rounded) {  // rare: some result is small, or near over- or underflow
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = Rounding<Output>::bits(limbs[j], exponent - nu_four[j]);
  }
}

// Stores them. place() is the address of entry 0, the entries are col_stride apart; it is called last, since its
// registers are not needed before.
template <typename Output, int SIZE, int LENGTH, typename Entries, typename Constants, typename Place>
__device__ __forceinline__ void round_and_store(const Entries& entries, const Constants& constants, int exponent,
                                                const int32_t* nu, int64_t col, int64_t cols, Place place,
                                                int64_t col_stride) {
  typename BitsOf<Output>::type bits[4];
  round_four<Output, SIZE, LENGTH>(entries, constants, exponent, nu, col, cols, bits);
  store_columns(place(), bits, col, cols, col_stride);
}

// The bits of RN(alpha integer_j 2^(exponent - nu[col + j]) + beta c_j): c_j, `step` elements apart, begin at `c`.
template <typename Output, int LENGTH, typename Entries, typename Constants, typename Bits, typename Addend>
__device__ __forceinline__ void combine_four(const Entries& entries, const Constants& constants, int exponent,
                                             const int32_t* nu, int64_t col, int64_t cols, Bits (&bits)[4],
                                             double alpha, double beta, const Addend* c, int64_t step) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t at = smaller<int64_t>(j, cols - 1 - col);
    uint32_t limbs[LENGTH];
    entries.integer(j, constants, limbs);
    const Addend addend = beta != 0.0 ? c[at * step] : Addend(0);
    bits[j] = combined_or_special<Output>(limbs, exponent - nu[col + at], alpha, beta, addend);
  }
}

// Stores them, as round_and_store does.
template <typename Output, int LENGTH, typename Entries, typename Constants, typename Place, typename Addend>
__device__ __forceinline__ void combine_and_store(const Entries& entries, const Constants& constants, int exponent,
                                                  const int32_t* nu, int64_t col, int64_t cols, Place place,
                                                  int64_t col_stride, double alpha, double beta, const Addend* c,
                                                  int64_t step) {
  typename BitsOf<Output>::type bits[4];
  combine_four<Output, LENGTH>(entries, constants, exponent, nu, col, cols, bits, alpha, beta, c, step);
  store_columns(place(), bits, col, cols, col_stride);
}
