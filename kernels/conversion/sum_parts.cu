// Residues of a whole product from those of products of parts of k, which were multiplied side by side.
#include "hardware/launch.cuh"
#include "arithmetic/residues.cuh"

// y holds bytes in [0, m_t), [t][parts][count]; part 0 becomes the sum of all parts modulo m_t. `count` is a multiple
// of 16, y is aligned to 16 bytes.
//
// 256 threads; grid (ceil(count / 4096), moduli). A thread owns 16 neighbouring entries.
extern "C" __global__ void __launch_bounds__(256)
sum_parts(uint8_t* __restrict__ y, int64_t count, int parts, const AccumulatorModuli moduli) {
  after_previous();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) * 16;
  if (at >= count) return;
  const int t = blockIdx.y;
  const uint32_t modulus = moduli.of[t].modulus;
  uint4* const own = reinterpret_cast<uint4*>(y + t * parts * count + at);
  const int64_t step = count / 16;
  uint4 sum = *own;
#pragma unroll 4
  for (int i = 1; i < parts; ++i) {
    const uint4 next = own[i * step];
    sum.x = add_four_residues(sum.x, next.x, modulus);
    sum.y = add_four_residues(sum.y, next.y, modulus);
    sum.z = add_four_residues(sum.z, next.z, modulus);
    sum.w = add_four_residues(sum.w, next.w, modulus);
  }
  *own = sum;
}
