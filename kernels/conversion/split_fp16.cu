// The digits of an operand as FP16 numbers: its fixed-point image, cut into balanced digits of DIGIT_BITS bits
// (docs/definitions.md, section 3). Every digit is an integer below 2^11 and so exact in FP16.
//
// Macros: INPUT (double or float); SLICES; LIMBS (32-bit limbs of the image); DIGIT_BITS (2 to 12); ALONG_K; REVERSED;
// LARGEST. Macros and arguments mean what they mean in split.cu with TILE = 0; strides of slices are in bytes, `slab`
// is in elements.
//
// 256 threads; grid batch * ceil(rows_padded / 32) * (k_padded / 128), all on x. A block owns 32 rows x 128 elements, a
// warp 4 rows, a lane two pairs of neighbouring elements of each row. Phases:
// 1. Where rows are neighbours in memory, transpose the block's elements in shared memory.
// 2. For each of the warp's rows: its exponent; then images, digits, store.
#include "arithmetic/digits.cuh"
#include "arithmetic/fixed_point.cuh"
#include "hardware/launch.cuh"
#include "arithmetic/words.cuh"

typedef BitsOf<INPUT>::type Bits;

extern "C" __global__ void __launch_bounds__(256)
split_fp16(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
           int64_t rows_padded, int64_t k_padded, const int64_t* __restrict__ description, int64_t batch_rows,
           int statistic, int step, int base, int64_t threshold, int32_t* __restrict__ mu_out,
           uint8_t* __restrict__ slices, int64_t batch_stride, int64_t row_stride, int64_t slice_stride, int64_t slab,
           int64_t slab_stride) {
  after_previous();
  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / TILE_K);
  const uint32_t blocks_row = static_cast<uint32_t>((rows_padded + TILE_ROWS - 1) / TILE_ROWS);
  const int64_t h0 = static_cast<int64_t>(blockIdx.x % blocks_k) * TILE_K;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x / blocks_k % blocks_row) * TILE_ROWS;
  const int64_t b = blockIdx.x / blocks_k / blocks_row;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  x += b * sb;
  slices += b * batch_stride + h0 / slab * slab_stride + h0 % slab * 2;  // a block lies within one slab
#if !ALONG_K
  // 1. Transpose.
  __shared__ Bits tile[TILE_ROWS * TILE_K];
  stage_along_rows(tile, x, sr, sk, row0, h0, rows, k, false);
  __syncthreads();
#endif
  // 2. Row by row.
#pragma unroll 1
  for (int r = 4 * warp; r < 4 * warp + 4; ++r) {
    const int64_t row = row0 + r;
    if (row >= rows_padded) return;
    int mu = 0;
    if (row < rows) {
      mu = described_exponent<Bits, LARGEST>(description, batch_rows, b * rows + row, statistic, step, base, threshold);
      if (h0 == 0 && lane == 0) mu_out[b * rows + row] = mu;
    }
#pragma unroll 1
    for (int h = 2 * lane; h < TILE_K; h += 64) {
      uint32_t limbs[2][LIMBS];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#if ALONG_K
        const bool inside = row < rows && h0 + h + i < k;
        const Bits bits = inside ? reinterpret_cast<const Bits*>(x)[row * sr + (h0 + h + i) * sk] : Bits(0);
#else
        const Bits bits = tile[(h + i) * TILE_ROWS + (r ^ (h >> 3 & 15))];
#endif
        image<LIMBS>(bits, mu, limbs[i]);
        add_halves<DIGIT_BITS, SLICES>(limbs[i]);
      }
      uint8_t* const to = slices + row * row_stride + 2 * h;
#pragma unroll
      for (int j = 0; j < SLICES; ++j) {
        float digit[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t raised = raised_digit<DIGIT_BITS>(limbs[i], j) & ((1u << DIGIT_BITS) - 1);
          digit[i] = static_cast<float>(static_cast<int>(raised) - (1 << (DIGIT_BITS - 1)));
        }
        *reinterpret_cast<uint32_t*>(to + (REVERSED ? j : SLICES - 1 - j) * slice_stride) =
            pack_halves(digit[0], digit[1]);
      }
    }
  }
}
