// The worst ratio of a componentwise proof over a lower bound L from wide magnitudes (docs/bounds.md, B7).
#include "hardware/launch.cuh"
#include "arithmetic/worst.cuh"

// As worst_ratio in proof.cu, but L is float64 [batch][rows][ld], exact and >= 0, Inf where the entry has no error.
// Every entry is compared by itself, of each batch entry the first `compared` rows.
//
// 256 threads; grid batch * ceil(compared / 32) * ceil(cols / 256), all on x. A block owns 32 rows x 256 columns, a
// thread one of these columns.
constexpr int ROWS = 32;

extern "C" __global__ void __launch_bounds__(256, 2)
worst_ratio_wide(const double* __restrict__ lower, const Terms p, const Terms q, Atomic* result, int64_t ld,
                 int64_t rows, int64_t cols, int64_t compared) {
  after_previous();
  const uint32_t down = static_cast<uint32_t>((compared + ROWS - 1) / ROWS);
  const uint32_t over = static_cast<uint32_t>((cols + 255) / 256);
  const uint32_t tile = blockIdx.x / over, b = tile / down;
  const int64_t col = static_cast<int64_t>(blockIdx.x % over) * 256 + threadIdx.x;
  const int64_t row0 = static_cast<int64_t>(tile % down) * ROWS;
  const int count = col < cols ? static_cast<int>(smaller<int64_t>(compared - row0, ROWS)) : 0;
  lower += (b * rows + row0) * ld + col;

  Worst worst;
  worst.set(*static_cast<volatile Atomic*>(result));
#pragma unroll 4
  for (int i = 0; i < count; ++i) worst.include(numerator(p, q, b, row0 + i, col), __ldcs(lower + i * ld));
  worst.share();
  worst.publish(result);
}
