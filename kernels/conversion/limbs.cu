// The functions of ozaki/multiprecision/limbs.py and `to_floats` on a device, bit for bit: an element is a thread.
//
// 256 threads; grid ceil(n / 256). Arrays without strides are contiguous: int64_t start[n], uint32_t found[count][n].
#include "arithmetic/numbers.cuh"
#include "hardware/launch.cuh"

// n magnitudes of `count` limbs, the highest first; limb l of magnitude i is at first[l * plane + i * step].
struct Limbs {
  const uint32_t* first;
  int64_t plane, step, count;

  __device__ __forceinline__ uint32_t operator()(int64_t i, int64_t l) const {
    return l < 0 || l >= count ? 0u : first[l * plane + i * step];
  }
  // The first limb from l on, in steps of `by`, that is not zero; the index behind the last one if all are zero.
  __device__ __forceinline__ int64_t nonzero(int64_t i, int64_t l, int by) const {
    while (l >= 0 && l < count && first[l * plane + i * step] == 0) l += by;
    return l;
  }
  __device__ __forceinline__ int64_t leading_zeros(int64_t i) const {
    const int64_t l = nonzero(i, 0, 1);
    return l == count ? 32 * count : 32 * l + ::leading_zeros((*this)(i, l));
  }
  __device__ __forceinline__ int64_t trailing_zeros(int64_t i) const {
    const int64_t l = nonzero(i, count - 1, -1);
    if (l < 0) return 32 * count;
    const uint32_t limb = (*this)(i, l);
    return 32 * (count - 1 - l) + 31 - ::leading_zeros(limb & (~limb + 1));
  }
};

// Calls to(j, limb) for the limbs j = 0 ... of the window of magnitude i that begins with bit `start`.
template <typename To>
__device__ __forceinline__ void each_limb(const Limbs& x, int64_t i, int64_t start, int count, To to) {
  const int64_t first = start >> 5;  // rounds down
  const int shift = static_cast<int>(start & 31);
  uint32_t upper = x(i, first);
  for (int j = 0; j < count; ++j) {
    const uint32_t lower = x(i, first + j + 1);
    to(j, window(upper, lower, shift));
    upper = lower;
  }
}

__device__ __forceinline__ int64_t element() { return static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; }

extern "C" __global__ void __launch_bounds__(256)
count_leading_zeros(const Limbs x, int64_t n, int64_t* __restrict__ zeros) {
  after_previous();
  const int64_t i = element();
  if (i < n) zeros[i] = x.leading_zeros(i);
}

extern "C" __global__ void __launch_bounds__(256)
count_trailing_zeros(const Limbs x, int64_t n, int64_t* __restrict__ zeros) {
  after_previous();
  const int64_t i = element();
  if (i < n) zeros[i] = x.trailing_zeros(i);
}

extern "C" __global__ void __launch_bounds__(256)
take_window(const Limbs x, int64_t n, int count, const int64_t* __restrict__ start, uint32_t* __restrict__ found) {
  after_previous();
  const int64_t i = element();
  if (i < n) each_limb(x, i, start[i], count, [&](int j, uint32_t limb) { found[j * n + i] = limb; });
}

// sums[count][n] += signs (-1, 0, 1) times the windows; with `sticky` the lowest bit of a window is set where a bit
// after it is.
extern "C" __global__ void __launch_bounds__(256)
add_window(const Limbs x, int64_t n, int count, int sticky, const int8_t* __restrict__ signs,
           const int64_t* __restrict__ start, int64_t* __restrict__ sums) {
  after_previous();
  const int64_t i = element();
  if (i >= n || signs[i] == 0) return;
  const int64_t sign = signs[i];
  const bool more = sticky && 32 * x.count - x.trailing_zeros(i) > start[i] + 32 * static_cast<int64_t>(count);
  each_limb(x, i, start[i], count, [&](int j, uint32_t limb) {
    if (more && j == count - 1) limb |= 1;
    sums[j * n + i] += sign * limb;
  });
}

// sums[count][n], whose limbs of `width` bits are signed and may be larger, as signs and limbs[count][n]. Overwrites
// sums.
extern "C" __global__ void __launch_bounds__(256)
settle(int64_t n, int count, int width, int64_t* __restrict__ sums, int8_t* __restrict__ signs,
       uint32_t* __restrict__ limbs) {
  after_previous();
  const int64_t i = element();
  if (i >= n) return;
  const int64_t mask = (1ll << width) - 1;
  int64_t carry = 0;
  for (int j = count - 1; j > 0; --j) {
    const int64_t sum = sums[j * n + i] + carry;
    carry = sum >> width;  // rounds down
    sums[j * n + i] = sum & mask;
  }
  const int64_t highest = sums[i] + carry;
  // The negative of a number: each limb taken from the lowest on, which lends where it is not zero.
  const bool negative = highest < 0;
  bool any = false;
  carry = 0;
  for (int j = count - 1; j >= 0; --j) {
    int64_t sum = j == 0 ? highest : sums[j * n + i];
    if (negative) {
      sum = carry - sum;
      carry = sum >> width;
      if (j > 0) sum &= mask;
    }
    any = any || sum != 0;
    limbs[j * n + i] = static_cast<uint32_t>(sum);
  }
  signs[i] = negative ? -1 : any ? 1 : 0;
}

// Normalised magnitudes of at least `count` limbs rounded to nearest at their first `bits` bits, ties to even: kept
// [count][n]; carried: where the number has become a power of two, of which `kept` holds the half.
extern "C" __global__ void __launch_bounds__(256)
round_at(const Limbs x, int64_t n, int bits, uint32_t* __restrict__ kept, uint8_t* __restrict__ carried) {
  after_previous();
  const int64_t i = element();
  if (i >= n) return;
  const int count = (bits + 31) / 32, spare = 32 * count - bits;
  const uint32_t last = x(i, count - 1);
  int64_t behind = count;  // of the limbs that decide, if a half is left, whether more is left
  uint32_t rest, half;
  bool odd;
  if (spare > 0) {
    rest = last & ((1u << spare) - 1), half = 1u << (spare - 1), odd = (last >> spare & 1) != 0;
  } else {
    rest = x(i, behind++), half = 1u << 31, odd = (last & 1) != 0;
  }
  const bool up = rest > half || (rest == half && (odd || x.nonzero(i, behind, 1) < x.count));
  uint32_t carry = up ? 1u << spare : 0u;
  for (int j = count - 1; j >= 0; --j) {
    const uint32_t limb = j == count - 1 ? last & ~((1u << spare) - 1) : x(i, j);
    const uint32_t sum = limb + carry;
    carry = sum < limb ? 1 : 0;
    kept[j * n + i] = sum;
  }
  if (carry) kept[i] = 1u << 31;
  carried[i] = carry != 0;
}

// The numbers rounded to nearest, ties to even, at `precision` bits, or at fewer so that they are multiples of 2^least.
extern "C" __global__ void __launch_bounds__(256)
to_double(const Limbs x, int64_t n, int precision, int least, const int8_t* __restrict__ signs,
          const int64_t* __restrict__ exponents, double* __restrict__ out) {
  after_previous();
  const int64_t i = element();
  if (i >= n) return;
  const int sign = signs[i];
  const int64_t exponent = exponents[i], room = exponent - least;
  uint64_t head = static_cast<uint64_t>(x(i, 0)) << 32 | x(i, 1);
  if (x.nonzero(i, 2, 1) < x.count) head |= 1;
  const int64_t keep = smaller<int64_t>(room, precision);
  uint64_t units = 0;
  if (keep > 0) {
    const int shift = 64 - static_cast<int>(keep);
    const uint64_t rest = head & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    units = head >> shift;
    if (rest > half || (rest == half && (units & 1) != 0)) ++units;
  } else if (keep == 0 && head > 1ull << 63) {
    units = 1;
  }
  const int64_t scale = smaller<int64_t>(larger<int64_t>(exponent - keep, least), 2000);
  out[i] = ldexp(static_cast<double>(static_cast<int64_t>(units)) * sign, static_cast<int>(scale));
}
