// The last step of gemm by a product that is rounded already: out = alpha x + beta y. Both factors, both products and
// their sum are rounded to nearest, each once.
//
// Macros: OUTPUT (double or float), of x and out; ADDEND (double or float), of y; ADD: 0 if there is no addend: then
// out = alpha x, and y is not read; 2 if x is not read: then out = 0 + beta y, rounded once.
//
// x and out are contiguous rows of `cols` entries; out may be x. y(b, i, col) = y[b * y_batch + i * y_row + col *
// y_col], i = 0 .. rows - 1; out may be y where y is contiguous, too.
//
// 256 threads; grid (rows of all batch entries) * ceil(cols / SPAN), all on x. A block owns SPAN entries of a row.
#include "arithmetic/combination.cuh"
#include "hardware/launch.cuh"

constexpr int PACK = 16 / sizeof(OUTPUT), TURNS = 4, SPAN = 256 * PACK * TURNS;

// Neighbouring entries that a thread loads at once.
template <typename T> struct alignas(PACK * sizeof(T)) Pack {
  T x[PACK];
};

__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double sum(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float sum(float a, float b) { return __fadd_rn(a, b); }

__device__ __forceinline__ OUTPUT expression(OUTPUT alpha, OUTPUT x, OUTPUT beta, ADDEND y) {
  return ADD ? sum(product(alpha, x), product(beta, static_cast<OUTPUT>(y))) : product(alpha, x);
}

// beta y, rounded once also where beta or y have more bits than the result. A zero is +0.
__device__ __forceinline__ void store_multiple(OUTPUT* out, double beta, ADDEND y) {
  const uint32_t nothing[1] = {0};
  if (is_finite(beta))
    *reinterpret_cast<BitsOf<OUTPUT>::type*>(out) = combined_or_special<OUTPUT>(nothing, 0, 0.0, beta, y);
  else
    *out = product(static_cast<OUTPUT>(beta), static_cast<OUTPUT>(y));
}

template <typename T> __device__ __forceinline__ bool aligned(const T* p) {
  return reinterpret_cast<uint64_t>(p) % sizeof(Pack<T>) == 0;
}

extern "C" __global__ void __launch_bounds__(256)
axpby(double alpha_given, const OUTPUT* x, double beta_given, const ADDEND* y, OUTPUT* out, int64_t rows, int64_t cols,
      int64_t y_batch, int64_t y_row, int64_t y_col) {
  after_previous();
  const OUTPUT alpha = static_cast<OUTPUT>(alpha_given), beta = static_cast<OUTPUT>(beta_given);
  const uint32_t across = static_cast<uint32_t>((cols + SPAN - 1) / SPAN);
  const int64_t row = blockIdx.x / across, first = static_cast<int64_t>(blockIdx.x % across) * SPAN;
  x += row * cols + first;
  out += row * cols + first;
  y += row / rows * y_batch + row % rows * y_row + first * y_col;
#if ADD == 2
  const int end = static_cast<int>(smaller<int64_t>(SPAN, cols - first));
  for (int i = threadIdx.x; i < end; i += 256) store_multiple(out + i, beta_given, y[i * y_col]);
  return;
#endif
  // A whole aligned span: 16 bytes at a time, all loads before the first store. Else entry by entry.
  if (first + SPAN <= cols && aligned(x) && aligned(out) && (!ADD || (y_col == 1 && aligned(y)))) {
    Pack<OUTPUT> left[TURNS];
    Pack<ADDEND> right[TURNS];
#pragma unroll
    for (int i = 0; i < TURNS; ++i) {
      const int at = 256 * i + threadIdx.x;
      left[i] = reinterpret_cast<const Pack<OUTPUT>*>(x)[at];
      if (ADD) right[i] = reinterpret_cast<const Pack<ADDEND>*>(y)[at];
    }
#pragma unroll
    for (int i = 0; i < TURNS; ++i) {
#pragma unroll
      for (int j = 0; j < PACK; ++j) left[i].x[j] = expression(alpha, left[i].x[j], beta, right[i].x[j]);
      reinterpret_cast<Pack<OUTPUT>*>(out)[256 * i + threadIdx.x] = left[i];
    }
  } else {
    const int last = static_cast<int>(smaller<int64_t>(SPAN, cols - first));
    for (int i = threadIdx.x; i < last; i += 256)
      out[i] = expression(alpha, x[i], beta, ADD ? y[i * y_col] : ADDEND(0));
  }
}
