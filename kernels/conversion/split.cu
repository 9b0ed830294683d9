// The slices of an operand: its fixed-point image Abar = RN(2^mu x), cut into residues or balanced digits, a byte each
// (docs/definitions.md, sections 2 to 4).
//
// Macros:
// - INPUT (double or float); REALS: 1, or 2 if an element is complex; LIMBS: 32-bit limbs of an image
// - ROOM: the number of slices, `count`, rounded up to eight, so that one kernel takes several counts; for digits of 7
//   bits the number itself
// - DIGIT_BITS: 0 for residues, 8 or 7 for balanced digits
// - ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows (whichever is contiguous in memory)
// - REVERSED: 1 stores slice s as number count - 1 - s
// - TILE: 0 for plain rows, or the rows of a tile, with NEIGHBOURS (tiles.cuh)
// - SHARED: 2 or 4 if only the first 64 or 32 of every 128 elements are wanted, and so many slices share a row (cut.cuh)
// - LARGEST: 1 if field 0 of the description holds the largest element itself (tops.cu)
// - INNER: 1 if rows are scaled along k: x stands for its products by factors[batch][k], powers of two or 0
//
// x is a view (batch, rows, k) with strides sb, sr, sk of any sign, in real numbers; the imaginary part of a complex
// element follows its real part. Slice s of element (b, row, h) goes to
// slices + b * batch_stride + s * slice_stride plus
//   TILE = 0:  row * row_stride + (h / slab) * slab_stride + h % slab
//   else:      the offset of (row, h) that tiles.cuh gives (row_stride, slab and slab_stride do not matter),
// zeros for rows <= row < rows_padded and k <= h < k_padded. slab and k_padded are multiples of 128, the strides and
// the address of slices multiples of 16, rows_padded a multiple of 8 and of TILE.
//
// description is int64 [6][batch * rows]; `statistic` is the number of the field that the scaling reads (1: peak, 3:
// squares) or, with LARGEST, the magnitude bits W of the peak, as described_exponent has it. mu of row (b, row) goes to
// mu_out[b * rows + row].
//
// 128 threads; grid batch * ceil(rows_padded / R) * (k_padded / 128), all on x. A block owns R = 32 rows x 128
// elements, or R = 16 rows of elements of 16 bytes; a warp has a quarter of these rows. Phases:
// 1. Where rows are neighbours in memory, transpose the block's elements in shared memory.
// 2. Exponents mu of the warp's rows from their description.
// 3. Two rows at a time: images, slices, store (cut.cuh).
#include "conversion/cut.cuh"
#include "conversion/factors.cuh"
#include "hardware/launch.cuh"

constexpr int THREADS = 128, BLOCK_ROWS = smaller(32, static_cast<int>(256 / (REALS * sizeof(INPUT))));
constexpr int OWN_ROWS = BLOCK_ROWS / 4;  // of a warp
constexpr int HELD = REALS * LIMBS;       // limbs of an element, which decide how many registers it needs

extern "C" __global__ void __launch_bounds__(THREADS, HELD <= 1 ? 7 : HELD <= 2 && !ALONG_K ? 5 : HELD <= 4 ? 4 : 3)
split(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k, int64_t rows_padded,
      int64_t k_padded, const int64_t* __restrict__ description, int64_t batch_rows, int statistic, int step, int base,
      int64_t threshold, int32_t* __restrict__ mu_out, int8_t* __restrict__ slices, int64_t batch_stride,
      int64_t row_stride, int64_t slice_stride, int64_t slab, int64_t slab_stride MORE_ARGUMENTS FACTORS) {
  after_previous();
  fill_folds(THREADS MORE);

  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / BLOCK_K);
  const uint32_t blocks_row = static_cast<uint32_t>((rows_padded + BLOCK_ROWS - 1) / BLOCK_ROWS);
  // Blocks go from the end of the operand to its beginning: what the describing kernel read last is still in the
  // second-level cache.
  const uint32_t block = gridDim.x - 1 - blockIdx.x;
#if ALONG_K  // neighbouring blocks are neighbours in memory
  const uint32_t at_k = block % blocks_k, rest = block / blocks_k;
  const uint32_t at_row = rest % blocks_row, b = rest / blocks_row;
#else
  const uint32_t at_row = block % blocks_row, rest = block / blocks_row;
  const uint32_t at_k = rest % blocks_k, b = rest / blocks_k;
#endif
  const int64_t row0 = static_cast<int64_t>(at_row) * BLOCK_ROWS, h0 = static_cast<int64_t>(at_k) * BLOCK_K;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  x += b * sb;

  int8_t* out = slices + b * batch_stride;
#if TILE
  const int first = static_cast<int>(at_row % (TILE / BLOCK_ROWS)) * BLOCK_ROWS + OWN_ROWS * warp;
  out += (static_cast<int64_t>(at_row / (TILE / BLOCK_ROWS)) * blocks_k + at_k) * (TILE * BLOCK_K);
#else
  const int first = 0;
  const uint32_t at_slab = at_k / static_cast<uint32_t>(slab / BLOCK_K);  // a block lies within one slab
  out += (row0 + OWN_ROWS * warp) * row_stride + at_slab * slab_stride + (h0 - at_slab * slab);
#endif
#if !ALONG_K
  // 1. Transpose.
  __shared__ Bits tile[REALS][BLOCK_ROWS * BLOCK_K];
  {
    constexpr int COPIED_K = THREADS / BLOCK_ROWS;  // inner indices that the block copies at once
    const int row = threadIdx.x % BLOCK_ROWS, first_h = threadIdx.x / BLOCK_ROWS;
    const bool inside = row0 + row < rows;
    const Bits* from = reinterpret_cast<const Bits*>(x) + ((row0 + row) * sr + (h0 + first_h) * sk);
#pragma unroll 8
    for (int i = 0; i < BLOCK_K / COPIED_K; ++i, from += COPIED_K * sk) {
      const int h = COPIED_K * i + first_h;
#pragma unroll
      for (int part = 0; part < REALS; ++part)
        copy_or_zero(tile[part] + turned<BLOCK_ROWS>(row, h), from + part, inside && h0 + h < k);
    }
    wait_for_copies();
  }
#endif
  __syncthreads();

  // 2. Exponents: lane r and three others have that of the warp's row r.
  const int64_t own_row = row0 + OWN_ROWS * warp + lane % OWN_ROWS;
  int scale = 0;
  if (own_row < rows) {
    scale = row_scale<LARGEST>(description, batch_rows, b * rows + own_row, statistic, step, base, threshold);
    if (at_k == 0 && lane < OWN_ROWS) mu_out[b * rows + own_row] = scale >> 1;
  }
  if (row0 + OWN_ROWS * warp >= rows_padded) return;

  // 3. Images and slices. load(r, bits): elements 64 half + 2 lane + {0, 1} of rows r and r + 1.
#if INNER
  double factor[4];  // of this lane's elements of a row
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t h = h0 + 64 * (i / 2) + 2 * lane + i % 2;
    factor[i] = h < k ? factors[b * k + h] : 0.0;
  }
#endif
#if ALONG_K
  const bool whole = sk == REALS && aligned_in_pairs(x, sr, 1) && h0 + BLOCK_K <= k;
  const INPUT* at = x + ((row0 + OWN_ROWS * warp) * sr + (h0 + 2 * lane) * sk);
  const int left = static_cast<int>(smaller<int64_t>(k - h0 - 2 * lane, BLOCK_K));
  int rows_left = static_cast<int>(smaller<int64_t>(rows - row0 - OWN_ROWS * warp, OWN_ROWS));
  const auto load = [&](int, Bits (&bits)[8 * REALS]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // of row i / 2, half i % 2
      Bits* const two = bits + 2 * REALS * i;
#pragma unroll
      for (int j = 0; j < 2 * REALS; ++j) two[j] = 0;
      if (i / 2 < rows_left) {
        if (whole) {
#pragma unroll
          for (int j = 0; j < 2 * REALS; j += 2) load_pair(at + REALS * 64 * (i % 2) + j, two[j], two[j + 1]);
        } else {
          const Bits* const elements = reinterpret_cast<const Bits*>(at);
#pragma unroll
          for (int j = 0; j < 2 * REALS; ++j) {
            const int h = 64 * (i % 2) + j / REALS;
            if (h < left) two[j] = elements[h * sk + j % REALS];
          }
        }
      }
      if (i % 2 == 1) at += sr;
#if INNER
#pragma unroll
      for (int j = 0; j < 2 * REALS; ++j) two[j] = scaled_bits(two[j], factor[2 * (i % 2) + j / REALS]);
#endif
    }
    rows_left -= 2;
  };
#else
  const auto load = [&](int r, Bits (&bits)[8 * REALS]) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int part = 0; part < REALS; ++part) {
        Bits& one = bits[REALS * i + part];
        one = tile[part][turned<BLOCK_ROWS>(OWN_ROWS * warp + r + i / 4, 64 * (i / 2 % 2) + 2 * lane + i % 2)];
#if INNER
        one = scaled_bits(one, factor[i % 4]);
#endif
      }
  };
#endif
  cut_rows<OWN_ROWS>(scale, out, first, row_stride, slice_stride, count, load);
}
