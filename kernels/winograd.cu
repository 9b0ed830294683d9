// Sums of the blocks of an operand that Winograd's form of Strassen's product multiplies, residue by residue, in place.
//
// Macros: LEFT: 1 for the left operand, 0 for the right one.
//
// entries: for each modulus seven blocks of `size` bytes, a multiple of 4096, in the order of the products. Before, the
// operand's upper rows (columns, of a right one) are blocks 0 and 1, the lower ones 2 and 3 (3 and 2); after, block 2
// (3) and blocks 4, 5, 6 are sums (winograd.cuh). Where an element lies in a block does not matter.
//
// 256 threads, each with 16 bytes of every block; grid (size / 4096, moduli).
#include "launch.cuh"
#include "residues.cuh"
#include "winograd.cuh"

extern "C" __global__ void __launch_bounds__(256)
winograd(uint8_t* __restrict__ entries, int64_t size, const __grid_constant__ AccumulatorModuli moduli) {
  after_previous();
  const Modulus m(moduli.of[blockIdx.y].modulus);
  uint8_t* const at = entries + blockIdx.y * (7 * size) + (blockIdx.x * 256 + threadIdx.x) * 16ll;
  const auto block = [&](int i) { return reinterpret_cast<uint4*>(at + i * size); };
  constexpr int THIRD = LEFT ? 2 : 3, FOURTH = 5 - THIRD;
  const uint4 p = *block(0), q = *block(1), r = *block(THIRD), s = *block(FOURTH);
  uint32_t x[4], y[4], z[4], w[4];
  slice_sums<LEFT>(p.x, q.x, r.x, s.x, m, x);
  slice_sums<LEFT>(p.y, q.y, r.y, s.y, m, y);
  slice_sums<LEFT>(p.z, q.z, r.z, s.z, m, z);
  slice_sums<LEFT>(p.w, q.w, r.w, s.w, m, w);
  *block(4) = make_uint4(x[0], y[0], z[0], w[0]);
  *block(5) = make_uint4(x[1], y[1], z[1], w[1]);
  *block(6) = make_uint4(x[2], y[2], z[2], w[2]);
  *block(THIRD) = make_uint4(x[3], y[3], z[3], w[3]);
}
