// int32 slice products -> bytes modulo m_t.
#include "launch.cuh"
#include "residues.cuh"

// acc: int32 [groups][rows][ld], groups acc_stride apart -> y: bytes in [0, m_t), [t][rows][ld_out], planes y_stride
// apart, t = first + group. With `accumulate`, added to the y that is there, modulo m_t.
// All addresses are aligned to 16 bytes: acc_stride, ld multiples of 4, y_stride, ld_out of 16, and both rows hold
// cols rounded up to 16 entries, for the last ones are reduced with the rest.
//
// Block (32, 8); grid (ceil(rows / 8), ceil(cols / 512), groups). A thread owns 16 neighbouring entries of a row.
extern "C" __global__ void __launch_bounds__(256)
reduce(const int32_t* __restrict__ acc, int64_t acc_stride, int64_t ld, uint8_t* __restrict__ y, int64_t y_stride,
       int64_t ld_out, int64_t rows, int64_t cols, int first, int accumulate, const AccumulatorModuli moduli) {
  after_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.y;
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x) * 16;
  if (row >= rows || col >= cols) return;
  const int t = first + blockIdx.z;
  const AccumulatorModulus m = moduli.of[t];

  const int4* const in = reinterpret_cast<const int4*>(acc + blockIdx.z * acc_stride + row * ld + col);
  uint4* const out = reinterpret_cast<uint4*>(y + t * y_stride + row * ld_out + col);
  int4 v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = in[i];
  uint4 old = make_uint4(0, 0, 0, 0);
  if (accumulate) old = *out;

  const uint32_t before[4] = {old.x, old.y, old.z, old.w};
  uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    constexpr uint32_t RAISED = 0x80000000u;
    packed[i] = four_residues(v[i].x ^ RAISED, v[i].y ^ RAISED, v[i].z ^ RAISED, v[i].w ^ RAISED, m);
    if (accumulate) packed[i] = add_four_residues(packed[i], before[i], m.modulus);
  }
  *out = make_uint4(packed[0], packed[1], packed[2], packed[3]);
}
