// Entries of C from exact integers: a thread rounds and stores four neighbouring columns of a row.
#pragma once
#include "arithmetic/combination.cuh"
#include "arithmetic/undecided.cuh"

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

// In place of errors (listing.cuh), where it is not asked which entries are undecided.
struct NoErrors {
  static constexpr bool ASKED = false;
};

// The bits of RN(integer_j 2^(exponent - nu[col + j])), j = 0 .. 3, where col + j < cols; each is rounded once.
// entries.integer(j, constants, limbs) gives integer_j in two's complement, abs < 2^SIZE. Returns which entries are
// undecided, bit j of the j-th, for `errors` that are not 0.
template <typename Output, int SIZE, int LENGTH, typename Entries, typename Constants, typename Bits, typename Errors>
__device__ __forceinline__ uint32_t round_four(const Entries& entries, const Constants& constants, int exponent,
                                               const int32_t* nu, int64_t col, int64_t cols, Bits (&bits)[4],
                                               const Errors& errors) {
  constexpr int UNIT = Summands<Output>::template unit<SIZE, LENGTH>();
  int nu_four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (Errors::ASKED) nu_four[j] = errors.nu(j);
    else nu_four[j] = nu[smaller(col + j, cols - 1)];
  }

  uint32_t limbs[4][LENGTH], undecided = 0;
  bool rounded = true;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    entries.integer(j, constants, limbs[j]);
    const auto summands = Summands<Output>::template window<SIZE>(limbs[j]);
    Output value;
    rounded = Summands<Output>::times_power(summands.sum(), exponent - nu_four[j] + UNIT, value) && rounded;
    rounded = summands.is_wide() && rounded;
    bits[j] = bits_of(value);
    if constexpr (Errors::ASKED)
      if (undecided_by_addition(summands, errors.reach(j))) {
        undecided |= 1u << j;
        rounded = summands.is_long() && rounded;
      }
  }
  if (rounded) return undecided;
  // Some result is small, or too small to see whether it is decided: from the leading bits of each.
  rounded = true;
  undecided = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    int unit;
    const auto summands = Summands<Output>::leading(limbs[j], unit);
    Output value;
    rounded = Summands<Output>::times_power(summands.sum(), exponent - nu_four[j] + unit, value) && rounded;
    bits[j] = bits_of(value);
    if constexpr (Errors::ASKED)
      if (undecided_by_addition(summands, errors.reach(j, UNIT - unit))) undecided |= 1u << j;
  }
  if (rounded) return undecided;
  // Rare: some result is near over- or underflow.
  undecided = 0;
#pragma unroll 1
  for (int j = 0; j < 4; ++j) {
    uint32_t of_one[LENGTH];
#pragma unroll
    for (int w = 0; w < LENGTH; ++w)
      of_one[w] = j < 2 ? (j == 0 ? limbs[0][w] : limbs[1][w]) : j == 2 ? limbs[2][w] : limbs[3][w];
    const int of_exponent = exponent - (j < 2 ? (j == 0 ? nu_four[0] : nu_four[1]) : j == 2 ? nu_four[2] : nu_four[3]);
    const Bits of_bits = Rounding<Output>::bits(of_one, of_exponent);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i == j) bits[i] = of_bits;
    if constexpr (Errors::ASKED)
      if (undecided_by_ends<Output>(of_one, of_exponent, errors.of_integer(j, UNIT))) undecided |= 1u << j;
  }
  return undecided;
}

// Stores them. place() is the address of entry 0, the entries are col_stride apart; it is called last, since its
// registers are not needed before.
template <typename Output, int SIZE, int LENGTH, typename Entries, typename Constants, typename Place,
          typename Errors = NoErrors>
__device__ __forceinline__ uint32_t round_and_store(const Entries& entries, const Constants& constants, int exponent,
                                                    const int32_t* nu, int64_t col, int64_t cols, Place place,
                                                    int64_t col_stride, const Errors& errors = {}) {
  typename BitsOf<Output>::type bits[4];
  const uint32_t undecided = round_four<Output, SIZE, LENGTH>(entries, constants, exponent, nu, col, cols, bits, errors);
  store_columns(place(), bits, col, cols, col_stride);
  return undecided;
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
