// The list of entries that are undecided (docs/bounds.md, B14), which grows while entries are rounded.
#pragma once
#include "arithmetic/undecided.cuh"
#include "conversion/results.cuh"
#include "conversion/row_terms.cuh"

// Entry (b, row, col) has the number first + b * of_batch + row * of_row + col. counts[0] entries were found, of which
// the first `capacity` are in the list, in any order; of a triangle counts[1] of them, those below the diagonal, stand
// for their mirror images, too. Both are 0 before. The errors of entries are sums of products of terms, in units of
// 2^(units_row + units_col + unit); the third terms of residues are 0, and not read.
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

// The terms of 128 columns, in units of their images, and the exponents nu that scaled these; lane x owns 4 x + j. Lanes
// read 16 bytes at a time, neighbours.
struct __align__(16) Columns {
  double first[2][32][2], second[2][32][2];  // [j / 2][x][j % 2]
  int nu[128];

  // Of columns from col0 on, by the first 128 threads; the block is to be synchronised before any reads them. Those from
  // `cols` on are copies of the last one: all is loaded at once.
  __device__ __forceinline__ void find(const Listing& of, const int32_t* nu_of, int64_t b, int64_t col0, int64_t cols) {
    const int i = threadIdx.y * 32 + threadIdx.x;
    if (i >= 128) return;
    const int64_t col = smaller(col0 + i, cols - 1), at = b * of.right.batch + col, unit = of.right.units[at];
    const double term = of.right.terms[at], next = of.right.terms[of.right.count + at];
    nu[i] = nu_of[col];
    first[i % 4 / 2][i / 4][i % 2] = scaled_term(term, unit + nu_of[col]);
    second[i % 4 / 2][i / 4][i % 2] = scaled_term(next, unit + nu_of[col]);
  }
};

// What a row contributes: its terms, and the exponent of their unit in units of its image.
struct OfRow {
  double first, second;
  int64_t unit;

  __device__ __forceinline__ OfRow(const Listing& of, int mu, int64_t b, int64_t row) {
    const int64_t at = b * of.left.batch + row;
    first = of.left.terms[at];
    second = of.left.terms[of.left.count + at];
    unit = of.left.units[at] + of.unit + mu;
  }
};

// The errors of a thread's four entries of a row, in units of 2^UNIT integers Cbar.
template <int UNIT> struct Errors {
  static constexpr bool ASKED = true;
  const Columns& columns;
  double first, second;

  __device__ __forceinline__ Errors(const Columns& columns, const OfRow& row)
      : columns(columns), first(scaled_term(row.first, row.unit - UNIT)),
        second(scaled_term(row.second, row.unit - UNIT)) {}

  // The exponent nu of the j-th column.
  __device__ __forceinline__ int nu(int j) const { return columns.nu[4 * threadIdx.x + j]; }
  // The error of the j-th, and `more`.
  __device__ __forceinline__ double error(int j, double more) const {
    return fused(first, columns.first[j / 2][threadIdx.x][j % 2],
                 fused(second, columns.second[j / 2][threadIdx.x][j % 2], more));
  }
  // What undecided_by_addition takes, in units of 2^UNIT; and in others, of which 2^more are one of these.
  __device__ __forceinline__ double reach(int j) const { return error(j, OFF_BY); }
  __device__ __forceinline__ double reach(int j, int more) const {
    return fused(error(j, 0.0), double_of_limbs(static_cast<uint32_t>(1023 + more) << 20, 0), OFF_BY);
  }
  // In units of the integer; Inf for NaN.
  __device__ __forceinline__ double of_integer(int j, int unit) const {
    const double found = __dmul_rn(error(j, 0.0), double_of_limbs(static_cast<uint32_t>(1023 + unit) << 20, 0));
    return found >= 0.0 ? found : double_of_limbs(0x7ff00000u, 0);
  }
};

// Those of `undecided` whose errors are not 0.
template <typename Errors> __device__ __forceinline__ uint32_t with_errors(uint32_t undecided, const Errors& errors) {
  if (undecided == 0) return 0;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (errors.error(j, 0.0) == 0.0) undecided &= ~(1u << j);
  return undecided;
}

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
