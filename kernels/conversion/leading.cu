// The leading bits of multiprecision rows as float64, scaled row by row: all that describing and proving need of them
// (docs/definitions.md, section 8).
//
// Macro: ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows (whichever is contiguous in memory).
//
// record is int64 [8][batch * rows], of which these kernels know three rows: [4], `bottom` of the description; [6], the
// row's top, the smallest e with abs(x) < 2^e; and [7]. Before the first kernel rows 6 and 7 are zero.
// 1. row_tops: [6] becomes FAR + top, and stays 0 for a row of zeros.
// 2. leading: `out` (strides ob, or, ok) becomes 2^-top x, cut to 53 bits, the last of which is set if bits were cut
//    off that are not zero; nonzero elements below 2^-1000 get that magnitude. [7] becomes FAR less the largest e for
//    which all elements of the row are multiples of 2^e.
// 3. row_bottoms, after the description of `out`: [6] becomes top, 0 for a row of zeros, and [4] that largest e - top
//    where the row is not all zeros.
//
// 256 threads; grid of the first two batch * ceil(rows / ROWS) * ceil(k / DEPTH), all on x: a block owns ROWS x DEPTH
// elements; along k a warp has a row, along the rows a lane has one. Grid of row_bottoms ceil(batch * rows / 256).
#include "arithmetic/numbers.cuh"
#include "hardware/launch.cuh"

constexpr unsigned long long FAR = 1ull << 62;  // exponents are far below this
constexpr int WARPS = 8, EACH = 16;             // elements of a thread
constexpr int ROWS = ALONG_K ? WARPS : 32, DEPTH = EACH * (ALONG_K ? 32 : WARPS);
constexpr int64_t BOTTOM = 4, TOP = 6, LEAST = 7;

// The elements that a thread owns: `each(h)` of row `row` of matrix b.
struct Share {
  int64_t b, row, h0, rows, k;

  __device__ __forceinline__ Share(int64_t rows, int64_t k) : rows(rows), k(k) {
    const uint32_t groups = static_cast<uint32_t>((rows + ROWS - 1) / ROWS);
    const uint32_t depths = static_cast<uint32_t>((k + DEPTH - 1) / DEPTH);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const uint32_t inner = ALONG_K ? depths : groups, rest = blockIdx.x / inner, at = blockIdx.x % inner;
    const uint32_t outer = ALONG_K ? groups : depths;
    const uint32_t group = ALONG_K ? rest % outer : at, depth = ALONG_K ? at : rest % outer;
    b = rest / outer;
    row = static_cast<int64_t>(group) * ROWS + (ALONG_K ? warp : lane);
    h0 = static_cast<int64_t>(depth) * DEPTH + (ALONG_K ? lane : warp);
  }
  template <typename F> __device__ __forceinline__ void each(F f) const {
    if (row >= rows) return;
    for (int i = 0; i < EACH; ++i) {
      const int64_t h = h0 + i * (ALONG_K ? 32 : WARPS);
      if (h < k) f(h);
    }
  }
};

// The largest value of all threads that share a row goes to `to`, unless it is 0.
__device__ __forceinline__ void keep_largest(unsigned long long* to, unsigned long long value, bool inside) {
#if ALONG_K
#pragma unroll
  for (int i = 16; i > 0; i /= 2) {
    const unsigned long long other = __shfl_xor_sync(ALL, value, i);
    value = larger(value, other);
  }
  if ((threadIdx.x & 31) != 0) return;
#endif
  if (inside && value != 0) atomicMax(to, value);
}

extern "C" __global__ void __launch_bounds__(256)
row_tops(const NumbersView x, int64_t batch, int64_t rows, int64_t k, unsigned long long* __restrict__ record) {
  after_previous();
  const Share share(rows, k);
  unsigned long long top = 0;
  share.each([&](int64_t h) {
    const int64_t at = share.b * x.sb + share.row * x.sr + h * x.sk;
    if (x.signs[at] != 0) top = larger(top, FAR + static_cast<unsigned long long>(x.exponents[at]));
  });
  keep_largest(record + TOP * batch * rows + share.b * rows + share.row, top, share.row < rows);
}

extern "C" __global__ void __launch_bounds__(256)
leading(const NumbersView x, int64_t batch, int64_t rows, int64_t k, unsigned long long* __restrict__ record,
        uint64_t* __restrict__ out, int64_t ob, int64_t orow, int64_t ok) {
  after_previous();
  const Share share(rows, k);
  unsigned long long* const of_row = record + share.b * rows + share.row;
  const int64_t top = share.row < rows ? static_cast<int64_t>(of_row[TOP * batch * rows] - FAR) : 0;
  unsigned long long least = 0;
  share.each([&](int64_t h) {
    const int64_t at = share.b * x.sb + share.row * x.sr + h * x.sk;
    const Number element(x, at);
    uint64_t bits = 0;
    if (element.sign != 0) {
      int last = element.count - 1;
      while (element.limb(last) == 0) --last;
      const uint32_t limb = element.limb(last);
      const int length = 32 * (last + 1) - (bit_length(limb & -limb) - 1);  // of the fraction
      const uint64_t head = static_cast<uint64_t>(element.limb(0)) << 32 | element.limb(1);
      const uint64_t kept = head >> 11 | (length > 53 ? 1 : 0);
      const int exponent = static_cast<int>(larger<int64_t>(element.exponent - top, -1000));
      bits = (element.sign < 0 ? 1ull << 63 : 0) | static_cast<uint64_t>(exponent + 1022) << 52 |
             (kept & ((1ull << 52) - 1));
      least = larger(least, FAR - static_cast<unsigned long long>(element.exponent - length));
    }
    out[share.b * ob + share.row * orow + h * ok] = bits;
  });
  keep_largest(of_row + LEAST * batch * rows, least, share.row < rows);
}

extern "C" __global__ void __launch_bounds__(256) row_bottoms(int64_t* __restrict__ record, int64_t count) {
  after_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (row >= count) return;
  int64_t* const of_row = record + row;
  const int64_t found = of_row[TOP * count], far = static_cast<int64_t>(FAR);
  const int64_t top = found == 0 ? 0 : found - far;
  of_row[TOP * count] = top;
  if (found != 0) of_row[BOTTOM * count] = far - of_row[LEAST * count] - top;
}
