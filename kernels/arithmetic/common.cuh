// Integer types, the host-and-device macro HD, and the primitives that every kernel needs: bits of numbers, bytes of
// 32-bit limbs, and (device only) loads of operands.
//
// Headers in arithmetic/ hold host-and-device functions, so that the tests compile them with a plain C++ compiler.
// Floating-point numbers are read and built by their bits, so that no compiler option flushes subnormals. A limb is a
// 32-bit part of a longer integer; a low-precision word is something else (words.cuh).
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif

#ifdef __CUDACC__
#define HD __host__ __device__ __forceinline__
#else
#define HD inline
#endif

constexpr uint32_t ALL = 0xffffffffu;  // all lanes of a warp

// `top` and `bottom` of a row without a nonzero element.
constexpr int EMPTY_TOP = -4096;

// The unsigned integer that holds the bits of a floating-point type.
template <typename T> struct BitsOf;
template <> struct BitsOf<double> { typedef uint64_t type; };
template <> struct BitsOf<float> { typedef uint32_t type; };

template <typename T> HD constexpr T smaller(T a, T b) { return a < b ? a : b; }
template <typename T> HD constexpr T larger(T a, T b) { return a < b ? b : a; }

HD int leading_zeros(uint32_t x) {  // 32 for x = 0
#ifdef __CUDA_ARCH__
  return __clz(static_cast<int>(x));
#else
  return x == 0 ? 32 : __builtin_clz(x);
#endif
}

HD int bit_length(uint64_t x) {  // 0 for x = 0
#ifdef __CUDA_ARCH__
  return 64 - __clzll(static_cast<long long>(x));
#else
  return x == 0 ? 0 : 64 - __builtin_clzll(x);
#endif
}

HD float float_of_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
#endif
}
HD uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
#endif
}

HD uint64_t bits_of(double x) {
#ifdef __CUDA_ARCH__
  return static_cast<uint64_t>(__double_as_longlong(x));
#else
  uint64_t bits;
  __builtin_memcpy(&bits, &x, 8);
  return bits;
#endif
}
// The float64 with these bits.
HD double double_of(uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(bits));
#else
  double x;
  __builtin_memcpy(&x, &bits, 8);
  return x;
#endif
}
// The float64 with these limbs.
HD double double_of_limbs(uint32_t high, uint32_t low) {
#ifdef __CUDA_ARCH__
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
#else
  return double_of(static_cast<uint64_t>(high) << 32 | low);
#endif
}
// The lower and the upper limb of a 64-bit integer.
HD uint32_t low_limb(uint64_t x) { return static_cast<uint32_t>(x); }
HD uint32_t high_limb(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

HD double fused(double a, double b, double c) {  // RN(a b + c)
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

HD float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

HD uint32_t not_zero(uint32_t x) {  // 1, or 0 for x = 0; one instruction
#ifdef __CUDA_ARCH__
  uint32_t y;
  asm("min.u32 %0, %1, 1;" : "=r"(y) : "r"(x));
  return y;
#else
  return x != 0 ? 1 : 0;
#endif
}

HD int64_t nearest_integer(double x) {  // ties to even
#ifdef __CUDA_ARCH__
  return __double2ll_rn(x);
#else
  return __builtin_llrint(x);
#endif
}

// Byte j (a compile-time constant) of x, 0 the lowest.
HD uint32_t byte_of(uint32_t x, int j) {
#ifdef __CUDA_ARCH__
  return __byte_perm(x, 0, 0x4440 | j);
#else
  return x >> (8 * j) & 255u;
#endif
}

// Byte j (a compile-time constant) of a, b, c and d packed into a limb, that of a lowest.
HD uint32_t gather_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d, int j) {
#ifdef __CUDA_ARCH__
  const uint32_t pick = j | (j + 4) << 4;
  return __byte_perm(__byte_perm(a, b, pick), __byte_perm(c, d, pick), 0x5410);
#else
  return byte_of(a, j) | byte_of(b, j) << 8 | byte_of(c, j) << 16 | byte_of(d, j) << 24;
#endif
}

// Bytes 0 and 2 of a and of b, packed, those of a lowest.
HD uint32_t even_bytes(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, 0x6420);
#else
  return byte_of(a, 0) | byte_of(a, 2) << 8 | byte_of(b, 0) << 16 | byte_of(b, 2) << 24;
#endif
}

// c + the sum of the products of corresponding unsigned bytes of a and b, modulo 2^32.
HD uint32_t dot_bytes(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
  return __dp4a(a, b, c);
#else
  for (int j = 0; j < 4; ++j) c += byte_of(a, j) * byte_of(b, j);
  return c;
#endif
}

// Bytes 2 i and 2 i + 1 (i a compile-time constant) of a and b, interleaved: from the lowest on a, b, a, b.
HD uint32_t interleaved_bytes(uint32_t a, uint32_t b, int i) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, i == 0 ? 0x5140 : 0x7362);
#else
  return gather_bytes(byte_of(a, 2 * i), byte_of(b, 2 * i), byte_of(a, 2 * i + 1), byte_of(b, 2 * i + 1), 0);
#endif
}

// c + the sum of the products of the two 16-bit halves of x with two bytes of b: the lower two, or (i = 1, a
// compile-time constant) the upper two.
HD uint32_t dot_halves(uint32_t x, uint32_t b, int i, uint32_t c = 0) {
#ifdef __CUDA_ARCH__
  return i == 0 ? __dp2a_lo(x, b, c) : __dp2a_hi(x, b, c);
#else
  return c + (x & 0xffffu) * byte_of(b, 2 * i) + (x >> 16) * byte_of(b, 2 * i + 1);
#endif
}

#ifdef __CUDACC__

// How a block of 256 threads reads a tile of 32 rows x 128 elements, of an operand whose result is stored along k, in
// two steps i = 0, 1. In a step each thread owns 8 elements of one row, and half a warp the row's 128 elements,
// interleaved so that PACK neighbours of one thread are followed by PACK of the next one. tile_row(i) is the thread's
// row, tile_h() its first element, and its j-th element stands behind(j) elements after that.
constexpr int TILE_ROWS = 32;
constexpr int TILE_K = 128;

__device__ __forceinline__ int tile_row(int i) {
  return 2 * (threadIdx.x >> 5) + i + 16 * (threadIdx.x >> 4 & 1);
}
template <int PACK = 8> __device__ __forceinline__ int tile_h() { return PACK * (threadIdx.x & 15); }

// Distance of the j-th from the first of a thread's 8 elements.
template <int PACK> HD constexpr int behind(int j) { return 16 * (j - j % PACK) + j % PACK; }

// The element of the operand at position c: with `sampled` only the first 32 of every 128 elements have positions, of
// every 64 complex ones (COUNT = 2).
template <int COUNT = 1> __device__ __forceinline__ int64_t position(int64_t c, bool sampled) {
  return sampled ? (c >> 5) * (128 / COUNT) + (c & 31) : c;
}

// Whether rows are contiguous along k and begin at multiples of 16 bytes, so that 16 bytes may be loaded at a time.
template <typename T>
__device__ __forceinline__ bool aligned_along_k(const T* x, int64_t sb, int64_t sr, int64_t sk) {
  const uint64_t bytes = reinterpret_cast<uint64_t>(x) | static_cast<uint64_t>(sb) * sizeof(T) |
                         static_cast<uint64_t>(sr) * sizeof(T);
  return sk == 1 && (bytes & 15) == 0;
}

// The same along k, or along the rows if ALONG is false.
template <bool ALONG, typename T>
__device__ __forceinline__ bool aligned_along(const T* x, int64_t sb, int64_t sr, int64_t sk) {
  return ALONG ? aligned_along_k(x, sb, sr, sk) : aligned_along_k(x, sb, sk, sr);
}

// Loads the bits of 16 / sizeof(T) neighbouring elements.
__device__ __forceinline__ void load_16_bytes(const double* p, uint64_t* bits) {
  const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(p);
  bits[0] = v.x, bits[1] = v.y;
}
__device__ __forceinline__ void load_16_bytes(const float* p, uint32_t* bits) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  bits[0] = v.x, bits[1] = v.y, bits[2] = v.z, bits[3] = v.w;
}

// Whether two neighbouring elements along k, the first at an even place, may be loaded at a time.
template <typename T> __device__ __forceinline__ bool aligned_in_pairs(const T* x, int64_t sr, int64_t sk) {
  const uint64_t bytes = reinterpret_cast<uint64_t>(x) | static_cast<uint64_t>(sr) * sizeof(T);
  return sk == 1 && (bytes & (2 * sizeof(T) - 1)) == 0;
}
__device__ __forceinline__ void load_pair(const double* p, uint64_t& a, uint64_t& b) {
  const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(p);
  a = v.x, b = v.y;
}
__device__ __forceinline__ void load_pair(const float* p, uint32_t& a, uint32_t& b) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  a = v.x, b = v.y;
}

// Stores 16 bytes if `wanted`, by a predicate: without a branch the compiler may mix what comes before and after.
__device__ __forceinline__ void store_16_bytes(void* to, const uint32_t (&limbs)[4], bool wanted) {
#if __CUDA_ARCH__
  asm volatile(
      "{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %0, 0;\n"
      "@wanted st.global.v4.u32 [%1], {%2, %3, %4, %5};\n}" ::"r"(static_cast<uint32_t>(wanted)),
      "l"(to), "r"(limbs[0]), "r"(limbs[1]), "r"(limbs[2]), "r"(limbs[3])
      : "memory");
#else
  if (wanted) *static_cast<uint4*>(to) = make_uint4(limbs[0], limbs[1], limbs[2], limbs[3]);
#endif
}

// Starts an asynchronous copy of one element to shared memory, of zero if not `readable`; complete after
// wait_for_copies (and visible to other threads after a barrier). Before compute capability 8.0 the copy is
// synchronous.
template <typename T> __device__ __forceinline__ void copy_or_zero(T* to, const T* from, bool readable) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "n"(sizeof(T)), "r"(readable ? static_cast<uint32_t>(sizeof(T)) : 0u)
               : "memory");
#else
  *to = readable ? *from : T(0);
#endif
}
// The same for 16 bytes, of which the first `readable` are copied and the others become zero. The hint L2::128B loads
// 128 bytes into the second-level cache: other blocks read the neighbouring bytes.
__device__ __forceinline__ void copy_16_bytes(void* to, const void* from, int readable) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(readable)
               : "memory");
#else
  for (int i = 0; i < 16; ++i)
    static_cast<uint8_t*>(to)[i] = i < readable ? static_cast<const uint8_t*>(from)[i] : uint8_t(0);
#endif
}
// A destination of copies in shared memory: the conversion of its address is done once for many copies.
struct Destination {
#if __CUDA_ARCH__ >= 800
  uint32_t at;
  __device__ __forceinline__ explicit Destination(void* to) : at(static_cast<uint32_t>(__cvta_generic_to_shared(to))) {}
#else
  uint8_t* at;
  __device__ __forceinline__ explicit Destination(void* to) : at(static_cast<uint8_t*>(to)) {}
#endif
};
// Starts an asynchronous copy of 16 bytes to `further` bytes after the destination.
__device__ __forceinline__ void copy_16_bytes(const Destination& to, int further, const uint4* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to.at + further), "l"(from) : "memory");
#else
  *reinterpret_cast<uint4*>(to.at + further) = *from;
#endif
}
// The same for 16 bytes, all copied or all zero; fewer instructions than copy_16_bytes.
__device__ __forceinline__ void copy_16_bytes_or_zeros(void* to, const void* from, bool readable) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "{\n.reg .pred ignored;\nsetp.eq.u32 ignored, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, ignored;\n}" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(static_cast<uint32_t>(readable))
      : "memory");
#else
  copy_16_bytes(to, from, readable ? 16 : 0);
#endif
}
// Returns when all asynchronous copies of this thread are complete.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
// Makes one group of this thread's asynchronous copies since the last group; there may be none.
__device__ __forceinline__ void end_group_of_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Returns when all groups of copies of this thread are complete, except the last one.
__device__ __forceinline__ void wait_for_older_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// The element at x, or (COUNT = 2) the magnitude of the larger part of the complex one that begins there, NaN and Inf
// counted as zero: no more than the absolute value, and all that lower bounds need of an element.
template <int COUNT, typename Bits> HD Bits larger_part(const Bits* x) {
  if (COUNT == 1) return x[0];
  constexpr Bits NO_SIGN = ~Bits(0) >> 1, SPECIAL = sizeof(Bits) == 8 ? Bits(0x7ffull << 52) : Bits(0xffull << 23);
  Bits largest = 0;
#pragma unroll
  for (int part = 0; part < COUNT; ++part) {
    const Bits magnitude = x[part] & NO_SIGN;
    if (magnitude < SPECIAL) largest = larger(largest, magnitude);
  }
  return largest;
}

// Loads the bits of a thread's 8 elements, the first of which is h, of the row that starts at `row`, of complex ones
// the larger parts; zero if not `valid` and for elements from k on. `aligned`: 16 bytes may be loaded at a time, of
// real elements.
template <int PACK = 8, int COUNT = 1, typename T, typename Bits>
__device__ __forceinline__ void load_along_k(const T* row, int64_t sk, int64_t h, int64_t k, bool valid, bool aligned,
                                             Bits (&bits)[8]) {
  constexpr int AT_ONCE = smaller<int>(PACK, 16 / sizeof(T));
  if (COUNT == 1 && valid && aligned && h + behind<PACK>(7) < k) {
#pragma unroll
    for (int j = 0; j < 8; j += AT_ONCE) {
      if constexpr (AT_ONCE == 2)
        load_pair(row + h + behind<PACK>(j), bits[j], bits[j + 1]);
      else
        load_16_bytes(row + h + behind<PACK>(j), bits + j);
    }
  } else {
    const Bits* elements = reinterpret_cast<const Bits*>(row);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t at = h + behind<PACK>(j);
      bits[j] = valid && at < k ? larger_part<COUNT>(elements + at * sk) : Bits(0);
    }
  }
}

// Transposing in shared memory, for operands whose rows are neighbours in memory: the block reads a tile of TILE_ROWS
// rows x TILE_K positions row by row and then each thread its 8 elements along k. Element (row, c) stands at c *
// TILE_ROWS + (row ^ (c / PACK % 16)), so that both the writes (neighbouring rows) and the reads (tile_row, tile_h) are
// free of bank conflicts. The caller synchronises the block between stage_along_rows and read_staged. Of complex
// elements the larger parts are staged.
template <int PACK = 8, int COUNT = 1, typename T, typename Bits>
__device__ __forceinline__ void stage_along_rows(Bits* tile, const T* x, int64_t sr, int64_t sk, int64_t row0,
                                                 int64_t c0, int64_t rows, int64_t k, bool sampled) {
  const int lane = threadIdx.x & 31;
  const Bits* const from = reinterpret_cast<const Bits*>(x) + (row0 + lane) * sr;
#pragma unroll 4
  for (int i = 0; i < TILE_K / 8; ++i) {
    const int c = 8 * i + (threadIdx.x >> 5);
    const int64_t h = position<COUNT>(c0 + c, sampled);
    Bits* const to = tile + c * TILE_ROWS + (lane ^ (c / PACK & 15));
    const bool readable = row0 + lane < rows && h < k;
    if (COUNT == 1)
      copy_or_zero(to, from + h * sk, readable);
    else
      *to = readable ? larger_part<COUNT>(from + h * sk) : Bits(0);
  }
  wait_for_copies();
}
template <int PACK = 8, typename Bits>
__device__ __forceinline__ void read_staged(const Bits* tile, int row, Bits (&bits)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    bits[j] = tile[(tile_h<PACK>() + behind<PACK>(j)) * TILE_ROWS + (row ^ (threadIdx.x & 15))];
}

// Position in shared memory of element (row, h) when ROWS rows that are neighbours in memory are transposed: writing
// neighbouring rows and reading neighbouring pairs of h are both free of bank conflicts.
template <int ROWS> __device__ __forceinline__ int turned(int row, int h) {
  return h * ROWS + (row ^ (h >> 1 & (ROWS - 1)));
}

#endif
