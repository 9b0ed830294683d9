// A bound of the error of each entry (docs/bounds.md, B13), to the bit what NumPy computes (_bounds.py).
//
// This file is compiled in two forms: with ENTRIES defined it holds `entry_bounds`, else `row_terms`.
#include "arithmetic/fixed_point.cuh"
#include "hardware/launch.cuh"

// 2^e, -1074 <= e <= 1024; 2^1024 is Inf.
__device__ __forceinline__ double power_of_two(int64_t e) {
  const uint64_t bits = e >= -1022 ? static_cast<uint64_t>(e + 1023) << 52 : uint64_t(1) << (e + 1074);
  return double_of(bits);
}

#ifndef ENTRIES

// row_terms: what the rows of both operands contribute (`RowTerms` in Python, in the order of its fields), from their
// descriptions. `tops` are the scales of multiprecision rows, or null. With `exact` entries are those of the exact
// product, though images may be rounded. No macros.
//
// 256 threads; grid ceil(a.count / 256) + ceil(b.count / 256). A thread owns a row.
struct Side {
  const int64_t* description;  // [6][count], the rows of all matrices
  const int64_t* tops;
  double* terms;  // [3][count]
  int64_t *units, *multiples;
  int64_t count;
};

constexpr int64_t FARTHEST = 1ll << 61;

// 2^e, but at least 2^-1070 and at most 2^900.
__device__ __forceinline__ double power(int64_t e) {
  return power_of_two(smaller<int64_t>(larger<int64_t>(e, -1070), 900));
}

extern "C" __global__ void __launch_bounds__(256)
row_terms(const Side a, const Side b, int64_t statistic, int step, int base, int64_t threshold, double dropped,
          int width, double k, int exponent, int exact) {
  after_previous();
  const uint32_t a_blocks = static_cast<uint32_t>((a.count + 255) / 256);
  const bool left = blockIdx.x < a_blocks;
  const Side side = left ? a : b;
  const int64_t i = static_cast<int64_t>(blockIdx.x - (left ? 0 : a_blocks)) * 256 + threadIdx.x, count = side.count;
  if (i >= count) return;
  const int64_t top = side.description[i], bottom = side.description[4 * count + i];
  const int64_t scale = side.tops == nullptr ? 0 : side.tops[i];
  double s = 0, u = 0, u_unscaled = 0, ulp = 0;
  int64_t own = FARTHEST;
  if (top != EMPTY_TOP) {
    const int64_t bits = top + row_exponent(top, side.description[statistic * count + i], step, base, threshold);
    const bool rounded = !exact && bits + bottom < top;
    s = __dmul_rn(static_cast<double>(side.description[2 * count + i]), power(-width));
    ulp = power(left ? -bits - exponent : -bits);
    if (rounded) {
      u = __dmul_rn(power(-bits - exponent), 0.5);
      u_unscaled = __dmul_rn(power(-bits), 0.5);
    }
    own = top + scale + (rounded ? -bits : bottom - top);
  }
  const double up = 1.0 + 0x1p-30;
  side.terms[i] = __dmul_rn(left ? u : s, up);
  side.terms[count + i] = __dmul_rn(left ? __dadd_rn(s, __dmul_rn(k, u_unscaled)) : u, up);
  side.terms[2 * count + i] = __dmul_rn(left ? __dmul_rn(dropped, ulp) : ulp, up);
  side.units[i] = top + scale;
  side.multiples[i] = own;
}

#else

// entry_bounds: bounds of all entries, out[batch][m][n]. The image error of a real entry is factor times the sum of
// three products of terms of its row and column, in units of 2^(units_row + units_col + unit); the entry before it was
// rounded is a multiple of 2^(multiples_row + multiples_col + multiple), if `known`.
//
// Macros: ENTRIES: 1 for floating-point entries, of type OUTPUT (double or float), 2 for multiprecision ones; PARTS: 2
// if entries are complex, else 1.
//
// 256 threads; grid batch * ceil(m / ROWS) * ceil(n / 256), all on x. A thread owns ROWS entries of a column, so it
// reads the column's terms once.
constexpr int ROWS = 16;

// Terms of the rows of an operand: those of row r of matrix b at b * batch + r, r = i * step + part * of_part for entry
// i along its axis.
struct RowTerms {
  const double* terms;
  const int64_t *units, *multiples;
  int64_t count, batch, step, of_part;
};

// The entry (b, row, col) has index b * sb + row * sr + col * sc, its imaginary part `sp` more.
#if ENTRIES == 1
typedef BitsOf<OUTPUT>::type Bits;
struct Entries {
  const OUTPUT* c;
  int64_t sb, sr, sc, sp;
};
#else
struct Entries {
  const int8_t* signs;
  const int64_t* exponents;
  int64_t bits;
  int64_t sb, sr, sc, sp;
};
#endif

struct Units {
  double factor;
  int64_t unit, multiple, known;
};

// What a row, or a column, contributes to an entry.
struct Of {
  double term[3];
  int64_t unit, multiple;
};
__device__ __forceinline__ Of of_row(const RowTerms& t, int64_t b, int64_t i, int part) {
  const int64_t at = b * t.batch + i * t.step + part * t.of_part;
  return {{t.terms[at], t.terms[t.count + at], t.terms[2 * t.count + at]}, t.units[at], t.multiples[at]};
}

constexpr uint64_t INF = uint64_t(0x7ff) << 52;

// Reads an entry: the exponent of a unit in its last place. Returns false for NaN and Inf; `zero` of a multiprecision
// entry, which no rounding made so.
__device__ __forceinline__ bool read(const Entries& c, int64_t at, int64_t& last, bool& zero) {
#if ENTRIES == 1
  const Bits bits = reinterpret_cast<const Bits*>(c.c)[at];
  constexpr int FRACTION = sizeof(Bits) == 8 ? 52 : 23, ALL_ONES = sizeof(Bits) == 8 ? 0x7ff : 0xff;
  const int field = static_cast<int>(bits >> FRACTION) & ALL_ONES;
  last = larger(field, 1) - (ALL_ONES >> 1) - FRACTION;
  zero = false;
  return field != ALL_ONES;
#else
  last = c.exponents[at] - c.bits;
  zero = c.signs[at] == 0;
  return true;
#endif
}

// x 2^e for x >= 0; a unit more where that is subnormal, so that it is no less.
__device__ __forceinline__ double times_power(double x, int64_t e) {
  const Parts p = parts(bits_of(x));
  if (p.mantissa == 0) return 0.0;
  const int length = bit_length(p.mantissa);
  const int64_t t = e + p.exponent + length;
  if (t > 1024) return double_of(INF);
  const uint64_t mantissa = p.mantissa << (53 - length);
  if (t >= -1021) return double_of((static_cast<uint64_t>(t + 1021) << 52) + mantissa);
  return double_of(rounded_64(mantissa, static_cast<int>(larger<int64_t>(t + 1021, -200)), false) + 1);
}

// The next number above a positive one, or Inf.
__device__ __forceinline__ double above(double x) { return bits_of(x) < INF ? double_of(bits_of(x) + 1) : x; }

// The bound of a real entry, or of a part of a complex one, at index `at`.
__device__ __forceinline__ double bound(const Entries& c, int64_t at, const Of& row, const Of& col, const Units& units) {
  int64_t last;
  bool exact;
  if (!read(c, at, last, exact)) return double_of(INF);
  const auto product = [&](int t) { return __dmul_rn(row.term[t], col.term[t]); };
  const double error = __dmul_rn(__dadd_rn(__dadd_rn(product(0), product(1)), product(2)), units.factor);
  const double image = times_power(error, row.unit + col.unit + units.unit);
  exact = exact || (units.known != 0 && row.multiple + col.multiple + units.multiple >= last);
  if (exact) return image;
  const double rounding = power_of_two(smaller<int64_t>(larger<int64_t>(last - 1, -1074), 1024));
  return image > 0 ? above(__dadd_rn(image, rounding)) : rounding;
}

extern "C" __global__ void __launch_bounds__(256)
entry_bounds(const RowTerms left, const RowTerms right, const Entries c, double* __restrict__ out, int64_t m, int64_t n,
             const Units units) {
  after_previous();
  const uint32_t columns = static_cast<uint32_t>((n + 255) / 256), rows = static_cast<uint32_t>((m + ROWS - 1) / ROWS);
  const uint32_t rest = blockIdx.x / columns;
  const int64_t col = static_cast<int64_t>(blockIdx.x % columns) * 256 + threadIdx.x, b = rest / rows;
  const int64_t first = static_cast<int64_t>(rest % rows) * ROWS, end = smaller(first + ROWS, m);
  if (col >= n) return;
  Of of_col[PARTS];
#pragma unroll
  for (int part = 0; part < PARTS; ++part) of_col[part] = of_row(right, b, col, part);
#pragma unroll 4
  for (int64_t row = first; row < end; ++row) {
    const int64_t at = b * c.sb + row * c.sr + col * c.sc;
    double found = bound(c, at, of_row(left, b, row, 0), of_col[0], units);
    if constexpr (PARTS == 2) {
      const double other = bound(c, at + c.sp, of_row(left, b, row, 1), of_col[PARTS - 1], units);
      const double less = other < found ? other : found;
      found = other < found ? found : other;
      if (less > 0) found = above(__dadd_rn(found, __dmul_rn(0.41421356237309515, less)));
    }
    out[(b * m + row) * n + col] = found;
  }
}

#endif
