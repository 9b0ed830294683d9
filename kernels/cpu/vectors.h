// Vectors of 64 bytes, and operations on them.
//
// Where registers have 64 bytes they are vectors of GCC and Clang, elsewhere several registers (registers.h). Code that
// is for all processors reads elements by x[i], writes them by `set`, and chooses by `select`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// What is an instruction or a few for each register, and what has such operations in loops. The latter are functions of
// their own where vectors are several registers: to compile them into one another takes a minute, and gains little.
// Code for any processor is there for its bits: there all is left to the compiler.
#if defined(__AVX512VNNI__)
#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))
#else
#define INLINE static inline
#define INLINE_MEMBER inline
#endif
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_MATMUL_INT8)
#define OPERATION static inline __attribute__((always_inline))
#define OPERATION_MEMBER inline __attribute__((always_inline))
#else
#define OPERATION static inline
#define OPERATION_MEMBER inline
#endif

#if !defined(__AVX512VNNI__)
#include "registers.h"
#endif

namespace cpu {

#if defined(__AVX512VNNI__)
typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));
typedef uint64_t UnsignedLongs __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(64)));
typedef uint32_t UnsignedInts __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef int8_t Bytes __attribute__((vector_size(64)));
typedef uint8_t UnsignedBytes __attribute__((vector_size(64)));
typedef float HalfFloats __attribute__((vector_size(32)));
typedef int32_t HalfInts __attribute__((vector_size(32)));
typedef int8_t QuarterBytes __attribute__((vector_size(16)));

template <typename Vector, typename Scalar> OPERATION Vector all(Scalar x) { return x - Vector{}; }
template <typename Mask, typename Vector> OPERATION Vector select(Mask mask, Vector x, Vector y) {
  return mask ? x : y;
}
template <typename Vector, typename Scalar> OPERATION void set(Vector& x, int i, Scalar value) { x[i] = value; }
template <typename Other, typename Vector> OPERATION Other converted(Vector x) {
  return __builtin_convertvector(x, Other);
}
#else
typedef Registers<double, 64> Doubles;
typedef Registers<int64_t, 64> Longs;
typedef Registers<uint64_t, 64> UnsignedLongs;
typedef Registers<float, 64> Floats;
typedef Registers<int32_t, 64> Ints;
typedef Registers<uint32_t, 64> UnsignedInts;
typedef Registers<int8_t, 64> Bytes;
typedef Registers<uint8_t, 64> UnsignedBytes;
typedef Registers<float, 32> HalfFloats;
typedef Registers<int32_t, 32> HalfInts;
typedef Registers<int8_t, 16> QuarterBytes;

template <typename Vector, typename Scalar> OPERATION void set(Vector& x, int i, Scalar value) { x.set(i, value); }
#endif

OPERATION Doubles doubles(double x) { return all<Doubles>(x); }
OPERATION Longs longs(int64_t x) { return all<Longs>(x); }
OPERATION Floats floats(float x) { return all<Floats>(x); }
OPERATION Ints ints(int32_t x) { return all<Ints>(x); }
OPERATION UnsignedInts unsigned_ints(uint32_t x) { return all<UnsignedInts>(x); }

template <typename Vector> OPERATION Vector load(const void* from) {
  Vector x;
  memcpy(&x, from, sizeof x);
  return x;
}

template <typename Vector> OPERATION void store(void* to, Vector x) { memcpy(to, &x, sizeof x); }

}  // namespace cpu

#if defined(__AVX512VNNI__)
#include "operations_avx512.h"
#else
#include "operations_registers.h"
#endif

namespace cpu {

// 2**exponents, which are in the normal range of float64.
OPERATION Doubles powers(Longs exponents) { return (Doubles)((exponents + 1023) << 52); }

// The exponents of x > 0 by `frexp`.
OPERATION Longs frexp_exponents(Doubles x) {
  const Longs subnormal = x < 0x1p-1022;
  const Doubles scaled = select(subnormal, x * 0x1p64, x);
  return ((Longs)scaled >> 52) - 1022 - (subnormal & 64);
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
