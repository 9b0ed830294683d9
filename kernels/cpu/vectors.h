// Vectors of 64 bytes by the vector extension of GCC and Clang, which compile for whatever instructions there are;
// and the few operations for which the extension has no operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cpu {

typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));
typedef uint64_t UnsignedLongs __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef int8_t Bytes __attribute__((vector_size(64)));
typedef uint8_t UnsignedBytes __attribute__((vector_size(64)));
typedef float HalfFloats __attribute__((vector_size(32)));
typedef int32_t HalfInts __attribute__((vector_size(32)));
typedef int8_t QuarterBytes __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))

// Operations that are an instruction or two where there are such; elsewhere they are so long that they are functions.
#if defined(__AVX512VNNI__)
#define OPERATION INLINE
#else
#define OPERATION static __attribute__((noinline, unused))
#endif

INLINE Doubles doubles(double x) { return x - Doubles{}; }
INLINE Floats floats(float x) { return x - Floats{}; }
INLINE Ints ints(int32_t x) { return x - Ints{}; }

template <typename Vector> INLINE Vector load(const void* from) {
  Vector x;
  memcpy(&x, from, sizeof x);
  return x;
}

template <typename Vector> INLINE void store(void* to, Vector x) { memcpy(to, &x, sizeof x); }

// a b + c. Callers need no fused rounding: their products are exact.
INLINE Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Bytes as integers, and the lower bytes of integers. GCC 12 compiles these conversions element by element.
OPERATION Ints widened(QuarterBytes bytes) {
#if defined(__AVX512F__)
  return (Ints)_mm512_cvtepi8_epi32((__m128i)bytes);
#else
  return __builtin_convertvector(bytes, Ints);
#endif
}

OPERATION QuarterBytes narrowed(Ints integers) {
#if defined(__AVX512F__)
  return (QuarterBytes)_mm512_cvtepi32_epi8((__m512i)integers);
#else
  return __builtin_convertvector(integers, QuarterBytes);
#endif
}

// Four vectors of integers in [-128, 127] as bytes. Lanes of 128 bits have those of four integers, and of each vector
// one after the other: x0[0], x0[1], x0[2], x0[3], x1[0], ..., x3[3].
OPERATION Bytes packed(Ints x0, Ints x1, Ints x2, Ints x3) {
#if defined(__AVX512BW__)
  const __m512i low = _mm512_packs_epi32((__m512i)x0, (__m512i)x1), high = _mm512_packs_epi32((__m512i)x2, (__m512i)x3);
  return (Bytes)_mm512_packs_epi16(low, high);
#else
  const Ints vectors[4] = {x0, x1, x2, x3};
  Bytes bytes;
  for (int i = 0; i < 64; i++) bytes[i] = (int8_t)vectors[i / 4 % 4][i / 16 * 4 + i % 4];
  return bytes;
#endif
}

// The bytes of each lane of 128 bits as a matrix of 4 x 4, transposed.
OPERATION Bytes transposed(Bytes bytes) {
#if defined(__AVX512BW__)
  const __m128i places = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return (Bytes)_mm512_shuffle_epi8((__m512i)bytes, _mm512_broadcast_i32x4(places));
#else
  Bytes turned;
  for (int i = 0; i < 64; i++) turned[i] = bytes[i / 16 * 16 + i % 4 * 4 + i / 4 % 4];
  return turned;
#endif
}

// Sixteen integers as numbers, in two halves.
struct Sixteen {
  Doubles halves[2];
};

OPERATION Sixteen sixteen(Ints all) {
#if defined(__AVX512F__)
  const __m512i of = (__m512i)all;
  return {{_mm512_cvtepi32_pd(_mm512_castsi512_si256(of)), _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(of, 1))}};
#else
  HalfInts halves[2];
  memcpy(halves, &all, sizeof halves);
  return {{__builtin_convertvector(halves[0], Doubles), __builtin_convertvector(halves[1], Doubles)}};
#endif
}

// Adds to each of 16 sums the products of four unsigned bytes of `bytes` and the four signed bytes of `word`.
OPERATION void add_dot_products(Ints& sums, Bytes bytes, int32_t word) {
#if defined(__AVX512VNNI__)
  // An intrinsic would do, but GCC 12 copies and spills the sums of a tile around it, which takes 2.6 times as long.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(ints(word)));
#else
  const Ints four = (Ints)bytes;
  for (int j = 0; j < 4; j++) sums += ((four >> (8 * j)) & 255) * (int32_t)(int8_t)(word >> (8 * j));
#endif
}

// The dot products alone, of the bytes of each lane and of `words`.
OPERATION Ints dot_products(Ints start, Ints bytes, Ints words) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)start, (__m512i)bytes, (__m512i)words);
#else
  for (int j = 0; j < 4; j++) start += ((bytes >> (8 * j)) & 255) * ((words << (24 - 8 * j)) >> 24);
  return start;
#endif
}

// For each integer, its lower half times `low` plus its upper half times `high`, halves and factors as signed integers.
OPERATION Ints dot_products_of_halves(Ints x, int32_t low, int32_t high) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)x, (__m512i)ints((int32_t)((uint32_t)high << 16 | (uint32_t)(low & 0xFFFF))));
#else
  return ((x << 16) >> 16) * low + (x >> 16) * high;
#endif
}

// x rounded to the nearest integer, ties to even, in the default environment.
OPERATION Doubles nearest(Doubles x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Doubles magnitude = (Doubles)((Longs)x & INT64_MAX);
  const Doubles unit = (Doubles)(((Longs)doubles(0x1p52)) | ((Longs)x & INT64_MIN));
  return magnitude < 0x1p52 ? (x + unit) - unit : x;
#endif
}

// The integers nearest to x, ties to even, which are below 2**63.
OPERATION Longs nearest_integers(Doubles x) {
#if defined(__AVX512DQ__)
  return (Longs)_mm512_cvt_roundpd_epi64(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  return __builtin_convertvector(nearest(x), Longs);
#endif
}

// The least integers that are not below x.
OPERATION Doubles upward(Doubles x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
#else
  const Doubles near = nearest(x);
  return near < x ? near + 1.0 : near;
#endif
}

// x with zero in place of NaN and Inf.
OPERATION Doubles finite(Doubles x) {
#if defined(__AVX512F__)
  return _mm512_fixupimm_pd(x, x, _mm512_set1_epi64(0x00880088), 0);  // +0 for the classes 0, 1, 4 and 5
#else
  return (Doubles)((Longs)x & (x - x == 0));
#endif
}

// The residue of abs(x) < 2**23, an integer, modulo an odd modulus of at most 255: the one of least absolute value.
//
// x / modulus is at least 1 / (2 modulus) away from the middle of two integers, and is known to 2**-9.
OPERATION Ints least_residue(Ints x, int32_t modulus, float inverse) {
  const Floats about = multiply_add(__builtin_convertvector(x, Floats), floats(inverse), floats(0x1.8p23f));
  // The lower half of each float is now the nearest integer to the quotient.
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)x, (__m512i)about, (__m512i)ints(-modulus & 0xFFFF));
#else
  return x - (((Ints)about << 16) >> 16) * modulus;
#endif
}

// Whether no element of a mask, whose elements are 0 or -1, is set.
OPERATION bool none(Longs mask) {
#if defined(__AVX512DQ__)
  return _mm512_movepi64_mask((__m512i)mask) == 0;
#else
  int64_t set = 0;
  for (int i = 0; i < 8; i++) set |= mask[i];
  return set == 0;
#endif
}

// 2**exponents, which are in the normal range of float64.
INLINE Doubles powers(Longs exponents) { return (Doubles)((exponents + 1023) << 52); }

// The exponents of x > 0 by `frexp`.
INLINE Longs frexp_exponents(Doubles x) {
  const Longs subnormal = x < 0x1p-1022;
  const Doubles scaled = subnormal ? x * 0x1p64 : x;
  return ((Longs)scaled >> 52) - 1022 - (subnormal & 64);
}

// Eight vectors as a matrix, transposed.
INLINE void transpose(Longs (&x)[8]) {
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    const Longs a = x[i], b = x[i + 1];
    x[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
    x[i + 1] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 4
  for (int n = 0; n < 4; n++) {
    const int i = n / 2 * 4 + n % 2;
    const Longs a = x[i], b = x[i + 2];
    x[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    x[i + 2] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const Longs a = x[i], b = x[i + 4];
    x[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    x[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

#if defined(__AVX512F__)
INLINE __mmask8 first_of_eight(int64_t count) {
  return (__mmask8)(count >= 8 ? 255 : count <= 0 ? 0 : (1 << count) - 1);
}
#endif

// Eight neighbours; zero in place of those beyond the first `count`, which are not read.
OPERATION Doubles some_neighbours(const double* x, int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_pd(first_of_eight(count), x);
#else
  Doubles values = {};
  for (int i = 0; i < 8 && i < count; i++) values[i] = x[i];
  return values;
#endif
}

OPERATION Doubles some_neighbours(const float* x, int64_t count) {
#if defined(__AVX512VL__)
  return _mm512_cvtps_pd(_mm256_maskz_loadu_ps(first_of_eight(count), x));
#else
  Doubles values = {};
  for (int i = 0; i < 8 && i < count; i++) values[i] = x[i];
  return values;
#endif
}

OPERATION Longs some_integers(const int64_t* x, int64_t count) {
#if defined(__AVX512F__)
  return (Longs)_mm512_maskz_loadu_epi64(first_of_eight(count), x);
#else
  Longs values = {};
  for (int i = 0; i < 8 && i < count; i++) values[i] = x[i];
  return values;
#endif
}

// The first `count` of eight values, at `to`.
OPERATION void store_some(double* to, Doubles values, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_pd(to, first_of_eight(count), values);
#else
  if (count > 0) memcpy(to, &values, 8 * (count < 8 ? count : 8));
#endif
}

OPERATION void store_some(float* to, Doubles values, int64_t count) {
#if defined(__AVX512VL__)
  _mm256_mask_storeu_ps(to, first_of_eight(count), _mm512_cvtpd_ps(values));
#else
  const HalfFloats singles = __builtin_convertvector(values, HalfFloats);
  if (count > 0) memcpy(to, &singles, 4 * (count < 8 ? count : 8));
#endif
}

OPERATION void store_some(int64_t* to, Longs values, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_epi64(to, first_of_eight(count), (__m512i)values);
#else
  if (count > 0) memcpy(to, &values, 8 * (count < 8 ? count : 8));
#endif
}

// IEEE 754's default environment in this thread for the length of a block: another library may have changed rounding,
// or let subnormals be flushed to zero, also in a pool's threads.
class DefaultEnvironment {
 public:
#if defined(__x86_64__)
  DefaultEnvironment() : found(_mm_getcsr()) { _mm_setcsr(0x1F80); }
  ~DefaultEnvironment() { _mm_setcsr(found); }

 private:
  unsigned found;
#elif defined(__aarch64__)
  DefaultEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(found));
    asm volatile("msr fpcr, %0" ::"r"(uint64_t{0}));
  }
  ~DefaultEnvironment() { asm volatile("msr fpcr, %0" ::"r"(found)); }

 private:
  uint64_t found;
#endif
};

}  // namespace cpu
