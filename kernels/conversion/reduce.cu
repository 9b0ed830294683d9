// Residues of int32 slice products of cuBLAS: y_t = acc mod m_t, a byte each.
#include "hardware/launch.cuh"
#include "arithmetic/residues.cuh"

// acc is int32 [groups][count]; y holds bytes in [0, m_t), [t][count], and group g gives t = first + g. With
// `accumulate` the result is added to the y that is there, modulo m_t (a further part of k). `count` is a multiple of
// 16, all addresses are aligned to 16 bytes.
//
// 256 threads; grid (ceil(count / 4096), groups). A thread owns 16 neighbouring entries.
extern "C" __global__ void __launch_bounds__(256)
reduce(const int32_t* __restrict__ acc, uint8_t* __restrict__ y, int64_t count, int first, int accumulate,
       const AccumulatorModuli moduli) {
  after_previous();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) * 16;
  if (at >= count) return;
  const int t = first + blockIdx.y;
  const AccumulatorModulus m = moduli.of[t];

  const int4* const in = reinterpret_cast<const int4*>(acc + blockIdx.y * count + at);
  uint4* const out = reinterpret_cast<uint4*>(y + t * count + at);
  int4 v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = in[i];
  uint4 old = make_uint4(0, 0, 0, 0);
  if (accumulate) old = *out;

  const uint32_t before[4] = {old.x, old.y, old.z, old.w};
  uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    constexpr uint32_t RAISED = 0x80000000u;  // makes signed sums unsigned; `start` takes it back (residues.cuh)
    packed[i] = four_residues(v[i].x ^ RAISED, v[i].y ^ RAISED, v[i].z ^ RAISED, v[i].w ^ RAISED, m);
    if (accumulate) packed[i] = add_four_residues(packed[i], before[i], m.modulus);
  }
  *out = make_uint4(packed[0], packed[1], packed[2], packed[3]);
}
