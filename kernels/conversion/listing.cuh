// The list of entries that are undecided (docs/bounds.md, B14), which grows while entries are rounded.
#pragma once
#include "arithmetic/undecided.cuh"
#include "conversion/results.cuh"
#include "conversion/row_terms.cuh"

// Entry (b, row, col) has the number first + b * of_batch + row * of_row + col. counts[0] entries were found, of which
// the first `capacity` are in the list, in any order; of a triangle counts[1] of them, those below the diagonal, stand for
// their mirror images, too. Both are 0 before. The errors of entries are sums of products of terms, in units
// of 2^(units_row + units_col + unit); the third terms of residues are 0, and not read.
struct Listing {
  int64_t* list;
  unsigned long long* counts;
  int64_t capacity, first, of_batch, of_row;
  RowTerms left, right;
  int64_t unit;
};

// A term times 2^e; Inf where that is not in range, and NaN then where the other factor of an error is 0: both say that
// an entry is undecided. Terms are in units of the image then, those that are not 0 about 1/2 or more.
__device__ __forceinline__ double scaled_term(double term, int64_t e) {
  const uint64_t field = e > 1023 ? 2047 : static_cast<uint64_t>(1023 + larger<int64_t>(e, -1000));
  return term == 0.0 ? 0.0 : __dmul_rn(term, double_of(field << 52));
}

// The terms of 128 columns, of which lane x owns 4 x + j, in units of their images; zeros beyond the last column.
struct ColumnTerms {
  double first[4][32], second[4][32];

  // Of columns from col0 on, by the first 128 threads; the block is to be synchronised before any reads them.
  __device__ __forceinline__ void find(const Listing& of, const int32_t* nu, int64_t b, int64_t col0, int64_t cols) {
    const int i = threadIdx.y * 32 + threadIdx.x;
    if (i >= 128) return;
    const int64_t col = col0 + i, at = b * of.right.batch + col;
    const bool inside = col < cols;
    const int64_t e = inside ? of.right.units[at] + nu[col] : 0;
    first[i % 4][i / 4] = inside ? scaled_term(of.right.terms[at], e) : 0.0;
    second[i % 4][i / 4] = inside ? scaled_term(of.right.terms[of.right.count + at], e) : 0.0;
  }
};

// The errors of a thread's four entries of a row, in units of the integers Cbar.
struct Errors {
  const ColumnTerms& columns;
  double first, second;

  __device__ __forceinline__ Errors(const ColumnTerms& columns, const Listing& of, int mu, int64_t b, int64_t row)
      : columns(columns) {
    const int64_t at = b * of.left.batch + row, e = of.left.units[at] + of.unit + mu;
    first = scaled_term(of.left.terms[at], e);
    second = scaled_term(of.left.terms[of.left.count + at], e);
  }

  __device__ __forceinline__ double of(int j) const {
    return __dadd_rn(__dmul_rn(first, columns.first[j][threadIdx.x]), __dmul_rn(second, columns.second[j][threadIdx.x]));
  }
};

// Lists those of a row's entries from `col` on that are undecided, as far as there are so many: bit j says so of the
// j-th. TRIANGLE: of those on or below the diagonal.
template <bool TRIANGLE>
__device__ __forceinline__ void list_entries(const Listing& to, uint32_t undecided, int64_t b, int64_t row, int64_t col,
                                             int64_t cols) {
  if (undecided == 0) return;
  const int64_t most = TRIANGLE ? smaller(cols, row + 1) - col : cols - col;
  if (most < 4) undecided &= most > 0 ? (1u << most) - 1 : 0u;
  if (undecided == 0) return;
  const int64_t number = to.first + b * to.of_batch + row * to.of_row + col;
  int64_t at = static_cast<int64_t>(atomicAdd(to.counts, static_cast<unsigned long long>(__popc(undecided))));
  if (TRIANGLE) {
    const uint32_t below = row - col < 4 ? undecided & ~(1u << (row - col)) : undecided;
    if (below != 0) atomicAdd(to.counts + 1, static_cast<unsigned long long>(__popc(below)));
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if ((undecided >> j & 1) == 0) continue;
    if (at < to.capacity) to.list[at] = number + j;
    ++at;
  }
}

// As round_and_store does; returns which entries are undecided, bit j of the j-th.
template <typename Output, int SIZE, int LENGTH, typename Entries, typename Constants, typename Place>
__device__ __forceinline__ uint32_t round_and_find(const Entries& entries, const Constants& constants, int exponent,
                                                   const int32_t* nu, int64_t col, int64_t cols, Place place,
                                                   int64_t col_stride, const Errors& errors) {
  typename BitsOf<Output>::type bits[4];
  int nu_four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) nu_four[j] = nu[smaller(col + j, cols - 1)];

  uint32_t limbs[4][LENGTH], undecided = 0;
  bool rounded = true;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    entries.integer(j, constants, limbs[j]);
    Output value;
    rounded = round_by_addition<SIZE>(limbs[j], exponent - nu_four[j], value) && rounded;
    bits[j] = bits_of(value);
    if (undecided_by_addition<Output, SIZE>(limbs[j], errors.of(j))) undecided |= 1u << j;
  }
  if (!rounded) {  // rare: some result is small, or near over- or underflow
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = Rounding<Output>::bits(limbs[j], exponent - nu_four[j]);
    undecided = 0;
#pragma unroll 1
    for (int j = 0; j < 4; ++j) {
      uint32_t of_one[LENGTH];
#pragma unroll
      for (int w = 0; w < LENGTH; ++w)
        of_one[w] = j < 2 ? (j == 0 ? limbs[0][w] : limbs[1][w]) : j == 2 ? limbs[2][w] : limbs[3][w];
      const int nu_one = j < 2 ? (j == 0 ? nu_four[0] : nu_four[1]) : j == 2 ? nu_four[2] : nu_four[3];
      if (undecided_by_ends<Output>(of_one, exponent - nu_one, errors.of(j))) undecided |= 1u << j;
    }
  }
  store_columns(place(), bits, col, cols, col_stride);
  return undecided;
}
