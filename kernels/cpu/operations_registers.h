// Operations on vectors of several registers: by AVX2 with VNNI, by NEON, or by what every processor has.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace cpu {

// Each part's elements converted to another type, in order.
template <typename Other, typename Vector> OPERATION Other in_parts(const Vector& x) {
  constexpr int FROM = sizeof(x[0]), TO = sizeof(Other{}[0]);
  // As many elements at a time as a part of the vector with the longer elements has.
  constexpr int COUNT = (FROM > TO ? Vector::EACH / FROM : Other::EACH / TO);
  typedef decltype(Vector{}[0]) X;
  typedef decltype(Other{}[0]) Y;
  typedef X From __attribute__((vector_size(COUNT * FROM)));
  typedef Y To __attribute__((vector_size(COUNT * TO)));
  Other of;
  for (int i = 0; i < (int)(sizeof(x) / FROM) / COUNT; i++) {
    From some;
    memcpy(&some, (const char*)&x + i * COUNT * FROM, sizeof some);
    const To same = __builtin_convertvector(some, To);
    memcpy((char*)&of + i * COUNT * TO, &same, sizeof same);
  }
  return of;
}

template <typename Other, typename Vector> struct Conversion {
  static OPERATION_MEMBER Other of(const Vector& x) { return in_parts<Other>(x); }
};

// Integers below 2**63 in magnitude. There is no such instruction before AVX512: the nearest multiple of 2**32 and what
// is left are each added to a number whose unit is 1.
template <> struct Conversion<Longs, Doubles> {
  static OPERATION_MEMBER Longs of(const Doubles& x) {
    const Doubles unit = doubles(0x1.8p52);
    const Doubles high = x * 0x1p-32 + unit, rest = x - (high - unit) * 0x1p32;
    return (((Longs)high - (Longs)unit) << 32) + ((Longs)(rest + unit) - (Longs)unit);
  }
};

template <typename Other, typename Vector> OPERATION Other converted(const Vector& x) {
  return Conversion<Other, Vector>::of(x);
}

// a b + c. Callers need no fused rounding: their products are exact.
template <typename Vector> OPERATION Vector multiply_add(const Vector& a, const Vector& b, const Vector& c) {
  return a * b + c;
}

// What rounding left off of a product: a b - product, which is exact where it does not underflow. Without fused
// operations (T. J. Dekker, 1971) it is NaN where an element is beyond 2**996.
OPERATION Doubles product_error(Doubles a, Doubles b, Doubles product) {
#if defined(__AVXVNNI__)
  for (int i = 0; i < Doubles::PARTS; i++) product.parts[i] = _mm256_fmsub_pd(a.parts[i], b.parts[i], product.parts[i]);
  return product;
#elif defined(__aarch64__)
  for (int i = 0; i < Doubles::PARTS; i++) product.parts[i] = vfmaq_f64(-product.parts[i], a.parts[i], b.parts[i]);
  return product;
#else
  const Doubles far_a = a * 0x1.0000002p27, far_b = b * 0x1.0000002p27;
  const Doubles high_a = far_a - (far_a - a), high_b = far_b - (far_b - b), low_a = a - high_a, low_b = b - high_b;
  return low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b);
#endif
}

#if defined(__AVXVNNI__)

OPERATION Ints widened(QuarterBytes bytes) {
  const __m128i of = (__m128i)bytes.parts[0];
  return {{(Ints::Part)_mm256_cvtepi8_epi32(of), (Ints::Part)_mm256_cvtepi8_epi32(_mm_srli_si128(of, 8))}};
}

OPERATION QuarterBytes narrowed(Ints x) {
  const __m256i mask = _mm256_set1_epi32(255);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256((__m256i)x.parts[0], mask),
                                            _mm256_and_si256((__m256i)x.parts[1], mask));
  const __m256i in_order = _mm256_permute4x64_epi64(words, 0xD8);
  const __m128i low = _mm256_castsi256_si128(in_order), high = _mm256_extracti128_si256(in_order, 1);
  return {{(QuarterBytes::Part)_mm_packus_epi16(low, high)}};
}

template <int PLACES> OPERATION HalfInts some_halves(Longs x) {
  const __m256i of = (__m256i)_mm256_shuffle_ps((__m256)x.parts[0], (__m256)x.parts[1], PLACES);
  return {{(HalfInts::Part)_mm256_permute4x64_epi64(of, 0xD8)}};
}

OPERATION Ints lower_halves(Longs a, Longs b) {
  return {{some_halves<0x88>(a).parts[0], some_halves<0x88>(b).parts[0]}};
}
OPERATION Ints upper_halves(Longs a, Longs b) {
  return {{some_halves<0xDD>(a).parts[0], some_halves<0xDD>(b).parts[0]}};
}

OPERATION Bytes packed(Ints x0, Ints x1, Ints x2, Ints x3) {
  Bytes of;
  for (int i = 0; i < 2; i++) {
    const __m256i low = _mm256_packs_epi32((__m256i)x0.parts[i], (__m256i)x1.parts[i]);
    const __m256i high = _mm256_packs_epi32((__m256i)x2.parts[i], (__m256i)x3.parts[i]);
    of.parts[i] = (Bytes::Part)_mm256_packs_epi16(low, high);
  }
  return of;
}

OPERATION Bytes transposed(Bytes bytes) {
  const __m128i places = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m256i both = _mm256_broadcastsi128_si256(places);
  for (auto& part : bytes.parts) part = (Bytes::Part)_mm256_shuffle_epi8((__m256i)part, both);
  return bytes;
}

OPERATION Doubles nearest(Doubles x) {
  for (auto& part : x.parts) part = _mm256_round_pd(part, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return x;
}

OPERATION Doubles upward(Doubles x) {
  for (auto& part : x.parts) part = _mm256_round_pd(part, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  return x;
}

OPERATION Ints least_residue(Ints x, int32_t modulus, float inverse) {
  const Floats about = multiply_add(converted<Floats>(x), floats(inverse), floats(0x1.8p23f));
  // The lower half of each float is now the nearest integer to the quotient.
  const __m256i factor = _mm256_set1_epi32(modulus);
  for (int i = 0; i < 2; i++) x.parts[i] -= (Ints::Part)_mm256_madd_epi16((__m256i)about.parts[i], factor);
  return x;
}

typedef Ints::Part RegisterOfInts;
typedef Bytes::Part RegisterOfBytes;

constexpr int MOST_REGISTERS = 3;  // of the right panel, whose sums with four rows of the left one fit 16 registers

// sums + the products of four unsigned bytes and four signed bytes, for each of the integers.
OPERATION RegisterOfInts dot_product(RegisterOfInts sums, RegisterOfBytes bytes, RegisterOfInts words) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(bytes), "x"(words));
  return sums;
}

#else

OPERATION Ints widened(QuarterBytes bytes) { return in_parts<Ints>(bytes); }
OPERATION QuarterBytes narrowed(Ints x) { return in_parts<QuarterBytes>(x); }

OPERATION Ints lower_halves(Longs a, Longs b) {
  Ints of;
  for (int i = 0; i < 4; i++) {
    const Longs& x = i < 2 ? a : b;
    const Ints::Part first = (Ints::Part)x.parts[i % 2 * 2], second = (Ints::Part)x.parts[i % 2 * 2 + 1];
    of.parts[i] = __builtin_shufflevector(first, second, 0, 2, 4, 6);
  }
  return of;
}

OPERATION Ints upper_halves(Longs a, Longs b) { return lower_halves(a >> 32, b >> 32); }

OPERATION Bytes packed(Ints x0, Ints x1, Ints x2, Ints x3) {
  typedef int8_t Four __attribute__((vector_size(4)));
  Bytes of;
  for (int i = 0; i < 4; i++) {
#if defined(__aarch64__)
    const int16x8_t low = vcombine_s16(vmovn_s32((int32x4_t)x0.parts[i]), vmovn_s32((int32x4_t)x1.parts[i]));
    const int16x8_t high = vcombine_s16(vmovn_s32((int32x4_t)x2.parts[i]), vmovn_s32((int32x4_t)x3.parts[i]));
    of.parts[i] = (Bytes::Part)vcombine_s8(vmovn_s16(low), vmovn_s16(high));
#else
    const Four bytes[4] = {__builtin_convertvector(x0.parts[i], Four), __builtin_convertvector(x1.parts[i], Four),
                           __builtin_convertvector(x2.parts[i], Four), __builtin_convertvector(x3.parts[i], Four)};
    memcpy(&of.parts[i], bytes, 16);
#endif
  }
  return of;
}

OPERATION Bytes transposed(Bytes bytes) {
  for (auto& part : bytes.parts) {
    part = __builtin_shufflevector(part, part, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }
  return bytes;
}

OPERATION Doubles nearest(Doubles x) {
#if defined(__aarch64__)
  for (auto& part : x.parts) part = vrndnq_f64(part);
  return x;
#else
  const Doubles magnitude = (Doubles)((Longs)x & INT64_MAX);
  const Doubles unit = (Doubles)((Longs)doubles(0x1p52) | ((Longs)x & INT64_MIN));
  return select(magnitude < 0x1p52, (x + unit) - unit, x);
#endif
}

OPERATION Doubles upward(Doubles x) {
#if defined(__aarch64__)
  for (auto& part : x.parts) part = vrndpq_f64(part);
  return x;
#else
  const Doubles near = nearest(x);
  return select(near < x, near + 1.0, near);
#endif
}

OPERATION Ints least_residue(Ints x, int32_t modulus, float inverse) {
  const Floats about = multiply_add(converted<Floats>(x), floats(inverse), floats(0x1.8p23f));
  return x - (((Ints)about << 16) >> 16) * modulus;
}

typedef Ints::Part RegisterOfInts;
typedef Bytes::Part RegisterOfBytes;

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int MOST_REGISTERS = 4;
#else
constexpr int MOST_REGISTERS = 2;

// The products of neighbouring integers of 16 bits, added.
template <typename Shorts> OPERATION RegisterOfInts sums_of_pairs(Shorts x, Shorts y) {
#if defined(__SSE2__)
  return (RegisterOfInts)_mm_madd_epi16((__m128i)x, (__m128i)y);
#else
  const RegisterOfInts a = (RegisterOfInts)x, b = (RegisterOfInts)y;
  return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}
#endif

OPERATION RegisterOfInts dot_product(RegisterOfInts sums, RegisterOfBytes bytes, RegisterOfInts words) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return (RegisterOfInts)vusdotq_s32((int32x4_t)sums, (uint8x16_t)bytes, (int8x16_t)words);
#else
  // Products of bytes in pairs, of the first and third, and of the second and fourth one: sums of two fit 32 bits.
  typedef int16_t Shorts __attribute__((vector_size(16)));
  const Shorts b = (Shorts)bytes, w = (Shorts)words;
  return sums + sums_of_pairs(b & 255, w << 8 >> 8) + sums_of_pairs((b >> 8) & 255, w >> 8);
#endif
}

#endif

OPERATION Ints dot_products(Ints start, Ints bytes, Ints words) {
  for (int i = 0; i < Ints::PARTS; i++) {
    start.parts[i] = dot_product(start.parts[i], (RegisterOfBytes)bytes.parts[i], words.parts[i]);
  }
  return start;
}

OPERATION Ints dot_products_of_halves(Ints x, int32_t low, int32_t high) {
  return (x << 16 >> 16) * low + (x >> 16) * high;
}

OPERATION Longs nearest_integers(Doubles x) { return converted<Longs>(nearest(x)); }
OPERATION Ints nearest_integers(Doubles x, Doubles y) {
  const HalfInts halves[2] = {converted<HalfInts>(nearest(x)), converted<HalfInts>(nearest(y))};
  return load<Ints>(halves);
}

OPERATION Ints nearest_integers(Floats x) {
  HalfFloats halves[2];
  memcpy(halves, &x, sizeof halves);
  return nearest_integers(converted<Doubles>(halves[0]), converted<Doubles>(halves[1]));
}

OPERATION Doubles finite(Doubles x) { return (Doubles)((Longs)x & (x - x == 0)); }
OPERATION Floats finite(Floats x) { return (Floats)((Ints)x & (x - x == 0)); }

OPERATION bool none(Longs mask) {
  int64_t set = 0;
  for (int i = 0; i < 8; i++) set |= mask[i];
  return set == 0;
}

// Sixteen integers as numbers, in two halves.
struct Sixteen {
  Doubles halves[2];
};

OPERATION Sixteen sixteen(Ints all) {
  HalfInts halves[2];
  memcpy(halves, &all, sizeof halves);
  return {{converted<Doubles>(halves[0]), converted<Doubles>(halves[1])}};
}

// Elements of two vectors, by their numbers in both.
template <int... PLACES, typename Vector> OPERATION Vector picked(const Vector& a, const Vector& b) {
  constexpr int places[] = {PLACES...}, COUNT = sizeof...(PLACES);
  Vector of;
  for (int i = 0; i < COUNT; i++) of.set(i, places[i] < COUNT ? a[places[i]] : b[places[i] - COUNT]);
  return of;
}

OPERATION Doubles even_ones(Doubles a, Doubles b) { return picked<0, 2, 4, 6, 8, 10, 12, 14>(a, b); }
OPERATION Doubles odd_ones(Doubles a, Doubles b) { return picked<1, 3, 5, 7, 9, 11, 13, 15>(a, b); }
OPERATION Doubles first_pairs(Doubles a, Doubles b) { return picked<0, 8, 1, 9, 2, 10, 3, 11>(a, b); }
OPERATION Doubles last_pairs(Doubles a, Doubles b) { return picked<4, 12, 5, 13, 6, 14, 7, 15>(a, b); }
template <typename Vector> OPERATION Vector exchanged(Vector x) { return picked<1, 0, 3, 2, 5, 4, 7, 6>(x, x); }

OPERATION void transpose(Longs (&x)[8]) {
  int64_t from[8][8], to[8];
  memcpy(from, x, sizeof from);
  for (int i = 0; i < 8; i++) {
    for (int j = 0; j < 8; j++) to[j] = from[j][i];
    memcpy(&x[i], to, sizeof to);
  }
}

template <int N> OPERATION void store_words(int8_t* to, int64_t step, const Bytes (&rows)[N]) {
  for (int word = 0; word < 4; word++) {
    for (int j = 0; j < N; j++) memcpy(to + word * step + 16 * j, (const char*)&rows[j] + 16 * word, 16);
  }
}

template <typename Vector, typename Element> OPERATION Vector some_of(const Element* x, int64_t count) {
  Vector values = {};
  if (count >= 8) {
    if constexpr (sizeof(Element) == 8) memcpy(&values, x, sizeof values);
    else {
      HalfFloats singles;
      memcpy(&singles, x, sizeof singles);
      values = converted<Vector>(singles);
    }
  } else {
    for (int i = 0; i < count; i++) values.set(i, x[i]);
  }
  return values;
}

OPERATION Doubles some_neighbours(const double* x, int64_t count) { return some_of<Doubles>(x, count); }
OPERATION Doubles some_neighbours(const float* x, int64_t count) { return some_of<Doubles>(x, count); }
OPERATION Longs some_integers(const int64_t* x, int64_t count) { return some_of<Longs>(x, count); }

OPERATION Floats some_floats(const float* x, int64_t count) {
  Floats values = {};
  if (count >= 16) memcpy(&values, x, sizeof values);
  else for (int i = 0; i < count; i++) values.set(i, x[i]);
  return values;
}

OPERATION void store_some(double* to, Doubles values, int64_t count) {
  if (count >= 8) memcpy(to, &values, 64);
  else if (count > 0) memcpy(to, &values, 8 * count);
}

OPERATION void store_some(float* to, Doubles values, int64_t count) {
  const HalfFloats singles = converted<HalfFloats>(values);
  if (count >= 8) memcpy(to, &singles, 32);
  else if (count > 0) memcpy(to, &singles, 4 * count);
}

OPERATION void store_some(int64_t* to, Longs values, int64_t count) {
  if (count >= 8) memcpy(to, &values, 64);
  else if (count > 0) memcpy(to, &values, 8 * count);
}

}  // namespace cpu
