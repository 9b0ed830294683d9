// Residues modulo numbers below 2^21, and the digits that such a residue has in slices.
//
// floor(x / m) is, or is one more than, the upper half of x floor(2^32 / m), since x (2^32 / m - floor(2^32 / m)) < 2^32.
#pragma once
#include "arithmetic/residues.cuh"

// Constants of one modulus, filled by the host: m; floor(2^32 / m); and what sums of folds begin with.
struct Modulus {
  uint32_t modulus, inverse, start, unused;
};

HD uint32_t residue(uint32_t x, uint32_t modulus, uint32_t inverse) {  // x mod m
  const uint32_t quotient = high_limb(static_cast<uint64_t>(x) * inverse);
  const uint32_t rest = x - quotient * modulus;
  return smaller(rest, rest - modulus);
}

HD uint64_t upper_half(uint64_t x, uint64_t y) {  // floor(x y / 2^64)
#ifdef __CUDA_ARCH__
  return __umul64hi(x, y);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(x) * y >> 64);
#endif
}
HD uint32_t residue_64(uint64_t x, uint32_t modulus, uint64_t inverse) {  // inverse = floor(2^64 / m)
  const uint64_t rest = x - upper_half(x, inverse) * modulus;
  return low_limb(smaller(rest, rest - modulus));
}

// Digits of seven bits of a residue r in [0, m): unsigned ones of r itself, or balanced ones, in [-64, 64], of r or r -
// m, whichever is nearer to 0. So the sum of two digits fits a byte, and an int8.
template <int N, bool NONNEGATIVE> HD void digits_of(uint32_t r, uint32_t modulus, int (&digit)[N]) {
  int rest = static_cast<int>(r);
  if (!NONNEGATIVE && 2 * r >= modulus) rest -= static_cast<int>(modulus);
#pragma unroll
  for (int i = 0; i + 1 < N; ++i) {
    digit[i] = NONNEGATIVE ? rest & 127 : ((rest + 64) & 127) - 64;
    rest = (rest - digit[i]) >> 7;
  }
  digit[N - 1] = rest;
}

// Slices of a modulus with N digits: the digits, the lowest first, then the sums of any two of them, (0, 1), (0,
// 2), (1, 2). A residue of one digit is a slice itself.
HD constexpr int slices_of_digits(int digits) { return digits * (digits + 1) / 2; }
template <int N> HD int slice_of_digits(const int (&digit)[N], int slice) {
  if (slice < N) return digit[slice];
  const int pair = slice - N;
  return digit[pair == 2 ? 1 : 0] + digit[pair == 0 ? 1 : N - 1];
}
