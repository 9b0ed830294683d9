// Roughly the product of some rows of A and columns of B, and the descriptions of these, from which the host foretells how
// many entries will be undecided (docs/bounds.md, B14; ozaki/bounds/sampled_products.py).
//
// Element x of a row, abs(x) < 2^top, is cut to PARTS parts of `width` bits, which count from 2^top down. Entry (g, r, s)
// of `products` is, with the sums S_q of all products of two parts whose numbers have the sum q,
//   ((S_0 2^width + S_1) 2^width + S_2) 2^(-4 width),
// in units of 2^(top + top of the column); the S_q are exact, whatever the order. That of `largest` is the largest sum of
// the exponents of two elements that are multiplied, less both tops; NONE or less if no product is nonzero. NaN and Inf
// count as 0.
//
// Of each operand, a view (batch, rows, k), `matrices` matrices and `some` of their rows are looked at: index i of `count`
// is i if there are no more than these, else (i GOLDEN mod 2^32) size / 2^32, rounded down. products is float64, largest
// int64, [the more matrices of both][some of A][some of B], described int64 [6][matrices][some]: memory of the host.
//
// Macros: INPUT_A, INPUT_B (double or float); INNER: 1 if rows are scaled along k, by factors[batch][k], else 0.
//
// 256 threads; grid (ceil(some of B / 4), ceil(some of A / 4), matrices). A block has four rows and four columns, its
// threads share their inner indices. 1. Sums of a thread; 2. of a warp; 3. of the block.
#include "arithmetic/fixed_point.cuh"
#include "hardware/launch.cuh"

constexpr int PARTS = 3, SIDE = 4, FIELDS = 6, WARPS = 8;
constexpr int NONE = -(1 << 20);

struct Operand {
  const void* x;
  int64_t sb, sr, sk, batch, rows;
  const int64_t* fields;  // [FIELDS][batch * rows]
  const double* factors;  // not read unless INNER
  int64_t matrices, some;
  int64_t* described;

  __device__ __forceinline__ static int64_t index(int64_t i, int64_t count, int64_t size) {
    if (size <= count) return i;
    return static_cast<int64_t>((i * 2654435769ull & ALL) * static_cast<uint64_t>(size) >> 32);
  }
};

// Four rows of a matrix of an operand; those beyond the last one are the last one again.
template <typename Input> struct Rows {
  typedef typename BitsOf<Input>::type Bits;
  const Bits* row[SIDE];
  const double* factors;
  int64_t sk;
  int top[SIDE];

  __device__ __forceinline__ Rows(const Operand& of, int64_t group, int64_t first, bool writes) : sk(of.sk) {
    const int64_t g = of.matrices > 1 ? group : 0, b = Operand::index(g, of.matrices, of.batch);
    factors = of.factors;
#pragma unroll
    for (int i = 0; i < SIDE; ++i) {
      const int64_t r = smaller(first + i, of.some - 1), at = Operand::index(r, of.some, of.rows);
      row[i] = static_cast<const Bits*>(of.x) + b * of.sb + at * of.sr;
      top[i] = static_cast<int>(of.fields[b * of.rows + at]);
      if (writes && threadIdx.x < FIELDS)
        of.described[(threadIdx.x * of.matrices + g) * of.some + r] =
            of.fields[threadIdx.x * of.batch * of.rows + b * of.rows + at];
    }
  }
  __device__ __forceinline__ Bits load(int i, int64_t t) const { return row[i][t * sk]; }

  // The parts of an element of row i, as numbers; returns its exponent less the row's top, NONE of zero.
  __device__ __forceinline__ int cut(Bits bits, int i, double factor, int width, double (&of_element)[PARTS]) const {
#if INNER
    bits = scaled_bits(bits, factor);
#endif
    const Parts p = parts(bits);
    const uint64_t whole = floor_scaled(p.mantissa, p.exponent + PARTS * width - top[i]);
#pragma unroll
    for (int j = 0; j < PARTS; ++j) {
      const int part = static_cast<int>(whole >> (PARTS - 1 - j) * width & ((1u << width) - 1));
      of_element[j] = static_cast<double>(p.negative ? -part : part);
    }
    return p.mantissa == 0 ? NONE : top_exponent(p) - top[i];
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
crossings(const Operand a, const Operand b, double* __restrict__ products, int64_t* __restrict__ largest, int64_t k,
          int width) {
  after_previous();
  __shared__ double of_warps[WARPS][PARTS][SIDE * SIDE];
  __shared__ int exponents[WARPS][SIDE * SIDE];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = SIDE * static_cast<int64_t>(blockIdx.y), column = SIDE * static_cast<int64_t>(blockIdx.x);
  const Rows<INPUT_A> left(a, blockIdx.z, row, blockIdx.x == 0);
  const Rows<INPUT_B> right(b, blockIdx.z, column, blockIdx.y == 0);

  // 1.
  double sums[PARTS][SIDE][SIDE] = {};
  int most[SIDE][SIDE];
#pragma unroll
  for (int e = 0; e < SIDE * SIDE; ++e) most[e / SIDE][e % SIDE] = 2 * NONE;
  const auto load = [&](int64_t t, typename Rows<INPUT_A>::Bits (&x)[SIDE], typename Rows<INPUT_B>::Bits (&y)[SIDE]) {
#pragma unroll
    for (int i = 0; i < SIDE; ++i) x[i] = t < k ? left.load(i, t) : 0;
#pragma unroll
    for (int i = 0; i < SIDE; ++i) y[i] = t < k ? right.load(i, t) : 0;
  };
  // The elements that come next are loaded before those of now are used.
  typename Rows<INPUT_A>::Bits next_x[SIDE];
  typename Rows<INPUT_B>::Bits next_y[SIDE];
  load(threadIdx.x, next_x, next_y);
#pragma unroll 1
  for (int64_t t = threadIdx.x; t < k; t += 32 * WARPS) {
    typename Rows<INPUT_A>::Bits x[SIDE];
    typename Rows<INPUT_B>::Bits y[SIDE];
#pragma unroll
    for (int i = 0; i < SIDE; ++i) x[i] = next_x[i], y[i] = next_y[i];
    load(t + 32 * WARPS, next_x, next_y);
#if INNER
    const int64_t at = Operand::index(blockIdx.z, a.matrices, a.batch) * k + t;
    const double of_left = left.factors[at], of_right = right.factors[at];
#else
    const double of_left = 1.0, of_right = 1.0;
#endif
    double parts_of_y[SIDE][PARTS];
    int exponents_of_y[SIDE];
#pragma unroll
    for (int j = 0; j < SIDE; ++j) exponents_of_y[j] = right.cut(y[j], j, of_right, width, parts_of_y[j]);
#pragma unroll
    for (int i = 0; i < SIDE; ++i) {
      double of_x[PARTS];
      const int exponent = left.cut(x[i], i, of_left, width, of_x);
#pragma unroll
      for (int j = 0; j < SIDE; ++j) most[i][j] = larger(most[i][j], exponent + exponents_of_y[j]);
#pragma unroll
      for (int j = 0; j < SIDE; ++j)
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
#pragma unroll
          for (int q = 0; p + q < PARTS; ++q) sums[p + q][i][j] = fused(of_x[p], parts_of_y[j][q], sums[p + q][i][j]);
    }
  }

  // 2.
#pragma unroll
  for (int q = 0; q < PARTS; ++q)
#pragma unroll
    for (int e = 0; e < SIDE * SIDE; ++e) {
      double sum = sums[q][e / SIDE][e % SIDE];
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(ALL, sum, mask);
      if (lane == 0) of_warps[warp][q][e] = sum;
    }
#pragma unroll
  for (int e = 0; e < SIDE * SIDE; ++e) {
    int exponent = most[e / SIDE][e % SIDE];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) exponent = larger(exponent, __shfl_xor_sync(ALL, exponent, mask));
    if (lane == 0) exponents[warp][e] = exponent;
  }
  __syncthreads();

  // 3.
  const int e = threadIdx.x;
  if (e >= SIDE * SIDE || row + e / SIDE >= a.some || column + e % SIDE >= b.some) return;
  const double scale = static_cast<double>(1u << width);
  double product = 0.0;
#pragma unroll
  for (int q = 0; q < PARTS; ++q) {
    double sum = 0.0;
    for (int w = 0; w < WARPS; ++w) sum += of_warps[w][q][e];
    product = fused(product, scale, sum);
  }
  const double unit = double_of(static_cast<uint64_t>(1023 - (PARTS + 1) * width) << 52);
  int exponent = 2 * NONE;
  for (int w = 0; w < WARPS; ++w) exponent = larger(exponent, exponents[w][e]);
  const int64_t at = (blockIdx.z * a.some + row + e / SIDE) * b.some + column + e % SIDE;
  products[at] = product * unit;
  largest[at] = exponent;
}
