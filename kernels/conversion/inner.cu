// Factors of the inner indices of operands that are scaled along k (docs/definitions.md, section 10).
//
// A is a view (batch, rows, k), and so are the columns of B, with strides sb, sr, sk of any sign, in real numbers; the
// imaginary part of a complex element follows its real part.
//
//   exponents  of one operand: the frexp exponents of its finite nonzero numbers at each inner index, int64
//              [4][batch][k]: their number, their sum, the largest of RAISED - e, and the largest of RAISED + e. The
//              caller sets all to zero first. All are integers: grid and order change no bit.
//   factors    of both: 2^s and 2^-s, or 0 where an index does not count, float64 [batch][k] each; and the largest
//              difference of two s of a matrix, an integer that the caller sets to zero first
//   own        of an operand that is prepared alone: 2^-(the mean exponent at an index), or 0 where there is none
//   beside     of the other one: the inverses of these; and whether scaled elements leave the reach of their format
#include "arithmetic/fixed_point.cuh"
#include "hardware/launch.cuh"

typedef unsigned long long Count;

constexpr int RAISED = 4096;  // more than any exponent

#ifdef INPUT

constexpr int WARPS = 8;

// Macros: INPUT (double or float); REALS: 1, or 2 if elements are complex; ALONG_K: 1 if neighbouring threads read
// along k, 0 if along the rows (whichever is contiguous in memory).
//
// 256 threads. ALONG_K = 1: grid batch * ceil(k / 32) * ceil(rows / 512), a lane owns an inner index, the warps share
// 512 rows. 0: grid batch * ceil(k / 8), a warp owns an inner index, the lanes share its rows.
typedef BitsOf<INPUT>::type Bits;

struct Found {
  Count number;
  long long total;
  int least, largest;

  __device__ __forceinline__ void include(Bits bits) {
    const Parts p = parts(bits);
    if (!p.finite || p.mantissa == 0) return;
    const int e = top_exponent(p);
    number += 1;
    total += e;
    least = larger(least, RAISED - e);
    largest = larger(largest, RAISED + e);
  }
  __device__ __forceinline__ void merge(const Found& other) {
    number += other.number;
    total += other.total;
    least = larger(least, other.least);
    largest = larger(largest, other.largest);
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
exponents(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows, int64_t k,
          long long* __restrict__ out) {
  after_previous();
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t step = batch * k;
  Found found = {0, 0, 0, 0};
#if ALONG_K
  constexpr int64_t ROWS = 512;
  __shared__ Found shared[WARPS][32];
  const uint32_t over = static_cast<uint32_t>((k + 31) / 32), down = static_cast<uint32_t>((rows + ROWS - 1) / ROWS);
  const uint32_t at_k = blockIdx.x % over, rest = blockIdx.x / over;
  const int64_t h = static_cast<int64_t>(at_k) * 32 + lane, first = static_cast<int64_t>(rest % down) * ROWS;
  const int64_t b = rest / down, last = smaller(first + ROWS, rows);
  if (h < k) {
    const Bits* const column = reinterpret_cast<const Bits*>(x) + b * sb + h * sk;
#pragma unroll 4
    for (int64_t row = first + warp; row < last; row += WARPS)
#pragma unroll
      for (int part = 0; part < REALS; ++part) found.include(column[row * sr + part]);
  }
  shared[warp][lane] = found;
  __syncthreads();
  if (warp != 0 || h >= k) return;
  for (int i = 1; i < WARPS; ++i) found.merge(shared[i][lane]);
  long long* const to = out + b * k + h;
  if (found.number == 0) return;
  atomicAdd(reinterpret_cast<Count*>(to), found.number);
  atomicAdd(reinterpret_cast<Count*>(to + step), static_cast<Count>(found.total));
  atomicMax(reinterpret_cast<Count*>(to + 2 * step), static_cast<Count>(found.least));
  atomicMax(reinterpret_cast<Count*>(to + 3 * step), static_cast<Count>(found.largest));
#else
  const uint32_t over = static_cast<uint32_t>((k + WARPS - 1) / WARPS);
  const int64_t h = static_cast<int64_t>(blockIdx.x % over) * WARPS + warp, b = blockIdx.x / over;
  if (h >= k) return;
  const Bits* const row = reinterpret_cast<const Bits*>(x) + b * sb + h * sk;
#pragma unroll 4
  for (int64_t i = lane; i < rows; i += 32)
#pragma unroll
    for (int part = 0; part < REALS; ++part) found.include(row[i * sr + part]);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    Found other;
    other.number = __shfl_xor_sync(ALL, found.number, offset);
    other.total = __shfl_xor_sync(ALL, found.total, offset);
    other.least = __shfl_xor_sync(ALL, found.least, offset);
    other.largest = __shfl_xor_sync(ALL, found.largest, offset);
    found.merge(other);
  }
  if (lane != 0) return;
  long long* const to = out + b * k + h;
  to[0] = static_cast<long long>(found.number), to[step] = found.total;
  to[2 * step] = found.least, to[3 * step] = found.largest;
#endif
}

#else

struct Side {
  const long long* exponents;  // as `exponents` leaves them
  double* factors;
  long long reach;             // largest magnitude of s, and of the exponents of scaled elements in this format
};

__device__ __forceinline__ long long mean(const long long* exponents, int64_t step) {  // rounded down
  const long long number = exponents[0], total = exponents[step], quotient = total / number;
  return quotient - (quotient * number > total ? 1 : 0);
}

// Whether exponents that are shifted stay within reach.
__device__ __forceinline__ bool within(const Side& side, int64_t at, int64_t step, long long shift) {
  const long long least = RAISED - side.exponents[at + 2 * step], largest = side.exponents[at + 3 * step] - RAISED;
  return least + shift >= -side.reach && largest + shift <= side.reach;
}

// 1024 threads; grid batch: a block for each matrix, in which s is 0 if some exponent leaves the reach of a format.
extern "C" __global__ void __launch_bounds__(1024)
factors(const Side left, const Side right, Count* __restrict__ range, int64_t batch, int64_t k) {
  after_previous();
  __shared__ int extremes[2];  // the largest RAISED - s and RAISED + s
  if (threadIdx.x == 0) extremes[0] = extremes[1] = 0;
  __syncthreads();
  int least = 0, largest = 0;
  const int64_t step = batch * k, begin = blockIdx.x * k;
  const long long most = smaller(left.reach, right.reach);
  bool leaves = false;
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t h = threadIdx.x; h < k; h += 1024) {
      const int64_t at = begin + h;
      const bool counts = left.exponents[at] != 0 && right.exponents[at] != 0;
      long long s = 0;
      if (counts) s = (mean(right.exponents + at, step) - mean(left.exponents + at, step)) >> 1;
      if (pass == 0) {
        const bool fits = s <= most && s >= -most && within(left, at, step, s) && within(right, at, step, -s);
        leaves = leaves || (counts && !fits);
      } else {
        if (leaves) s = 0;
        if (counts) {
          least = larger(least, RAISED - static_cast<int>(s));
          largest = larger(largest, RAISED + static_cast<int>(s));
        }
        left.factors[at] = counts ? __longlong_as_double((s + 1023) << 52) : 0.0;
        right.factors[at] = counts ? __longlong_as_double((1023 - s) << 52) : 0.0;
      }
    }
    if (pass == 0) leaves = __syncthreads_or(leaves) != 0;
  }
  atomicMax(extremes, least);
  atomicMax(extremes + 1, largest);
  __syncthreads();
  if (threadIdx.x == 0 && extremes[1] != 0) {
    atomicMax(range, static_cast<Count>(extremes[0] + extremes[1] - 2 * RAISED));
  }
}

// 1024 threads; grid batch.
extern "C" __global__ void __launch_bounds__(1024)
own(const Side side, int64_t batch, int64_t k) {
  after_previous();
  const int64_t step = batch * k, begin = blockIdx.x * k;
  bool leaves = false;
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t at = begin + threadIdx.x; at < begin + k; at += 1024) {
      const bool counts = side.exponents[at] != 0;
      long long s = counts ? -mean(side.exponents + at, step) : 0;
      if (pass == 0) {
        const bool fits = s <= side.reach && s >= -side.reach && within(side, at, step, s);
        leaves = leaves || (counts && !fits);
      } else {
        if (leaves) s = 0;
        side.factors[at] = counts ? __longlong_as_double((s + 1023) << 52) : 0.0;
      }
    }
    if (pass == 0) leaves = __syncthreads_or(leaves) != 0;
  }
}

// 256 threads; grid ceil(batch k / 256). `given` are the factors of the prepared operand, for `own_batch` matrices, 1 or
// all; `leaves` is set to 1 where an element leaves the reach. The caller sets it to zero first.
extern "C" __global__ void __launch_bounds__(256)
beside(const Side side, const double* __restrict__ given, Count* __restrict__ leaves, int64_t own_batch, int64_t batch,
       int64_t k) {
  after_previous();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (at >= batch * k) return;
  const double factor = given[own_batch == 1 ? at % k : at];
  if (factor == 0.0) {
    side.factors[at] = 0.0;
    return;
  }
  const long long s = 1023 - (__double_as_longlong(factor) >> 52 & 0x7ff);
  side.factors[at] = __longlong_as_double((s + 1023) << 52);
  if (side.exponents[at] != 0 && !within(side, at, batch * k, s)) atomicMax(leaves, static_cast<Count>(1));
}

#endif
