// The low-precision words of an operand, in the layout of the kernel that multiplies them (docs/definitions.md, section
// 7).
//
// Macros: those of cut_words.cuh; ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows; LARGEST: 1 if
// field 0 of the description is as tops.cu leaves it, the bits of the largest element instead of its exponent.
//
// x is a view (batch, rows, k) of float32 with element strides sb, sr, sk of any sign. A row is scaled by 2^mu, mu =
// ceiling - top, which is exact but for elements far below its top. Words are zero for rows <= row < rows_padded, for k
// <= h < k_padded, and for NaN and Inf. description is int64 [6][batch * rows]; mu of row (b, row) goes to mu_out[b *
// rows + row].
//
// 256 threads; grid batch * ceil(rows_padded / 32) * (k_padded / 128), all on x. A block owns 32 rows x 128 elements, a
// thread 8 neighbouring elements of two rows. split_words stores the words; count_underflows counts elements that lose
// more than their share.
#include "words/cut_words.cuh"
#include "arithmetic/fixed_point.cuh"
#include "hardware/launch.cuh"

// The part of an operand that a block owns: 8 neighbouring elements of two rows for each thread.
struct Part {
  int64_t b, row0, h0;
  int scale[2];

  // The part of this block.
  __device__ __forceinline__ Part(int64_t rows_padded, int64_t k_padded) {
    const uint32_t blocks_k = static_cast<uint32_t>(k_padded / TILE_K);
    const uint32_t blocks_row = static_cast<uint32_t>((rows_padded + TILE_ROWS - 1) / TILE_ROWS);
#if ALONG_K  // neighbouring blocks are neighbours in memory
    const uint32_t at_k = blockIdx.x % blocks_k, rest = blockIdx.x / blocks_k;
    const uint32_t at_row = rest % blocks_row;
    b = rest / blocks_row;
#else
    const uint32_t at_row = blockIdx.x % blocks_row, rest = blockIdx.x / blocks_row;
    const uint32_t at_k = rest % blocks_k;
    b = rest / blocks_k;
#endif
    row0 = static_cast<int64_t>(at_row) * TILE_ROWS;
    h0 = static_cast<int64_t>(at_k) * TILE_K;
  }

  // Calls use(row, mu, bits) for both rows of the thread, with the bits of its elements; NaN and Inf are zero.
  template <typename Use>
  __device__ __forceinline__ void each(const float* x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
                                       const int64_t* top, int ceiling, const Use& use) const {
    x += b * sb;
#if ALONG_K
    const bool aligned = aligned_along_k(x, sb, sr, sk);
#else
    __shared__ uint32_t tile[TILE_ROWS * TILE_K];
    stage_along_rows(tile, x, sr, sk, row0, h0, rows, k, false);
    __syncthreads();
#endif
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t row = row0 + tile_row(i);
      const int known = row < rows ? described_top<uint32_t, LARGEST>(top[b * rows + row]) : EMPTY_TOP;
      const int mu = known == EMPTY_TOP ? 0 : ceiling - known;
      uint32_t bits[8];
#if ALONG_K
      load_along_k(x + row * sr, sk, h0 + tile_h(), k, row < rows, aligned, bits);
#else
      read_staged(tile, tile_row(i), bits);
#endif
      clear_nonfinite(bits);
      use(row, mu, bits);
    }
  }
};

extern "C" __global__ void __launch_bounds__(256)
split_words(const float* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
            int64_t rows_padded, int64_t k_padded, const int64_t* __restrict__ description, int ceiling,
            int32_t* __restrict__ mu_out, uint8_t* __restrict__ out, int64_t batch_stride, int64_t word_stride) {
  after_previous();
  const Part part(rows_padded, k_padded);
  out += part.b * batch_stride;
  part.each(x, sb, sr, sk, rows, k, description, ceiling, [&](int64_t row, int mu, const uint32_t(&bits)[8]) {
    if (row >= rows_padded) return;
    if (part.h0 == 0 && tile_h() == 0 && row < rows) mu_out[part.b * rows + row] = mu;
    const int64_t from = (part.h0 + tile_h()) * WIDTH;
    cut_words(bits, mu, [&](int s, int byte) {
#if TILE
      return out + s / TOGETHER * word_stride +
             word_tile_offset<NEIGHBOURS>(row, from + byte, k_padded * WIDTH, s % TOGETHER, TOGETHER, TILE);
#else
      return out + s * word_stride + fragment_offset<(NEIGHBOURS > 0)>(row, from + byte, k_padded * WIDTH);
#endif
    });
  });
}

// Adds to *count the number of elements of which the words leave more than `residual` times their magnitude.
extern "C" __global__ void __launch_bounds__(256)
count_underflows(const float* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
                 int64_t rows_padded, int64_t k_padded, const int64_t* __restrict__ description, int ceiling,
                 double residual, unsigned long long* __restrict__ count) {
  after_previous();
  const Part part(rows_padded, k_padded);
  uint32_t found = 0;
  part.each(x, sb, sr, sk, rows, k, description, ceiling, [&](int64_t, int mu, const uint32_t(&bits)[8]) {
    const Scale scale(mu);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = scale(float_of_bits(bits[j]));
      float words[WORD_COUNT];
      const float left = split_into_words<WORD, CONVERSION, SCALE_BITS>(x, words);
      const bool more = fabs(static_cast<double>(left)) > residual * fabs(static_cast<double>(x));
      found += more || (x == 0.0f && bits[j] << 1 != 0) ? 1 : 0;  // or it became zero when scaled
    }
  });
  found = __reduce_add_sync(0xffffffffu, found);
  if ((threadIdx.x & 31) == 0 && found != 0) atomicAdd(count, static_cast<unsigned long long>(found));
}
