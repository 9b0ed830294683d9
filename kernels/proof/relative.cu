// How exact the entries of a product are, relative to themselves (docs/bounds.md, B10).
//
// Macros: MULTIPRECISION: 1 for multiprecision entries, 0 for floating-point ones, of type OUTPUT (double or float).
//
// The image error of entry (b, row, col) is E = sum of three products of terms of its row and column, in units of
// 2^(units_row + units_col + exponent). *worst becomes the largest quotient of E and the magnitude of the entry, of the
// entries with an error, as (e + 2^29) 2^34 + g: the quotient, rounded, is in [2^(e-1), 2^e), and g 2^-32 is its
// mantissa in [1/2, 1), rounded up. e counts as at most 2^29 - 1 in magnitude. An entry of zero with an error counts as
// the largest of all; those that are NaN or Inf do not count; without any, *worst stays 0, which it is before the
// kernel.
//
// 256 threads; grid ceil(entries / (256 EACH)), all on x. A thread owns EACH entries, 256 apart.
#include "arithmetic/fixed_point.cuh"
#include "conversion/row_terms.cuh"
#include "hardware/launch.cuh"

constexpr int EACH = 8;
constexpr int64_t FARTHEST = (1 << 29) - 1;

#if MULTIPRECISION
struct Entries {
  const int64_t* exponents;
  const uint32_t* limbs;  // the highest one of each entry
  int64_t sb, sr, sc;
};
#else
struct Entries {
  const OUTPUT* c;
  int64_t sb, sr, sc;
};
#endif

// An entry's magnitude is fraction 2^exponent, the fraction in [1/2, 1), cut to 32 bits of a multiprecision one; 0 for
// zero. Returns false for NaN and Inf.
__device__ __forceinline__ bool read(const Entries& c, int64_t at, double& fraction, int64_t& exponent) {
#if MULTIPRECISION
  fraction = static_cast<double>(c.limbs[at]) * 0x1p-32;
  exponent = c.exponents[at];
  return true;
#else
  const Parts p = parts(reinterpret_cast<const BitsOf<OUTPUT>::type*>(c.c)[at]);
  const int length = bit_length(p.mantissa);
  fraction = 0.0;
  if (length > 0) fraction = static_cast<double>(p.mantissa) * double_of(static_cast<uint64_t>(1023 - length) << 52);
  exponent = p.exponent + length;
  return p.finite;
#endif
}

extern "C" __global__ void __launch_bounds__(256)
worst_quotient(const RowTerms left, const RowTerms right, const Entries c, int64_t rows, int64_t cols, int64_t entries,
               int64_t exponent, unsigned long long* __restrict__ worst) {
  after_previous();
  unsigned long long found = 0;
  for (int i = 0; i < EACH; ++i) {
    const int64_t entry = (static_cast<int64_t>(blockIdx.x) * EACH + i) * 256 + threadIdx.x;
    if (entry >= entries) break;
    const int64_t col = entry % cols, rest = entry / cols, row = rest % rows, b = rest / rows;
    const int64_t at_left = b * left.batch + row, at_right = b * right.batch + col;
    const auto product = [&](int t) {
      return __dmul_rn(left.terms[t * left.count + at_left], right.terms[t * right.count + at_right]);
    };
    const double error = __dadd_rn(__dadd_rn(product(0), product(1)), product(2));
    double fraction;
    int64_t of_entry;
    if (!read(c, b * c.sb + row * c.sr + col * c.sc, fraction, of_entry) || !(error > 0)) continue;
    if (fraction == 0) {
      found = ~0ull;
      continue;
    }
    const Parts quotient = parts(bits_of(__ddiv_rn(error, fraction)));
    const int length = bit_length(quotient.mantissa);
    const uint64_t mantissa =
        length > 32 ? ((quotient.mantissa - 1) >> (length - 32)) + 1 : quotient.mantissa << (32 - length);
    const int64_t above = of_entry - left.units[at_left] - right.units[at_right] - exponent;
    const int64_t e = smaller(larger(quotient.exponent + length - above, -FARTHEST), FARTHEST);
    found = larger(found, static_cast<unsigned long long>(e + FARTHEST + 1) << 34 | mantissa);
  }
#pragma unroll
  for (int i = 16; i > 0; i /= 2) found = larger(found, __shfl_xor_sync(ALL, found, i));
  if ((threadIdx.x & 31) == 0 && found != 0) atomicMax(worst, found);
}
