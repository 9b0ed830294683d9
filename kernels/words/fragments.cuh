// Layout of low-precision words for mma.sync: fragments, each of which a warp loads with one 16-byte load of each lane.
//
// A fragment is 16 rows x 32 bytes of k, 512 bytes. Lane 4 g + t holds bytes 4 t .. 4 t + 3 and 16 + 4 t .. 16 + 4 t +
// 3 of rows g and g + 8, in four registers:
//   register i   row g + 8 (i % 2), from byte 4 t + 16 (i / 2) on
// This is the A operand of m16n8k16 (16-bit words) and m16n8k8 (TF32); registers i and i + 2 are the B operand for
// columns 8 i .. 8 i + 7. In the right operand registers 1 and 2 are exchanged, so that those of 8 columns are
// neighbours. Fragments follow one another along k, then along the rows.
#pragma once
#include "arithmetic/common.cuh"

// Offset of the four bytes from `byte` on (a multiple of 4) of a row of `row_bytes` bytes; RIGHT for the right operand.
template <bool RIGHT> HD int64_t fragment_offset(int64_t row, int64_t byte, int64_t row_bytes) {
  const int r = static_cast<int>(row & 15), q = static_cast<int>(byte & 31) >> 2;
  const int lower = r >> 3, later = q >> 2, i = RIGHT ? 2 * lower + later : lower + 2 * later;
  return ((row >> 4) * (row_bytes >> 5) + (byte >> 5)) * 512 + ((r & 7) * 4 + (q & 3)) * 16 + i * 4;
}
