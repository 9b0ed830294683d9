// What a part of rows says for the description of the whole rows (docs/definitions.md, section 1): it merges with what
// other parts say by maximum, then by addition (ozaki/bounds/merging.py). All of it is integers, so neither the grid
// nor the order in which anything is put together changes a bit.
//
// Macros: INPUT (double or float); REALS: 1, or 2 if an element is complex; ALONG_K: 1 if neighbouring threads read
// along k, 0 if along the rows (whichever is contiguous in memory).
//
// x is a view (rows, k) of real numbers, k those of the part, with strides sr, sk of any sign; REALS neighbours along
// k, the parts of an element, are neighbours in memory, and sk is the stride from one element to the next.
//
// 256 threads: 8 rows of a warp each, or 32 rows of a lane in each warp. Grid (ceil(rows / R), any number), R = 8 or 32;
// blocks of the second axis take DEPTH numbers in turn.
#include "conversion/describing.cuh"
#include "hardware/launch.cuh"

typedef unsigned long long Count;
constexpr int DEPTH = 2048, STEP = ALONG_K ? 32 : 8;

// The numbers of the row that this thread reads, one after the other.
struct Own {
  int64_t row, k;

  __device__ __forceinline__ Own(int64_t k) : k(k) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    row = ALONG_K ? static_cast<int64_t>(blockIdx.x) * 8 + warp : static_cast<int64_t>(blockIdx.x) * 32 + lane;
  }
  template <typename F> __device__ __forceinline__ void each(const INPUT* x, int64_t sr, int64_t sk, F f) const {
    const Bits* const at = reinterpret_cast<const Bits*>(x + row * sr);
    const int own = ALONG_K ? threadIdx.x & 31 : threadIdx.x >> 5;
#pragma unroll 1
    for (int64_t first = static_cast<int64_t>(blockIdx.y) * DEPTH; first < k;
         first += static_cast<int64_t>(gridDim.y) * DEPTH) {
      const int64_t end = smaller(first + DEPTH, k);
#pragma unroll 2
      for (int64_t h = first + own; h < end; h += STEP) f(at[h / REALS * sk + h % REALS]);
    }
  }
};

// The bits, as float64, of a number that is not negative.
__device__ __forceinline__ Count wide(uint64_t bits) { return bits; }
__device__ __forceinline__ Count wide(uint32_t bits) {  // exact: a product by a power of two
  const Parts p = parts(bits);
  return bits_of(static_cast<double>(p.mantissa) * double_of(static_cast<uint64_t>(p.exponent + 1023) << 52));
}

// Whether this thread has the result of its row: of a warp that shares one, its first lane.
__device__ __forceinline__ bool has_result() { return !ALONG_K || (threadIdx.x & 31) == 0; }

// First, of each row: the bits of its largest magnitude as float64, and the largest complement of the bits of a nonzero
// one. out is uint64 [2][rows], zeros before.
extern "C" __global__ void __launch_bounds__(256)
extremes_of_parts(const INPUT* __restrict__ x, int64_t sr, int64_t sk, int64_t rows, int64_t k, Count* __restrict__ out) {
  after_previous();
  const Own own(k);
  Count largest = 0, least = 0;
  if (own.row < rows) own.each(x, sr, sk, [&](Bits bits) {
    if (!parts(bits).finite) return;
    const Bits magnitude = bits & (~Bits(0) >> 1);
    if (magnitude == 0) return;
    const Count found = wide(magnitude);
    largest = larger(largest, found);
    least = larger(least, ~found);
  });
#if ALONG_K
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = larger(largest, __shfl_xor_sync(ALL, largest, offset));
    least = larger(least, __shfl_xor_sync(ALL, least, offset));
  }
#endif
  if (own.row >= rows || !has_result() || largest == 0) return;
  atomicMax(out + own.row, largest);
  atomicMax(out + rows + own.row, least);
}

// Then, relative to the top of the whole row: magnitudes, squares, how many are no multiples of the unit, how many are
// NaN or Inf. out is [4][rows], zeros before.
extern "C" __global__ void __launch_bounds__(256)
sums_of_parts(const INPUT* __restrict__ x, int64_t sr, int64_t sk, int64_t rows, int64_t k,
              const int32_t* __restrict__ tops, int width, Count* __restrict__ out) {
  after_previous();
  const Own own(k);
  Count sums[4] = {};
  if (own.row < rows) {
    const int top = tops[own.row];
    own.each(x, sr, sk, [&](Bits bits) {
      const Parts p = parts(bits);
      const Rounded y = ceil_magnitude(p, width, top);
      sums[0] += y.value;
      sums[1] += static_cast<Count>(y.value) * y.value;
      sums[2] += y.inexact;
      sums[3] += !p.finite;
    });
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if ALONG_K
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sums[i] += __shfl_xor_sync(ALL, sums[i], offset);
#endif
    if (own.row < rows && has_result() && sums[i] != 0) atomicAdd(out + i * rows + own.row, sums[i]);
  }
}
