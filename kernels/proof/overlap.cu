// How much the large elements of a few rows of A and columns of B meet: a sample by which planning sees, for next to
// nothing, that no slices of ordinary number will be proven (`planning.facts.Overlap`).
//
// overlap[g] = min over ROWS rows i of A and ROWS columns j of B of  count sum_h x_ih y_jh / (sum_h x_ih  sum_h y_jh),
// over `count` inner indices h, with x = floor(abs(a) 2^(7 - top_i)), y alike, top the smallest exponent with
// abs(a) < 2^top in the row's sample. NaN and Inf count as 0; rows without a nonzero are left out; inf if all are.
// About 1 where elements are independent of one another, near 0 where large elements meet small ones. All sums are
// exact integers and the quotient is rounded once, so that NumPy finds the same number.
//
// overlap is memory of the host, a number for each block. Block g samples batch entry g * entry_step of A and of B; an
// operand that the batch shares has one entry, which every block samples.
// Row r of a sample is row r (rows - 1) / (ROWS - 1) of the matrix, rounded down; its index 32 s + l is inner index
// s step + l.
//
// Macros: INPUT_A, INPUT_B (double or float); REALS: 1, or 2 if elements are complex, whose larger parts then stand for
// them; SEGMENTS: of 32 inner indices, at most 12.
//
// One block of 16 warps for each batch entry that is sampled. Warp w samples rows w and w + 16 of A and such columns of
// B (1), then compares these rows of A with all columns, a lane for each (2).
#include "arithmetic/fixed_point.cuh"
#include "hardware/launch.cuh"

constexpr int ROWS = 32, WARPS = 16;
// Bytes of a row in shared memory; by the 4 the lanes of a warp read all banks.
constexpr int PITCH = 32 * SEGMENTS + 4;

struct Operand {  // a view (batch, rows, k) with strides of any sign, in real numbers
  const void* x;
  int64_t sb, sr, sk, batch, rows;
};

// 1. The magnitudes of row r of a sample by one warp, into `to`; returns their sum to all lanes.
template <typename Input>
__device__ __forceinline__ uint32_t sample_row(const Operand& of, int r, int64_t entry, int64_t k, int64_t step,
                                               uint8_t* to) {
  typedef typename BitsOf<Input>::type Bits;
  const int lane = threadIdx.x % 32;
  const int64_t row = r * (of.rows - 1) / (ROWS - 1);
  const Bits* x = static_cast<const Bits*>(of.x) + (of.batch > 1 ? entry * of.sb : 0) + row * of.sr;
  Bits held[SEGMENTS];
#pragma unroll
  for (int s = 0; s < SEGMENTS; ++s) {
    const int64_t h = s * step + lane;
    held[s] = h < k ? larger_part<REALS>(x + h * of.sk) : Bits(0);
  }
  int top = EMPTY_TOP;
#pragma unroll
  for (int s = 0; s < SEGMENTS; ++s) top = larger(top, top_exponent(parts(held[s])));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) top = larger(top, __shfl_xor_sync(ALL, top, offset));
  uint32_t sum = 0;
#pragma unroll
  for (int s = 0; s < SEGMENTS; ++s) {
    const Parts p = parts(held[s]);
    const uint32_t magnitude = low_limb(floor_scaled(p.mantissa, p.exponent + 7 - top));
    to[32 * s + lane] = static_cast<uint8_t>(magnitude);
    sum += magnitude;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
  return sum;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
overlap(const Operand a, const Operand b, double* __restrict__ overlap, int64_t entry_step, int64_t k, int64_t step,
        int64_t count) {
  __shared__ __align__(16) uint8_t left[ROWS][PITCH], right[ROWS][PITCH];
  __shared__ uint32_t rows[ROWS], columns[ROWS];
  __shared__ double least[WARPS];
  after_previous();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t entry = blockIdx.x * entry_step;
#pragma unroll 1
  for (int r = warp; r < ROWS; r += WARPS) {
    const uint32_t of_row = sample_row<INPUT_A>(a, r, entry, k, step, left[r]);
    const uint32_t of_column = sample_row<INPUT_B>(b, r, entry, k, step, right[r]);
    if (lane == 0) rows[r] = of_row, columns[r] = of_column;
  }
  __syncthreads();

  // 2. Two rows of A with column `lane` of B.
  double ratio = double_of_limbs(0x7ff00000u, 0);
#pragma unroll 1
  for (int r = warp; r < ROWS; r += WARPS) {
    int sum = 0;
#pragma unroll 8
    for (int h = 0; h < 32 * SEGMENTS; h += 4)
      sum = __dp4a(*reinterpret_cast<const int*>(&left[r][h]), *reinterpret_cast<const int*>(&right[lane][h]), sum);
    const double both = static_cast<double>(rows[r]) * static_cast<double>(columns[lane]);
    const double met = __dmul_rn(static_cast<double>(count), static_cast<double>(sum));
    if (both > 0) ratio = smaller(ratio, __ddiv_rn(met, both));
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) ratio = smaller(ratio, __shfl_xor_sync(ALL, ratio, offset));
  if (lane == 0) least[warp] = ratio;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < WARPS; ++w) ratio = smaller(ratio, least[w]);
  overlap[blockIdx.x] = ratio;
}
