// Integer types, the host-and-device macro, and the few primitives that every kernel needs.
//
// The headers hold the arithmetic as host-and-device functions, so that the tests compile them with a plain C++
// compiler. Floating-point numbers are read and built by their bits, so that no compiler option flushes subnormals.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
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

constexpr uint32_t ALL = 0xffffffffu;  // lanes of a warp

// `top` and `bottom` of a row without nonzero element.
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
HD double double_of_words(uint32_t high, uint32_t low) {
#ifdef __CUDA_ARCH__
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
#else
  return double_of(static_cast<uint64_t>(high) << 32 | low);
#endif
}
HD uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x); }
HD uint32_t high_word(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

HD double fused(double a, double b, double c) {  // RN(a b + c)
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

HD uint32_t not_zero(uint32_t x) {  // 1, or 0 for x = 0; by one instruction
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

// Byte j (a constant) of x.
HD uint32_t byte_of(uint32_t x, int j) {
#ifdef __CUDA_ARCH__
  return __byte_perm(x, 0, 0x4440 | j);
#else
  return x >> (8 * j) & 255u;
#endif
}

// Byte j (a constant) of a, b, c and d, as one word, a lowest.
HD uint32_t gather_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d, int j) {
#ifdef __CUDA_ARCH__
  const uint32_t pick = j | (j + 4) << 4;
  return __byte_perm(__byte_perm(a, b, pick), __byte_perm(c, d, pick), 0x5410);
#else
  return byte_of(a, j) | byte_of(b, j) << 8 | byte_of(c, j) << 16 | byte_of(d, j) << 24;
#endif
}

// c + the sum of the products of the four unsigned bytes of a and b.
HD uint32_t dot_bytes(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
  return __dp4a(a, b, c);
#else
  for (int j = 0; j < 4; ++j) c += byte_of(a, j) * byte_of(b, j);
  return c;
#endif
}

// Bytes 2 i and 2 i + 1 (i a constant) of a and b in turn: a, b, a, b.
HD uint32_t interleaved_bytes(uint32_t a, uint32_t b, int i) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, i == 0 ? 0x5140 : 0x7362);
#else
  return gather_bytes(byte_of(a, 2 * i), byte_of(b, 2 * i), byte_of(a, 2 * i + 1), byte_of(b, 2 * i + 1), 0);
#endif
}

// The sum of the products of the two halves of x and two bytes of b, the lower or (i = 1, a constant) the upper ones.
HD uint32_t dot_halves(uint32_t x, uint32_t b, int i) {
#ifdef __CUDA_ARCH__
  return i == 0 ? __dp2a_lo(x, b, 0u) : __dp2a_hi(x, b, 0u);
#else
  return (x & 0xffffu) * byte_of(b, 2 * i) + (x >> 16) * byte_of(b, 2 * i + 1);
#endif
}

#ifdef __CUDACC__

// How a block of 256 threads reads an operand whose result is stored along k: a tile of 32 rows x 128 elements, in
// two steps i = 0, 1. In a step each thread owns 8 elements of one row, half a warp 128 elements: side by side, PACK
// neighbours of each thread at a time.
constexpr int TILE_ROWS = 32;
constexpr int TILE_K = 128;

__device__ __forceinline__ int tile_row(int i) {
  return 2 * (threadIdx.x >> 5) + i + 16 * (threadIdx.x >> 4 & 1);
}
template <int PACK = 8> __device__ __forceinline__ int tile_h() { return PACK * (threadIdx.x & 15); }

// How far behind the first of a thread's elements number j stands.
template <int PACK> HD constexpr int behind(int j) { return 16 * (j - j % PACK) + j % PACK; }

// Where position c of the compacted k stands in the operand: the first 32 of every 128 elements, or all.
__device__ __forceinline__ int64_t position(int64_t c, bool sampled) {
  return sampled ? (c >> 5) * 128 + (c & 31) : c;
}

// May 16 bytes be read at once along k?
template <typename T>
__device__ __forceinline__ bool aligned_along_k(const T* x, int64_t sb, int64_t sr, int64_t sk) {
  const uint64_t bytes = reinterpret_cast<uint64_t>(x) | static_cast<uint64_t>(sb) * sizeof(T) |
                         static_cast<uint64_t>(sr) * sizeof(T);
  return sk == 1 && (bytes & 15) == 0;
}

// The same along k or, if not ALONG, along the rows.
template <bool ALONG, typename T>
__device__ __forceinline__ bool aligned_along(const T* x, int64_t sb, int64_t sr, int64_t sk) {
  return ALONG ? aligned_along_k(x, sb, sr, sk) : aligned_along_k(x, sb, sk, sr);
}

// The bits of 16 / sizeof(T) neighbouring elements.
__device__ __forceinline__ void load_16_bytes(const double* p, uint64_t* bits) {
  const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(p);
  bits[0] = v.x, bits[1] = v.y;
}
__device__ __forceinline__ void load_16_bytes(const float* p, uint32_t* bits) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  bits[0] = v.x, bits[1] = v.y, bits[2] = v.z, bits[3] = v.w;
}

// May two neighbouring elements, the first at an even place, be read at once along k?
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

// Where `wanted`; no branch, so that what comes before and after may be mixed.
__device__ __forceinline__ void store_16_bytes(void* to, const uint32_t (&words)[4], bool wanted) {
#if __CUDA_ARCH__
  asm volatile(
      "{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %0, 0;\n"
      "@wanted st.global.v4.u32 [%1], {%2, %3, %4, %5};\n}" ::"r"(static_cast<uint32_t>(wanted)),
      "l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
      : "memory");
#else
  if (wanted) *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
#endif
}

// *to = *from, or zero where nothing may be read; complete after wait_for_copies.
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
// 16 bytes, of which the first `readable` may be read and the others become zero. Other blocks read what is beside
// them.
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
// Where copies go, worked out once for many.
struct Destination {
#if __CUDA_ARCH__ >= 800
  uint32_t at;
  __device__ __forceinline__ explicit Destination(void* to) : at(static_cast<uint32_t>(__cvta_generic_to_shared(to))) {}
#else
  uint8_t* at;
  __device__ __forceinline__ explicit Destination(void* to) : at(static_cast<uint8_t*>(to)) {}
#endif
};
// 16 bytes, to so many bytes further on.
__device__ __forceinline__ void copy_16_bytes(const Destination& to, int further, const uint4* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to.at + further), "l"(from) : "memory");
#else
  *reinterpret_cast<uint4*>(to.at + further) = *from;
#endif
}
// All of them or none, in fewer instructions.
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
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// The bits of a thread's elements, the first of which is h, of the row that starts at `row`; zero where valid is false
// or an element is not below k.
template <int PACK = 8, typename T, typename Bits>
__device__ __forceinline__ void load_along_k(const T* row, int64_t sk, int64_t h, int64_t k, bool valid, bool aligned,
                                             Bits (&bits)[8]) {
  constexpr int AT_ONCE = smaller<int>(PACK, 16 / sizeof(T));
  if (valid && aligned && h + behind<PACK>(7) < k) {
#pragma unroll
    for (int j = 0; j < 8; j += AT_ONCE) {
      if constexpr (AT_ONCE == 2)
        load_pair(row + h + behind<PACK>(j), bits[j], bits[j + 1]);
      else
        load_16_bytes(row + h + behind<PACK>(j), bits + j);
    }
  } else {
    const Bits* words = reinterpret_cast<const Bits*>(row);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t at = h + behind<PACK>(j);
      bits[j] = valid && at < k ? words[at * sk] : Bits(0);
    }
  }
}

// Rows are neighbours in memory: the block reads the tile row-wise and turns it in shared memory. Element (row, c) of
// the tile lies at c * 32 + (row ^ (c / PACK % 16)): both the writes (neighbouring rows) and the reads (tile_row,
// tile_h) meet every bank once.
template <int PACK = 8, typename T, typename Bits>
__device__ __forceinline__ void stage_along_rows(Bits* tile, const T* x, int64_t sr, int64_t sk, int64_t row0,
                                                 int64_t c0, int64_t rows, int64_t k, bool sampled) {
  const int lane = threadIdx.x & 31;
  const Bits* const from = reinterpret_cast<const Bits*>(x) + (row0 + lane) * sr;
#pragma unroll 4
  for (int i = 0; i < TILE_K / 8; ++i) {
    const int c = 8 * i + (threadIdx.x >> 5);
    const int64_t h = position(c0 + c, sampled);
    copy_or_zero(tile + c * TILE_ROWS + (lane ^ (c / PACK & 15)), from + h * sk, row0 + lane < rows && h < k);
  }
  wait_for_copies();
}
template <int PACK = 8, typename Bits>
__device__ __forceinline__ void read_staged(const Bits* tile, int row, Bits (&bits)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    bits[j] = tile[(tile_h<PACK>() + behind<PACK>(j)) * TILE_ROWS + (row ^ (threadIdx.x & 15))];
}

// Element (row, h) of ROWS rows that are neighbours in memory: writing neighbouring rows and reading neighbouring pairs
// of h both meet every bank once.
template <int ROWS> __device__ __forceinline__ int turned(int row, int h) {
  return h * ROWS + (row ^ (h >> 1 & (ROWS - 1)));
}

#endif
