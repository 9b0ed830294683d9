// Operations on vectors by AVX512 with VNNI.
#pragma once

namespace cpu {

// a b + c. Callers need no fused rounding: their products are exact.
OPERATION Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
  return _mm512_fmadd_pd(a, b, c);
}

OPERATION Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}

// What rounding left off of a product: a b - product, which is exact where it does not underflow.
OPERATION Doubles product_error(Doubles a, Doubles b, Doubles product) { return _mm512_fmsub_pd(a, b, product); }

// Bytes as integers, and the lower bytes of integers. GCC 12 compiles these conversions element by element.
OPERATION Ints widened(QuarterBytes bytes) {
  return (Ints)_mm512_cvtepi8_epi32((__m128i)bytes);
}

OPERATION QuarterBytes narrowed(Ints integers) {
  return (QuarterBytes)_mm512_cvtepi32_epi8((__m512i)integers);
}

// The lower, and the upper, halves of sixteen integers.
OPERATION Ints lower_halves(Longs a, Longs b) {
  return __builtin_shufflevector((Ints)a, (Ints)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

OPERATION Ints upper_halves(Longs a, Longs b) {
  return __builtin_shufflevector((Ints)a, (Ints)b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// Every other one of sixteen numbers, from the first, or the second, on.
OPERATION Doubles even_ones(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
OPERATION Doubles odd_ones(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }

// Pairs of a number of a and one of b: the first four, and the last four.
OPERATION Doubles first_pairs(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
OPERATION Doubles last_pairs(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }

// Eight lanes, the two of each pair exchanged.
template <typename Vector> OPERATION Vector exchanged(Vector x) {
  return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
}

// Four vectors of integers in [-128, 127] as bytes. Lanes of 128 bits have those of four integers, and of each vector
// one after the other: x0[0], x0[1], x0[2], x0[3], x1[0], ..., x3[3].
OPERATION Bytes packed(Ints x0, Ints x1, Ints x2, Ints x3) {
  const __m512i low = _mm512_packs_epi32((__m512i)x0, (__m512i)x1), high = _mm512_packs_epi32((__m512i)x2, (__m512i)x3);
  return (Bytes)_mm512_packs_epi16(low, high);
}

// The bytes of each lane of 128 bits as a matrix of 4 x 4, transposed.
OPERATION Bytes transposed(Bytes bytes) {
  const __m128i places = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return (Bytes)_mm512_shuffle_epi8((__m512i)bytes, _mm512_broadcast_i32x4(places));
}

// Sixteen integers as numbers, in two halves.
struct Sixteen {
  Doubles halves[2];
};

OPERATION Sixteen sixteen(Ints all) {
  const __m512i of = (__m512i)all;
  return {{_mm512_cvtepi32_pd(_mm512_castsi512_si256(of)), _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(of, 1))}};
}

// Adds to each of 16 sums the products of four unsigned bytes of `bytes` and the four signed bytes of `word`.
OPERATION void add_dot_products(Ints& sums, Bytes bytes, int32_t word) {
  // An intrinsic would do, but GCC 12 copies and spills the sums of a tile around it, which takes 2.6 times as long.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(ints(word)));
}

// The dot products alone, of the bytes of each lane and of `words`.
OPERATION Ints dot_products(Ints start, Ints bytes, Ints words) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)start, (__m512i)bytes, (__m512i)words);
}

// For each integer, its lower half times `low` plus its upper half times `high`, halves and factors as signed integers.
OPERATION Ints dot_products_of_halves(Ints x, int32_t low, int32_t high) {
  return (Ints)_mm512_madd_epi16((__m512i)x, (__m512i)ints((int32_t)((uint32_t)high << 16 | (uint32_t)(low & 0xFFFF))));
}

// x rounded to the nearest integer, ties to even, in the default environment.
OPERATION Doubles nearest(Doubles x) {
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// The integers nearest to x, ties to even, which are below 2**63.
OPERATION Longs nearest_integers(Doubles x) {
  return (Longs)_mm512_cvt_roundpd_epi64(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Those of sixteen numbers below 2**31, in two halves of float64, or in float32.
OPERATION Ints nearest_integers(Doubles x, Doubles y) {
  const __m256i low = _mm512_cvt_roundpd_epi32(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i high = _mm512_cvt_roundpd_epi32(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return (Ints)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

OPERATION Ints nearest_integers(Floats x) {
  return (Ints)_mm512_cvt_roundps_epi32(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// The least integers that are not below x.
OPERATION Doubles upward(Doubles x) {
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

// x with zero in place of NaN and Inf.
OPERATION Doubles finite(Doubles x) {
  return _mm512_fixupimm_pd(x, x, _mm512_set1_epi64(0x00880088), 0);  // +0 for the classes 0, 1, 4 and 5
}

OPERATION Floats finite(Floats x) {
  return _mm512_fixupimm_ps(x, x, _mm512_set1_epi32(0x00880088), 0);
}

// The residue of abs(x) < 2**23, an integer, modulo an odd modulus of at most 255: the one of least absolute value.
//
// x / modulus is at least 1 / (2 modulus) away from the middle of two integers, and is known to 2**-9.
OPERATION Ints least_residue(Ints x, int32_t modulus, float inverse) {
  const Floats about = multiply_add(converted<Floats>(x), floats(inverse), floats(0x1.8p23f));
  // The lower half of each float is now the nearest integer to the quotient.
  return (Ints)_mm512_dpwssd_epi32((__m512i)x, (__m512i)about, (__m512i)ints(-modulus & 0xFFFF));
}

// Four words of each of eight or sixteen rows, at `to`, words `step` bytes apart: of four rows in each vector, which
// has their first words, then their second ones.
OPERATION void store_words(int8_t* to, int64_t step, const Bytes (&rows)[2]) {
  const Longs a = (Longs)rows[0], b = (Longs)rows[1];
  store(to, __builtin_shufflevector(a, b, 0, 1, 8, 9, 2, 3, 10, 11));
  store(to + 2 * step, __builtin_shufflevector(a, b, 4, 5, 12, 13, 6, 7, 14, 15));
}

OPERATION void store_words(int8_t* to, int64_t step, const Bytes (&rows)[4]) {
  const Longs a = (Longs)rows[0], b = (Longs)rows[1], c = (Longs)rows[2], d = (Longs)rows[3];
  const Longs ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
  const Longs cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 8, 9, 10, 11);
  const Longs ab_last = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  const Longs cd_last = __builtin_shufflevector(c, d, 4, 5, 6, 7, 12, 13, 14, 15);
  store(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5, 8, 9, 12, 13));
  store(to + step, __builtin_shufflevector(ab, cd, 2, 3, 6, 7, 10, 11, 14, 15));
  store(to + 2 * step, __builtin_shufflevector(ab_last, cd_last, 0, 1, 4, 5, 8, 9, 12, 13));
  store(to + 3 * step, __builtin_shufflevector(ab_last, cd_last, 2, 3, 6, 7, 10, 11, 14, 15));
}

// Whether no element of a mask, whose elements are 0 or -1, is set.
OPERATION bool none(Longs mask) {
  return _mm512_movepi64_mask((__m512i)mask) == 0;
}

// Eight vectors as a matrix, transposed.
OPERATION void transpose(Longs (&x)[8]) {
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

OPERATION __mmask8 first_of_eight(int64_t count) {
  return (__mmask8)(count >= 8 ? 255 : count <= 0 ? 0 : (1 << count) - 1);
}

// Eight neighbours; zero in place of those beyond the first `count`, which are not read.
OPERATION Doubles some_neighbours(const double* x, int64_t count) {
  return _mm512_maskz_loadu_pd(first_of_eight(count), x);
}

OPERATION Doubles some_neighbours(const float* x, int64_t count) {
  return _mm512_cvtps_pd(_mm256_maskz_loadu_ps(first_of_eight(count), x));
}

// Sixteen of them.
OPERATION Floats some_floats(const float* x, int64_t count) {
  return _mm512_maskz_loadu_ps((__mmask16)(count >= 16 ? 0xFFFF : count <= 0 ? 0 : (1 << count) - 1), x);
}

OPERATION Longs some_integers(const int64_t* x, int64_t count) {
  return (Longs)_mm512_maskz_loadu_epi64(first_of_eight(count), x);
}

// The first `count` of eight values, at `to`.
OPERATION void store_some(double* to, Doubles values, int64_t count) {
  _mm512_mask_storeu_pd(to, first_of_eight(count), values);
}

OPERATION void store_some(float* to, Doubles values, int64_t count) {
  _mm256_mask_storeu_ps(to, first_of_eight(count), _mm512_cvtpd_ps(values));
}

OPERATION void store_some(int64_t* to, Longs values, int64_t count) {
  _mm512_mask_storeu_epi64(to, first_of_eight(count), (__m512i)values);
}

}  // namespace cpu
