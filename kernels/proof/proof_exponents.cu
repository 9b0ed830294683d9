// A lower bound of (abs(A) abs(B))_ij by exponents alone, for entries where the product of wide magnitudes is zero
// (docs/bounds.md, B7, item 4).
#include "arithmetic/fixed_point.cuh"
#include "hardware/launch.cuh"

// Macros: INPUT_A and INPUT_B (double or float); REALS: 1, or 2 if elements are complex. Then the larger part of an
// element stands for it. INNER: 1 if rows are scaled along k: x stands for its products by factors[batch][k].
//
// L (`lower`) is float64 [batch][rows][ld], the product of wide magnitudes. An entry that is zero is replaced by
// 2^(raised + e), e the largest e_ih + e_hj over h, where 2^e_ih <= abs(a_ih) 2^-top_i is the leading power of two of
// an element: one term of the sum bounds the sum. The new value is 0 if that power is below float64's range, and Inf if
// all products are zero (such an entry has no error). NaN and Inf count as zeros. Of rows that are the leading bits of
// multiprecision ones an element below 2^(top - 1000) may be far smaller than it seems (conversion/leading.cu): `least`
// is then -1000, and an element with a smaller e bounds nothing.
//
// 256 threads; grid batch * ceil(p.rows / 64) * ceil(q.rows / 64), all on x. A block owns 64 x 64 entries of L, a warp
// 8 x 64, a thread 4 x 4. Phases:
// 1. Read the entries. A block without zeros exits (most do); a warp without zeros only helps to load.
// 2. Slab by slab of DEPTH indices of k: put the exponents of 64 rows of both operands into shared memory; warps with
//    zeros take the maximum of sums. Slabs in which either operand has nothing but zeros are skipped.
// 3. Store the new values of the zeros.
template <typename T> struct Rows {
  const T* x;                  // element h of row r of batch entry b at b * sb + r * sr + h * sk, in real numbers
  const int64_t* description;  // of which only top is read, at b * step + r
  int64_t rows, step, sb, sr, sk;
  int64_t least;               // of the exponents that are known
#if INNER
  const double* factors;
#endif
};

constexpr int TILE = 64, DEPTH = 32;
constexpr int LD = TILE + 4;  // padding: writes along k fall into different banks
constexpr uint64_t INFINITE = 0x7ffull << 52;
constexpr int NOTHING = 2 * EMPTY_TOP;  // exponent of a zero: a sum with it is below every sum of two real exponents

// The largest e with 2^e <= abs(x) 2^-top; NOTHING for zeros, NaN and Inf.
template <typename Bits> __device__ __forceinline__ int leading_exponent(Bits bits, int top) {
  const Parts p = parts(bits);
  return p.mantissa == 0 ? NOTHING : top_exponent(p) - 1 - top;
}

// Writes the exponents of DEPTH elements of TILE rows to shared memory; returns whether any of those that this thread
// has loaded is nonzero.
template <typename T>
__device__ __forceinline__ bool stage(int (&to)[DEPTH][LD], const Rows<T>& from, int64_t b, int64_t row0, int64_t h0,
                                      int64_t k) {
  typedef typename BitsOf<T>::type Bits;
  const bool along_k = larger(from.sk, -from.sk) <= larger(from.sr, -from.sr);
  bool any = false;
#pragma unroll 4
  for (int i = 0; i < TILE * DEPTH / 256; ++i) {
    const int at = i * 256 + static_cast<int>(threadIdx.x);
    const int h = along_k ? at % DEPTH : at / TILE, row = along_k ? at / DEPTH : at % TILE;
    int e = NOTHING;
    if (row0 + row < from.rows && h0 + h < k) {
      const Bits* const bits = reinterpret_cast<const Bits*>(from.x) + b * from.sb + (row0 + row) * from.sr;
      Bits element = larger_part<REALS>(bits + (h0 + h) * from.sk);
#if INNER
      element = scaled_bits(element, from.factors[b * k + h0 + h]);
#endif
      e = leading_exponent(element, static_cast<int>(from.description[b * from.step + row0 + row]));
      if (e < from.least && e != NOTHING) e = EMPTY_TOP + 1;  // a power that is zero in float64
    }
    to[h][row] = e;
    any = any || e != NOTHING;
  }
  return any;
}

// The bits of the float64 2^e; 0 where e is below the smallest subnormal's.
__device__ __forceinline__ uint64_t power_of_two(int e) {
  if (e >= -1022) return static_cast<uint64_t>(e + 1023) << 52;
  return e >= -1074 ? 1ull << (e + 1074) : 0ull;
}

extern "C" __global__ void __launch_bounds__(256, 3)
lower_by_exponents(const Rows<INPUT_A> p, const Rows<INPUT_B> q, double* lower, int64_t k, int64_t rows, int64_t ld,
                   int raised) {
  after_previous();
  const uint32_t down = static_cast<uint32_t>((p.rows + TILE - 1) / TILE);
  const uint32_t over = static_cast<uint32_t>((q.rows + TILE - 1) / TILE);
  const uint32_t tile = blockIdx.x / over;
  const int64_t b = tile / down;
  const int64_t row0 = static_cast<int64_t>(tile % down) * TILE, col0 = static_cast<int64_t>(blockIdx.x % over) * TILE;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, col = static_cast<int>(threadIdx.x) % 16 * 4;
  lower += (b * rows + row0 + row) * ld + col0 + col;

  // 1. A bit for each zero among this thread's entries.
  uint32_t zeros = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (row0 + row + i < p.rows && col0 + col + j < q.rows && lower[i * ld + j] == 0) zeros |= 1u << (4 * i + j);
  if (!__syncthreads_or(zeros != 0)) return;
  const bool idle = __all_sync(0xffffffffu, zeros == 0);

  // 2. The largest sum of exponents.
  __shared__ __align__(16) int of_rows[DEPTH][LD];
  __shared__ __align__(16) int of_cols[DEPTH][LD];
  int best[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) best[i][j] = NOTHING;
  for (int64_t h0 = 0; h0 < k; h0 += DEPTH) {
    const bool any_row = stage(of_rows, p, b, row0, h0, k), any_col = stage(of_cols, q, b, col0, h0, k);
    if (__syncthreads_or(any_row) && __syncthreads_or(any_col) && !idle) {
#pragma unroll 4
      for (int h = 0; h < DEPTH; ++h) {
        const int4 x = *reinterpret_cast<const int4*>(&of_rows[h][row]);
        const int4 y = *reinterpret_cast<const int4*>(&of_cols[h][col]);
        const int of_row[4] = {x.x, x.y, x.z, x.w}, of_col[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) best[i][j] = larger(best[i][j], of_row[i] + of_col[j]);
      }
    }
    __syncthreads();  // all have read this slab before the next one overwrites it
  }

  // 3. Store.
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (zeros >> (4 * i + j) & 1u)
        lower[i * ld + j] = double_of(best[i][j] > NOTHING ? power_of_two(best[i][j] + raised) : INFINITE);
}
