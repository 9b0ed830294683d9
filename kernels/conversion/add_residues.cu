// Residues of two parts of a product, added modulo m_t: to = (to + from) mod m_t.
//
// Macro: DIGITS, 1 to 3: bytes of a residue, the lowest first, each in a plane of its own.
#include "arithmetic/residues.cuh"
#include "hardware/launch.cuh"

// Planes [t][DIGITS][rows][columns or more] of bytes of numbers in [0, m_t), in both: bytes from one plane and one row
// to the next. `columns` and all steps are multiples of 16, both addresses are aligned to 16 bytes. Whatever padding
// holds, it does not disturb its neighbours.
//
// 256 threads; grid (ceil(rows * columns / 4096), moduli). A thread owns 16 neighbouring entries.
extern "C" __global__ void __launch_bounds__(256)
add_residues_of_parts(const uint8_t* __restrict__ from, int64_t from_plane, int64_t from_row, uint8_t* __restrict__ to,
                      int64_t to_plane, int64_t to_row, int64_t rows, int64_t columns,
                      const uint32_t* __restrict__ moduli) {
  after_previous();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) * 16;
  if (at >= rows * columns) return;
  const int64_t row = at / columns, column = at % columns, t = blockIdx.y;
  const uint32_t modulus = moduli[t];
  const uint8_t* const more = from + t * DIGITS * from_plane + row * from_row + column;
  uint8_t* const own = to + t * DIGITS * to_plane + row * to_row + column;
  uint32_t x[DIGITS][4], y[DIGITS][4];
#pragma unroll
  for (int d = 0; d < DIGITS; ++d) {
    const uint4 u = *reinterpret_cast<const uint4*>(own + d * to_plane);
    const uint4 v = *reinterpret_cast<const uint4*>(more + d * from_plane);
    x[d][0] = u.x, x[d][1] = u.y, x[d][2] = u.z, x[d][3] = u.w;
    y[d][0] = v.x, y[d][1] = v.y, y[d][2] = v.z, y[d][3] = v.w;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if DIGITS == 1
    x[0][i] = add_four_residues(x[0][i], y[0][i], modulus);
#else
    uint32_t sum[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t p = 0, q = 0;
#pragma unroll
      for (int d = 0; d < DIGITS; ++d) p |= byte_of(x[d][i], j) << (8 * d), q |= byte_of(y[d][i], j) << (8 * d);
      sum[j] = add_residues(p, q, modulus);
    }
#pragma unroll
    for (int d = 0; d < DIGITS; ++d)
      x[d][i] = gather_bytes(sum[0] >> (8 * d), sum[1] >> (8 * d), sum[2] >> (8 * d), sum[3] >> (8 * d), 0);
#endif
  }
#pragma unroll
  for (int d = 0; d < DIGITS; ++d)
    *reinterpret_cast<uint4*>(own + d * to_plane) = make_uint4(x[d][0], x[d][1], x[d][2], x[d][3]);
}
