// Residues modulo numbers above 256, from the int32 slice products of their digits (cuBLAS): y_t = sum_p c_p P_p mod
// m_t (Karatsuba and Ofman), a plane of bytes for each eight bits of y_t, the lowest first.
//
// Macro: DIGITS, 2 or 3: digits of the moduli, of seven bits in operands, of eight bits in y.
#include "arithmetic/modulus.cuh"
#include "hardware/launch.cuh"

constexpr int PRODUCTS = slices_of_digits(DIGITS);

// Constants of a modulus, filled by the host: m; floor(2^32 / m); floor(2^64 / m), low limb first; the residue that
// makes up for raising all products by 2^31; the coefficients c_p.
struct Combination {
  uint32_t modulus, inverse, inverse_64[2], start, coefficient[6], unused;
};

// acc is int32 [groups][PRODUCTS][count], y holds bytes [groups][DIGITS][count]. With `accumulate` the result is added
// to the y that is there, modulo m_t (a further part of k). `count` is a multiple of 4, all addresses are aligned to 16
// bytes.
//
// 256 threads; grid (ceil(count / 1024), groups). A thread owns 4 neighbouring entries.
extern "C" __global__ void __launch_bounds__(256)
combine_digits(const int32_t* __restrict__ acc, uint8_t* __restrict__ y, int64_t count, int accumulate,
               const Combination* __restrict__ combinations) {
  after_previous();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) * 4;
  if (at >= count) return;
  const Combination& m = combinations[blockIdx.y];
  const int32_t* const from = acc + blockIdx.y * PRODUCTS * count + at;
  uint8_t* const to = y + blockIdx.y * DIGITS * count + at;

  uint64_t sum[4] = {m.start, m.start, m.start, m.start};
#pragma unroll
  for (int p = 0; p < PRODUCTS; ++p) {
    const int4 product = *reinterpret_cast<const int4*>(from + p * count);
    const int32_t v[4] = {product.x, product.y, product.z, product.w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum[j] += static_cast<uint64_t>(residue(v[j] ^ 0x80000000u, m.modulus, m.inverse)) * m.coefficient[p];
  }
  if (accumulate) {
#pragma unroll
    for (int d = 0; d < DIGITS; ++d) {
      const uint32_t old = *reinterpret_cast<const uint32_t*>(to + d * count);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[j] += byte_of(old, j) << (8 * d);
    }
  }
  const uint64_t inverse = static_cast<uint64_t>(m.inverse_64[1]) << 32 | m.inverse_64[0];
  uint32_t r[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) r[j] = residue_64(sum[j], m.modulus, inverse);
#pragma unroll
  for (int d = 0; d < DIGITS; ++d)
    *reinterpret_cast<uint32_t*>(to + d * count) =
        gather_bytes(r[0] >> (8 * d), r[1] >> (8 * d), r[2] >> (8 * d), r[3] >> (8 * d), 0);
}
